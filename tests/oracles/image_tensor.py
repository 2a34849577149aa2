"""A picture as a detector sees it: image_tensor.py IMAGE SIDE.  Fits it into SIDE x SIDE (top left, rest 114)
with OpenCV's bilinear resize; BGR planes [3, SIDE, SIDE], 0 to 255, go to standard output as float32."""

import sys

import cv2
import numpy as np

image, side = cv2.imread(sys.argv[1]), int(sys.argv[2])
ratio = min(side / image.shape[0], side / image.shape[1])
height, width = int(image.shape[0] * ratio), int(image.shape[1] * ratio)
canvas = np.full((side, side, 3), 114, np.uint8)
canvas[:height, :width] = cv2.resize(image, (width, height), interpolation=cv2.INTER_LINEAR)
sys.stdout.buffer.write(np.ascontiguousarray(canvas.transpose(2, 0, 1), "<f4").tobytes())
