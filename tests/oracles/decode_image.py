"""OpenCV's decoder: decode_image.py OUT IMAGE...

For image i, OUT/i.rgb receives the pixels as stored (no EXIF rotation; red, green, blue or grey) and
OUT/i.txt "width height channels".
"""

import pathlib
import sys

import cv2

out = pathlib.Path(sys.argv[1])
for i, path in enumerate(sys.argv[2:]):
    image = cv2.imread(path, cv2.IMREAD_UNCHANGED)
    if image.ndim == 3:
        image = image[:, :, [2, 1, 0, 3][: image.shape[2]]]
    image.tofile(out / f"{i}.rgb")
    channels = image.shape[2] if image.ndim == 3 else 1
    (out / f"{i}.txt").write_text(f"{image.shape[1]} {image.shape[0]} {channels}")
