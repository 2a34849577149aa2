"""A frame as training sees it: a part of it, mirrored, in other light, through a worse camera."""

from dataclasses import dataclass

import cv2
import numpy as np

from frames import BOX, MIN_TRAINED_HEIGHT_PX, MIN_VISIBLE_SHARE, Frame, height_px
from preprocess import PAD_VALUE, input_scale, resized

# Most steps see windows instead of whole frames: most of a frame is sky and road, and takes as long to learn from.
WINDOW_HEIGHT_PX = 224
WINDOW_WIDTH_PX = 320
MIN_ZOOM, MAX_ZOOM = 0.6, 1.5
MAX_STRETCH = 0.06
# How often a window is laid around an object, not just anywhere.
AROUND_AN_OBJECT = 0.85
# An object of which the window leaves less is not learnt.
MIN_SHARE_IN_WINDOW = 0.3


@dataclass(frozen=True)
class Sample:
    """image: uint8 (height, width, 3), BGR.
    edges: float32 (K, 4) left, top, right, bottom in pixels of `image`.
    labels: int64 (K).
    learnt: bool (K); the others are neither to be found nor to be denied.
    """

    image: np.ndarray
    edges: np.ndarray
    labels: np.ndarray
    learnt: np.ndarray


def whole(frame: Frame, rng: np.random.Generator) -> Sample:
    """The whole frame, as the deployed network sees it but for mirroring and light."""
    scale = input_scale(frame.image)
    affine = np.array([[scale, 0, 0], [0, scale, 0]])
    return _disguised(_sample(frame, resized(frame.image), affine), rng)


def window(frame: Frame, rng: np.random.Generator) -> Sample:
    """A window of the frame, larger or smaller than life."""
    zoom = input_scale(frame.image) * np.exp(rng.uniform(np.log(MIN_ZOOM), np.log(MAX_ZOOM)))
    zooms = zoom * np.exp(rng.uniform(-MAX_STRETCH, MAX_STRETCH, 2))
    size = np.array([WINDOW_WIDTH_PX, WINDOW_HEIGHT_PX])
    zoomed = zooms * frame.image.shape[1::-1]
    corner = (zoomed - size) * rng.random(2)
    box = _any_object(frame.boxes, rng)
    if box is not None and rng.random() < AROUND_AN_OBJECT:
        middle = zooms * (box[[BOX.LEFT, BOX.TOP]] + box[[BOX.RIGHT, BOX.BOTTOM]]) / 2
        corner = middle - size * rng.uniform(0.1, 0.9, 2)
        corner = np.clip(corner, np.minimum(0, zoomed - size), np.maximum(0, zoomed - size))
    affine = np.array([[zooms[0], 0, -corner[0]], [0, zooms[1], -corner[1]]])
    return _disguised(_sample(frame, _warped(frame.image, affine), affine), rng)


def _any_object(boxes: np.ndarray, rng: np.random.Generator) -> np.ndarray | None:
    """An object that can be learnt, of any class with the same chance, so that rare ones are seen more often."""
    boxes = boxes[(boxes[:, BOX.VISIBLE_SHARE] >= MIN_VISIBLE_SHARE) & (height_px(boxes) >= MIN_TRAINED_HEIGHT_PX)]
    if len(boxes) == 0:
        return None
    boxes = boxes[boxes[:, BOX.LABEL] == rng.choice(np.unique(boxes[:, BOX.LABEL]))]
    return boxes[rng.integers(len(boxes))]


def _warped(image: np.ndarray, affine: np.ndarray) -> np.ndarray:
    # OpenCV maps the middles of pixels, boxes have their edges mapped.
    by_middles = affine.copy()
    by_middles[:, 2] += 0.5 * (affine[:, 0] + affine[:, 1]) - 0.5
    size = (WINDOW_WIDTH_PX, WINDOW_HEIGHT_PX)
    return cv2.warpAffine(image, by_middles, size, flags=cv2.INTER_LINEAR, borderValue=(PAD_VALUE,) * 3)


def _sample(frame: Frame, image: np.ndarray, affine: np.ndarray) -> Sample:
    """`image`, which `affine` made of the frame's, and the objects in it."""
    boxes = frame.boxes
    columns = [0, 1, 0, 1]
    unclipped = boxes[:, [BOX.LEFT, BOX.TOP, BOX.RIGHT, BOX.BOTTOM]] * affine[columns, columns] + affine[columns, 2]
    edges = np.clip(unclipped, 0, np.array(image.shape)[[1, 0, 1, 0]])
    sides, unclipped_sides = edges[:, 2:] - edges[:, :2], unclipped[:, 2:] - unclipped[:, :2]
    kept = sides.prod(axis=1) / np.maximum(unclipped_sides.prod(axis=1), 1e-6)
    learnt = (
        (boxes[:, BOX.VISIBLE_SHARE] >= MIN_VISIBLE_SHARE)
        & (kept >= MIN_SHARE_IN_WINDOW)
        & (sides[:, 1] >= MIN_TRAINED_HEIGHT_PX * input_scale(frame.image))
    )
    inside = np.all(sides > 0, axis=1)
    return Sample(
        np.ascontiguousarray(image[:, :, ::-1]),
        edges[inside].astype(np.float32),
        boxes[inside, BOX.LABEL].astype(np.int64),
        learnt[inside],
    )


def _disguised(sample: Sample, rng: np.random.Generator) -> Sample:
    """The sample in other light and half the time mirrored."""
    image, edges = _other_light(sample.image, rng), sample.edges
    if rng.random() < 0.5:
        image = np.ascontiguousarray(image[:, ::-1])
        edges = edges.copy()
        edges[:, [0, 2]] = image.shape[1] - sample.edges[:, [2, 0]]
    return Sample(image, edges, sample.labels, sample.learnt)


def _other_light(image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Contrast, brightness, the balance of the colours; then blur, noise and compression, each now and then."""
    gains = np.exp(rng.normal(0, 0.12) + rng.normal(0, 0.05, 3))
    levels = np.arange(256)[:, None] * gains + rng.normal(0, 8)
    table = 255 * (np.clip(levels, 0, 255) / 255) ** np.exp(rng.normal(0, 0.12))
    image = cv2.LUT(image, np.rint(table).astype(np.uint8)[None])
    if rng.random() < 0.15:
        image = cv2.GaussianBlur(image, (3, 3), rng.uniform(0.4, 1.0))
    if rng.random() < 0.3:
        noise = rng.integers(0, 256, image.shape, np.uint8).astype(np.float32) - 127.5
        image = np.clip(image + noise * rng.uniform(0.01, 0.08), 0, 255).astype(np.uint8)
    if rng.random() < 0.2:
        _, packed = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, int(rng.integers(40, 96))])
        image = cv2.imdecode(packed, cv2.IMREAD_COLOR)
    return image
