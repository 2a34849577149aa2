"""Points to pillar features, as Autoware's lidar_centerpoint prepares them (nine features a point)."""

from dataclasses import dataclass

import numba
import numpy as np

RANGE_MIN = (-51.2, -51.2, -3.0)
RANGE_MAX = (51.2, 51.2, 5.0)
VOXEL_M = 0.32
GRID = 320
MAX_POINTS = 32
NUM_FEATURES = 9


@dataclass(frozen=True)
class Pillars:
    """The pillars of a scene in ascending order of their cell.

    features: float32 (M, 9), a pillar's points in a row: x, y, z, time lag, offsets to the mean of the pillar's
        points (3), offsets to the middle of the pillar (x, y).
    starts: int64 (P + 1), pillar p owns the rows starts[p] to starts[p + 1], 1 to 32 of them.
    cells: int64 (P), iy * 320 + ix.
    """

    features: np.ndarray
    starts: np.ndarray
    cells: np.ndarray


def pillarise(points: np.ndarray, seed: int) -> Pillars:
    """Groups points (N, 4) into pillars. Of a pillar with more than 32 points a seeded random choice stays."""
    return Pillars(*_pillarise(np.ascontiguousarray(points, np.float32), np.uint64(seed)))


@numba.njit(cache=True, nogil=True)
def _pillarise(points, seed):
    voxel = np.float32(VOXEL_M)
    min_x, min_y, min_z = np.float32(RANGE_MIN[0]), np.float32(RANGE_MIN[1]), np.float32(RANGE_MIN[2])
    max_x, max_y, max_z = np.float32(RANGE_MAX[0]), np.float32(RANGE_MAX[1]), np.float32(RANGE_MAX[2])
    cell_of = np.full(len(points), -1, np.int32)
    counts = np.zeros(GRID * GRID + 1, np.int64)
    for index in range(len(points)):
        x, y, z = points[index, 0], points[index, 1], points[index, 2]
        if not (min_x <= x < max_x and min_y <= y < max_y and min_z <= z < max_z):
            continue
        ix = min(np.int32(np.floor((x - min_x) / voxel)), GRID - 1)
        iy = min(np.int32(np.floor((y - min_y) / voxel)), GRID - 1)
        cell_of[index] = iy * GRID + ix
        counts[iy * GRID + ix + 1] += 1
    ends = np.cumsum(counts)
    by_cell = np.empty(ends[-1], np.int64)
    next_row = ends[:-1].copy()
    for index in range(len(points)):
        if cell_of[index] >= 0:
            by_cell[next_row[cell_of[index]]] = index
            next_row[cell_of[index]] += 1

    num_pillars = np.count_nonzero(counts)
    cells = np.empty(num_pillars, np.int64)
    starts = np.zeros(num_pillars + 1, np.int64)
    features = np.empty((np.minimum(counts, MAX_POINTS).sum(), NUM_FEATURES), np.float32)
    state = seed
    pillar = row = 0
    for cell in range(GRID * GRID):
        begin, count = ends[cell], counts[cell + 1]
        if count == 0:
            continue
        kept = min(count, MAX_POINTS)
        if count > MAX_POINTS:
            # The first steps of a Fisher-Yates shuffle; the random numbers are those of SplitMix64.
            for slot in range(MAX_POINTS):
                state = state + np.uint64(0x9E3779B97F4A7C15)
                mixed = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
                mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
                mixed = mixed ^ (mixed >> np.uint64(31))
                other = begin + slot + np.int64(mixed % np.uint64(count - slot))
                swapped = by_cell[begin + slot]
                by_cell[begin + slot] = by_cell[other]
                by_cell[other] = swapped
        mean = np.zeros(3, np.float32)
        for slot in range(kept):
            for axis in range(3):
                mean[axis] += points[by_cell[begin + slot], axis]
        for axis in range(3):
            mean[axis] /= np.float32(kept)
        centre_x = voxel / np.float32(2) + np.float32(cell % GRID) * voxel + min_x
        centre_y = voxel / np.float32(2) + np.float32(cell // GRID) * voxel + min_y
        for slot in range(kept):
            point = points[by_cell[begin + slot]]
            features[row, :4] = point
            for axis in range(3):
                features[row, 4 + axis] = point[axis] - mean[axis]
            features[row, 7] = point[0] - centre_x
            features[row, 8] = point[1] - centre_y
            row += 1
        cells[pillar] = cell
        pillar += 1
        starts[pillar] = row
    return features, starts, cells
