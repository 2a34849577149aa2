"""CenterPoint as Autoware's exporters write it, with random weights, and what ONNX Runtime makes of it.

    centerpoint_onnx.py FOLDER

For NAME of `pts_voxel_encoder_centerpoint` (points `input_features` to `pillar_features`) and
`pts_backbone_neck_head_centerpoint` (canvas `spatial_features` to six maps), both small, there are NAME.onnx with open
dimensions, NAME.in (the input, float32) and NAME.out (all outputs in order, float32). Names, nodes and open dimensions
are those of the exported files: the normalisation of the encoder between two transposes, the number of points taken
from the input's shape at run time, batch normalisation folded into convolutions but not into transposed ones.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

HEADS = {"heatmap": 5, "reg": 2, "height": 1, "dim": 3, "rot": 2, "vel": 2}


@dataclass
class Sizes:
    pillars: int
    points: int
    features: int
    widths: tuple
    canvas: tuple
    channels: tuple
    layers: tuple
    neck: int
    shared: int
    hidden: int


SMALL = Sizes(70, 32, 9, (16, 32), (24, 32), (16, 24, 32), (2, 3, 2), 16, 16, 16)
# What the bench runs.
DEMO = Sizes(12000, 32, 9, (16, 32), (320, 320), (32, 48, 64), (2, 3, 3), 32, 32, 32)


class Graph:
    """Nodes and constants while they grow."""

    def __init__(self, seed):
        self.nodes = []
        self.constants = {}
        self.rng = np.random.default_rng(seed)

    def constant(self, name, values):
        self.constants[name] = np.asarray(values)
        return name

    def random(self, name, *shape, scale=1.0, about=0.0):
        return self.constant(name, (about + scale * self.rng.normal(0, 1, shape)).astype(np.float32))

    def node(self, op, inputs, name, **attributes):
        self.nodes.append(helper.make_node(op, inputs, [name], name=f"/{name}/{op}", **attributes))
        return name

    def norm(self, value, channels, name, epsilon=1e-3):
        constants = [
            self.random(f"{name}.weight", channels, scale=0.2, about=1.0),
            self.random(f"{name}.bias", channels, scale=0.1),
            self.random(f"{name}.running_mean", channels, scale=0.1),
            self.constant(f"{name}.running_var", (0.5 + self.rng.random(channels)).astype(np.float32)),
        ]
        return self.node("BatchNormalization", [value, *constants], name, epsilon=epsilon)

    def conv(self, value, cin, cout, kernel, name, stride=1, relu=True):
        weight = self.random(f"{name}.weight", cout, cin, kernel, kernel, scale=(1.6 / (cin * kernel * kernel)) ** 0.5)
        bias = self.random(f"{name}.bias", cout, scale=0.1)
        pad = kernel // 2
        attributes = dict(kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4, dilations=[1, 1], group=1)
        value = self.node("Conv", [value, weight, bias], name, **attributes)
        return self.node("Relu", [value], f"{name}.relu") if relu else value

    def upsample(self, value, cin, cout, stride, name):
        weight = self.random(f"{name}.weight", cin, cout, stride, stride, scale=(1.6 / cin) ** 0.5)
        attributes = dict(kernel_shape=[stride] * 2, strides=[stride] * 2, pads=[0] * 4, dilations=[1, 1], group=1)
        value = self.node("ConvTranspose", [value, weight], name, **attributes)
        return self.node("Relu", [self.norm(value, cout, f"{name}.norm")], f"{name}.relu")

    def model(self, inputs, outputs, opset=16):
        graph = helper.make_graph(
            self.nodes,
            "main_graph",
            [helper.make_tensor_value_info(name, kind, dims) for name, (kind, dims) in inputs.items()],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in outputs.items()],
            [numpy_helper.from_array(v, k) for k, v in self.constants.items()],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def pfn_layer(graph, value, width, outputs, name):
    weight = graph.random(f"{name}.linear.weight", width, outputs, scale=(1.6 / width) ** 0.5)
    value = graph.node("MatMul", [value, weight], f"{name}.linear")
    value = graph.node("Transpose", [value], f"{name}.turned", perm=[0, 2, 1])
    value = graph.norm(value, outputs, f"{name}.norm")
    value = graph.node("Transpose", [value], f"{name}.back", perm=[0, 2, 1])
    value = graph.node("Relu", [value], f"{name}.relu")
    return value, graph.node("ReduceMax", [value], f"{name}.max", axes=[1], keepdims=1)


def encoder(graph, sizes, points):
    """Nodes from points [P, K, F] to features [P, C]."""
    hidden, outputs = sizes.widths
    value, top = pfn_layer(graph, points, sizes.features, hidden, "pfn_layers.0")
    one = graph.constant("one", np.array([1], np.int64))
    shape = graph.node("Shape", [points], "shape")
    count = graph.node("Gather", [shape, graph.constant("axis", np.array(1, np.int64))], "count", axis=0)
    count = graph.node("Unsqueeze", [count, graph.constant("zero", np.array([0], np.int64))], "count_vector")
    repeats = graph.node("Concat", [one, count, one], "repeats", axis=0)
    beside = graph.node("Tile", [top, repeats], "repeated")
    value = graph.node("Concat", [value, beside], "concatenated", axis=2)
    _, top = pfn_layer(graph, value, 2 * hidden, outputs, "pfn_layers.1")
    return graph.node("Squeeze", [top, one], "pillar_features")


def detector(graph, sizes, canvas):
    """Nodes from a canvas [1, C, H, W] to the outputs of the heads, as they are in HEADS."""
    value, channels, ups = canvas, sizes.widths[-1], []
    for block, (cout, layers) in enumerate(zip(sizes.channels, sizes.layers)):
        for layer in range(layers):
            value = graph.conv(value, channels, cout, 3, f"backbone.blocks.{block}.{layer}", stride=2 if layer == 0 else 1)
            channels = cout
        ups.append(graph.upsample(value, cout, sizes.neck, 2**block, f"neck.deblocks.{block}"))
    value = graph.node("Concat", ups, "neck.joined", axis=1)
    shared = graph.conv(value, sizes.neck * len(ups), sizes.shared, 3, "shared_conv")
    for name, outputs in HEADS.items():
        hidden = graph.conv(shared, sizes.shared, sizes.hidden, 1, f"task_heads.0.{name}.0")
        graph.conv(hidden, sizes.hidden, outputs, 1, name, relu=False)


def encoder_model(sizes, fixed=False):
    graph = Graph(1)
    encoder(graph, sizes, "input_features")
    dims = [sizes.pillars, sizes.points] if fixed else ["num_voxels", "num_max_points"]
    inputs = {"input_features": (TensorProto.FLOAT, [*dims, sizes.features])}
    return graph.model(inputs, {"pillar_features": [dims[0], sizes.widths[-1]]})


def detector_model(sizes, fixed=False):
    graph = Graph(2)
    detector(graph, sizes, "spatial_features")
    dims = [1, *sizes.canvas] if fixed else ["batch_size", "H", "W"]
    inputs = {"spatial_features": (TensorProto.FLOAT, [dims[0], sizes.widths[-1], *dims[1:]])}
    return graph.model(inputs, {name: None for name in HEADS})


def whole_model(sizes):
    """Points and the canvas index to the heads' outputs: the scatter in gather form between the two halves."""
    graph = Graph(3)
    rows = encoder(graph, sizes, "input_features")
    empty = graph.constant("empty", np.zeros((1, sizes.widths[-1]), np.float32))
    table = graph.node("Concat", [rows, empty], "table", axis=0)
    cells = graph.node("Gather", [table, "canvas_index"], "cells", axis=0)
    turned = graph.node("Transpose", [cells], "turned", perm=[1, 0])
    dims = graph.constant("canvas_dims", np.array([1, sizes.widths[-1], *sizes.canvas], np.int64))
    detector(graph, sizes, graph.node("Reshape", [turned, dims], "canvas"))
    inputs = {
        "input_features": (TensorProto.FLOAT, [sizes.pillars, sizes.points, sizes.features]),
        "canvas_index": (TensorProto.INT64, [sizes.canvas[0] * sizes.canvas[1]]),
    }
    return graph.model(inputs, {name: None for name in HEADS})


def write(folder, name, model, feeds):
    data = model.SerializeToString()
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    results = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"]).run(None, feeds)
    (folder / f"{name}.onnx").write_bytes(data)
    np.concatenate([v.ravel() for v in feeds.values()]).astype("<f4").tofile(folder / f"{name}.in")
    np.concatenate([r.ravel() for r in results]).astype("<f4").tofile(folder / f"{name}.out")


def main(folder):
    rng = np.random.default_rng(9)
    points = rng.normal(0, 1.5, (SMALL.pillars, SMALL.points, SMALL.features)).astype(np.float32)
    # Slots without a point are zeros, as the exporter's training code leaves them.
    points *= (np.arange(SMALL.points)[None, :] < rng.integers(1, SMALL.points + 1, SMALL.pillars)[:, None])[..., None]
    write(folder, "pts_voxel_encoder_centerpoint", encoder_model(SMALL), {"input_features": points})
    canvas = rng.normal(0, 1, (1, SMALL.widths[-1], *SMALL.canvas)).astype(np.float32)
    canvas *= rng.random((1, 1, *SMALL.canvas)) < 0.3
    write(folder, "pts_backbone_neck_head_centerpoint", detector_model(SMALL), {"spatial_features": canvas})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
