"""The kernels that deployed nodes run on the GPU, in NumPy over tables, bit for bit: gpu_kernels.py DIR

DIR/cases.txt has lines "name kernel width height target_width target_height"; DIR/name.src holds the frame,
blue-green-red bytes, and DIR/name.dst receives the result. benches/peers/image_presets.py times the same functions.
"""

import pathlib
import sys

import numpy as np

F32 = np.float32
MEAN, STD = F32([103.53, 116.28, 123.675]), F32([57.375, 57.12, 58.395])


def autoware_letterbox(image, width, height):
    sides = image.shape[:2]
    scale = min(F32(width) / F32(sides[1]), F32(height) / F32(sides[0]))
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
        canvas = np.full((height, width, 3), 114, np.uint8)
        lower = blend(across(image[rows]), across(image[rows + 1]), row_weights[:, None, None])
        canvas[: len(rows), : len(columns)] = np.floor(lower.astype(np.float64) + 0.5)
        return canvas

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
    moved = (total.view(np.int64) + np.where((error != 0) & (odd == 0), toward, 0)).view(np.float64)
    return moved.astype(F32)


def streampetr(image, width, height):
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


def bevdet_crop(image, width, height):
    """The crop starts at column 0 and row 140 of the resized frame, as it is deployed."""
    factor = F32(width) / F32(image.shape[1])
    nearest = lambda count, crop: np.floor(
        (np.arange(count, dtype=F32) / factor + F32(crop) / factor).astype(np.float64) + 0.5
    ).astype(np.int64)
    rows, columns = nearest(height, 140), nearest(width, 0)
    return lambda: np.ascontiguousarray(image[rows][:, columns].transpose(2, 0, 1))


KERNELS = {"autoware_letterbox": autoware_letterbox, "streampetr": streampetr, "bevdet_crop": bevdet_crop}

if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1])
    for line in (folder / "cases.txt").read_text().splitlines():
        name, kernel, *numbers = line.split()
        width, height, target_width, target_height = map(int, numbers)
        image = np.fromfile(folder / f"{name}.src", np.uint8).reshape(height, width, 3)
        KERNELS[kernel](image, target_width, target_height)().tofile(folder / f"{name}.dst")
