"""Writes FOLDER/narrow.onnx, whose constants are all codes of the floats of 8 and of 4 bits, raw and as fields:
write_narrow_onnx.py FOLDER.  FOLDER/NAME.f32 is what onnx.numpy_helper makes of the constant NAME."""

import sys
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper

folder = Path(sys.argv[1])
tensors = []
for label, kind, dims, codes in [
    ("e4m3", TensorProto.FLOAT8E4M3FN, [16, 16], np.arange(256)),
    ("e5m2", TensorProto.FLOAT8E5M2, [4, 64], np.arange(256)),
    # Two elements a byte: all pairs; then an odd count, whose last byte is half full.
    ("e2m1", TensorProto.FLOAT4E2M1, [512], np.arange(256)),
    ("e2m1_odd", TensorProto.FLOAT4E2M1, [3, 5], np.array([0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0x0E])),
]:
    raw = TensorProto(name=f"{label}_raw", data_type=kind, dims=dims, raw_data=codes.astype(np.uint8).tobytes())
    fields = TensorProto(name=f"{label}_fields", data_type=kind, dims=dims, int32_data=codes.tolist())
    tensors += [raw, fields]

for tensor in tensors:
    numpy_helper.to_array(tensor).astype("<f4").tofile(folder / f"{tensor.name}.f32")
value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
graph = helper.make_graph([], "narrow", [value], [value], tensors)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)])
(folder / "narrow.onnx").write_bytes(model.SerializeToString())
