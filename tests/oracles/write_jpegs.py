"""JPEG files of several kinds, made by OpenCV: write_jpegs.py DIR"""

import pathlib
import sys

import cv2
import numpy as np

folder = pathlib.Path(sys.argv[1])
rng = np.random.default_rng(6)
samplings = {
    "411": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_411,
    "420": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420,
    "422": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_422,
    "440": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_440,
    "444": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444,
}
for height, width in [(1, 1), (2, 3), (8, 8), (17, 33), (64, 48), (75, 101)]:
    waves = np.add.outer(np.arange(height) * 3, np.arange(width) * 5)[:, :, None] * [1, 2, 3]
    image = ((waves + rng.integers(0, 90, (height, width, 3))) % 256).astype(np.uint8)
    for quality in (30, 95, 100):
        for progressive in (0, 1):
            options = [
                cv2.IMWRITE_JPEG_QUALITY, quality,
                cv2.IMWRITE_JPEG_PROGRESSIVE, progressive,
                cv2.IMWRITE_JPEG_RST_INTERVAL, quality % 4,
            ]
            name = f"{width}x{height}_{quality}_{progressive}"
            cv2.imwrite(str(folder / f"{name}_grey.jpg"), image[:, :, 0], options)
            for sampling, factor in samplings.items():
                sampled = [*options, cv2.IMWRITE_JPEG_SAMPLING_FACTOR, factor]
                cv2.imwrite(str(folder / f"{name}_{sampling}.jpg"), image, sampled)
