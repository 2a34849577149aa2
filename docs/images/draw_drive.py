"""Draws a short drive past a stop sign, a traffic light and a clock: draw_drive.py FOLDER

Forty PNG files of 960 x 540 px, the same ones every time. They are drawn, not taken, so that pictures made
from them belong to this repository. The picture in the README is the report of

    sensorium bag from-images FOLDER --out drive.mcap --hz 10
    sensorium run pipelines/yolox.yaml --model yolox_nano.onnx --bag drive.mcap --report report

Needs OpenCV and NumPy (tests/oracles/requirements.txt).
"""

import pathlib
import sys

import cv2
import numpy as np

WIDTH, HEIGHT, HORIZON = 960, 540, 297
WHITE, GREY, DARK = (245, 245, 245), (130, 130, 130), (25, 25, 25)


def on_circle(center, radius, degrees):
    """Points of a circle, clockwise from the top."""
    angle = np.deg2rad(np.atleast_1d(degrees))
    return np.stack([center[0] + radius * np.sin(angle), center[1] - radius * np.cos(angle)], 1).astype(np.int32)


def disc(image, center, radius, color):
    cv2.circle(image, center, int(radius), color, -1, cv2.LINE_AA)


def background():
    y = np.linspace(0, 1, HEIGHT)[:, None, None]
    sky = np.array([235, 190, 140]) * (1 - y) + np.array([240, 225, 210]) * y
    grass = np.array([95, 125, 105]) * (1.2 - 0.3 * y)
    rows = np.where(y < HORIZON / HEIGHT, sky, grass)
    return np.broadcast_to(rows, (HEIGHT, WIDTH, 3)).astype(np.uint8).copy()


def road(image, phase):
    middle = WIDTH // 2
    edges = [[middle - 30, HORIZON], [middle + 30, HORIZON], [WIDTH - 120, HEIGHT], [120, HEIGHT]]
    cv2.fillPoly(image, [np.array(edges)], (84, 82, 80))
    for k in range(6):
        near, far = (((k + part + phase) / 6) ** 2 for part in (0.45, 0.0))
        (y0, w0), (y1, w1) = ((int(HORIZON + (HEIGHT - HORIZON) * d), 1 + int(6 * d)) for d in (far, near))
        dash = [[middle - w0, y0], [middle + w0, y0], [middle + w1, y1], [middle - w1, y1]]
        cv2.fillPoly(image, [np.array(dash)], (225, 225, 225))


def buildings(image):
    for left, width, height, color in [
        (20, 130, 170, (150, 140, 150)),
        (165, 90, 120, (120, 135, 160)),
        (640, 110, 140, (165, 160, 150)),
        (765, 170, 210, (140, 150, 165)),
    ]:
        cv2.rectangle(image, (left, HORIZON - height), (left + width, HORIZON + 4), color, -1)
        shade = tuple(int(c * 0.6) for c in color)
        for y in range(HORIZON - height + 14, HORIZON - 14, 30):
            for x in range(left + 10, left + width - 18, 28):
                cv2.rectangle(image, (x, y), (x + 13, y + 18), shade, -1)


def stop_sign(image, scale):
    center = (int(WIDTH / 2 + 150 * scale), int(HORIZON - 55 * scale))
    half = int(3 * scale)
    cv2.rectangle(image, (center[0] - half, center[1]), (center[0] + half, int(HORIZON + 60 * scale)), GREY, -1)
    corners = np.arange(8) * 45 + 22.5
    cv2.fillPoly(image, [on_circle(center, 34 * scale, corners)], WHITE, cv2.LINE_AA)
    cv2.fillPoly(image, [on_circle(center, 31.6 * scale, corners)], (35, 25, 190), cv2.LINE_AA)
    font, size, stroke = cv2.FONT_HERSHEY_SIMPLEX, 0.72 * scale, max(2, int(3 * scale))
    (width, height), _ = cv2.getTextSize("STOP", font, size, stroke)
    corner = (center[0] - width // 2, center[1] + height // 2)
    cv2.putText(image, "STOP", corner, font, size, WHITE, stroke, cv2.LINE_AA)


def traffic_light(image, scale):
    x, y = int(WIDTH / 2 - 190 * scale), int(HORIZON - 150 * scale)
    half, width, height = int(3 * scale), int(30 * scale), int(84 * scale)
    cv2.rectangle(image, (x - half, y), (x + half, int(HORIZON + 40 * scale)), (70, 70, 70), -1)
    cv2.rectangle(image, (x - width // 2, y), (x + width // 2, y + height), DARK, -1)
    for k, color in enumerate([(40, 40, 235), (20, 70, 80), (20, 60, 20)]):
        disc(image, (x, y + int((14 + 28 * k) * scale)), 11 * scale, color)


def clock(image, minute):
    center = (850, HORIZON - 130)
    disc(image, center, 44, (60, 60, 60))
    disc(image, center, 39, WHITE)
    hours = np.arange(12) * 30
    for outer, inner in zip(on_circle(center, 35, hours), on_circle(center, 29, hours)):
        cv2.line(image, tuple(outer.tolist()), tuple(inner.tolist()), (30, 30, 30), 2, cv2.LINE_AA)
    for degrees, length, stroke in [(35, 20, 4), (310 + 3 * minute, 30, 3)]:
        end = tuple(on_circle(center, length, degrees)[0].tolist())
        cv2.line(image, center, end, (20, 20, 20), stroke, cv2.LINE_AA)


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    noise = np.random.default_rng(7).normal(0, 3, (HEIGHT, WIDTH, 3))
    for i in range(40):
        scale = 1 + 0.03 * i
        image = background()
        road(image, (i % 5) / 5)
        buildings(image)
        stop_sign(image, scale)
        traffic_light(image, scale)
        clock(image, i)
        image = np.clip(cv2.GaussianBlur(image, (0, 0), 0.7) + noise, 0, 255).astype(np.uint8)
        cv2.imwrite(str(folder / f"{i:03}.png"), image)


main()
