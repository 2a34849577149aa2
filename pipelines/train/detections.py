"""Head maps to boxes: Autoware's CenterPoint decoder and its suppression of near doubles."""

from dataclasses import dataclass

import numpy as np

from pillars import RANGE_MIN
from targets import CELL_M, MAP

NMS_M = 0.5


@dataclass(frozen=True)
class Detections:
    """Boxes by falling score. Columns of `boxes`: x, y, z, length, width, height, yaw, vx, vy."""

    labels: np.ndarray
    scores: np.ndarray
    boxes: np.ndarray


def decode(heads: dict[str, np.ndarray], score_thresholds: np.ndarray) -> Detections:
    """Every cell whose best class reaches its threshold is a box; of boxes nearer than 0.5 m the best stays."""
    logits = heads["heatmap"].reshape(-1, MAP * MAP)
    labels = logits.argmax(axis=0)
    scores = 1 / (1 + np.exp(-logits.max(axis=0)))
    cells = np.flatnonzero(scores >= score_thresholds[labels])
    cells = cells[np.argsort(-scores[cells], kind="stable")]

    reg, height, dim, rot, vel = (
        heads[name].reshape(-1, MAP * MAP)[:, cells] for name in ("reg", "height", "dim", "rot", "vel")
    )
    width, length, tall = np.exp(dim)
    yaw_net = np.arctan2(rot[0], rot[1])
    yaw = (-yaw_net - np.pi / 2 + np.pi) % (2 * np.pi) - np.pi
    x = (cells % MAP + reg[0]) * CELL_M + RANGE_MIN[0]
    y = (cells // MAP + reg[1]) * CELL_M + RANGE_MIN[1]
    boxes = np.stack([x, y, height[0], length, width, tall, yaw, *vel], axis=1)

    kept: list[int] = []
    for index in range(len(cells)):
        if not kept or ((boxes[kept, :2] - boxes[index, :2]) ** 2).sum(axis=1).min() >= NMS_M**2:
            kept.append(index)
    return Detections(labels[cells[kept]], scores[cells[kept]], boxes[kept])
