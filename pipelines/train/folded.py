"""The network as it is deployed: normalisation and scales folded into the weights, which are rounded to bf16 once."""

from pathlib import Path

import ml_dtypes
import numpy as np
import torch
from safetensors import safe_open
from torch import nn
from torch.nn import functional

from model import BLOCK_STRIDE, BLOCKS, FEATURE_SCALES, VELOCITY_SCALE, CenterPoint, normalised_layers
from pillars import GRID, Pillars
from targets import HEADS

Weights = dict[str, np.ndarray]


def fold(model: CenterPoint) -> Weights:
    """All weights and biases by name, folded in float64 and rounded once: weights to bf16, biases to float32."""
    folded: Weights = {}
    for index, layer in enumerate(model.pfn.layers):
        scales = np.array(FEATURE_SCALES) if index == 0 else 1.0
        folded[f"pfn.{index}.weight"] = _float64(layer.weight) * scales
        folded[f"pfn.{index}.bias"] = _float64(layer.bias)
    for name, layer in normalised_layers(model):
        gain = _float64(layer.norm.weight) / np.sqrt(_float64(layer.norm.running_var) + layer.norm.eps)
        by_output = (1, -1, 1, 1) if isinstance(layer.conv, nn.ConvTranspose2d) else (-1, 1, 1, 1)
        folded[f"{name}.weight"] = _float64(layer.conv.weight) * gain.reshape(by_output)
        folded[f"{name}.bias"] = _float64(layer.norm.bias) - gain * _float64(layer.norm.running_mean)
    for name, head in model.heads.items():
        scale = VELOCITY_SCALE if name == "vel" else 1.0
        folded[f"head.{name}.hidden.weight"] = _float64(head.hidden.weight)[:, :, None, None]
        folded[f"head.{name}.hidden.bias"] = _float64(head.hidden.bias)
        folded[f"head.{name}.out.weight"] = _float64(head.out.weight)[:, :, None, None] * scale
        folded[f"head.{name}.out.bias"] = _float64(head.out.bias) * scale
    return {
        # In C order: safetensors writes the bytes of an array as they lie in memory.
        name: values.astype(ml_dtypes.bfloat16 if name.endswith(".weight") else np.float32, order="C")
        for name, values in folded.items()
    }


def load(path: Path) -> Weights:
    """The weights of a file that `export.py` wrote."""
    with safe_open(path, "np") as file:
        return {name: file.get_tensor(name) for name in file.keys()}


def run(weights: Weights, pillars: Pillars) -> dict[str, np.ndarray]:
    """Head maps by name, float32 (channels, 160, 160), of one scene. All arithmetic is float32."""
    values = {name: torch.from_numpy(array.astype(np.float32)) for name, array in weights.items()}

    def layer(name: str) -> tuple[torch.Tensor, torch.Tensor]:
        return values[f"{name}.weight"], values[f"{name}.bias"]

    def slot_max(rows: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(np.maximum.reduceat(rows.numpy(), pillars.starts[:-1], axis=0))

    points_of = torch.from_numpy(pillars.starts).diff()
    rows = functional.relu(functional.linear(torch.from_numpy(pillars.features), *layer("pfn.0")))
    rows = torch.cat([rows, torch.repeat_interleave(slot_max(rows), points_of, dim=0)], dim=1)
    encoded = slot_max(functional.relu(functional.linear(rows, *layer("pfn.1"))))
    canvas = torch.zeros(GRID * GRID, encoded.shape[1])
    canvas[torch.from_numpy(pillars.cells)] = encoded
    maps = canvas.view(1, GRID, GRID, -1).permute(0, 3, 1, 2)

    levels = []
    for block, (_, layers) in enumerate(BLOCKS):
        for index in range(layers):
            stride = BLOCK_STRIDE if index == 0 else 1
            maps = functional.relu(functional.conv2d(maps, *layer(f"backbone.{block}.{index}"), stride, 1))
        up = BLOCK_STRIDE**block
        weight, bias = layer(f"neck.{block}")
        level = (
            functional.conv2d(maps, weight, bias)
            if up == 1
            else functional.conv_transpose2d(maps, weight, bias, up)
        )
        levels.append(functional.relu(level))
    shared = functional.relu(functional.conv2d(torch.cat(levels, dim=1), *layer("head.shared"), 1, 1))
    heads = {}
    for name in HEADS:
        hidden = functional.relu(functional.conv2d(shared, *layer(f"head.{name}.hidden")))
        heads[name] = functional.conv2d(hidden, *layer(f"head.{name}.out"))[0].numpy()
    return heads


def _float64(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().double().numpy()
