"""OpenCV's decoder: decode_image.py OUT [--reduced N] IMAGE...

N is 2, 4 or 8: the image is decoded at that fraction of its size. For image i, OUT/i.rgb receives the pixels as stored (no EXIF rotation; red, green, blue or grey) and
OUT/i.txt "width height channels".
"""

import pathlib
import sys

import cv2

out, files, flags = pathlib.Path(sys.argv[1]), sys.argv[2:], cv2.IMREAD_UNCHANGED
if files[0] == "--reduced":
    flags = getattr(cv2, f"IMREAD_REDUCED_COLOR_{files[1]}") | cv2.IMREAD_IGNORE_ORIENTATION
    files = files[2:]
for i, path in enumerate(files):
    image = cv2.imread(path, flags)
    if image.ndim == 3:
        image = image[:, :, [2, 1, 0, 3][: image.shape[2]]]
    image.tofile(out / f"{i}.rgb")
    channels = image.shape[2] if image.ndim == 3 else 1
    (out / f"{i}.txt").write_text(f"{image.shape[1]} {image.shape[0]} {channels}")
