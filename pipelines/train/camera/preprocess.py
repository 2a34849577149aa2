"""From an image to the network's input, as the runtime's preset `yolox_opencv` does it: resized, BGR, as floats."""

import cv2
import numpy as np

INPUT_HEIGHT_PX = 320
INPUT_WIDTH_PX = 512
# What fills the part of the input that the image does not cover.
PAD_VALUE = 114


def input_scale(image: np.ndarray) -> float:
    """Pixels of the input per pixel of the image."""
    return min(INPUT_HEIGHT_PX / image.shape[0], INPUT_WIDTH_PX / image.shape[1])


def resized(image: np.ndarray) -> np.ndarray:
    """The image in the upper left corner of the input, uint8 (320, 512, 3), colours in the order of the image."""
    scale = input_scale(image)
    width, height = int(image.shape[1] * scale), int(image.shape[0] * scale)
    padded = np.full((INPUT_HEIGHT_PX, INPUT_WIDTH_PX, 3), PAD_VALUE, np.uint8)
    padded[:height, :width] = cv2.resize(image, (width, height), interpolation=cv2.INTER_LINEAR)
    return padded


def network_input(image: np.ndarray) -> np.ndarray:
    """An RGB image as the network takes it: float32 (1, 3, 320, 512), planes B, G, R, values 0 to 255."""
    planes = resized(image)[:, :, ::-1].transpose(2, 0, 1)
    return np.ascontiguousarray(planes, np.float32)[None]
