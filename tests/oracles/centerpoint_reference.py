"""A CenterPoint of pipelines/weights in float32: centerpoint_reference.py WEIGHTS FEATURES CELLS.

FEATURES is a file of little-endian float32 (P, 32, 9): the points of each pillar, unused slots repeating the first.
CELLS is a file of little-endian uint32 (P): the pillar's cell, iy * grid + ix. To standard output go the head maps one
after the other as float32 (channels, height, width): heatmap, reg, height, dim, rot, vel.
"""

import json
import sys
from pathlib import Path

import numpy as np

HEADS = ("heatmap", "reg", "height", "dim", "rot", "vel")


def read_safetensors(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Tensors as float32, and the file's metadata. Reads bf16 and float32, which is all there is in these files."""
    content = path.read_bytes()
    header_length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + header_length])
    metadata = header.pop("__metadata__")
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + header_length + offset for offset in entry["data_offsets"])
        if entry["dtype"] == "BF16":
            values = (np.frombuffer(content[begin:end], "<u2").astype(np.uint32) << 16).view(np.float32)
        else:
            assert entry["dtype"] == "F32", entry["dtype"]
            values = np.frombuffer(content[begin:end], "<f4")
        tensors[name] = values.reshape(entry["shape"])
    return tensors, metadata


def dense(rows: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """rows (..., inputs) through weight (outputs, inputs); the 1x1 kernels of a convolution count as a matrix."""
    return rows @ weight.reshape(len(bias), -1).T + bias


def conv3x3(maps: np.ndarray, weight: np.ndarray, bias: np.ndarray, stride: int) -> np.ndarray:
    """maps (height, width, inputs) with one row and column of zeros around; weight (outputs, inputs, 3, 3)."""
    height, width = maps.shape[0] // stride, maps.shape[1] // stride
    padded = np.pad(maps, ((1, 1), (1, 1), (0, 0)))
    taps = [
        padded[dy : dy + stride * (height - 1) + 1 : stride, dx : dx + stride * (width - 1) + 1 : stride]
        for dy in range(3)
        for dx in range(3)
    ]
    matrix = weight.transpose(2, 3, 1, 0).reshape(-1, len(bias))
    return np.concatenate(taps, axis=2) @ matrix + bias


def transposed(maps: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Transposed convolution with kernel and stride k: cells become patches. weight (inputs, outputs, k, k)."""
    inputs, outputs, k, _ = weight.shape
    patches = maps @ weight.transpose(0, 2, 3, 1).reshape(inputs, -1)
    height, width = maps.shape[:2]
    patches = patches.reshape(height, width, k, k, outputs).transpose(0, 2, 1, 3, 4)
    return patches.reshape(height * k, width * k, outputs) + bias


def relu(values: np.ndarray) -> np.ndarray:
    """Negative values to zero."""
    return np.maximum(values, np.float32(0))


def main() -> None:
    """Runs the network on one scene's pillars."""
    tensors, metadata = read_safetensors(Path(sys.argv[1]))
    features = np.fromfile(sys.argv[2], "<f4").reshape(-1, 32, 9)
    cells = np.fromfile(sys.argv[3], "<u4")
    x0, y0, _, x1, y1, _ = json.loads(metadata["point_cloud_range"])
    voxel_x, voxel_y, _ = json.loads(metadata["voxel_size"])
    grid = (round((y1 - y0) / voxel_y), round((x1 - x0) / voxel_x))

    def layer(name: str) -> tuple[np.ndarray, np.ndarray]:
        return tensors[f"{name}.weight"], tensors[f"{name}.bias"]

    points = relu(dense(features, *layer("pfn.0")))
    largest = np.broadcast_to(points.max(axis=1, keepdims=True), points.shape)
    pillars = relu(dense(np.concatenate([points, largest], axis=2), *layer("pfn.1"))).max(axis=1)
    maps = np.zeros((grid[0] * grid[1], pillars.shape[1]), np.float32)
    maps[cells] = pillars
    maps = maps.reshape(*grid, -1)

    levels = []
    strides = json.loads(metadata["backbone_strides"])
    for block, (layers, stride) in enumerate(zip(json.loads(metadata["backbone_layers"]), strides, strict=True)):
        for index in range(layers):
            maps = relu(conv3x3(maps, *layer(f"backbone.{block}.{index}"), stride if index == 0 else 1))
        weight, bias = layer(f"neck.{block}")
        # A first level that keeps its size has a plain 1x1 convolution.
        up = json.loads(metadata["neck_strides"])[block]
        levels.append(relu(dense(maps, weight, bias) if up == 1 else transposed(maps, weight, bias)))
    shared = relu(conv3x3(np.concatenate(levels, axis=2), *layer("head.shared"), 1))
    for name in HEADS:
        said = dense(relu(dense(shared, *layer(f"head.{name}.hidden"))), *layer(f"head.{name}.out"))
        sys.stdout.buffer.write(np.ascontiguousarray(said.transpose(2, 0, 1), "<f4").tobytes())


if __name__ == "__main__":
    main()
