"""Layers with normalisations for tests/networks/onnx_records.rs.

onnx_layers.py make FOLDER    writes layers.onnx, external.onnx (constants beside it); prints the file's SHA-256
onnx_layers.py check FOLDER   runs layers.onnx and the same layers with the weights of folded.npz; prints the largest
                              difference of each, relative to the largest value
"""

import hashlib
import json
import sys

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

CONVS = {
    "image": ("Conv", (6, 2, 3, 3), dict(group=2, pads=[1, 0, 1, 2], strides=[2, 1], dilations=[1, 2]), (1, 4, 9, 11)),
    "line": ("Conv", (5, 3, 4), dict(auto_pad="SAME_UPPER"), (2, 3, 17)),
    "volume": ("Conv", (4, 2, 2, 2, 2), dict(), (1, 2, 4, 4, 4)),
    "up": ("ConvTranspose", (6, 2, 2, 3), dict(group=3, strides=[2, 2], output_padding=[1, 0]), (1, 6, 5, 4)),
    "up_line": ("ConvTranspose", (3, 4, 2), dict(strides=[2]), (1, 3, 7)),
}


def outputs_of(name):
    kind, dims, settings, _ = CONVS[name]
    return dims[0] if kind == "Conv" else dims[1] * settings.get("group", 1)


def arrays(rng):
    made = {}
    for name, (_, dims, _, _) in CONVS.items():
        channels = outputs_of(name)
        made[f"{name}.w"] = rng.normal(0, 1, dims)
        if name != "volume":
            made[f"{name}.b"] = rng.normal(0, 1, channels)
        made[f"{name}.scale"] = rng.uniform(-2, 2, channels)
        made[f"{name}.shift"] = rng.normal(0, 1, channels)
        made[f"{name}.mean"] = rng.normal(0, 1, channels)
        made[f"{name}.var"] = rng.uniform(0.01, 3, channels)
    made["gemm.w"] = rng.normal(0, 1, (5, 7))
    made["gemm.b"] = rng.normal(0, 1, 5)
    made["mat.w"] = rng.normal(0, 1, (5, 4))
    return {name: array.astype(np.float32) for name, array in made.items()}


def layers(constants, normalised):
    nodes, inputs, outputs = [], [], []
    for name, (kind, dims, settings, shape) in CONVS.items():
        inputs.append(helper.make_tensor_value_info(f"{name}.x", TensorProto.FLOAT, shape))
        outputs.append(helper.make_tensor_value_info(f"{name}.y", TensorProto.FLOAT, None))
        weights = [f"{name}.w"] + [n for n in [f"{name}.b"] if n in constants]
        if not normalised:
            nodes.append(helper.make_node(kind, [f"{name}.x", *weights], [f"{name}.y"], **settings))
            continue
        if name == "line":
            nodes.append(helper.make_node("Identity", ["line.w"], ["line.v"]))
            nodes.append(helper.make_node("Identity", ["line.v"], ["line.u"]))
            weights[0] = "line.u"
        nodes.append(helper.make_node(kind, [f"{name}.x", *weights], [f"{name}.z"], name=f"/net/{name}/conv", **settings))
        norm = [f"{name}.{part}" for part in ("scale", "shift", "mean", "var")]
        nodes.append(
            helper.make_node("BatchNormalization", [f"{name}.z", *norm], [f"{name}.y"], name=f"/net/{name}/bn", epsilon=1e-3)
        )
    if normalised:
        inputs.append(helper.make_tensor_value_info("flat", TensorProto.FLOAT, (3, 7)))
        nodes.append(helper.make_node("Gemm", ["flat", "gemm.w", "gemm.b"], ["g"], transB=1, alpha=0.5, beta=2.0))
        constant = numpy_helper.from_array(constants.pop("mat.w"), "")
        nodes.append(helper.make_node("Constant", [], ["m"], value=constant))
        nodes.append(helper.make_node("MatMul", ["g", "m"], ["product"]))
        nodes.append(helper.make_node("Relu", ["product"], ["a"], name="twin"))
        nodes.append(helper.make_node("Relu", ["product"], ["b"], name="twin"))
        outputs += [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in "ab"]
    initializers = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "layers", inputs, outputs, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=8)


def main():
    command, folder = sys.argv[1:]
    constants = arrays(np.random.default_rng(11))
    if command == "make":
        model = layers(constants, True)
        data = model.SerializeToString()
        with open(f"{folder}/layers.onnx", "wb") as file:
            file.write(data)
        print(hashlib.sha256(data).hexdigest())
        onnx.save(
            model, f"{folder}/external.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0
        )
        return
    layered = onnx.load(f"{folder}/layers.onnx")
    # ONNX Runtime refuses two nodes of one name.
    layered.graph.node[-1].name = "other"
    before = ort.InferenceSession(layered.SerializeToString())
    with np.load(f"{folder}/folded.npz") as folded:
        after = ort.InferenceSession(layers(dict(folded), False).SerializeToString())
    rng = np.random.default_rng(12)
    feeds = {i.name: rng.normal(0, 1, i.shape).astype(np.float32) for i in before.get_inputs()}
    for name in CONVS:
        [expected] = before.run([f"{name}.y"], feeds)
        [found] = after.run([f"{name}.y"], {i.name: feeds[i.name] for i in after.get_inputs()})
        print(json.dumps([name, float(np.abs(found - expected).max() / np.abs(expected).max())]))


if __name__ == "__main__":
    main()
