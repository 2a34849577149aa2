"""Runs an ONNX model with ONNX Runtime: run_onnx.py MODEL INPUT...  Inputs are files of little-endian
float32; all outputs go to standard output one after the other, as float32."""

import sys

import numpy as np
import onnxruntime as ort

options = ort.SessionOptions()
options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
options.intra_op_num_threads = 1
session = ort.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
feeds = {
    info.name: np.fromfile(path, "<f4").reshape(info.shape)
    for info, path in zip(session.get_inputs(), sys.argv[2:], strict=True)
}
for output in session.run(None, feeds):
    sys.stdout.buffer.write(np.ascontiguousarray(output, "<f4").tobytes())
