"""How good detections are, and how good they have to be."""

from dataclasses import dataclass, field

import numpy as np

from detections import Detections, overlaps
from frames import BOX, CLASS_NAMES, is_counted

MATCH_OVERLAP = 0.5

# Below these goals no weights are written.
REQUIRED_AP = {"CAR": 0.6, "PEDESTRIAN": 0.4}


@dataclass
class ClassMetrics:
    """One class over all frames; precision and recall at the threshold."""

    average_precision: float
    objects: int
    score_threshold: float
    precision: float
    recall: float


@dataclass
class Tally:
    """Detections of one class against the objects of that class, frame by frame."""

    objects: int = 0
    scores: list[float] = field(default_factory=list)
    hits: list[bool] = field(default_factory=list)

    def add(self, found: Detections, label: int, truth: np.ndarray) -> None:
        """Matches, best score first, each detection with the object that it overlaps most and that is still free.

        Objects that are hidden or small are nobody's gain or loss: they are not to be found, and what is found there
        does not count.
        """
        truth = truth[truth[:, BOX.LABEL] == label]
        edges = truth[:, [BOX.LEFT, BOX.TOP, BOX.RIGHT, BOX.BOTTOM]]
        counted = is_counted(truth)
        self.objects += int(counted.sum())
        free = counted.copy()
        of_class = found.labels == label
        for score, box in zip(found.scores[of_class], found.edges[of_class]):
            overlap = overlaps(edges, box)
            matching = overlap >= MATCH_OVERLAP
            candidates = np.flatnonzero(free & matching)
            if len(candidates) == 0 and np.any(~counted & matching):
                continue
            self.scores.append(float(score))
            self.hits.append(len(candidates) > 0)
            if len(candidates):
                free[candidates[np.argmax(overlap[candidates])]] = False

    def metrics(self) -> ClassMetrics:
        """Average precision over all points of the curve; the rest at the threshold with the best F1 score."""
        if not any(self.hits):
            return ClassMetrics(0.0, self.objects, 0.5, 0.0, 0.0)
        order = np.argsort(-np.array(self.scores), kind="stable")
        scores, hits = np.array(self.scores)[order], np.array(self.hits, bool)[order]
        found = np.cumsum(hits)
        recall = found / max(self.objects, 1)
        precision = found / np.arange(1, len(hits) + 1)
        envelope = np.maximum.accumulate(precision[::-1])[::-1]
        average_precision = float(np.sum(np.diff(recall, prepend=0) * envelope))

        grid = np.arange(0.10, 0.80, 0.05)
        rows = np.searchsorted(-scores, -grid, side="left") - 1
        best = int(np.argmax([_f1(precision[row], recall[row]) if row >= 0 else 0 for row in rows]))
        row, threshold = max(int(rows[best]), 0), float(grid[best])
        return ClassMetrics(
            average_precision, self.objects, round(threshold, 2), float(precision[row]), float(recall[row])
        )


def shortfalls(metrics: dict[str, ClassMetrics]) -> list[str]:
    """What is below its goal, in words; empty when everything is good enough."""
    return [
        f"AP of {name} is {metrics[name].average_precision:.3f}, below {goal}"
        for name, goal in REQUIRED_AP.items()
        if metrics[name].average_precision < goal
    ]


def table(metrics: dict[str, ClassMetrics]) -> str:
    """The metrics as a table in Markdown."""
    lines = ["| class | objects | AP | threshold | precision | recall |", "|---|---|---|---|---|---|"]
    for name in CLASS_NAMES:
        one = metrics[name]
        lines.append(
            f"| {name} | {one.objects} | {one.average_precision:.3f} | {one.score_threshold:.2f} | {one.precision:.2f} "
            f"| {one.recall:.2f} |"
        )
    return "\n".join(lines)


def _f1(precision: float, recall: float) -> float:
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0
