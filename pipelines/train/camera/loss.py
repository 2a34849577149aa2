"""The loss of YOLOX: objectness of all cells; class, overlap and coordinates of those that tell an object."""

from dataclasses import dataclass

import torch
from torch.nn import functional

from assign import assign, ignored_cells, overlaps
from batches import Truth
from cells import grid_cells

OVERLAP_WEIGHT = 5.0
COORDINATE_WEIGHT = 1.0
# exp(7) strides are wider than any input; an untrained network may say more.
MAX_LOG_SIZE = 7.0

Maps = list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]


@dataclass(frozen=True)
class Rows:
    """What the network says, as float32 rows (B, cells, ...): box in strides, objectness and classes as logits."""

    box: torch.Tensor
    objectness: torch.Tensor
    classes: torch.Tensor

    @classmethod
    def of(cls, maps: Maps) -> "Rows":
        """Lays the maps of the three strides one after the other."""
        box, objectness, classes = (
            torch.cat([level[kind].float().flatten(2) for level in maps], dim=2).transpose(1, 2) for kind in range(3)
        )
        return cls(box, objectness[..., 0], classes)


def loss_terms(maps: Maps, truths: list[Truth], height_px: int, width_px: int) -> dict[str, torch.Tensor]:
    """The weighted terms of the loss of a batch of inputs of that size, for each cell that tells an object."""
    rows = Rows.of(maps)
    cells = torch.from_numpy(grid_cells(height_px, width_px))
    edges = _edges(rows.box, cells)
    told = torch.zeros_like(rows.objectness)
    counts = torch.ones_like(rows.objectness)
    images, positives, wanted_edges, wanted_labels, reached = [], [], [], [], []
    for image, truth in enumerate(truths):
        if len(truth.ignored_edges):
            counts[image, ignored_cells(cells, truth)] = 0
        if len(truth.edges) == 0:
            continue
        positive, objects, overlap = assign(
            edges[image].detach(), rows.objectness[image].detach(), rows.classes[image].detach(), cells, truth
        )
        told[image, positive] = 1
        counts[image, positive] = 1
        images.append(torch.full_like(positive, image))
        positives.append(positive)
        wanted_edges.append(truth.edges[objects])
        wanted_labels.append(truth.labels[objects])
        reached.append(overlap)

    sure = functional.binary_cross_entropy_with_logits(rows.objectness, told, counts, reduction="sum")
    if not positives:
        return {"objectness": sure}
    at = torch.cat(images), torch.cat(positives)
    wanted = torch.cat(wanted_edges)
    classes = functional.one_hot(torch.cat(wanted_labels), rows.classes.shape[2]) * torch.cat(reached)[:, None]
    overlap = overlaps(edges[at], wanted)
    total = len(wanted)
    return {
        "objectness": sure / total,
        "classes": functional.binary_cross_entropy_with_logits(rows.classes[at], classes, reduction="sum") / total,
        "overlap": OVERLAP_WEIGHT * (1 - overlap**2).sum() / total,
        "coordinates": COORDINATE_WEIGHT
        * functional.l1_loss(rows.box[at], _values(wanted, cells[at[1]]), reduction="sum")
        / total,
    }


def _edges(box: torch.Tensor, cells: torch.Tensor) -> torch.Tensor:
    """Edges in pixels of boxes in strides."""
    middles = (box[..., :2] + cells[:, :2]) * cells[:, 2:]
    halves = box[..., 2:].clamp(max=MAX_LOG_SIZE).exp() * cells[:, 2:] / 2
    return torch.cat([middles - halves, middles + halves], dim=-1)


def _values(edges: torch.Tensor, cells: torch.Tensor) -> torch.Tensor:
    """What the cells have to say for their boxes to have these edges."""
    middles = (edges[:, :2] + edges[:, 2:]) / 2 / cells[:, 2:] - cells[:, :2]
    sizes = ((edges[:, 2:] - edges[:, :2]) / cells[:, 2:]).clamp(min=1e-3).log()
    return torch.cat([middles, sizes], dim=1)
