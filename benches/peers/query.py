"""The operations of benches/query.rs with ONNX Runtime and numpy (fp32: neither has bf16 kernels here).

usage: query.py [THREADS]
"""

import sys
import time

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper

threads = int(sys.argv[1]) if len(sys.argv) > 1 else 1


def best(run, repeats=15):
    run()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return f"{1e3 * np.median(times):.3f} ms"


def session(node, inputs, outputs):
    value = helper.make_tensor_value_info
    graph = helper.make_graph([node], "one", [value(*i) for i in inputs], [value(*o) for o in outputs])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 16)], ir_version=8)
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


rng = np.random.default_rng(1)
F, I = TensorProto.FLOAT, TensorProto.INT64
for count in (184320, 458752):
    run = session(helper.make_node("TopK", ["x", "k"], ["v", "i"], axis=0), [("x", F, [count]), ("k", I, [1])], [("v", F, [512]), ("i", I, [512])])
    feeds = {"x": rng.random(count, np.float32), "k": np.array([512])}
    print(f"top 512 of {count}: ONNX Runtime {best(lambda: run.run(None, feeds))}")

run = session(helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]), [("x", F, [1, 5, 192, 192])], [("y", F, [1, 5, 192, 192])])
heat = rng.random((1, 5, 192, 192), np.float32)
print(f"local maxima of 192 x 192 x 5: ONNX Runtime's pooling alone {best(lambda: run.run(None, {'x': heat}))}")

node = helper.make_node("GridSample", ["x", "g"], ["y"], mode="bilinear", padding_mode="zeros")
run = session(node, [("x", F, [8, 96, 128, 128]), ("g", F, [8, 128, 128, 2])], [("y", F, [8, 96, 128, 128])])
y, x = np.meshgrid(np.arange(128) / 64 - 1, np.arange(128) / 64 - 1, indexing="ij")
grid = np.broadcast_to(np.stack([0.995 * x - 0.1 * y, 0.1 * x + 0.995 * y], -1), (8, 128, 128, 2)).astype(np.float32)
maps = rng.random((8, 96, 128, 128), np.float32)
print(f"8 maps of 128 x 128 x 96 sampled: ONNX Runtime {best(lambda: run.run(None, {'x': maps, 'g': grid}), 7)}")

rows = rng.random((160000, 128), np.float32)
offsets = np.arange(60000) * 160000 // 60000
print(f"60000 segments of 160000 x 128: numpy's maximum.reduceat {best(lambda: np.maximum.reduceat(rows, offsets), 7)}")
