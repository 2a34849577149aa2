"""The network that is trained: a small CenterPoint with batch normalisation, and its loss.

Rows of point features go in (see `pillars.py`); rows of head values come out, one row a cell of the 160 x 160 map.
"""

from collections.abc import Iterable

import torch
from torch import nn
from torch.autograd.function import FunctionCtx
from torch.nn import functional

from batches import PillarBatch, TargetBatch
from encoder import OUT, PillarEncoder
from pillars import GRID
from targets import HEADS, IGNORED, MAP

BLOCKS = ((32, 2), (48, 3), (64, 3))
BLOCK_STRIDE = 2
NECK_CHANNELS = 32
HEAD_CHANNELS = 32

# Features as the first layer sees them in training; powers of two, so that folding them in rounds nothing.
FEATURE_SCALES = (1 / 32, 1 / 32, 1 / 2, 16.0, 4.0, 4.0, 2.0, 4.0, 4.0)
# The network speaks of speeds in units of 8 m/s; likewise folded.
VELOCITY_SCALE = 8.0

LOSS_WEIGHTS = {"reg": 1.5, "height": 0.5, "dim": 0.5, "rot": 1.5, "vel": 3.0}


class _Scatter(torch.autograd.Function):
    """Pillar rows onto an empty canvas of bf16 rows."""

    @staticmethod
    def forward(ctx: FunctionCtx, pillars: torch.Tensor, cells: torch.Tensor, num_cells: int) -> torch.Tensor:
        ctx.save_for_backward(cells)
        canvas = torch.zeros(num_cells, pillars.shape[1], dtype=torch.bfloat16)
        canvas[cells] = pillars.bfloat16()
        return canvas

    @staticmethod
    def backward(ctx: FunctionCtx, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (cells,) = ctx.saved_tensors
        return gradient[cells].float(), None, None


class ConvLayer(nn.Module):
    """Convolution without bias, batch normalisation, ReLU."""

    def __init__(self, conv: nn.Conv2d | nn.ConvTranspose2d) -> None:
        super().__init__()
        self.conv = conv
        self.norm = nn.BatchNorm2d(conv.out_channels, eps=1e-3)

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.norm(self.conv(maps)), inplace=True)


class Head(nn.Module):
    """Two dense layers a cell (1x1 convolutions), ReLU between them."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(HEAD_CHANNELS, HEAD_CHANNELS)
        self.out = nn.Linear(HEAD_CHANNELS, outputs)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.out(functional.relu(self.hidden(rows)))


class CenterPoint(nn.Module):
    """PointPillars encoder, SECOND backbone, SECONDFPN neck, one head a quantity."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scales", torch.tensor(FEATURE_SCALES), persistent=False)
        self.pfn = PillarEncoder()
        blocks, neck, inputs = [], [], OUT
        for index, (channels, layers) in enumerate(BLOCKS):
            widths = [inputs] + [channels] * layers
            strides = [BLOCK_STRIDE] + [1] * (layers - 1)
            convs = [
                ConvLayer(nn.Conv2d(into, channels, 3, stride, 1, bias=False)) for into, stride in zip(widths, strides)
            ]
            blocks.append(nn.Sequential(*convs))
            neck.append(ConvLayer(_deblock(channels, BLOCK_STRIDE**index)))
            inputs = channels
        self.backbone = nn.ModuleList(blocks)
        self.neck = nn.ModuleList(neck)
        self.shared = ConvLayer(nn.Conv2d(NECK_CHANNELS * len(BLOCKS), HEAD_CHANNELS, 3, 1, 1, bias=False))
        self.heads = nn.ModuleDict({name: Head(channels) for name, channels in HEADS.items()})
        nn.init.constant_(self.heads["heatmap"].out.bias, -4.6)
        self.to(memory_format=torch.channels_last)

    def forward(self, batch: PillarBatch, cells: torch.Tensor) -> dict[str, torch.Tensor]:
        """The heat of every cell, and what the other heads say at `cells`."""
        # Deployed, features are bf16 values.
        pillars = self.pfn(batch.features.bfloat16().float() * self.scales, batch.starts)
        canvas = _Scatter.apply(pillars, batch.cells, batch.scenes * GRID * GRID)
        maps = canvas.view(batch.scenes, GRID, GRID, OUT).permute(0, 3, 1, 2)
        with torch.autocast("cpu", torch.bfloat16):
            levels = []
            for block, deblock in zip(self.backbone, self.neck):
                maps = block(maps)
                levels.append(deblock(maps))
            shared = self.shared(torch.cat(levels, dim=1)).permute(0, 2, 3, 1).reshape(-1, HEAD_CHANNELS)
        at_cells = shared[cells].float()
        said = {name: head(at_cells) for name, head in self.heads.items() if name != "heatmap"}
        with torch.autocast("cpu", torch.bfloat16):
            said["heatmap"] = self.heads["heatmap"](shared)
        return said


def _deblock(channels: int, stride: int) -> nn.Conv2d | nn.ConvTranspose2d:
    if stride == 1:
        return nn.Conv2d(channels, NECK_CHANNELS, 1, bias=False)
    return nn.ConvTranspose2d(channels, NECK_CHANNELS, stride, stride, bias=False)


def loss_terms(said: dict[str, torch.Tensor], targets: TargetBatch) -> dict[str, torch.Tensor]:
    """The weighted terms of the loss: focal loss of the heat, L1 of everything else."""
    terms = {"heatmap": _focal_loss(said["heatmap"].float(), targets.heat)}
    column = 0
    for name, weight in LOSS_WEIGHTS.items():
        wanted = targets.values[:, column : column + HEADS[name]]
        column += HEADS[name]
        counts = targets.weights * targets.has_heading if name == "rot" else targets.weights
        if name == "vel":
            wanted = wanted / VELOCITY_SCALE
        off = functional.l1_loss(said[name], wanted, reduction="none").sum(dim=1)
        terms[name] = weight * (off * counts).sum() / counts.sum().clamp(min=1)
    return terms


def _focal_loss(logits: torch.Tensor, heat: torch.Tensor) -> torch.Tensor:
    """CenterNet's focal loss a middle of an object."""
    chance = torch.sigmoid(logits)
    log_chance, log_rest = functional.logsigmoid(logits), functional.logsigmoid(-logits)
    middles = heat == 1
    found = (log_chance * (1 - chance) ** 2)[middles].sum()
    clutter = log_rest * chance**2 * (1 - heat) ** 4
    clutter = clutter.masked_fill(middles | (heat == IGNORED), 0).sum()
    return -(found + clutter) / middles.sum().clamp(min=1)


def normalised_layers(model: CenterPoint) -> Iterable[tuple[str, ConvLayer]]:
    """The layers with batch normalisation under the names they are written with."""
    for block, layers in enumerate(model.backbone):
        for index, layer in enumerate(layers):
            yield f"backbone.{block}.{index}", layer
    for index, layer in enumerate(model.neck):
        yield f"neck.{index}", layer
    yield "head.shared", model.shared
