#!/usr/bin/env python3
"""Times OpenCV and NumPy beside our pre-processing presets, one thread each, and prints ratios.

    python benches/peers/image_presets.py [--rounds 2] [--json FILE]

Needs a Python with the packages of tests/oracles/requirements.txt. Frames, sizes and names are those of
benches/image_presets.rs. Where a node is deployed with OpenCV, OpenCV does the same work; where it has a GPU kernel,
OpenCV does its own resize of the same sizes (the nearest work that a node without a GPU could do), and NumPy the
deployed arithmetic bit for bit over tables made once. Ours and theirs alternate, so that a busy machine slows both; the
best median of all rounds counts, with the fastest single run beside it.
"""

import argparse
import json
import pathlib
import sys

import cv2
import numpy as np

from compare import ROOT, ours, timed

sys.path.append(str(ROOT / "tests" / "oracles"))
import presets  # noqa: E402
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


def resized(image, size, method):
    return lambda: cv2.resize(image, size, interpolation=method)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    cv2.setNumThreads(1)
    road, wide = frame(1920, 1080), frame(1600, 900)
    floats = wide.astype(F32)
    same, nearest, numpy = "OpenCV, same bits", "OpenCV, nearest work", "NumPy, same bits"
    cases = (
        ("image_presets/yolox_opencv/1920x1080/1_thread", same, letterbox_opencv(road, 416)),
        ("image_presets/yolox_autoware/1920x1080/1_thread", nearest, letterbox_opencv(road, 960)),
        ("image_presets/yolox_autoware/1920x1080/1_thread", numpy, autoware_letterbox(road, 960, 960)),
        ("image_presets/streampetr/1920x1080/1_thread", nearest, streampetr_opencv(road, 640, 480)),
        ("image_presets/streampetr/1920x1080/1_thread", numpy, streampetr(road, 640, 480)),
        ("image_presets/bevdet_nearest_crop/1600x900/1_thread", numpy, bevdet_crop(wide, 704, 256)),
        ("image_presets/bevformer/1600x900/1_thread", same, lambda: presets.bevformer(wide)),
        ("image_presets/meteor/1920x1080/1_thread", same, lambda: presets.meteor(road)),
        ("image_presets/sceneseg/1920x1080/1_thread", same, lambda: presets.sceneseg(road)),
        ("image_resizes/linear_u8/640x320", same, resized(road, (640, 320), cv2.INTER_LINEAR)),
        ("image_resizes/linear_u8/960x540", same, resized(road, (960, 540), cv2.INTER_LINEAR)),
        ("image_resizes/area_u8/768x432", same, resized(road, (768, 432), cv2.INTER_AREA)),
        ("image_resizes/area_u8/640x360", same, resized(road, (640, 360), cv2.INTER_AREA)),
        ("image_presets/opencv_nearest/1920x1080/1_thread", same, resized(road, (768, 432), cv2.INTER_NEAREST)),
        ("image_resizes/linear_f32/1600x900_to_1280x720", same, resized(floats, (1280, 720), cv2.INTER_LINEAR)),
    )
    best = {}
    for _ in range(arguments.rounds):
        measured = ours("image_presets", "1_thread$|image_resizes", {})
        for name, peer, call in cases:
            old = best.get((name, peer), ((9e9, 9e9), (9e9, 9e9)))
            best[name, peer] = [tuple(map(min, *pair)) for pair in zip(old, (measured[name], timed(call, 2.0)))]

    print(f"{'':52} {'peer':21} {'median: ours, peer (ms), ours/peer':>36}   {'fastest: ours, peer (ms), ours/peer':>36}")
    for (name, peer), (mine, theirs) in best.items():
        cells = [f"{mine[i] * 1e3:14.3f} {theirs[i] * 1e3:11.3f} {mine[i] / theirs[i]:9.2f}" for i in (0, 1)]
        print(f"{name:52} {peer:21} " + "   ".join(cells))
    if arguments.json:
        rows = [[name, peer, *times] for (name, peer), times in best.items()]
        arguments.json.write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
