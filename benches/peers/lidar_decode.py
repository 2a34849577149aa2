#!/usr/bin/env python3
"""Times a NumPy transcription beside our finishing of a 240 x 240 centre head, and prints milliseconds and ratios.

    python benches/peers/lidar_decode.py [--rounds 3] [--json FILE]

Needs a Python with NumPy. Decoding is vectorised over all cells; suppression is NumPy over all earlier boxes, with the
rotated overlap in plain Python for pairs whose circles meet. Ours and theirs alternate, so that a busy machine slows both;
the best median of all rounds counts, with the fastest single run beside it. "peer" is their time as a multiple of ours.
"""

import argparse
import json
import math
import pathlib

import numpy as np

from compare import ours, timed

GROUP = "lidar_decode_240x240"
SIDE, CLASSES, COLUMNS = 240, 5, 15
CELLS = SIDE * SIDE
F = np.float32
LIMITS = np.array([50.0, 90.0, 121.0, 200.0], F)
SCORE = np.full((4, CLASSES), 0.35, F)
YAW = np.array([0.3, 0.3, 0.3, 0.3, 0.0], F)
PEDESTRIAN = 4


def planes():
    """The head of benches/lidar_decode.rs."""
    cell, column = np.arange(CELLS, dtype=np.uint64)[None], np.arange(COLUMNS, dtype=np.uint64)[:, None]
    noise = ((cell * np.uint64(2_654_435_761) + column * np.uint64(40_503)) >> np.uint64(7) & np.uint64(0xFFFF)).astype(F) / F(65536)
    head = F(2) * noise - F(1)
    head[:CLASSES] = F(-6) + F(2) * noise[:CLASSES]
    ix, iy = np.arange(CELLS) % SIDE, np.arange(CELLS) // SIDE
    hit = np.flatnonzero((ix % 32 < 3) & (iy % 32 < 3))
    label = (ix // 32 + iy // 32)[hit] % CLASSES
    head[label, hit] = F(1) + F(3) * noise[label, hit]
    head[8], head[9], head[10] = F(0.7) * noise[8], F(1) + F(0.8) * noise[9], F(0.5) * noise[10]
    return head


def decode(head):
    scores = F(1) / (F(1) + np.exp(-head[:CLASSES]))
    label, score = scores.argmax(0), scores.max(0)
    cell = np.arange(CELLS)
    x = F(0.64) * ((cell % SIDE).astype(F) + head[5]) + F(-76.8)
    y = F(0.64) * ((cell // SIDE).astype(F) + head[6]) + F(-76.8)
    distance = np.sqrt(x * x + y * y)
    bin_ = np.searchsorted(LIMITS, distance, side="right")
    keep = bin_ < LIMITS.size
    keep[keep] = score[keep] >= SCORE[bin_[keep], label[keep]]
    sin, cos = head[11], head[12]
    keep &= np.sqrt(sin * sin + cos * cos) >= YAW[label]
    k = np.flatnonzero(keep)
    return label[k], score[k], x[k], y[k], head[7, k], np.exp(head[9, k]), np.exp(head[8, k]), np.exp(head[10, k]), np.arctan2(sin[k], cos[k]), head[13, k], head[14, k]


def circle_nms(x, y, distance):
    limit = F(distance) * F(distance)
    kept = []
    for i in range(x.size):
        dx, dy = x[kept] - x[i], y[kept] - y[i]
        if not (dx * dx + dy * dy < limit).any():
            kept.append(i)
    return np.array(kept)


def corners(x, y, length, width, yaw):
    sin, cos = math.sin(yaw), math.cos(yaw)
    return [(x + cos * l - sin * w, y + sin * l + cos * w) for l, w in ((length / 2, width / 2), (-length / 2, width / 2), (-length / 2, -width / 2), (length / 2, -width / 2))]


def area(polygon):
    return 0.5 * sum(a[0] * b[1] - a[1] * b[0] for a, b in zip(polygon, polygon[1:] + polygon[:1]))


def clip(polygon, window):
    for (ax, ay), (bx, by) in zip(window, window[1:] + window[:1]):
        sides = [(bx - ax) * (y - ay) - (by - ay) * (x - ax) for x, y in polygon]
        cut = []
        for i, (p, s) in enumerate(zip(polygon, sides)):
            q, t = polygon[i - 1], sides[i - 1]
            if (t < 0) != (s < 0):
                r = t / (t - s)
                cut.append((q[0] + r * (p[0] - q[0]), q[1] + r * (p[1] - q[1])))
            if s >= 0:
                cut.append(p)
        polygon = cut
    return polygon


def iou_nms(x, y, length, width, yaw, label):
    radius = np.hypot(length, width) / 2
    shapes = [corners(*row) for row in zip(x.tolist(), y.tolist(), length.tolist(), width.tolist(), yaw.tolist())]
    areas = [area(shape) for shape in shapes]
    keep = []
    for i in range(x.size):
        squared = (x[:i] - x[i]) ** 2 + (y[:i] - y[i]) ** 2
        near = (squared <= 100) & (squared <= (radius[:i] + radius[i]) ** 2)
        near &= (label[:i] == label[i]) | ((label[:i] != PEDESTRIAN) & (label[i] != PEDESTRIAN))
        for j in np.flatnonzero(near):
            overlap = area(clip(shapes[i], shapes[j]))
            if overlap >= 1e-6 and overlap / (areas[i] + areas[j] - overlap) > 0.1:
                break
        else:
            keep.append(i)
    return np.array(keep)


def finish(head):
    boxes = decode(head)
    order = np.argsort(-boxes[1], kind="stable")
    boxes = [column[order] for column in boxes]
    kept = circle_nms(boxes[2], boxes[3], 0.5)
    label, score, x, y, z, length, width, height, yaw, vx, vy = (column[kept] for column in boxes)
    heading = (-yaw - np.pi / 2).astype(F)
    sin, cos = np.sin(heading), np.cos(heading)
    twist = cos * vx + sin * vy, -sin * vx + cos * vy
    kept = iou_nms(x.astype(float), y.astype(float), length.astype(float), width.astype(float), heading.astype(float), label)
    size = (length * width)[kept]
    long = (label[kept] < 3) & (size >= 36)
    return kept.size, twist, np.where(long, 3, np.where((label[kept] == 0) & (size >= 12.1), 1, label[kept]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()

    head = planes()
    boxes = decode(head)
    order = np.argsort(-boxes[1], kind="stable")
    label, _, x, y, _, length, width, _, yaw, _, _ = (column[order] for column in boxes)
    heading = -yaw - np.pi / 2
    wide = [column.astype(float) for column in (x, y, length, width, heading)]
    calls = {
        "decode/planes": lambda: decode(head),
        "circle_nms": lambda: circle_nms(x, y, 0.5),
        "iou_bev_nms": lambda: iou_nms(*wide, label),
        "whole/planes": lambda: finish(head),
    }
    print(f"{x.size} boxes, {finish(head)[0]} objects")
    best = {}
    for _ in range(arguments.rounds):
        measured = ours("lidar_decode", GROUP, {})
        for name, call in calls.items():
            pair = measured[f"{GROUP}/{name}"], timed(call, 1.0)
            best[name] = [tuple(map(min, *old_new)) for old_new in zip(best.get(name, ((9e9, 9e9),) * 2), pair)]
    print(f"{'':16} {'median: ours, peer (ms)':>24} {'peer':>6}   {'fastest: ours, peer (ms)':>24} {'peer':>6}")
    for name, (mine, theirs) in best.items():
        line = f"{name:16}"
        for i in (0, 1):
            line += f" {mine[i] * 1e3:14.3f} {theirs[i] * 1e3:9.2f} {theirs[i] / mine[i]:6.1f}  "
        print(line)
    if arguments.json:
        arguments.json.write_text(json.dumps(best, indent=2))


if __name__ == "__main__":
    main()
