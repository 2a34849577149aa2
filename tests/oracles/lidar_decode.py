"""A centre head decoded by NumPy after Autoware's kernel: lidar_decode.py CONFIG HEADS OUT.

CONFIG is JSON: grid [x, y], voxel_m, range_min_m, downsample, limits_m, scores [bins][classes], yaw_norms, variance.
HEADS holds float32 planes: heatmap, offset, z, dim, rot, vel. OUT receives float32 rows in the order of cells: cell,
label, score, entropy, x, y, z, length, width, height, yaw, vel x, vel y, and with variances those of x, y, z, length,
width, height, yaw, vel x, vel y.
"""

import json
import pathlib
import sys

import numpy as np

F = np.float32


def rounded(function, *arguments):
    return function(*(a.astype(np.float64) for a in arguments)).astype(F)


def exp(x):
    return rounded(np.exp, x)


def main():
    config_path, heads_path, out_path = map(pathlib.Path, sys.argv[1:])
    config = json.loads(config_path.read_text())
    width, height = config["grid"]
    cells = width * height
    classes = len(config["yaw_norms"])
    twice = 2 if config["variance"] else 1
    flat = np.frombuffer(heads_path.read_bytes(), "<f4")
    heads, at = {}, 0
    for name, channels in ("heat", classes), ("offset", 2 * twice), ("z", twice), ("dim", 3 * twice), ("rot", 2 * twice), ("vel", 2 * twice):
        heads[name] = flat[at : at + channels * cells].reshape(channels, cells)
        at += channels * cells
    assert at == flat.size

    with np.errstate(all="ignore"):
        scores = F(1) / (F(1) + exp(-heads["heat"]))
        label = scores.argmax(0)
        score = scores.max(0)
        cell = np.arange(cells)
        size_x, size_y = (F(v) * F(config["downsample"]) for v in config["voxel_m"])
        x = size_x * ((cell % width).astype(F) + heads["offset"][0]) + F(config["range_min_m"][0])
        y = size_y * ((cell // width).astype(F) + heads["offset"][1]) + F(config["range_min_m"][1])
        distance = np.sqrt(x * x + y * y)
        limits = np.array(config["limits_m"], F)
        inside = distance[None] < limits[:, None]
        in_range = inside.any(0)
        bin_ = inside.argmax(0)

        def coerced(values):
            values = np.array(values, F)
            return np.where((values >= 0) & (values < 1), values, F(0))

        passes = score >= coerced(config["scores"])[bin_, label]
        sin, cos = heads["rot"][:2]
        norm = np.sqrt(sin * sin + cos * cos)
        keep = in_range & passes & (norm >= coerced(config["yaw_norms"])[label]) & (score > 0)

        entropy = np.zeros(cells, F)
        if config["variance"]:
            for logits in heads["heat"]:
                p = np.clip(logits, F(1e-6), F(1) - F(1e-6))
                entropy += (-p * rounded(np.log, p) - (F(1) - p) * rounded(np.log, F(1) - p)) * F(1.4426950408889634)
        columns = [
            cell.astype(F), label.astype(F), score, entropy, x, y, heads["z"][0],
            exp(heads["dim"][1]), exp(heads["dim"][0]), exp(heads["dim"][2]), rounded(np.arctan2, sin, cos),
            heads["vel"][0], heads["vel"][1],
        ]
        if config["variance"]:
            sin2, cos2 = sin * sin, cos * cos
            norm2 = (sin2 + cos2) * (sin2 + cos2)
            columns += [
                size_x * exp(heads["offset"][2]), size_x * exp(heads["offset"][3]), exp(heads["z"][1]),
                exp(heads["dim"][4]), exp(heads["dim"][3]), exp(heads["dim"][5]),
                (cos2 * exp(heads["rot"][2]) + sin2 * exp(heads["rot"][3])) / norm2,
                exp(heads["vel"][2]), exp(heads["vel"][3]),
            ]
    out_path.write_bytes(np.stack(columns, 1)[keep].astype("<f4").tobytes())


if __name__ == "__main__":
    main()
