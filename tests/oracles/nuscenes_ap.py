"""Average precision with NumPy after nuScenes' devkit: nuscenes_ap.py DETECTIONS TRUTH MIN_POINTS DISTANCE...

Reads both sides as JSON lines and prints a JSON object: class -> list of [AP, recall, hits, false alarms], one a
distance, for classes with truth. Truth with fewer than MIN_POINTS points is left out, as the devkit leaves out boxes
without points, so that detections there are false alarms: give 0 to compare.
"""

import json
import sys

import numpy as np

MIN_RECALL = MIN_PRECISION = 0.1


def read(path):
    with open(path, encoding="utf-8") as file:
        return {frame["stamp_ns"]: frame["objects"] for frame in map(json.loads, file)}


def accumulate(detections, truth, label, threshold):
    positives = sum(box["label"] == label for boxes in truth.values() for box in boxes)
    found = [(stamp, box) for stamp in truth for box in detections.get(stamp, []) if box["label"] == label]
    scores = [np.float32(box["score"]) for _, box in found]
    order = [i for _, i in sorted((score, i) for i, score in enumerate(scores))][::-1]
    taken, hits = set(), []
    for i in order:
        stamp, box = found[i]
        nearest, best = np.inf, None
        for j, candidate in enumerate(truth[stamp]):
            if candidate["label"] == label and (stamp, j) not in taken:
                distance = np.linalg.norm(np.array(box["position_m"][:2]) - np.array(candidate["position_m"][:2]))
                if distance < nearest:
                    nearest, best = distance, j
        hits.append(bool(nearest < threshold))
        if hits[-1]:
            taken.add((stamp, best))
    true = np.cumsum(hits).astype(float)
    false = np.cumsum(np.logical_not(hits)).astype(float)
    if not any(hits):
        return 0.0, 0.0, 0, len(hits)
    steps = np.linspace(0, 1, 101)
    precision = np.interp(steps, true / positives, true / (true + false), right=0)
    clipped = precision[round(100 * MIN_RECALL) + 1 :] - MIN_PRECISION
    clipped[clipped < 0] = 0
    return float(np.mean(clipped)) / (1 - MIN_PRECISION), true[-1] / positives, int(true[-1]), int(false[-1])


def main():
    detections, truth = read(sys.argv[1]), read(sys.argv[2])
    fewest = int(sys.argv[3])
    truth = {stamp: [b for b in boxes if b.get("points", fewest) >= fewest] for stamp, boxes in truth.items()}
    labels = sorted({box["label"] for boxes in truth.values() for box in boxes})
    distances = [float(d) for d in sys.argv[4:]]
    print(json.dumps({label: [accumulate(detections, truth, label, d) for d in distances] for label in labels}))


if __name__ == "__main__":
    main()
