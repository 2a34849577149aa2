#!/usr/bin/env python3
"""Times ONNX Runtime and OpenCV beside our benches, on the same inputs and in the same run, and prints ratios.

    python benches/peers/compare.py DATA [--networks FOLDER] [--rounds 3] [--json FILE]

DATA is the folder that holds models/. FOLDER holds more ONNX files, such as those that networks.py writes; they are
timed by `sensorium model bench`. Needs a Python with the packages of tests/oracles/requirements.txt. Ours and
theirs alternate, so that a busy machine slows both; the best median of all rounds counts, with the fastest
single run beside it. A ratio below 1 means that ours is faster.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

import cv2
import numpy as np
import onnxruntime as ort

ROOT = pathlib.Path(__file__).resolve().parents[2]


def ours(bench, pattern, env):
    """Runs our benches that match and returns {name: (median_s, fastest_s)} from criterion's samples."""
    began = time.time()
    subprocess.run(
        ["cargo", "bench", "--quiet", "--bench", bench, "--", "--measurement-time", "3", "--warm-up-time", "1", pattern],
        cwd=ROOT, env={**os.environ, **env}, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )
    found = {}
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    for sample in (target / "criterion").glob("**/new/sample.json"):
        if sample.stat().st_mtime < began:
            continue  # of an earlier run
        name = json.loads((sample.parent / "benchmark.json").read_text())["full_id"]
        data = json.loads(sample.read_text())
        runs = sorted(t / n / 1e9 for t, n in zip(data["times"], data["iters"]))
        found[name] = (runs[len(runs) // 2], runs[0])
    return found


def model_bench(path, runs):
    """`sensorium model bench` of a file: {name: (ours, theirs)}, each (median_s, fastest_s)."""
    done = subprocess.run(
        ["cargo", "run", "--quiet", "--release", "--bin", "sensorium", "--", "model", "bench", str(path), "--runs", str(runs),
         "--python", sys.executable, "--format", "json"],
        cwd=ROOT, check=True, stdout=subprocess.PIPE,
    )
    seconds = lambda times: (times["median_ms"] / 1e3, times["fastest_ms"] / 1e3)
    return {
        f"{path.stem}/{row['storage']}/{row['threads']}": (seconds(row["total"]), seconds(row["onnx_runtime"]))
        for row in json.loads(done.stdout)["rows"]
    }


def timed(call, seconds=3.0):
    for _ in range(5):
        call()
    runs = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        call()
        runs.append(time.perf_counter() - start)
    runs.sort()
    return runs[len(runs) // 2], runs[0]


def onnx_call(path, size, threads):
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    pixels = (np.arange(3 * size * size) * 7 % 251).reshape(1, 3, size, size).astype(np.float32)
    return lambda: session.run(None, {name: pixels})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--networks", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    models = arguments.data.resolve() / "models"
    env = {"SENSORIUM_TEST_DATA": str(arguments.data.resolve())}

    cases = []
    for name, file, size in (("yolox_nano", "yolox_nano_416.onnx", 416), ("fastestdet", "FastestDet_352.onnx", 352)):
        for threads in (1, 2):
            call = onnx_call(models / file, size, threads)
            for precision in ("fp32", "bf16"):
                cases.append(("network", f"network/{name}/{precision}/{threads}", f"ONNX Runtime fp32, {threads} thread(s)", call))

    best = {}
    for _ in range(arguments.rounds):
        measured = ours("network", "network", env)
        for bench, name, peer, call in cases:
            matching = [key for key in measured if key == name]
            if not matching:
                raise SystemExit(f"no bench is called {name}; there are {sorted(measured)}")
            mine, theirs = measured[matching[0]], timed(call)
            old = best.get(matching[0], (peer, (9e9, 9e9), (9e9, 9e9)))
            best[matching[0]] = (
                peer,
                tuple(map(min, old[1], mine)),
                tuple(map(min, old[2], theirs)),
            )

    for path in sorted(arguments.networks.resolve().glob("*.onnx")) if arguments.networks else []:
        for _ in range(arguments.rounds):
            for name, (mine, theirs) in model_bench(path, 10).items():
                old = best.get(name, (None, (9e9, 9e9), (9e9, 9e9)))
                best[name] = ("ONNX Runtime fp32", tuple(map(min, old[1], mine)), tuple(map(min, old[2], theirs)))

    print(f"{'bench':44} {'ours p50':>9} {'peer p50':>9} {'ratio':>6} {'ours min':>9} {'peer min':>9} {'ratio':>6}  peer")
    for name, (peer, mine, theirs) in best.items():
        cells = (mine[0] * 1e3, theirs[0] * 1e3, mine[0] / theirs[0], mine[1] * 1e3, theirs[1] * 1e3, mine[1] / theirs[1])
        print(f"{name:44} {cells[0]:9.3f} {cells[1]:9.3f} {cells[2]:6.2f} {cells[3]:9.3f} {cells[4]:9.3f} {cells[5]:6.2f}  {peer}")
    if arguments.json:
        arguments.json.write_text(json.dumps(best, indent=2))


if __name__ == "__main__":
    main()
