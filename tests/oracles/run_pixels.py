"""Runs a detector with ONNX Runtime on pixels: run_pixels.py MODEL PRECISION SCALE OUT FILE...  A file holds the
bytes of one image of the model's input size, rows of BGR pixels; each is multiplied by SCALE. For image i,
OUT/i.head receives the network's output as float32.

PRECISION is fp32, or bf16 for what storage in bfloat16 costs at least: convolution weights and the results of Mul and
Add (of an activation, of a shortcut) rounded to 8 bits, to nearest, everything else in single precision.
"""

import pathlib
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper


def rounded(values):
    scaled = values * np.float32(65537)  # Dekker's split: 2**16 + 1 leaves the upper 8 of 24 bits
    return scaled - (scaled - values)


def round_to_bf16(graph):
    for tensor in graph.initializer:
        values = numpy_helper.to_array(tensor)
        if values.dtype == np.float32 and values.ndim == 4:
            tensor.CopyFrom(numpy_helper.from_array(rounded(values), tensor.name))
    graph.initializer.append(numpy_helper.from_array(np.array(65537, np.float32), "splitter"))
    nodes, renamed = [], {}
    for node in graph.node:
        node.input[:] = [renamed.get(name, name) for name in node.input]
        nodes.append(node)
        if node.op_type in ("Mul", "Add"):
            name = node.output[0]
            nodes.append(helper.make_node("Mul", [name, "splitter"], [name + ".scaled"]))
            nodes.append(helper.make_node("Sub", [name + ".scaled", name], [name + ".rest"]))
            nodes.append(helper.make_node("Sub", [name + ".scaled", name + ".rest"], [name + ".rounded"]))
            renamed[name] = name + ".rounded"
    del graph.node[:]
    graph.node.extend(nodes)


path, precision, scale, out, *files = sys.argv[1:]
model = onnx.load(path)
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
if precision == "bf16":
    round_to_bf16(model.graph)
    # An optimiser would see that the split adds nothing.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
info = session.get_inputs()[0]
_, channels, height, width = info.shape
for i, file in enumerate(files):
    pixels = np.fromfile(file, np.uint8).reshape(height, width, channels).astype(np.float32) * np.float32(scale)
    head = session.run(None, {info.name: np.ascontiguousarray(pixels.transpose(2, 0, 1)[None])})[0]
    head.astype("<f4").tofile(pathlib.Path(out) / f"{i}.head")
