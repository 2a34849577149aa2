"""OpenCV's resizes on raw arrays: resize_methods.py DIR

DIR/cases.txt has lines "name method type width height channels target_width target_height", the method one of linear,
area, nearest, the type one of u8, f32 and f32_without_ipp. DIR/name.src holds the samples of each, and DIR/name.dst
receives the resized ones.
"""

import pathlib
import sys

import cv2
import numpy as np

METHODS = {"linear": cv2.INTER_LINEAR, "area": cv2.INTER_AREA, "nearest": cv2.INTER_NEAREST}

folder = pathlib.Path(sys.argv[1])
for line in (folder / "cases.txt").read_text().splitlines():
    name, method, kind, *numbers = line.split()
    width, height, channels, target_width, target_height = map(int, numbers)
    dtype = np.uint8 if kind == "u8" else np.float32
    cv2.ipp.setUseIPP(kind != "f32_without_ipp")
    samples = np.fromfile(folder / f"{name}.src", dtype).reshape(height, width, channels)
    resized = cv2.resize(samples, (target_width, target_height), interpolation=METHODS[method])
    resized.tofile(folder / f"{name}.dst")
print(cv2.__version__)
