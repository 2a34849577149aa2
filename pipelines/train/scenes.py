"""Simulated scenes on disk, as `sensorium sim scenes` writes them, and how a scene is turned and mirrored.

A folder holds shards. For each shard NNNN:

- shard_NNNN.points.npy         float32 (N, 4): x, y, z in metres, time_lag in seconds; the current sweep first
- shard_NNNN.point_offsets.npy  int64 (S + 1): scene s owns the points offsets[s] to offsets[s + 1]
- shard_NNNN.boxes.npy          float32 (M, 11), columns as `BOX` names them
- shard_NNNN.box_offsets.npy    int64 (S + 1), likewise for boxes
"""

from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

import numpy as np

CLASS_NAMES = ("CAR", "TRUCK", "BUS", "BICYCLE", "PEDESTRIAN")
PEDESTRIAN = CLASS_NAMES.index("PEDESTRIAN")

# Objects that fewer points fell on are neither trained on nor counted: nobody could tell them from clutter.
MIN_POINTS = 5


class BOX(IntEnum):
    """Columns of a box: its middle, its size, its heading (counter-clockwise from x), its speed over ground."""

    X = 0
    Y = 1
    Z = 2
    LENGTH = 3
    WIDTH = 4
    HEIGHT = 5
    YAW = 6
    VX = 7
    VY = 8
    LABEL = 9
    NUM_POINTS = 10


@dataclass(frozen=True)
class Scene:
    """Two sweeps in the frame of the later one, and the objects in it."""

    points: np.ndarray
    boxes: np.ndarray


class SceneFolder:
    """The scenes of a folder, read as they are asked for."""

    def __init__(self, folder: Path) -> None:
        self._shards = []
        self._scenes: list[tuple[int, int]] = []
        for points_path in sorted(folder.glob("shard_*.points.npy")):
            stem = points_path.name.removesuffix(".points.npy")
            point_offsets = np.load(folder / f"{stem}.point_offsets.npy")
            box_offsets = np.load(folder / f"{stem}.box_offsets.npy")
            self._shards.append(
                (
                    np.load(points_path, mmap_mode="r"),
                    point_offsets,
                    np.load(folder / f"{stem}.boxes.npy"),
                    box_offsets,
                )
            )
            self._scenes += [(len(self._shards) - 1, index) for index in range(len(point_offsets) - 1)]
        if not self._scenes:
            raise FileNotFoundError(f"no shard_*.points.npy in {folder}: write some with `sensorium sim scenes`")

    def __len__(self) -> int:
        return len(self._scenes)

    def __getitem__(self, index: int) -> Scene:
        shard, scene = self._scenes[index]
        points, point_offsets, boxes, box_offsets = self._shards[shard]
        return Scene(
            np.asarray(points[point_offsets[scene] : point_offsets[scene + 1]]),
            boxes[box_offsets[scene] : box_offsets[scene + 1]],
        )


def augmented(scene: Scene, rng: np.random.Generator) -> Scene:
    """The scene turned by up to 45 degrees, half the time by 180 more, and half the time mirrored."""
    angle = rng.uniform(-np.pi / 4, np.pi / 4) + np.pi * rng.integers(2)
    mirror = -1.0 if rng.integers(2) else 1.0
    points, boxes = scene.points.copy(), scene.boxes.copy()
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]], np.float32)
    turn[:, 1] *= mirror
    points[:, :2] = scene.points[:, :2] @ turn.T
    boxes[:, [BOX.X, BOX.Y]] = scene.boxes[:, [BOX.X, BOX.Y]] @ turn.T
    boxes[:, [BOX.VX, BOX.VY]] = scene.boxes[:, [BOX.VX, BOX.VY]] @ turn.T
    boxes[:, BOX.YAW] = mirror * scene.boxes[:, BOX.YAW] + angle
    return Scene(points, boxes)
