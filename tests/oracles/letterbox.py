"""The pre-processing of the public YOLOX demo: letterbox.py OUT TARGET_WIDTH TARGET_HEIGHT IMAGE...

For image i, OUT/i.src receives the decoded pixels (blue, green, red), OUT/i.dst the detector input and
OUT/i.txt "width height ratio content_width content_height".
"""

import pathlib
import sys

import cv2
import numpy as np

out = pathlib.Path(sys.argv[1])
target = int(sys.argv[3]), int(sys.argv[2])
for i, path in enumerate(sys.argv[4:]):
    image = cv2.imread(path, cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION)
    ratio = min(target[0] / image.shape[0], target[1] / image.shape[1])
    width, height = int(image.shape[1] * ratio), int(image.shape[0] * ratio)
    canvas = np.full((*target, 3), 114, np.uint8)
    canvas[:height, :width] = cv2.resize(image, (width, height), interpolation=cv2.INTER_LINEAR)
    image.tofile(out / f"{i}.src")
    canvas.tofile(out / f"{i}.dst")
    (out / f"{i}.txt").write_text(f"{image.shape[1]} {image.shape[0]} {ratio!r} {width} {height}")
