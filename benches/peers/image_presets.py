#!/usr/bin/env python3
"""Times OpenCV and NumPy at the work of our pre-processing presets, one thread, and prints milliseconds.

    python benches/peers/image_presets.py

Needs a Python with the packages of tests/oracles/requirements.txt. Frames, sizes and names are those of
benches/image_presets.rs. OpenCV has none of the deployed resizes: it does its own of the same sizes (the nearest
work that a node without a GPU could do). NumPy does the deployed arithmetic bit for bit over tables made once.
"""

import cv2
import numpy as np

from compare import timed

F32 = np.float32
MEAN, STD = F32([103.53, 116.28, 123.675]), F32([57.375, 57.12, 58.395])


def frame(width, height):
    return (np.arange(height * width * 3) * 7 % 251).reshape(height, width, 3).astype(np.uint8)


def letterbox_opencv(image, size):
    scale = min(size / image.shape[1], size / image.shape[0])

    def call():
        canvas = np.full((size, size, 3), 114, np.uint8)
        width, height = int(image.shape[1] * scale), int(image.shape[0] * scale)
        canvas[:height, :width] = cv2.resize(image, (width, height), interpolation=cv2.INTER_LINEAR)
        return canvas

    return call


def letterbox_numpy(image, size):
    sides = image.shape[:2]
    scale = min(F32(size) / F32(sides[1]), F32(size) / F32(sides[0]))
    step = F32(1.0 / float(scale))

    def taps(side):
        position = step * (np.arange(int(scale * F32(side)), dtype=F32) + F32(0.5))
        nearest = np.floor(position.astype(np.float64) + 0.5)
        first = np.clip(nearest.astype(np.int64) - 1, 0, side - 2)
        return first, (F32(1) + nearest.astype(F32) - position) / F32(2)

    (rows, row_weights), (columns, column_weights) = map(taps, sides)

    def blend(a, b, weight):
        # Products of a float and a byte are exact in double, so each line rounds once, as fmaf does.
        inner = (a - weight.astype(np.float64) * a).astype(F32)
        return (weight.astype(np.float64) * b + inner).astype(F32)

    def across(pixels):
        weights = column_weights[None, :, None]
        return blend(pixels[:, columns], pixels[:, columns + 1], weights).astype(np.int32)

    def call():
        canvas = np.full((size, size, 3), 114, np.uint8)
        lower = blend(across(image[rows]), across(image[rows + 1]), row_weights[:, None, None])
        canvas[: len(rows), : len(columns)] = np.floor(lower.astype(np.float64) + 0.5)
        return canvas

    return call


def streampetr_opencv(image, width, height):
    scale = max(height / image.shape[0], width / image.shape[1])
    size = int(image.shape[1] * scale), int(image.shape[0] * scale)
    left, top = (size[0] - width) // 2, size[1] - height

    def call():
        small = cv2.resize(image, size, interpolation=cv2.INTER_AREA)[top : top + height, left : left + width]
        return np.ascontiguousarray(((small.astype(F32) - MEAN) / STD).transpose(2, 0, 1))

    return call


def triangle_taps(source, resized, start, count):
    scale = F32(source) / F32(resized)
    support = max(scale, F32(1))
    positions = np.arange(start, start + count, dtype=F32) + F32(0.5)
    centres = (positions.astype(np.float64) * np.float64(scale) - 0.5).astype(F32)
    first = np.maximum(np.ceil(centres - support).astype(np.int64), 0)
    last = np.minimum(np.floor(centres + support).astype(np.int64), source - 1)
    samples = first[:, None] + np.arange((last - first).max() + 1)
    weights = np.maximum(F32(0), F32(1) - np.abs(centres[:, None] - samples.astype(F32)) / support)
    weights[samples > last[:, None]] = 0
    return np.minimum(samples, source - 1), weights


def fma(a, b, c):
    """One rounding of a * b + c: the product is exact in double, and a double sum that a second rounding could
    mislead is moved towards the exact one first."""
    product = a.astype(np.float64) * b
    total = product + c
    high = total - product
    error = (product - (total - high)) + (c - high)
    odd = total.view(np.int64) & 1
    toward = np.where((error > 0) == (total > 0), 1, -1)
    moved = (total.view(np.int64) + np.where((error != 0) & (odd == 0), toward * 1, 0)).view(np.float64)
    return moved.astype(F32)


def streampetr_numpy(image, width, height):
    sides = image.shape[:2]
    scale = max(F32(height) / F32(sides[0]), F32(width) / F32(sides[1]))
    resized = [int(F32(side) * scale) for side in sides]
    rows, row_weights = triangle_taps(sides[0], resized[0], max(0, resized[0] - height), height)
    columns, column_weights = triangle_taps(sides[1], resized[1], max(0, (resized[1] - width) // 2), width)

    def call():
        planes = image.transpose(2, 0, 1).astype(F32)
        sums = np.zeros((3, height, width), F32)
        total = np.zeros((height, width), F32)
        for i in range(rows.shape[1]):
            from_rows = planes[:, rows[:, i]]
            for j in range(columns.shape[1]):
                weight = column_weights[None, :, j] * row_weights[:, i, None]
                sums = fma(from_rows[:, :, columns[:, j]], weight, sums)
                total += weight
        means = sums / total
        return (means - MEAN[:, None, None]) / STD[:, None, None]

    return call


def bevdet_numpy(image):
    factor = F32(704) / F32(1600)
    rows = np.floor((np.arange(256, dtype=F32) / factor + F32(140) / factor) + F32(0.5)).astype(np.int64)
    columns = np.floor(np.arange(704, dtype=F32) / factor + F32(0.5)).astype(np.int64)
    return lambda: np.ascontiguousarray(image[rows][:, columns].transpose(2, 0, 1))


def main():
    cv2.setNumThreads(1)
    road, wide = frame(1920, 1080), frame(1600, 900)
    cases = (
        ("yolox_autoware/1080p", "OpenCV INTER_LINEAR", letterbox_opencv(road, 960)),
        ("yolox_autoware/1080p", "NumPy, same bits", letterbox_numpy(road, 960)),
        ("streampetr/1080p", "OpenCV INTER_AREA", streampetr_opencv(road, 640, 480)),
        ("streampetr/1080p", "NumPy, same bits", streampetr_numpy(road, 640, 480)),
        ("bevdet_nearest_crop/1600x900", "NumPy, same bits", bevdet_numpy(wide)),
    )
    print(f"{'bench':32} {'peer':22} {'p50 ms':>9} {'min ms':>9}")
    for name, peer, call in cases:
        median, fastest = timed(call, 2.0)
        print(f"{name:32} {peer:22} {median * 1e3:9.3f} {fastest * 1e3:9.3f}")


if __name__ == "__main__":
    main()
