"""Measures weights on scenes they were not trained on.

    python evaluate.py --weights ../weights/centerpoint_sim.safetensors --scenes unseen [--dump FOLDER]

With --dump, what another implementation can be compared with: FOLDER/detections.jsonl, one line a scene with every
detection above the lowest score, and FOLDER/heads_NNNN.npy, the head maps of the first scenes as float32
(15, 160, 160): heatmap, reg, height, dim, rot, vel.
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np

from detections import Detections, decode
from folded import Weights, load, run
from metrics import ClassMetrics, Tally, table
from pillars import pillarise
from scenes import CLASS_NAMES, SceneFolder
from targets import HEADS

LOWEST_SCORE = 0.05
DUMPED_HEADS = 5


def evaluate(weights: Weights, scenes: SceneFolder, dump: Path | None = None) -> dict[str, ClassMetrics]:
    """Metrics of each class over all scenes."""
    tallies = {name: Tally() for name in CLASS_NAMES}
    lines = []
    for index in range(len(scenes)):
        scene = scenes[index]
        heads = run(weights, pillarise(scene.points, seed=index))
        found = decode(heads, np.full(len(CLASS_NAMES), LOWEST_SCORE))
        for label, name in enumerate(CLASS_NAMES):
            tallies[name].add(found, label, scene.boxes)
        if dump is not None:
            lines.append(json.dumps({"scene": index, "objects": _records(found)}))
            if index < DUMPED_HEADS:
                np.save(dump / f"heads_{index:04}.npy", np.concatenate([heads[name] for name in HEADS]))
    if dump is not None:
        (dump / "detections.jsonl").write_text("\n".join(lines) + "\n")
    return {name: tally.metrics() for name, tally in tallies.items()}


def _records(found: Detections) -> list[dict[str, object]]:
    columns = ("x", "y", "z", "length", "width", "height", "yaw", "vx", "vy")
    return [
        {"label": CLASS_NAMES[label], "score": float(score)} | dict(zip(columns, map(float, box)))
        for label, score, box in zip(found.labels, found.scores, found.boxes)
    ]


def main() -> None:
    """Prints the metrics as a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--scenes", type=Path, required=True)
    parser.add_argument("--dump", type=Path, help="folder for detections and head maps")
    parser.add_argument("--json", type=Path, help="file for the metrics")
    options = parser.parse_args()
    if options.dump is not None:
        options.dump.mkdir(parents=True, exist_ok=True)
    metrics = evaluate(load(options.weights), SceneFolder(options.scenes), options.dump)
    print(table(metrics))
    if options.json is not None:
        options.json.write_text(json.dumps({name: asdict(one) for name, one in metrics.items()}, indent=2))


if __name__ == "__main__":
    main()
