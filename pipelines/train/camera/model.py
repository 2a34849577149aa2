"""The network that is trained: YOLOX-nano for five classes, with batch normalisation.

Bytes of a BGR image go in; for each of the strides 8, 16 and 32 comes a map of 4 + 1 + 5 channels: dx, dy, log w, log h
in strides, then objectness and classes before the sigmoid. `graph.py` writes the same network as ONNX by walking
through what `forward` does, so everything here is built of the few kinds of layer that it knows.
"""

import torch
from torch import nn
from torch.nn import functional

from frames import CLASS_NAMES

BOX_CHANNELS = 4
# YOLOX with a quarter of its channels and a third of its depth.
STEM_CHANNELS = 16
LEVEL_CHANNELS = (64, 128, 256)
HEAD_CHANNELS = 64
BACKBONE_DEPTHS = (1, 3, 3, 1)
NECK_DEPTH = 1
POOLED_PX = (5, 9, 13)

NORM_EPS = 1e-3
NORM_MOMENTUM = 0.03
# How sure of an object an untrained network is: one cell in a hundred.
PRIOR_LOGIT = -4.6


class Focus(nn.Module):
    """Four neighbouring pixels side by side: (3, h, w) to (12, h / 2, w / 2)."""

    # Row and column of the neighbour, in the order in which YOLOX stacks them.
    OFFSETS = ((0, 0), (1, 0), (0, 1), (1, 1))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.cat([images[:, :, row::2, column::2] for row, column in self.OFFSETS], dim=1)


class ConvLayer(nn.Module):
    """Convolution without bias, batch normalisation, SiLU."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(outputs, eps=NORM_EPS, momentum=NORM_MOMENTUM)

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        return functional.silu(self.norm(self.conv(maps)))


def spatial_then_mixed(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    """A 3x3 convolution of each channel by itself, then a 1x1 convolution of all."""
    return nn.Sequential(ConvLayer(inputs, inputs, 3, stride, groups=inputs), ConvLayer(inputs, outputs, 1))


class Bottleneck(nn.Module):
    """1x1, then 3x3, on top of what came in if `residual`."""

    def __init__(self, channels: int, residual: bool) -> None:
        super().__init__()
        self.mixed = ConvLayer(channels, channels, 1)
        self.spatial = spatial_then_mixed(channels, channels)
        self.residual = residual

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        said = self.spatial(self.mixed(maps))
        return said + maps if self.residual else said


class CrossStage(nn.Module):
    """One half of the channels through `depth` bottlenecks, the other half past them."""

    def __init__(self, inputs: int, outputs: int, depth: int, residual: bool) -> None:
        super().__init__()
        half = outputs // 2
        self.through = ConvLayer(inputs, half, 1)
        self.past = ConvLayer(inputs, half, 1)
        self.bottlenecks = nn.Sequential(*(Bottleneck(half, residual) for _ in range(depth)))
        self.joined = ConvLayer(2 * half, outputs, 1)

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        return self.joined(torch.cat([self.bottlenecks(self.through(maps)), self.past(maps)], dim=1))


class PooledPyramid(nn.Module):
    """The strongest of ever wider neighbourhoods, side by side."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.narrow = ConvLayer(channels, channels // 2, 1)
        self.pools = nn.ModuleList(nn.MaxPool2d(size, 1, size // 2) for size in POOLED_PX)
        self.joined = ConvLayer(channels // 2 * (1 + len(POOLED_PX)), channels, 1)

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        narrow = self.narrow(maps)
        return self.joined(torch.cat([narrow] + [pool(narrow) for pool in self.pools], dim=1))


class Backbone(nn.Module):
    """CSPDarknet: maps at the strides 8, 16 and 32."""

    def __init__(self) -> None:
        super().__init__()
        fine, middle, coarse = LEVEL_CHANNELS
        depths = BACKBONE_DEPTHS
        self.focus = Focus()
        self.stem = ConvLayer(4 * 3, STEM_CHANNELS, 3)
        self.stage2 = nn.Sequential(
            spatial_then_mixed(STEM_CHANNELS, fine // 2, 2), CrossStage(fine // 2, fine // 2, depths[0], True)
        )
        self.stage3 = nn.Sequential(spatial_then_mixed(fine // 2, fine, 2), CrossStage(fine, fine, depths[1], True))
        self.stage4 = nn.Sequential(spatial_then_mixed(fine, middle, 2), CrossStage(middle, middle, depths[2], True))
        self.stage5 = nn.Sequential(
            spatial_then_mixed(middle, coarse, 2), PooledPyramid(coarse), CrossStage(coarse, coarse, depths[3], False)
        )

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        fine = self.stage3(self.stage2(self.stem(self.focus(images))))
        middle = self.stage4(fine)
        return fine, middle, self.stage5(middle)


class Neck(nn.Module):
    """PAFPN: what the coarse maps know goes to the fine ones, and back."""

    def __init__(self) -> None:
        super().__init__()
        fine, middle, coarse = LEVEL_CHANNELS
        self.upsample = nn.Upsample(scale_factor=2, mode="nearest")
        self.narrow_coarse = ConvLayer(coarse, middle, 1)
        self.down_middle = CrossStage(2 * middle, middle, NECK_DEPTH, False)
        self.narrow_middle = ConvLayer(middle, fine, 1)
        self.down_fine = CrossStage(2 * fine, fine, NECK_DEPTH, False)
        self.to_middle = spatial_then_mixed(fine, fine, 2)
        self.up_middle = CrossStage(2 * fine, middle, NECK_DEPTH, False)
        self.to_coarse = spatial_then_mixed(middle, middle, 2)
        self.up_coarse = CrossStage(2 * middle, coarse, NECK_DEPTH, False)

    def forward(
        self, fine: torch.Tensor, middle: torch.Tensor, coarse: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        narrow_coarse = self.narrow_coarse(coarse)
        middle = self.down_middle(torch.cat([self.upsample(narrow_coarse), middle], dim=1))
        narrow_middle = self.narrow_middle(middle)
        fine = self.down_fine(torch.cat([self.upsample(narrow_middle), fine], dim=1))
        middle = self.up_middle(torch.cat([self.to_middle(fine), narrow_middle], dim=1))
        coarse = self.up_coarse(torch.cat([self.to_coarse(middle), narrow_coarse], dim=1))
        return fine, middle, coarse


class Head(nn.Module):
    """The decoupled head of one stride: box, objectness and classes of every cell."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.stem = ConvLayer(inputs, HEAD_CHANNELS, 1)
        self.of_class = nn.Sequential(*(spatial_then_mixed(HEAD_CHANNELS, HEAD_CHANNELS) for _ in range(2)))
        self.of_box = nn.Sequential(*(spatial_then_mixed(HEAD_CHANNELS, HEAD_CHANNELS) for _ in range(2)))
        self.classes = nn.Conv2d(HEAD_CHANNELS, len(CLASS_NAMES), 1)
        self.box = nn.Conv2d(HEAD_CHANNELS, BOX_CHANNELS, 1)
        self.objectness = nn.Conv2d(HEAD_CHANNELS, 1, 1)
        nn.init.constant_(self.classes.bias, PRIOR_LOGIT)
        nn.init.constant_(self.objectness.bias, PRIOR_LOGIT)

    def forward(self, maps: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        stem = self.stem(maps)
        of_box = self.of_box(stem)
        return self.box(of_box), self.objectness(of_box), self.classes(self.of_class(stem))


class Yolox(nn.Module):
    """YOLOX-nano."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = Backbone()
        self.neck = Neck()
        self.heads = nn.ModuleList(Head(channels) for channels in LEVEL_CHANNELS)
        self.to(memory_format=torch.channels_last)

    def forward(self, images: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """For each stride: box, objectness and class maps, before the sigmoid."""
        levels = self.neck(*self.backbone(images))
        return [head(maps) for head, maps in zip(self.heads, levels)]
