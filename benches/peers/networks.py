#!/usr/bin/env python3
"""Writes the networks that convolution is measured on, with random weights, as ONNX files into a folder.

    python benches/peers/networks.py FOLDER

- centerpoint_480.onnx: the backbone, neck and heads of a CenterPoint for two cores (SECOND with 4, 6 and 6 layers of 64,
  128 and 256 channels, each beginning with a stride of 2, on a 32-channel canvas of 480 x 480; SECONDFPN to 3 x 128
  channels at 240 x 240; a shared layer of 64 and six heads of two 1 x 1 layers): 96.6 GFLOP.
- resnet50_layer2.onnx and resnet50_layer3.onnx: those stages of a ResNet-50 for an image of 224 x 224.

Batch normalisation is folded already, as an exporter does. Needs numpy and onnx.
"""

import argparse
import pathlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Builder:
    """A graph that grows layer by layer."""

    def __init__(self, name, channels, side):
        self.name, self.nodes, self.constants = name, [], []
        self.random = np.random.default_rng(8)
        self.shapes = {"input": (channels, side)}

    def constant(self, shape, scale):
        name = f"c{len(self.constants)}"
        values = self.random.standard_normal(shape, dtype=np.float32) * np.float32(scale)
        self.constants.append(numpy_helper.from_array(values, name))
        return name

    def node(self, op, inputs, shape, name=None, **attributes):
        name = name or f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        self.shapes[name] = shape
        return name

    def conv(self, x, channels, kernel, stride=1, relu=True, name=None):
        cin, side = self.shapes[x]
        weight = self.constant((channels, cin, kernel, kernel), (2 / (cin * kernel * kernel)) ** 0.5)
        pad = (kernel - 1) // 2
        shape = (channels, (side + 2 * pad - kernel) // stride + 1)
        x = self.node("Conv", [x, weight, self.constant((channels,), 0.1)], shape, None if relu else name,
                      kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4)
        return self.node("Relu", [x], shape, name) if relu else x

    def up(self, x, channels, factor):
        cin, side = self.shapes[x]
        weight = self.constant((cin, channels, factor, factor), (2 / cin) ** 0.5)
        shape = (channels, side * factor)
        x = self.node("ConvTranspose", [x, weight, self.constant((channels,), 0.1)], shape,
                      kernel_shape=[factor] * 2, strides=[factor] * 2)
        return self.node("Relu", [x], shape)

    def write(self, folder, outputs):
        values = [(name, *self.shapes[name]) for name in outputs]
        channels, side = self.shapes["input"]
        info = lambda name, c, s: helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, c, s, s])
        graph = helper.make_graph(self.nodes, self.name, [info("input", channels, side)],
                                  [info(*value) for value in values], self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.checker.check_model(model)
        onnx.save(model, folder / f"{self.name}.onnx")


def centerpoint(folder):
    b = Builder("centerpoint_480", 32, 480)
    x, maps = "input", []
    for channels, stride, layers in ((64, 2, 4), (128, 2, 6), (256, 2, 6)):
        for layer in range(layers):
            x = b.conv(x, channels, 3, stride if layer == 0 else 1)
        maps.append(x)
    parts = [b.conv(maps[0], 128, 1), b.up(maps[1], 128, 2), b.up(maps[2], 128, 4)]
    x = b.node("Concat", parts, (384, 240), axis=1)
    shared = b.conv(x, 64, 3)
    heads = (("heatmap", 3), ("reg", 2), ("height", 1), ("dim", 3), ("rot", 2), ("vel", 2))
    for name, channels in heads:
        b.conv(b.conv(shared, 64, 1), channels, 1, relu=False, name=name)
    b.write(folder, [name for name, _ in heads])


def resnet50_stage(folder, name, cin, width, blocks, side):
    b = Builder(name, cin, side)
    x = "input"
    for block in range(blocks):
        stride = 2 if block == 0 else 1
        y = b.conv(b.conv(b.conv(x, width, 1), width, 3, stride), 4 * width, 1, relu=False)
        skip = b.conv(x, 4 * width, 1, stride, relu=False) if block == 0 else x
        y = b.node("Add", [y, skip], b.shapes[y])
        x = b.node("Relu", [y], b.shapes[y])
    b.write(folder, [x])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    centerpoint(folder)
    resnet50_stage(folder, "resnet50_layer2", 256, 128, 4, 56)
    resnet50_stage(folder, "resnet50_layer3", 512, 256, 6, 28)


if __name__ == "__main__":
    main()
