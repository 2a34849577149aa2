"""Matrices of one-dimensional resizes as ONNX Runtime computes them, row-major float32 on standard output one after the
other: interpolation.py (N_IN N_OUT half_pixel|align_corners|asymmetric)...  asymmetric is nearest, rounded down; the
others are linear."""

import sys

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper


def matrix(n_in, n_out, rule):
    attributes = {"coordinate_transformation_mode": rule, "mode": "linear"}
    if rule == "asymmetric":
        attributes |= {"mode": "nearest", "nearest_mode": "floor"}
    graph = helper.make_graph(
        [helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], **attributes)],
        "resize",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [n_in, 1, 1, n_in])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [helper.make_tensor("sizes", TensorProto.INT64, [4], [n_in, 1, 1, n_out])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    # One image for each input element, which is one there and zero elsewhere.
    images = np.eye(n_in, dtype="<f4").reshape(n_in, 1, 1, n_in)
    (columns,) = session.run(None, {"x": images})
    return columns.reshape(n_in, n_out).T


arguments = sys.argv[1:]
for n_in, n_out, rule in zip(arguments[::3], arguments[1::3], arguments[2::3], strict=True):
    sys.stdout.buffer.write(np.ascontiguousarray(matrix(int(n_in), int(n_out), rule), "<f4").tobytes())
