"""Samples maps with ONNX Runtime's GridSample.

usage: grid_sample.py FOLDER MODE PADDING ALIGN N C H W OH OW
reads FOLDER/x (fp32 [N, C, H, W]) and FOLDER/grid (fp32 [N, OH, OW, 2]), writes fp32 [N, C, OH, OW] to stdout
"""

import pathlib
import sys

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper

folder, mode, padding, align = sys.argv[1:5]
n, c, h, w, oh, ow = map(int, sys.argv[5:])
# Opset 16 calls it bilinear, opset 20 linear.
node = helper.make_node("GridSample", ["x", "grid"], ["y"], mode=mode, padding_mode=padding, align_corners=int(align))
value = helper.make_tensor_value_info
graph = helper.make_graph(
    [node],
    "sample",
    [value("x", TensorProto.FLOAT, [n, c, h, w]), value("grid", TensorProto.FLOAT, [n, oh, ow, 2])],
    [value("y", TensorProto.FLOAT, [n, c, oh, ow])],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=8)
session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
read = lambda name, shape: np.fromfile(pathlib.Path(folder, name), np.float32).reshape(shape)
(y,) = session.run(None, {"x": read("x", (n, c, h, w)), "grid": read("grid", (n, oh, ow, 2))})
sys.stdout.buffer.write(y.astype(np.float32).tobytes())
