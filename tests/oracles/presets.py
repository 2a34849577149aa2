"""What deployed nodes make of a frame with OpenCV: presets.py DIR

DIR/cases.txt has lines "name preset width height"; DIR/name.src holds the frame, blue-green-red bytes, and DIR/name.dst
receives the network's input.
"""

import pathlib
import sys

import cv2
import numpy as np

MEAN_RGB = (0.485, 0.456, 0.406)
STD_RGB = (0.229, 0.224, 0.225)


def sceneseg(frame: np.ndarray) -> np.ndarray:
    small = cv2.resize(frame, (640, 320), interpolation=cv2.INTER_LINEAR)
    floats = small.astype(np.float32) * np.float32(1 / 255)
    floats = cv2.subtract(floats, (*MEAN_RGB[::-1], 0.0))
    floats = cv2.divide(floats, (*STD_RGB[::-1], 1.0))
    return np.stack(cv2.split(floats))


def bevformer(frame: np.ndarray) -> np.ndarray:
    if frame.shape[:2] != (900, 1600):
        frame = cv2.resize(frame, (1600, 900))
    mean = np.array([103.53, 116.28, 123.675], np.float32)
    floats = frame.astype(np.float32) - mean
    height, width = frame.shape[:2]
    size = (int(np.float32(width) * np.float32(0.8)), int(np.float32(height) * np.float32(0.8)))
    small = cv2.resize(floats, size, interpolation=cv2.INTER_LINEAR)
    right, bottom = -size[0] % 32, -size[1] % 32
    padded = cv2.copyMakeBorder(small, 0, bottom, 0, right, cv2.BORDER_CONSTANT, value=(0, 0, 0))
    return np.stack(cv2.split(padded))


def meteor(frame: np.ndarray) -> np.ndarray:
    return cv2.resize(frame, (768, 432), interpolation=cv2.INTER_AREA)


def yolox_opencv(frame: np.ndarray) -> np.ndarray:
    canvas = np.full((64, 96, 3), 114, np.uint8)
    ratio = min(64 / frame.shape[0], 96 / frame.shape[1])
    size = (int(frame.shape[1] * ratio), int(frame.shape[0] * ratio))
    canvas[: size[1], : size[0]] = cv2.resize(frame, size, interpolation=cv2.INTER_LINEAR)
    return canvas


def stretched(method: int):
    return lambda frame: cv2.resize(frame, (96, 64), interpolation=method)


PRESETS = {
    "sceneseg": sceneseg,
    "bevformer": bevformer,
    "meteor": meteor,
    "yolox_opencv": yolox_opencv,
    "fastestdet_opencv": stretched(cv2.INTER_LINEAR),
    "opencv_linear": stretched(cv2.INTER_LINEAR),
    "opencv_area": stretched(cv2.INTER_AREA),
    "opencv_nearest": stretched(cv2.INTER_NEAREST),
}

def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    for line in (folder / "cases.txt").read_text().splitlines():
        name, preset, width, height = line.split()
        frame = np.fromfile(folder / f"{name}.src", np.uint8).reshape(int(height), int(width), 3)
        np.ascontiguousarray(PRESETS[preset](frame)).tofile(folder / f"{name}.dst")


if __name__ == "__main__":
    main()
