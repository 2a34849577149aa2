"""Pillars and their features in NumPy, written against the description of Autoware's kernels: pillars.py DIR

DIR/cases.json is a list of objects: name, columns, min, max, voxel, slots, max_pillars, order ("flipped_x" or
"raster"), seed (a number or null), encoder (9 to 12). DIR/name.points holds rows of float32. Written are DIR/name.cells
(uint16, y and x cell of every pillar), DIR/name.counts (uint8), DIR/name.features (float32, pillars x slots x encoder),
and DIR/totals.json: for each name the cells with points and the points inside the range.
"""

import json
import pathlib
import sys

import numpy as np

F32 = np.float32


def permutation(count, seed):
    """Fisher-Yates from the end, drawing the upper halves of SplitMix64's numbers."""
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + np.arange(1, count, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = (z ^ (z >> np.uint64(31))) >> np.uint64(32)
    last = np.arange(count - 1, 0, -1, dtype=np.uint64)
    others = ((z * (last + np.uint64(1))) >> np.uint64(32)).tolist()
    order = list(range(count))
    for i, other in zip(last.tolist(), others):
        order[i], order[other] = order[other], order[i]
    return np.array(order, np.int64)


def assign(points, low, high, voxel, slots, max_pillars, order, seed=None):
    """Points (pillars, slots, columns) padded with zeros, counts, cells (y, x), cells with points, points inside."""
    low, high, voxel = (np.asarray(v, F32) for v in (low, high, voxel))
    grid = ((high - low) / voxel).astype(np.int64)[:2]
    if seed is not None:
        points = points[permutation(len(points), seed)]
    xyz = points[:, :3]
    inside = np.isfinite(points).all(1) & (xyz >= low).all(1) & (xyz < high).all(1)
    points = points[inside]
    place = np.minimum(np.floor((points[:, :2] - low[:2]) / voxel[:2]).astype(np.int64), grid - 1)
    if order == "flipped_x":
        rank = (grid[0] - 1 - place[:, 0]) * grid[1] + place[:, 1]
    else:
        rank = place[:, 1] * grid[0] + place[:, 0]
    by_rank = np.argsort(rank, kind="stable")
    _, first, counts = np.unique(rank[by_rank], return_index=True, return_counts=True)
    total = len(first)
    first, counts = first[:max_pillars], counts[:max_pillars]
    slot = np.arange(slots)
    taken = slot < np.minimum(counts, slots)[:, None]
    padded = np.zeros((len(first), slots, points.shape[1]), F32)
    padded[taken] = points[by_rank[(first[:, None] + slot)[taken]]]
    cells = place[by_rank[first]][:, ::-1] if len(first) else np.zeros((0, 2), np.int64)
    return padded, np.minimum(counts, slots), cells, total, len(points)


def decorate(padded, counts, cells, low, voxel, encoder):
    """The encoder's input (pillars, slots, encoder)."""
    low, voxel = np.asarray(low, F32), np.asarray(voxel, F32)
    xyz = padded[:, :, :3]
    total = np.zeros((len(padded), 3), F32)
    for slot in range(padded.shape[1]):
        total += xyz[:, slot]
    mean = total / counts.astype(F32)[:, None]
    index = np.concatenate([cells[:, ::-1], np.zeros((len(cells), 1), np.int64)], 1).astype(F32)
    centre = voxel / F32(2) + index * voxel + low
    axes = 3 if encoder in (10, 11) else 2
    rows = np.concatenate([padded, xyz - mean[:, None], (xyz - centre[:, None])[:, :, :axes]], 2)
    rows[np.arange(padded.shape[1]) >= counts[:, None]] = 0
    assert rows.dtype == F32 and rows.shape[2] == encoder
    return rows


def main():
    folder = pathlib.Path(sys.argv[1])
    totals = {}
    for case in json.loads((folder / "cases.json").read_text()):
        name, low, voxel = case["name"], case["min"], case["voxel"]
        points = np.fromfile(folder / f"{name}.points", F32).reshape(-1, case["columns"])
        padded, counts, cells, total, inside = assign(
            points, low, case["max"], voxel, case["slots"], case["max_pillars"], case["order"], case["seed"]
        )
        cells.astype(np.uint16).tofile(folder / f"{name}.cells")
        counts.astype(np.uint8).tofile(folder / f"{name}.counts")
        decorate(padded, counts, cells, low, voxel, case["encoder"]).tofile(folder / f"{name}.features")
        totals[name] = [total, inside]
    (folder / "totals.json").write_text(json.dumps(totals))


if __name__ == "__main__":
    main()
