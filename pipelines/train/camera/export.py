"""Folds a checkpoint, measures what came of it on unseen frames, and writes it as ONNX if it is good enough.

    python export.py --checkpoint yolox_sim.pt --frames unseen --out ../../weights/yolox_sim.onnx

Beside the file lies one with the names of the classes, `yolox_sim.labels`.
"""

import argparse
import json
import sys
from pathlib import Path

import onnx
import torch

from detections import NMS_THRESHOLD
from evaluate import evaluate
from frames import CLASS_NAMES, FrameFolder
from graph import build
from metrics import ClassMetrics, shortfalls, table
from model import Yolox
from preprocess import INPUT_HEIGHT_PX, INPUT_WIDTH_PX

FORMAT_VERSION = 1


def metadata(notes: dict[str, object], metrics: dict[str, ClassMetrics], frames: FrameFolder) -> dict[str, str]:
    """What the file says of itself: each value is JSON."""
    described = {
        "format_version": FORMAT_VERSION,
        "class_names": CLASS_NAMES,
        "input": {"width_px": INPUT_WIDTH_PX, "height_px": INPUT_HEIGHT_PX, "preprocess": "yolox_opencv"},
        "score_thresholds": [metrics[name].score_threshold for name in CLASS_NAMES],
        "nms_threshold": NMS_THRESHOLD,
        "average_precision_50": {name: round(metrics[name].average_precision, 4) for name in CLASS_NAMES},
        "measured_on": {"frames": len(frames), "frames_seed": frames.meta["seed"]},
        "training": notes,
    }
    return {key: json.dumps(value) for key, value in described.items()}


def main() -> None:
    """Writes the file, or says what it falls short of."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--frames", type=Path, required=True, help="frames that were not trained on")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--below-goals", action="store_true", help="write it even so, to try the file out")
    options = parser.parse_args()
    checkpoint = torch.load(options.checkpoint, weights_only=True)
    model = Yolox()
    model.load_state_dict(checkpoint["model"])
    built = build(model.eval())
    frames = FrameFolder(options.frames)
    metrics = evaluate(built.SerializeToString(deterministic=True), frames)
    print(table(metrics))
    short = shortfalls(metrics)
    if short and not options.below_goals:
        sys.exit("Not written: " + "; ".join(short) + ".")
    onnx.helper.set_model_props(built, metadata(checkpoint["notes"], metrics, frames))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_bytes(built.SerializeToString(deterministic=True))
    options.out.with_suffix(".labels").write_text("".join(f"{name}\n" for name in CLASS_NAMES))


if __name__ == "__main__":
    main()
