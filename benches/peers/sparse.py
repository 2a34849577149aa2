#!/usr/bin/env python3
"""Times NumPy and ONNX Runtime beside `benches/sparse.rs`: the same frame, in the same run, and prints ratios.

    python benches/peers/sparse.py DATA [--rounds 3] [--json FILE]

DATA is the folder that holds lidar/. Needs a Python with the packages of tests/oracles/requirements.txt. Ours and theirs
alternate, so that a busy machine slows both; the best median of all rounds counts, with the fastest single run beside
it. A ratio below 1 means that ours is faster.

NumPy makes the eight gather maps with sorted keys and `searchsorted`. ONNX Runtime has no sparse convolution: each layer
is a Gather of rows, the product of the im2col matrix with the weights (Gemm, which adds the bias), Add, Relu, and a
Concat of the row of zeros that empty taps point at.
"""

import argparse
import itertools
import json
import pathlib
import time

import numpy as np

import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from compare import ours, timed

VOXELS = 98_334
GRID = (1440, 1440, 41)
WINDOWS = (
    ("subm1", "down1", (3, 3, 3), (2, 2, 2), (1, 1, 1)),
    ("subm2", "down2", (3, 3, 3), (2, 2, 2), (1, 1, 1)),
    ("subm3", "down3", (3, 3, 3), (2, 2, 2), (1, 1, 0)),
    ("subm4", "conv_out", (1, 1, 3), (1, 1, 2), (0, 0, 0)),
)


def frame(data):
    """(98334, 3) voxels x, y, z in the order of their first points."""
    points = np.fromfile(data / "lidar/nuscenes_10sweep/ff9eff4389a740848f9a56ad749a4ae8.bin", "<f2").reshape(-1, 5)
    f32 = np.float32
    place = (points[:, :3].astype(f32) + f32([54, 54, 5])) / f32([0.075, 0.075, 0.2])
    voxels = place[((place >= 0) & (place < f32([1440, 1440, 41]))).all(1)].astype(np.int64)
    first = np.sort(np.unique(voxels, axis=0, return_index=True)[1])
    return voxels[first[:VOXELS]]


class Level:
    def __init__(self, voxels, shape):
        self.voxels, self.shape = voxels, shape
        keys = self.keys(voxels)
        self.order = np.argsort(keys, kind="stable")
        self.sorted = keys[self.order]

    def keys(self, voxels):
        return (voxels[:, 0] * self.shape[1] + voxels[:, 1]) * self.shape[2] + voxels[:, 2]

    def lookup(self, voxels):
        """Rows of voxels, -1 where none is active."""
        inside = ((voxels >= 0) & (voxels < self.shape)).all(1)
        keys = self.keys(voxels)
        place = np.minimum(np.searchsorted(self.sorted, keys), len(self.sorted) - 1)
        return np.where(inside & (self.sorted[place] == keys), self.order[place], -1)


def offsets(kernel):
    return list(itertools.product(*map(range, kernel)))


def submanifold(level):
    """Thirteen look-ups, each entered for the opposite tap as well."""
    count = len(level.voxels)
    found = np.full((count, 27), -1, np.int32)
    for tap, offset in enumerate(offsets((3, 3, 3))[:13]):
        rows = level.lookup(level.voxels + np.array(offset) - 1)
        hits = np.flatnonzero(rows >= 0)
        found[hits, tap] = rows[hits]
        found[rows[hits], 26 - tap] = hits
    found[:, 13] = np.arange(count)
    return found


def strided(level, kernel, stride, padding):
    stride, padding = np.array(stride), np.array(padding)
    shape = (np.array(level.shape) + 2 * padding - kernel) // stride + 1
    reached = []
    for offset in offsets(kernel):
        place = level.voxels + padding - np.array(offset)
        out = place // stride
        reached.append(out[((place % stride == 0) & (out >= 0) & (out < shape)).all(1)])
    reached = np.concatenate(reached)
    keys = np.unique((reached[:, 0] * shape[1] + reached[:, 1]) * shape[2] + reached[:, 2])
    voxels = np.stack([keys // (shape[1] * shape[2]), keys // shape[2] % shape[1], keys % shape[2]], 1)
    taps = [level.lookup(voxels * stride - padding + np.array(offset)) for offset in offsets(kernel)]
    return Level(voxels, tuple(shape)), np.stack(taps, 1).astype(np.int32)


def rulebook(voxels):
    level = Level(voxels, GRID)
    maps = {}
    for subm, down, kernel, stride, padding in WINDOWS:
        maps[subm] = submanifold(level)
        level, maps[down] = strided(level, kernel, stride, padding)
    return maps


def layers():
    """Name, channels, index and residual of the 21 layers."""
    made = [("conv_input", 5, 16, "subm1", None)]
    channels = 16
    for number, (subm, down, *_) in enumerate(WINDOWS):
        for block in range(2):
            identity = made[-1][0]
            for conv in range(2):
                made.append((f"l{number}.b{block}.conv{conv}", channels, channels, subm, identity if conv else None))
        made.append((down, channels, 128 if number == 3 else 2 * channels, down, None))
        channels = made[-1][2]
    return made


def model(maps):
    rng = np.random.default_rng(4)
    nodes, constants = [], []
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [VOXELS + 1, 5])]
    for name, found in maps.items():
        inputs.append(helper.make_tensor_value_info(name, TensorProto.INT64, list(found.shape)))
    table = "x"
    for name, cin, cout, index, residual in layers():
        taps = maps[index].shape[1]
        weight = rng.uniform(-1, 1, (taps * cin, cout)).astype(np.float32) * 3 / np.sqrt(taps * cin)
        constants += [
            numpy_helper.from_array(weight.astype(np.float32), f"{name}.w"),
            numpy_helper.from_array(np.full(cout, 0.01, np.float32), f"{name}.b"),
            numpy_helper.from_array(np.array([-1, taps * cin], np.int64), f"{name}.shape"),
            numpy_helper.from_array(np.zeros((1, cout), np.float32), f"{name}.zero"),
        ]
        nodes += [
            helper.make_node("Gather", [table, index], [f"{name}.rows"]),
            helper.make_node("Reshape", [f"{name}.rows", f"{name}.shape"], [f"{name}.matrix"]),
            helper.make_node("Gemm", [f"{name}.matrix", f"{name}.w", f"{name}.b"], [f"{name}.sum"]),
        ]
        last = f"{name}.sum"
        if residual:
            nodes.append(helper.make_node("Add", [last, f"{residual}.y"], [f"{name}.added"]))
            last = f"{name}.added"
        nodes += [
            helper.make_node("Relu", [last], [f"{name}.y"]),
            helper.make_node("Concat", [f"{name}.y", f"{name}.zero"], [f"{name}.table"], axis=0),
        ]
        table = f"{name}.table"
    output = helper.make_tensor_value_info("conv_out.y", TensorProto.FLOAT, [len(maps["conv_out"]), 128])
    graph = helper.make_graph(nodes, "sparse", inputs, [output], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def call(graph, feeds, threads):
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = ort.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, feeds)


def once(run, times=3):
    runs = []
    for _ in range(times):
        start = time.perf_counter()
        run()
        runs.append(time.perf_counter() - start)
    return sorted(runs)[times // 2], min(runs)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    voxels = frame(arguments.data)
    maps = rulebook(voxels)
    print({name: int((found >= 0).sum()) for name, found in maps.items()})
    feeds = {"x": np.vstack([np.random.default_rng(7).uniform(-1, 1, (VOXELS, 5)), np.zeros((1, 5))]).astype(np.float32)}
    last = VOXELS
    for name, found in maps.items():
        feeds[name] = np.where(found >= 0, found, last).astype(np.int64)
        last = len(found)
    graph = model(maps).SerializeToString()
    best = {}
    for _ in range(arguments.rounds):
        measured = ours("sparse", "sparse", {"SENSORIUM_TEST_DATA": str(arguments.data.resolve())})
        cases = [("rulebook", "NumPy", once(lambda: rulebook(voxels)))]
        for threads in (1, 2):
            theirs = timed(call(graph, feeds, threads), 10.0)
            cases += [(f"encoder/{precision}/{threads}", "ONNX Runtime", theirs) for precision in ("fp32", "bf16")]
        for name, peer, theirs in cases:
            _, mine, old = best.get(name, (peer, (9e9, 9e9), (9e9, 9e9)))
            best[name] = (peer, tuple(map(min, mine, measured[f"sparse/{name}"])), tuple(map(min, old, theirs)))
    print(f"{'bench':20} {'ours p50':>9} {'peer p50':>9} {'ratio':>6} {'ours min':>9} {'peer min':>9} {'ratio':>6}  peer")
    for name, (peer, mine, theirs) in best.items():
        cells = (mine[0] * 1e3, theirs[0] * 1e3, mine[0] / theirs[0], mine[1] * 1e3, theirs[1] * 1e3, mine[1] / theirs[1])
        print(f"{name:20} {cells[0]:9.2f} {cells[1]:9.1f} {cells[2]:6.3f} {cells[3]:9.2f} {cells[4]:9.1f} {cells[5]:6.3f}  {peer}")
    if arguments.json:
        arguments.json.write_text(json.dumps(best, indent=2))


if __name__ == "__main__":
    main()
