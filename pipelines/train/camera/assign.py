"""Which cells should speak of which object: the assignment of YOLOX (SimOTA), the cheapest cells for each object."""

import torch
from torch.nn import functional

from batches import Truth

# An object may be told by cells as far from its middle as this, in strides.
CENTRE_RADIUS = 2.5
OVERLAP_COST = 3.0
OUTSIDE_COST = 1e5
CANDIDATES = 10


def overlaps(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Intersection over union of boxes (..., 4) given by their edges; the leading dimensions are broadcast."""
    least, most = torch.maximum(one[..., :2], other[..., :2]), torch.minimum(one[..., 2:], other[..., 2:])
    shared = (most - least).clamp(min=0).prod(dim=-1)
    areas = (one[..., 2:] - one[..., :2]).prod(dim=-1) + (other[..., 2:] - other[..., :2]).prod(dim=-1)
    return shared / (areas - shared).clamp(min=1e-6)


@torch.no_grad()
def assign(
    edges: torch.Tensor, objectness: torch.Tensor, classes: torch.Tensor, cells: torch.Tensor, truth: Truth
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The cells that have to tell an object, the object of each, and the overlap that each has with it already.

    An object gets as many cells as the overlaps of its ten best add up to, one at least; a cell that several want tells
    the one it is cheapest for. Cheap is a cell that is sure of the class and overlaps well.
    """
    middles = (cells[:, :2] + 0.5) * cells[:, 2:]
    near, within = _near(middles, cells[:, 2], truth.edges)
    cell_of = (near | within).any(dim=0).nonzero()[:, 0]
    both = (near & within)[:, cell_of]

    overlap = overlaps(truth.edges[:, None], edges[None, cell_of])
    chance = (classes[cell_of].sigmoid() * objectness[cell_of, None].sigmoid()).sqrt()
    wanted = functional.one_hot(truth.labels, classes.shape[1]).float()
    doubt = functional.binary_cross_entropy(
        chance[None].expand(len(wanted), -1, -1), wanted[:, None].expand(-1, len(chance), -1), reduction="none"
    ).sum(dim=-1)
    cost = doubt - OVERLAP_COST * torch.log(overlap + 1e-8) + OUTSIDE_COST * ~both

    counts = overlap.topk(min(CANDIDATES, len(cell_of)), dim=1).values.sum(dim=1).long().clamp(min=1)
    ranks = cost.argsort(dim=1, stable=True).argsort(dim=1, stable=True)
    taken = ranks < counts[:, None]
    chosen = taken.any(dim=0).nonzero()[:, 0]
    objects = cost[:, chosen].masked_fill(~taken[:, chosen], torch.inf).argmin(dim=0)
    return cell_of[chosen], objects, overlap[objects, chosen]


@torch.no_grad()
def ignored_cells(cells: torch.Tensor, truth: Truth) -> torch.Tensor:
    """Cells (as a mask) on objects that are neither to be found nor to be denied."""
    middles = (cells[:, :2] + 0.5) * cells[:, 2:]
    half = cells[:, 2:] / 2
    reach = torch.cat([middles + half, -(middles - half)], dim=1)
    limits = truth.ignored_edges * torch.tensor([1.0, 1.0, -1.0, -1.0])
    return (reach[None] > limits[:, None]).all(dim=2).any(dim=0)


def _near(middles: torch.Tensor, strides: torch.Tensor, edges: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """For each object and cell: whether the cell is near the object's middle, and whether it is in its box."""
    centres = (edges[:, :2] + edges[:, 2:]) / 2
    near = (middles[None] - centres[:, None]).abs().amax(dim=2) < CENTRE_RADIUS * strides
    within = ((middles[None] > edges[:, None, :2]) & (middles[None] < edges[:, None, 2:])).all(dim=2)
    return near, within
