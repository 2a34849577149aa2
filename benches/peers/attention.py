#!/usr/bin/env python3
"""Times ONNX Runtime beside our attention, in the same run, and prints ratios.

    python benches/peers/attention.py [--rounds 3] [--json FILE]

Needs a Python with onnx and onnxruntime. Ours is `cargo bench --bench attention`; theirs is the graph of two MatMul and a
Softmax, and the operator com.microsoft.MultiHeadAttention. Ours and theirs alternate, so that a busy machine slows both;
the best median of all rounds counts, with the fastest single run beside it. A ratio below 1 means that ours is faster.
"""

import argparse
import json
import pathlib

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper

from compare import ours, timed

SHAPES = ((8, 576, 576, 32), (8, 576, 576, 64), (8, 500, 500, 32), (8, 900, 1668, 32), (8, 500, 32400, 32))


def values(*dims):
    i = np.arange(np.prod(dims), dtype=np.int64)
    return ((i * 7919 % 2003) / 1001 - 1).astype(np.float32).reshape(dims)


def session(graph, threads):
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)], ir_version=9
    )
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def tensor(name, *dims):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)


def two_products(shape, threads):
    heads, queries, keys, size = shape
    nodes = [
        helper.make_node("Mul", ["q", "scale"], ["qs"]),
        helper.make_node("MatMul", ["qs", "kt"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["weights"], axis=-1),
        helper.make_node("MatMul", ["weights", "v"], ["out"]),
    ]
    graph = helper.make_graph(
        nodes,
        "two_products",
        [tensor("q", 1, heads, queries, size), tensor("kt", 1, heads, size, keys), tensor("v", 1, heads, keys, size)],
        [tensor("out", 1, heads, queries, size)],
        [helper.make_tensor("scale", TensorProto.FLOAT, [], [size**-0.5])],
    )
    run = session(graph, threads)
    feeds = {"q": values(1, heads, queries, size), "kt": values(1, heads, size, keys), "v": values(1, heads, keys, size)}
    return lambda: run.run(None, feeds)


def multi_head(shape, threads):
    heads, queries, keys, size = shape
    width = heads * size
    node = helper.make_node(
        "MultiHeadAttention", ["q", "k", "v"], ["out"], domain="com.microsoft", num_heads=heads, scale=size**-0.5
    )
    graph = helper.make_graph(
        [node],
        "multi_head",
        [tensor("q", 1, queries, width), tensor("k", 1, keys, width), tensor("v", 1, keys, width)],
        [tensor("out", 1, queries, width)],
    )
    run = session(graph, threads)
    feeds = {"q": values(1, queries, width), "k": values(1, keys, width), "v": values(1, keys, width)}
    return lambda: run.run(None, feeds)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    best = {}

    def note(name, median, fastest):
        known = best.get(name, (float("inf"), float("inf")))
        best[name] = (min(known[0], median), min(known[1], fastest))

    for _ in range(arguments.rounds):
        for name, times in ours("attention", "attention", {}).items():
            if name.startswith("attention/"):
                note(name, *times)
        for shape in SHAPES:
            for threads in (1, 2):
                for kind, made in (("products", two_products), ("multi-head", multi_head)):
                    note((kind, shape, threads), *timed(made(shape, threads), 1.0))
    rows = []
    print(f"{'heads x queries x keys x size':30} threads  type   ours ms  products ms  ratio  multi-head ms  ratio  (fastest runs)")
    for shape in SHAPES:
        text = "x".join(map(str, shape))
        for threads in (1, 2):
            for dtype in ("fp32", "bf16"):
                mine = best[f"attention/{text}/{dtype}/{threads}"]
                peers = [best[(kind, shape, threads)] for kind in ("products", "multi-head")]
                row = {"shape": shape, "threads": threads, "type": dtype, "ours_s": mine, "peers_s": peers}
                rows.append(row)
                ratios = [mine[1] / peer[1] for peer in peers]
                print(
                    f"{text:30} {threads:7}  {dtype}  {mine[1] * 1e3:8.3f}  {peers[0][1] * 1e3:11.3f}  {ratios[0]:5.2f}"
                    f"  {peers[1][1] * 1e3:13.3f}  {ratios[1]:5.2f}"
                )
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
