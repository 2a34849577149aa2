"""What scripts share that write small models and what ONNX Runtime makes of them.  The folder is the first argument.
For each case NAME there are NAME.onnx, NAME.in (all inputs, as float32) and NAME.out (all outputs, as float32)."""

import sys
from pathlib import Path

import numpy as np
import onnxruntime as ort
from onnx import helper, numpy_helper

folder = Path(sys.argv[1])
rng = np.random.default_rng(7)


def values(*shape):
    return rng.normal(0, 2, shape).astype(np.float32)


def ints(*numbers):
    return np.array(numbers, np.int64)


def floats(*numbers):
    return np.array(numbers, np.float32)


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs.split() if isinstance(inputs, str) else inputs, outputs.split(), **attributes)


def case(name, nodes, inputs, constants=None, outputs="y", opset=13, ir_version=8, domains=()):
    """`inputs` is an array (named x) or a dictionary of arrays."""
    nodes = nodes if isinstance(nodes, list) else [nodes]
    inputs = inputs if isinstance(inputs, dict) else {"x": inputs}
    inputs = {k: np.asarray(v) for k, v in inputs.items()}
    used = {name for n in nodes for name in n.input}
    constants = {k: v for k, v in (constants or {}).items() if k in used}
    kind = lambda array: helper.np_dtype_to_tensor_dtype(array.dtype)
    graph = helper.make_graph(
        nodes,
        name,
        [helper.make_tensor_value_info(k, kind(v), v.shape) for k, v in inputs.items()],
        [helper.make_empty_tensor_value_info(o) for o in outputs.split()],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
    )
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=ir_version)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    results = session.run(None, inputs)
    (folder / f"{name}.onnx").write_bytes(model.SerializeToString())
    np.concatenate([np.float32(v).ravel() for v in inputs.values()]).tofile(folder / f"{name}.in")
    np.concatenate([np.float32(r).ravel() for r in results]).tofile(folder / f"{name}.out")
