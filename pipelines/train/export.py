"""Folds a checkpoint, measures what came of it on unseen scenes, and writes the weights if they are good enough.

    python export.py --checkpoint centerpoint_sim.pt --scenes unseen --out ../weights/centerpoint_sim.safetensors
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save_file

from evaluate import evaluate
from folded import fold, load
from metrics import USABLE_TWIST_MPS, ClassMetrics, shortfalls, table
from model import BLOCK_STRIDE, BLOCKS, CenterPoint
from pillars import MAX_POINTS, NUM_FEATURES, RANGE_MAX, RANGE_MIN, VOXEL_M
from scenes import CLASS_NAMES, SceneFolder
from targets import DOWNSAMPLE

FORMAT_VERSION = 1


def metadata(notes: dict[str, object], metrics: dict[str, ClassMetrics]) -> dict[str, str]:
    """What the file says of itself: each value is JSON, but for the name of the model."""
    moving = metrics["CAR"].speed_error_moving_median_mps
    described = {
        "format_version": FORMAT_VERSION,
        "class_names": CLASS_NAMES,
        "point_cloud_range": RANGE_MIN + RANGE_MAX,
        "voxel_size": (VOXEL_M, VOXEL_M, RANGE_MAX[2] - RANGE_MIN[2]),
        "max_points_per_pillar": MAX_POINTS,
        "encoder_in_feature_size": NUM_FEATURES,
        "num_past_frames": 1,
        "downsample_factor": DOWNSAMPLE,
        "backbone_strides": [BLOCK_STRIDE] * len(BLOCKS),
        "backbone_layers": [layers for _, layers in BLOCKS],
        "neck_strides": [BLOCK_STRIDE**block for block in range(len(BLOCKS))],
        "score_thresholds": [metrics[name].score_threshold for name in CLASS_NAMES],
        "has_twist": moving < USABLE_TWIST_MPS,
        "average_precision_1m": {name: round(metrics[name].average_precision, 4) for name in CLASS_NAMES},
        "car_heading_median_rad": round(metrics["CAR"].heading_median_rad, 4),
        "car_flipped": round(metrics["CAR"].flipped, 4),
        "car_speed_error_moving_median_mps": round(moving, 3),
        "training": notes,
    }
    return {"model": "centerpoint"} | {key: json.dumps(value) for key, value in described.items()}


def main() -> None:
    """Writes the weights, or says what they fall short of."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--scenes", type=Path, required=True, help="scenes that were not trained on")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--below-goals", action="store_true", help="write them even so, to try the file out")
    options = parser.parse_args()
    checkpoint = torch.load(options.checkpoint, weights_only=True)
    model = CenterPoint()
    model.load_state_dict(checkpoint["model"])
    weights = fold(model)
    metrics = evaluate(weights, SceneFolder(options.scenes))
    print(table(metrics))
    short = shortfalls(metrics)
    if short and not options.below_goals:
        sys.exit("Not written: " + "; ".join(short) + ".")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    save_file(weights, options.out, metadata(checkpoint["notes"], metrics))
    written = load(options.out)
    differing = [name for name, values in weights.items() if not np.array_equal(values, written[name])]
    if differing:
        options.out.unlink()
        sys.exit(f"Not written: {', '.join(differing)} did not come back from the file as they were measured.")


if __name__ == "__main__":
    main()
