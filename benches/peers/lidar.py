#!/usr/bin/env python3
"""Times NumPy beside our LiDAR preparation on the same frame (two sweeps of 100,000 points) and prints ratios.

    python benches/peers/lidar.py DATA [--rounds 3] [--json FILE]

DATA is the folder that holds lidar/. Needs a Python with the packages of tests/oracles/requirements.txt. NumPy runs what
tests/oracles/pillars.py holds our results against, on one thread. Ours and theirs alternate, so that a busy machine
slows both; the best median of all rounds counts, with the fastest single run beside it.
"""

import argparse
import json
import pathlib
import sys

import numpy as np

from compare import ROOT, ours, timed

sys.path.insert(0, str(ROOT / "tests" / "oracles"))
import pillars

GROUP = "lidar_200k"
F32 = np.float32
LOW, HIGH, VOXEL = (-76.8, -76.8, -4.0), (76.8, 76.8, 6.0), (0.32, 0.32, 10.0)


def densify(sweep):
    """The sweep twice, the second time as one of 0.1 s ago: (2 N, 4) float32."""
    points = np.empty((2 * len(sweep), 4), F32)
    yaw = 0.02
    turned = np.array([[np.cos(yaw), -np.sin(yaw), 0, 1], [np.sin(yaw), np.cos(yaw), 0, 0.1], [0, 0, 1, 0]], F32)
    for at, matrix, lag in ((0, np.eye(3, 4, dtype=F32), 0.0), (len(sweep), turned, 0.1)):
        rows = points[at : at + len(sweep)]
        for axis, (a, b, c, d) in enumerate(matrix):
            rows[:, axis] = ((a * sweep[:, 0] + b * sweep[:, 1]) + c * sweep[:, 2]) + d
        rows[:, 3] = lag
    return points


def assign(points, seed=None):
    return pillars.assign(points, LOW, HIGH, VOXEL, 32, 40_000, "flipped_x", seed)


def decorate(assigned):
    padded, counts, cells, *_ = assigned
    return pillars.decorate(padded, counts, cells, LOW, VOXEL, 9)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()

    sweep = np.fromfile(arguments.data / "lidar/kitti_full360/000009.bin", F32).reshape(-1, 4)[:100_000, :3]
    points = densify(sweep)
    assigned = assign(points)
    cases = {
        "densify": lambda: densify(sweep),
        "pillars": lambda: assign(points),
        "pillars_shuffled": lambda: assign(points, 7),
        "features_f32": lambda: decorate(assigned),
        "frame": lambda: decorate(assign(densify(sweep))),
        "frame_shuffled": lambda: decorate(assign(densify(sweep), 7)),
    }
    best = {}
    for _ in range(arguments.rounds):
        measured = ours("lidar", GROUP, {"SENSORIUM_TEST_DATA": str(arguments.data.resolve())})
        for name, call in cases.items():
            old = best.get(name, ((9e9, 9e9), (9e9, 9e9)))
            best[name] = [tuple(map(min, *pair)) for pair in zip(old, (measured[f"{GROUP}/{name}"], timed(call)))]

    print(f"{'':18} {'median: ours, NumPy (ms)':>24} {'NumPy':>7}   {'fastest: ours, NumPy (ms)':>25} {'NumPy':>7}")
    for name, (mine, theirs) in best.items():
        cells = [f"{mine[i] * 1e3:14.3f} {theirs[i] * 1e3:9.1f} {theirs[i] / mine[i]:6.0f}x" for i in (0, 1)]
        print(f"{name:18} " + "    ".join(cells))
    if arguments.json:
        arguments.json.write_text(json.dumps(best, indent=2))


if __name__ == "__main__":
    main()
