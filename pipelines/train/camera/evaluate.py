"""Measures an ONNX file on frames it was not trained on.

    python evaluate.py --weights ../../weights/yolox_sim.onnx --frames unseen [--draw FOLDER]

With --draw, FOLDER/frame_NNNN.png of the first frames: truth in white, what does not count in grey, detections in the
colour of their class.
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

import cv2
import numpy as np
import onnxruntime

from detections import Detections, decode
from frames import BOX, CLASS_NAMES, Frame, FrameFolder, is_counted
from graph import INPUT, OUTPUT
from metrics import ClassMetrics, Tally, table
from preprocess import network_input

LOWEST_SCORE = 0.02
DRAWN_SCORE = 0.3
DRAWN_FRAMES = 24
COLOURS = ((255, 80, 80), (255, 180, 60), (255, 90, 255), (90, 255, 90), (90, 220, 255))


def evaluate(model: bytes, frames: FrameFolder, draw: Path | None = None) -> dict[str, ClassMetrics]:
    """Metrics of each class over all frames, of the bytes of an ONNX file."""
    session = _session(model)
    tallies = {name: Tally() for name in CLASS_NAMES}
    for index in range(len(frames)):
        frame = frames[index]
        (output,) = session.run([OUTPUT], {INPUT: network_input(frame.image)})
        found = decode(output, LOWEST_SCORE, frame.image)
        for label, name in enumerate(CLASS_NAMES):
            tallies[name].add(found, label, frame.boxes)
        if draw is not None and index < DRAWN_FRAMES:
            cv2.imwrite(str(draw / f"frame_{index:04}.png"), _drawn(frame, found)[:, :, ::-1])
    return {name: tally.metrics() for name, tally in tallies.items()}


def _session(model: bytes) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _drawn(frame: Frame, found: Detections) -> np.ndarray:
    image = frame.image.copy()
    for box, counted in zip(frame.boxes, is_counted(frame.boxes)):
        left, top, right, bottom = (int(round(float(edge))) for edge in box[: BOX.BOTTOM + 1])
        cv2.rectangle(image, (left, top), (right, bottom), (255, 255, 255) if counted else (130, 130, 130), 1)
    for label, score, edges in zip(found.labels, found.scores, found.edges):
        if score >= DRAWN_SCORE:
            left, top, right, bottom = (int(round(float(edge))) for edge in edges)
            cv2.rectangle(image, (left, top), (right, bottom), COLOURS[label], 1)
            text = f"{CLASS_NAMES[label][:3]} {score:.2f}"
            cv2.putText(image, text, (left, max(top - 2, 8)), cv2.FONT_HERSHEY_PLAIN, 0.7, COLOURS[label], 1)
    return image


def main() -> None:
    """Prints the metrics as a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--frames", type=Path, required=True)
    parser.add_argument("--draw", type=Path, help="folder for pictures")
    parser.add_argument("--json", type=Path, help="file for the metrics")
    options = parser.parse_args()
    if options.draw is not None:
        options.draw.mkdir(parents=True, exist_ok=True)
    metrics = evaluate(options.weights.read_bytes(), FrameFolder(options.frames), options.draw)
    print(table(metrics))
    if options.json is not None:
        options.json.write_text(json.dumps({name: asdict(one) for name, one in metrics.items()}, indent=2))


if __name__ == "__main__":
    main()
