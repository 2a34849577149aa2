"""What the heads should say of a scene, in the conventions that Autoware's CenterPoint decoder reads."""

from dataclasses import dataclass

import numba
import numpy as np

from pillars import GRID, RANGE_MIN, VOXEL_M
from scenes import BOX, CLASS_NAMES, MIN_POINTS, PEDESTRIAN

DOWNSAMPLE = 2
CELL_M = VOXEL_M * DOWNSAMPLE
MAP = GRID // DOWNSAMPLE

# Channels of the heads, in the order of the regression targets.
HEADS = {"heatmap": len(CLASS_NAMES), "reg": 2, "height": 1, "dim": 3, "rot": 2, "vel": 2}
NUM_REGRESSION = sum(HEADS.values()) - HEADS["heatmap"]

IGNORED = -1.0


@dataclass(frozen=True)
class Targets:
    """heat: float32 (160 * 160, classes), 1 where an object's middle is, falling off around it, `IGNORED` where an
        object is that too few points fell on.
    cells, values, weights: what the other heads should say at the middles and around them: cell iy * 160 + ix,
        float32 (K, 10) reg x, y; height; log of width, length, height; sine and cosine of yaw_net; vx, vy in m/s, and
        how much the cell counts.
    has_heading: float32 (K), 0 for pedestrians, whose heading no point tells.
    """

    heat: np.ndarray
    cells: np.ndarray
    values: np.ndarray
    weights: np.ndarray
    has_heading: np.ndarray


def make_targets(boxes: np.ndarray) -> Targets:
    """Targets of a scene's boxes (M, 11)."""
    x = (boxes[:, BOX.X] - RANGE_MIN[0]) / CELL_M
    y = (boxes[:, BOX.Y] - RANGE_MIN[1]) / CELL_M
    inside = (x >= 0) & (x < MAP) & (y >= 0) & (y < MAP) & (boxes[:, BOX.NUM_POINTS] > 0)
    boxes, middles = boxes[inside], np.stack([x[inside], y[inside]], 1)
    counted = boxes[:, BOX.NUM_POINTS] >= MIN_POINTS
    order = np.argsort(counted, kind="stable")  # ignored objects first, so that counted ones draw over them
    boxes, middles, counted = boxes[order], middles[order], counted[order]

    heat = np.zeros((MAP, MAP, len(CLASS_NAMES)), np.float32)
    labels = boxes[:, BOX.LABEL].astype(np.int64)
    radii = _heat_radius(boxes[:, BOX.LENGTH] / CELL_M, boxes[:, BOX.WIDTH] / CELL_M)
    cells, weights, objects = _draw(middles, labels, radii, counted, heat)

    owner = boxes[objects]
    yaw_net = -owner[:, BOX.YAW] - np.pi / 2
    values = np.column_stack(
        [
            middles[objects, 0] - cells % MAP,
            middles[objects, 1] - cells // MAP,
            owner[:, BOX.Z],
            np.log(owner[:, [BOX.WIDTH, BOX.LENGTH, BOX.HEIGHT]]),
            np.sin(yaw_net),
            np.cos(yaw_net),
            owner[:, [BOX.VX, BOX.VY]],
        ]
    )
    has_heading = owner[:, BOX.LABEL] != PEDESTRIAN
    return Targets(
        heat.reshape(MAP * MAP, -1), cells, values.astype(np.float32), weights, has_heading.astype(np.float32)
    )


def _heat_radius(length: np.ndarray, width: np.ndarray) -> np.ndarray:
    """How far an object's heat reaches, in cells: CenterPoint's radius for boxes that may overlap by a tenth."""
    overlap = 0.1
    around, area = length + width, length * width
    root = np.sqrt((2 * overlap * around) ** 2 + 16 * overlap * (1 - overlap) * area)
    return np.maximum(2, (root - 2 * overlap * around) / 2).astype(np.int64)


@numba.njit(cache=True, nogil=True)
def _draw(middles, labels, radii, counted, heat):
    """Draws the heat; says which object speaks for which cell: the nearest one, as much as its heat there."""
    nearest = np.full(MAP * MAP, np.inf)
    owner = np.full(MAP * MAP, -1, np.int64)
    weight = np.zeros(MAP * MAP, np.float32)
    for index in range(len(middles)):
        x, y = middles[index]
        middle_x, middle_y = int(x), int(y)
        radius = radii[index]
        spread = 2 * ((2 * radius + 1) / 6) ** 2
        for iy in range(max(0, middle_y - radius), min(MAP, middle_y + radius + 1)):
            for ix in range(max(0, middle_x - radius), min(MAP, middle_x + radius + 1)):
                drawn = heat[iy, ix, labels[index]]
                if not counted[index]:
                    heat[iy, ix, labels[index]] = IGNORED
                    continue
                value = np.exp(-((ix - middle_x) ** 2 + (iy - middle_y) ** 2) / spread)
                heat[iy, ix, labels[index]] = max(drawn, value)
                distance = (x - ix - 0.5) ** 2 + (y - iy - 0.5) ** 2
                cell = iy * MAP + ix
                if distance < nearest[cell]:
                    nearest[cell], owner[cell], weight[cell] = distance, index, value
    cells = np.flatnonzero(owner >= 0)
    return cells, weight[cells], owner[cells]
