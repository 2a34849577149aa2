#!/usr/bin/env python3
"""Times OpenCV and NumPy at the work of our pre-processing presets, one thread, and prints milliseconds.

    python benches/peers/image_presets.py

Needs a Python with the packages of tests/oracles/requirements.txt. Frames, sizes and names are those of
benches/image_presets.rs. OpenCV has none of the deployed resizes: it does its own of the same sizes (the nearest
work that a node without a GPU could do). NumPy does the deployed arithmetic bit for bit over tables made once.
"""

import sys

import cv2
import numpy as np

from compare import ROOT, timed

sys.path.append(str(ROOT / "tests" / "oracles"))
from gpu_kernels import F32, MEAN, STD, autoware_letterbox, bevdet_crop, streampetr  # noqa: E402


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


def streampetr_opencv(image, width, height):
    scale = max(height / image.shape[0], width / image.shape[1])
    size = int(image.shape[1] * scale), int(image.shape[0] * scale)
    left, top = (size[0] - width) // 2, size[1] - height

    def call():
        small = cv2.resize(image, size, interpolation=cv2.INTER_AREA)[top : top + height, left : left + width]
        return np.ascontiguousarray(((small.astype(F32) - MEAN) / STD).transpose(2, 0, 1))

    return call


def main():
    cv2.setNumThreads(1)
    road, wide = frame(1920, 1080), frame(1600, 900)
    cases = (
        ("yolox_autoware/1920x1080", "OpenCV INTER_LINEAR", letterbox_opencv(road, 960)),
        ("yolox_autoware/1920x1080", "NumPy, same bits", autoware_letterbox(road, 960, 960)),
        ("streampetr/1920x1080", "OpenCV INTER_AREA", streampetr_opencv(road, 640, 480)),
        ("streampetr/1920x1080", "NumPy, same bits", streampetr(road, 640, 480)),
        ("bevdet_nearest_crop/1600x900", "NumPy, same bits", bevdet_crop(wide, 704, 256)),
    )
    print(f"{'bench':32} {'peer':22} {'p50 ms':>9} {'min ms':>9}")
    for name, peer, call in cases:
        median, fastest = timed(call, 2.0)
        print(f"{name:32} {peer:22} {median * 1e3:9.3f} {fastest * 1e3:9.3f}")


if __name__ == "__main__":
    main()
