"""How good detections are, and how good they have to be."""

from dataclasses import dataclass, field

import numpy as np

from detections import Detections
from pillars import RANGE_MAX, RANGE_MIN
from scenes import BOX, CLASS_NAMES, MIN_POINTS

MATCH_M = 1.0
MOVING_MPS = 1.0

# Below these goals no weights are written.
REQUIRED_AP = {"CAR": 0.93, "TRUCK": 0.80, "BUS": 0.60, "BICYCLE": 0.75, "PEDESTRIAN": 0.88}
REQUIRED_HEADING_RAD = 0.17
REQUIRED_FLIPPED = 0.07
# The network's speeds are published only when the middle error over moving objects is below this.
USABLE_TWIST_MPS = 1.0


@dataclass
class ClassMetrics:
    """One class over all scenes."""

    average_precision: float
    objects: int
    score_threshold: float
    precision: float
    recall: float
    heading_median_rad: float
    flipped: float
    speed_error_median_mps: float
    speed_error_moving_median_mps: float


@dataclass
class Tally:
    """Detections of one class against the objects of that class, scene by scene."""

    objects: int = 0
    scores: list[float] = field(default_factory=list)
    hits: list[bool] = field(default_factory=list)
    heading_errors: list[float] = field(default_factory=list)
    speed_errors: list[float] = field(default_factory=list)
    speeds: list[float] = field(default_factory=list)

    def add(self, found: Detections, label: int, truth: np.ndarray) -> None:
        """Matches, best score first, each detection with the nearest object within 1 m that is still free.

        Objects with fewer than five points or outside the grid are nobody's gain or loss: they are not to be found,
        and what is found there does not count.
        """
        truth = truth[(truth[:, BOX.LABEL] == label) & (truth[:, BOX.NUM_POINTS] > 0)]
        in_grid = np.all((truth[:, :2] >= RANGE_MIN[:2]) & (truth[:, :2] < RANGE_MAX[:2]), axis=1)
        counted = in_grid & (truth[:, BOX.NUM_POINTS] >= MIN_POINTS)
        self.objects += int(counted.sum())
        free = counted.copy()
        of_class = found.labels == label
        for score, box in zip(found.scores[of_class], found.boxes[of_class]):
            distance = np.hypot(truth[:, BOX.X] - box[BOX.X], truth[:, BOX.Y] - box[BOX.Y])
            candidates = np.flatnonzero(free & (distance < MATCH_M))
            if len(candidates) == 0 and np.any(~counted & (distance < MATCH_M)):
                continue
            self.scores.append(float(score))
            self.hits.append(len(candidates) > 0)
            heading_error = speed_error = speed = np.nan
            if len(candidates):
                match = candidates[np.argmin(distance[candidates])]
                free[match] = False
                turned = box[BOX.YAW] - truth[match, BOX.YAW]
                heading_error = abs((turned + np.pi) % (2 * np.pi) - np.pi)
                speed = np.hypot(truth[match, BOX.VX], truth[match, BOX.VY])
                speed_error = np.hypot(box[BOX.VX] - truth[match, BOX.VX], box[BOX.VY] - truth[match, BOX.VY])
            self.heading_errors.append(heading_error)
            self.speed_errors.append(speed_error)
            self.speeds.append(speed)

    def metrics(self) -> ClassMetrics:
        """Average precision over all points of the curve; the rest at the threshold with the best F1 score."""
        if not any(self.hits):
            nothing = float("nan")
            return ClassMetrics(0.0, self.objects, 0.5, 0.0, 0.0, nothing, nothing, nothing, nothing)
        order = np.argsort(-np.array(self.scores), kind="stable")
        scores, hits = np.array(self.scores)[order], np.array(self.hits, bool)[order]
        found = np.cumsum(hits)
        recall = found / max(self.objects, 1)
        precision = found / np.arange(1, len(hits) + 1)
        envelope = np.maximum.accumulate(precision[::-1])[::-1]
        average_precision = float(np.sum(np.diff(recall, prepend=0) * envelope))

        grid = np.arange(0.10, 0.80, 0.05)
        rows = np.searchsorted(-scores, -grid, side="right") - 1
        best = int(np.argmax([_f1(precision[row], recall[row]) if row >= 0 else 0 for row in rows]))
        row, threshold = max(int(rows[best]), 0), float(grid[best])
        chosen = order[: row + 1][hits[: row + 1]]
        headings = np.array(self.heading_errors)[chosen]
        speeds, speed_errors = np.array(self.speeds)[chosen], np.array(self.speed_errors)[chosen]
        return ClassMetrics(
            average_precision,
            self.objects,
            round(threshold, 2),
            float(precision[row]),
            float(recall[row]),
            float(np.median(headings)),
            float(np.mean(headings > np.pi / 2)),
            float(np.median(speed_errors)),
            float(np.median(speed_errors[speeds > MOVING_MPS])) if np.any(speeds > MOVING_MPS) else float("nan"),
        )


def shortfalls(metrics: dict[str, ClassMetrics]) -> list[str]:
    """What is below its goal, in words; empty when everything is good enough."""
    short = [
        f"AP of {name} is {metrics[name].average_precision:.3f}, below {goal}"
        for name, goal in REQUIRED_AP.items()
        if metrics[name].average_precision < goal
    ]
    car = metrics["CAR"]
    if car.heading_median_rad > REQUIRED_HEADING_RAD:
        short.append(
            f"the middle heading error of cars is {car.heading_median_rad:.3f} rad, above {REQUIRED_HEADING_RAD}"
        )
    if car.flipped > REQUIRED_FLIPPED:
        short.append(f"{car.flipped:.1%} of the cars are turned round, more than {REQUIRED_FLIPPED:.0%}")
    return short


def table(metrics: dict[str, ClassMetrics]) -> str:
    """The metrics as a table in Markdown."""
    lines = [
        "| class | objects | AP | threshold | precision | recall | heading, rad | flipped | speed, m/s | moving, m/s |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name in CLASS_NAMES:
        one = metrics[name]
        lines.append(
            f"| {name} | {one.objects} | {one.average_precision:.3f} | {one.score_threshold:.2f} | {one.precision:.2f} "
            f"| {one.recall:.2f} | {one.heading_median_rad:.3f} | {one.flipped:.1%} "
            f"| {one.speed_error_median_mps:.2f} | {one.speed_error_moving_median_mps:.2f} |"
        )
    return "\n".join(lines)


def _f1(precision: float, recall: float) -> float:
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0
