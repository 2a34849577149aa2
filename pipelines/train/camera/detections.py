"""Rows of the network's output to boxes, as the runtime does it for `type: yolox`."""

from dataclasses import dataclass

import numpy as np

from cells import grid_cells
from preprocess import input_scale

NMS_THRESHOLD = 0.45


@dataclass(frozen=True)
class Detections:
    """Boxes by falling score; `edges` float32 (K, 4): left, top, right, bottom in pixels of the image."""

    labels: np.ndarray
    scores: np.ndarray
    edges: np.ndarray


def decode(output: np.ndarray, score_threshold: float, image: np.ndarray) -> Detections:
    """The boxes in an image by its output (1, cells, 10), those whose score, objectness times class, is above the
    threshold; of boxes of a class that overlap by more than `NMS_THRESHOLD`, the best. Clipped to the image.
    """
    rows, cells = output[0], grid_cells()
    scores = rows[:, 4:5] * rows[:, 5:]
    middles = (rows[:, :2] + cells[:, :2]) * cells[:, 2:]
    halves = np.exp(rows[:, 2:4]) * cells[:, 2:] / 2
    edges = np.concatenate([middles - halves, middles + halves], axis=1) / np.float32(input_scale(image))

    cell, label = np.nonzero(scores > score_threshold)
    order = np.argsort(-scores[cell, label], kind="stable")
    cell, label = cell[order], label[order]
    kept: list[int] = []
    for index in range(len(cell)):
        rivals = [other for other in kept if label[other] == label[index]]
        if not rivals or _pixel_overlaps(edges[cell[rivals]], edges[cell[index]]).max() <= NMS_THRESHOLD:
            kept.append(index)
    height, width = image.shape[:2]
    in_image = np.clip(edges[cell[kept]], 0, np.float32([width, height, width, height]))
    return Detections(label[kept], scores[cell[kept], label[kept]], in_image)


def overlaps(boxes: np.ndarray, box: np.ndarray) -> np.ndarray:
    """Intersection over union of each of the boxes with one."""
    shared = _area(np.maximum(boxes[:, :2], box[:2]), np.minimum(boxes[:, 2:], box[2:]))
    return shared / (_area(boxes[:, :2], boxes[:, 2:]) + _area(box[:2], box[2:]) - shared)


def _pixel_overlaps(boxes: np.ndarray, box: np.ndarray) -> np.ndarray:
    # The public demo counts the pixels at the edges as part of a box.
    wider = np.array([0, 0, 1, 1], np.float32)
    return overlaps(boxes + wider, box + wider)


def _area(least: np.ndarray, most: np.ndarray) -> np.ndarray:
    return np.clip(most - least, 0, None).prod(axis=-1)
