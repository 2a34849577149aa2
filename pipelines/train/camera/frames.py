"""Simulated camera frames on disk, as `sensorium sim frames` writes them, and what of their objects counts.

A folder holds:

- images.npy  uint8 (N, height, width, 3), RGB
- boxes.npy   float32 (M, 8), columns as `BOX` names them, in pixels of the image
- starts.npy  int64 (N + 1): frame n owns the boxes starts[n] to starts[n + 1]
- meta.json   how the frames were made
"""

import json
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

import numpy as np

CLASS_NAMES = ("CAR", "TRUCK", "BUS", "BICYCLE", "PEDESTRIAN")
PEDESTRIAN = CLASS_NAMES.index("PEDESTRIAN")

# Of objects that are hidden further than this, nobody could tell where they end.
MIN_VISIBLE_SHARE = 0.25
# Lower objects are not trained on.
MIN_TRAINED_HEIGHT_PX = 8.0
# Lower objects are not counted, neither as missed nor as found.
MIN_COUNTED_HEIGHT_PX = 12.0
MIN_COUNTED_PEDESTRIAN_PX = 20.0


class BOX(IntEnum):
    """Columns of a box: its edges, clipped to the image; its class; what is known of how it is seen."""

    LEFT = 0
    TOP = 1
    RIGHT = 2
    BOTTOM = 3
    LABEL = 4
    VISIBLE_SHARE = 5
    DISTANCE_M = 6
    ID = 7


@dataclass(frozen=True)
class Frame:
    """An RGB image and the objects in it."""

    image: np.ndarray
    boxes: np.ndarray


class FrameFolder:
    """The frames of a folder, read as they are asked for."""

    def __init__(self, folder: Path) -> None:
        self._images = np.load(folder / "images.npy", mmap_mode="r")
        self._boxes = np.load(folder / "boxes.npy")
        self._starts = np.load(folder / "starts.npy")
        self.meta = json.loads((folder / "meta.json").read_text())
        if len(self._starts) != len(self._images) + 1:
            raise ValueError(f"{folder}: {len(self._images)} images, but box ranges of {len(self._starts) - 1}")

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int) -> Frame:
        return Frame(
            np.asarray(self._images[index]),
            self._boxes[self._starts[index] : self._starts[index + 1]],
        )


def height_px(boxes: np.ndarray) -> np.ndarray:
    """Heights of boxes."""
    return boxes[:, BOX.BOTTOM] - boxes[:, BOX.TOP]


def is_counted(boxes: np.ndarray) -> np.ndarray:
    """Which objects have to be found: those that are seen well and are tall enough in the image."""
    least = np.where(boxes[:, BOX.LABEL] == PEDESTRIAN, MIN_COUNTED_PEDESTRIAN_PX, MIN_COUNTED_HEIGHT_PX)
    return (boxes[:, BOX.VISIBLE_SHARE] >= MIN_VISIBLE_SHARE) & (height_px(boxes) >= least)
