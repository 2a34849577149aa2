"""Detections by ONNX Runtime, OpenCV and NumPy, after the public demos: detect.py KIND MODEL OUT IMAGE...

KIND is yolox or fastestdet. For image i, OUT/i.head receives the network's output (float32), OUT/i.txt
"width height", and OUT/i.boxes one line per detection of each variant:
"variant label score x1 y1 x2 y2", clipped to the image, variants "aware" and "agnostic".
"""

import pathlib
import sys

import cv2
import numpy as np
import onnxruntime

SCORE_THRESHOLD, NMS_THRESHOLD = 0.3, 0.45


def nms(boxes, scores):
    """Greedy, with boxes that include their last pixel."""
    x1, y1, x2, y2 = boxes.T
    areas = (x2 - x1 + 1) * (y2 - y1 + 1)
    order = np.argsort(-scores, kind="stable")
    keep = []
    while order.size:
        best, rest = order[0], order[1:]
        keep.append(best)
        width = np.minimum(x2[best], x2[rest]) - np.maximum(x1[best], x1[rest]) + 1
        height = np.minimum(y2[best], y2[rest]) - np.maximum(y1[best], y1[rest]) + 1
        inter = np.maximum(0, width) * np.maximum(0, height)
        order = rest[inter / (areas[best] + areas[rest] - inter) <= NMS_THRESHOLD]
    return keep


def class_aware(boxes, scores):
    for label in range(scores.shape[1]):
        above = scores[:, label] > SCORE_THRESHOLD
        for i in nms(boxes[above], scores[above, label]):
            yield label, scores[above, label][i], boxes[above][i]


def class_agnostic(boxes, scores):
    labels, best = scores.argmax(1), scores.max(1)
    above = best > SCORE_THRESHOLD
    for i in nms(boxes[above], best[above]):
        yield labels[above][i], best[above][i], boxes[above][i]


def yolox(session, image):
    _, _, height, width = session.get_inputs()[0].shape
    ratio = min(height / image.shape[0], width / image.shape[1])
    size = int(image.shape[1] * ratio), int(image.shape[0] * ratio)
    canvas = np.full((height, width, 3), 114, np.uint8)
    canvas[: size[1], : size[0]] = cv2.resize(image, size, interpolation=cv2.INTER_LINEAR)
    head = run(session, canvas.astype(np.float32))
    grids = []
    for stride in 8, 16, 32:
        y, x = np.mgrid[: height // stride, : width // stride].astype(np.float32)
        grids.append(np.stack([x.ravel(), y.ravel(), np.full(x.size, stride, np.float32)], 1))
    grid = np.concatenate(grids)
    centre = (head[0, :, :2] + grid[:, :2]) * grid[:, 2:]
    half = np.exp(head[0, :, 2:4]) * grid[:, 2:] / 2
    boxes = np.concatenate([centre - half, centre + half], 1) / ratio
    return head, boxes, head[0, :, 4:5] * head[0, :, 5:]


def fastestdet(session, image):
    _, _, height, width = session.get_inputs()[0].shape
    resized = cv2.resize(image, (width, height), interpolation=cv2.INTER_LINEAR)
    head = run(session, resized.astype(np.float32) / 255)
    _, _, rows, columns = head.shape
    objectness, dx, dy, w, h = head[0, :5].reshape(5, -1)
    y, x = (g.ravel() for g in np.mgrid[:rows, :columns])
    centre = np.stack([(x + np.tanh(dx)) / columns, (y + np.tanh(dy)) / rows], 1)
    half = 0.5 / (1 + np.exp(-np.stack([w, h], 1)))
    sides = np.array([image.shape[1], image.shape[0]] * 2)
    boxes = np.concatenate([centre - half, centre + half], 1) * sides
    probabilities = head[0, 5:].reshape(head.shape[1] - 5, -1).T
    scores = objectness[:, None] ** 0.6 * probabilities**0.4
    # A cell proposes its best class alone.
    scores[probabilities < probabilities.max(1, keepdims=True)] = 0
    return head, boxes, scores


def run(session, pixels):
    return session.run(None, {session.get_inputs()[0].name: pixels.transpose(2, 0, 1)[None]})[0]


kind, model, out, *images = sys.argv[1:]
out = pathlib.Path(out)
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
for i, path in enumerate(images):
    image = cv2.imread(path, cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION)
    head, boxes, scores = {"yolox": yolox, "fastestdet": fastestdet}[kind](session, image)
    head.astype(np.float32).tofile(out / f"{i}.head")
    height, width = image.shape[:2]
    (out / f"{i}.txt").write_text(f"{width} {height}")
    with open(out / f"{i}.boxes", "w") as lines:
        for variant, select in ("aware", class_aware), ("agnostic", class_agnostic):
            for label, score, box in select(boxes, scores):
                box = np.clip(box, 0, [width, height, width, height])
                print(variant, label, *map(float, [score, *box]), file=lines)
