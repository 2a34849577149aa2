"""The pillar encoder: two dense layers a point, each with a maximum over the pillar's points.

    h = relu(W0 x + b0)                   for each point
    pillar = max over points of relu(W1 [h, max over points of h] + b1)

W1 [h, m] is A h + B m, and B m + b1 is the same for all points of a pillar: it is added after the maximum. Only the
point with the largest value carries a gradient, so the pass backwards visits those alone.
"""

import numba
import numpy as np
import torch
from torch import nn
from torch.autograd.function import FunctionCtx
from torch.nn import functional

from pillars import NUM_FEATURES

HIDDEN = 16
OUT = 32


class PillarEncoder(nn.Module):
    """Rows of point features (M, 9) and where pillars start (P + 1) to pillars (P, 32)."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(NUM_FEATURES, HIDDEN), nn.Linear(2 * HIDDEN, OUT)])

    def forward(self, features: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
        of_points, of_pillars = self.layers[1].weight.split(HIDDEN, dim=1)
        rows = functional.relu(self.layers[0](features), inplace=True)
        hidden, mapped = _SlotMaxima.apply(rows, of_points, starts)
        return functional.relu(mapped + functional.linear(hidden, of_pillars, self.layers[1].bias))


class _SlotMaxima(torch.autograd.Function):
    """Maxima over each pillar's own points of rows (M, 16) and of rows through a weight (32, 16)."""

    @staticmethod
    def forward(
        ctx: FunctionCtx, rows: torch.Tensor, weight: torch.Tensor, starts: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        points, matrix = rows.detach().numpy(), weight.detach().contiguous().numpy()
        hidden, hidden_row = _slot_max(points, starts.numpy())
        mapped, mapped_row = _slot_max(points @ matrix.T, starts.numpy())
        ctx.saved = points, matrix, hidden_row, mapped_row
        return torch.from_numpy(hidden), torch.from_numpy(mapped)

    @staticmethod
    def backward(
        ctx: FunctionCtx, hidden_gradient: torch.Tensor, mapped_gradient: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, None]:
        gradients = _slot_max_gradients(
            *ctx.saved, hidden_gradient.contiguous().numpy(), mapped_gradient.contiguous().numpy()
        )
        return torch.from_numpy(gradients[0]), torch.from_numpy(gradients[1]), None


@numba.njit(cache=True)
def _slot_max(rows, starts):
    """Largest value of each column over a pillar's points, and the point it is of."""
    largest = np.empty((len(starts) - 1, rows.shape[1]), np.float32)
    where = np.empty(largest.shape, np.int32)
    for pillar in range(len(largest)):
        largest[pillar] = rows[starts[pillar]]
        where[pillar] = starts[pillar]
        for row in range(starts[pillar] + 1, starts[pillar + 1]):
            for column in range(rows.shape[1]):
                value, best = rows[row, column], largest[pillar, column]
                where[pillar, column] = np.int32(row) if value > best else where[pillar, column]
                largest[pillar, column] = max(value, best)
    return largest, where


@numba.njit(cache=True, fastmath=True)
def _slot_max_gradients(rows, weight, hidden_row, mapped_row, hidden_gradient, mapped_gradient):
    rows_gradient = np.zeros(rows.shape, np.float32)
    weight_gradient = np.zeros(weight.shape, np.float32)
    for pillar in range(len(hidden_row)):
        for column in range(len(weight)):
            gradient, row = mapped_gradient[pillar, column], mapped_row[pillar, column]
            for inner in range(HIDDEN):
                weight_gradient[column, inner] += gradient * rows[row, inner]
                rows_gradient[row, inner] += gradient * weight[column, inner]
        for inner in range(HIDDEN):
            rows_gradient[hidden_row[pillar, inner], inner] += hidden_gradient[pillar, inner]
    return rows_gradient, weight_gradient
