"""OpenCV's INTER_LINEAR on raw images: resize.py DIR

DIR/cases.txt has lines "name width height channels target_width target_height"; DIR/name.src holds the
pixels of each, and DIR/name.dst receives the resized ones.
"""

import pathlib
import sys

import cv2
import numpy as np

folder = pathlib.Path(sys.argv[1])
for line in (folder / "cases.txt").read_text().splitlines():
    name, *numbers = line.split()
    width, height, channels, target_width, target_height = map(int, numbers)
    pixels = np.fromfile(folder / f"{name}.src", np.uint8).reshape(height, width, channels)
    resized = cv2.resize(pixels, (target_width, target_height), interpolation=cv2.INTER_LINEAR)
    resized.tofile(folder / f"{name}.dst")
