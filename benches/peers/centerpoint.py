#!/usr/bin/env python3
"""Times ONNX Runtime beside `benches/centerpoint.rs`: the same graph, in the same run, and prints ratios.

    python benches/peers/centerpoint.py [--rounds 3] [--json FILE]

Needs a Python with the packages of tests/oracles/requirements.txt. Ours and theirs alternate, so that a busy machine
slows both; the best median of all rounds counts, with the fastest single run beside it. A ratio below 1 means that ours
is faster. ONNX Runtime gets the inputs of each part where they lie; the scatter is one of its Gather nodes.
"""

import argparse
import json
import pathlib
import sys

import numpy as np
import onnxruntime as ort

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE))
sys.path.append(str(HERE.parents[1] / "tests" / "oracles"))

from centerpoint_onnx import DEMO, detector_model, encoder_model, whole_model  # noqa: E402
from compare import ours, timed  # noqa: E402


def call(model, feeds, threads):
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, feeds)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    rng = np.random.default_rng(4)
    points = rng.uniform(-1, 1, (DEMO.pillars, DEMO.points, DEMO.features)).astype(np.float32)
    cells = DEMO.canvas[0] * DEMO.canvas[1]
    index = np.full(cells, DEMO.pillars, np.int64)
    index[np.arange(DEMO.pillars) * 7919 % cells] = np.arange(DEMO.pillars)
    canvas = rng.uniform(-1, 1, (1, DEMO.widths[-1], *DEMO.canvas)).astype(np.float32)
    graphs = {
        "whole": (whole_model(DEMO), {"input_features": points, "canvas_index": index}),
        "feature net": (encoder_model(DEMO, fixed=True), {"input_features": points}),
        "backbone + neck + head": (detector_model(DEMO, fixed=True), {"spatial_features": canvas}),
    }
    best = {}
    for _ in range(arguments.rounds):
        measured = ours("centerpoint", "centerpoint", {})
        for threads in (1, 2):
            for name, (model, feeds) in graphs.items():
                theirs = timed(call(model, feeds, threads))
                for precision in ("fp32", "bf16"):
                    key = f"{name}/{precision}/{threads}"
                    parts = [measured[f"centerpoint/{part}/{precision}/{threads}"] for part in name.split(" + ")]
                    mine = tuple(map(sum, zip(*parts)))
                    old = best.get(key, ((9e9, 9e9), (9e9, 9e9)))
                    best[key] = (tuple(map(min, old[0], mine)), tuple(map(min, old[1], theirs)))
    print(f"{'part / precision / threads':40} {'ours p50':>9} {'peer p50':>9} {'ratio':>6} {'ours min':>9} {'peer min':>9} {'ratio':>6}")
    for name, (mine, theirs) in best.items():
        cells = (mine[0] * 1e3, theirs[0] * 1e3, mine[0] / theirs[0], mine[1] * 1e3, theirs[1] * 1e3, mine[1] / theirs[1])
        print(f"{name:40} {cells[0]:9.3f} {cells[1]:9.3f} {cells[2]:6.2f} {cells[3]:9.3f} {cells[4]:9.3f} {cells[5]:6.2f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(best, indent=2))


if __name__ == "__main__":
    main()
