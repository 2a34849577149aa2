"""OpenCV's cvtColor on raw images: convert_color.py DIR

DIR/cases.txt has lines "name encoding width height step"; DIR/name.src holds the data of a sensor_msgs/Image
of that encoding (mono16be: mono16 with is_bigendian), and DIR/name.dst receives 8-bit B, G, R or grey pixels.
"""

import pathlib
import sys

import cv2
import numpy as np

# ROS names a mosaic by its first two rows, OpenCV by the second row's second and third pixel.
CODES = {
    "yuv422": cv2.COLOR_YUV2BGR_UYVY,
    "yuv422_yuy2": cv2.COLOR_YUV2BGR_YUY2,
    "nv12": cv2.COLOR_YUV2BGR_NV12,
    "nv21": cv2.COLOR_YUV2BGR_NV21,
    "bayer_rggb8": cv2.COLOR_BayerBG2BGR,
    "bayer_bggr8": cv2.COLOR_BayerRG2BGR,
    "bayer_gbrg8": cv2.COLOR_BayerGR2BGR,
    "bayer_grbg8": cv2.COLOR_BayerGB2BGR,
}

folder = pathlib.Path(sys.argv[1])
for line in (folder / "cases.txt").read_text().splitlines():
    name, encoding, *numbers = line.split()
    width, height, step = map(int, numbers)
    rows = np.fromfile(folder / f"{name}.src", np.uint8).reshape(-1, step)
    if encoding.startswith("mono16"):
        samples = np.ascontiguousarray(rows[:, : 2 * width]).view(">u2" if encoding.endswith("be") else "<u2")
        # What cv_bridge asks of convertTo, which Python does not have: a product, rounded half to even.
        pixels = cv2.convertScaleAbs(samples.astype(np.uint16), alpha=255.0 / 65535.0)
    elif encoding.startswith("yuv422"):
        pixels = cv2.cvtColor(np.ascontiguousarray(rows[:, : 2 * width]).reshape(height, width, 2), CODES[encoding])
    else:
        pixels = cv2.cvtColor(np.ascontiguousarray(rows[:, :width]), CODES[encoding])
    assert pixels.shape[:2] == (height, width), (encoding, pixels.shape)
    pixels.tofile(folder / f"{name}.dst")
