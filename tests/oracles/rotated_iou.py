"""Overlaps of boxes in exact arithmetic: rotated_iou.py PAIRS OUT.

PAIRS holds float64 rows of two boxes: x, y, length, width, yaw, twice. OUT receives for each pair, in float64, the area
of the overlap and the intersection over union. Corners are computed in float64 and taken as they are; the overlap is
the convex hull of the corners of one box inside the other and of all crossings of their edges, in rational numbers, so
that edges on top of each other are no special case.
"""

import math
import pathlib
import sys
from fractions import Fraction

import numpy as np


def corners(x, y, length, width, yaw):
    sin, cos = math.sin(yaw), math.cos(yaw)
    for dx, dy in (1, 1), (-1, 1), (-1, -1), (1, -1):
        l, w = dx * length / 2, dy * width / 2
        yield Fraction(x + cos * l - sin * w), Fraction(y + sin * l + cos * w)


def cross(o, a, b):
    return (a[0] - o[0]) * (b[1] - o[1]) - (a[1] - o[1]) * (b[0] - o[0])


def edges(polygon):
    return list(zip(polygon, polygon[1:] + polygon[:1]))


def inside(point, polygon):
    return all(cross(a, b, point) >= 0 for a, b in edges(polygon))


def crossings(first, second):
    for a, b in edges(first):
        for c, d in edges(second):
            denominator = (b[0] - a[0]) * (d[1] - c[1]) - (b[1] - a[1]) * (d[0] - c[0])
            if denominator:
                t = ((c[0] - a[0]) * (d[1] - c[1]) - (c[1] - a[1]) * (d[0] - c[0])) / denominator
                u = ((c[0] - a[0]) * (b[1] - a[1]) - (c[1] - a[1]) * (b[0] - a[0])) / denominator
                if 0 <= t <= 1 and 0 <= u <= 1:
                    yield a[0] + t * (b[0] - a[0]), a[1] + t * (b[1] - a[1])


def half_hull(points):
    chain = []
    for point in points:
        while len(chain) > 1 and cross(chain[-2], chain[-1], point) <= 0:
            chain.pop()
        chain.append(point)
    return chain[:-1]


def area(polygon):
    return abs(sum(a[0] * b[1] - a[1] * b[0] for a, b in edges(polygon))) / 2


def main():
    pairs = np.frombuffer(pathlib.Path(sys.argv[1]).read_bytes(), "<f8").reshape(-1, 2, 5)
    result = []
    for a, b in pairs:
        # Both relative to the first: corners lose no digits at a distance.
        first, second = list(corners(0.0, 0.0, *a[2:])), list(corners(b[0] - a[0], b[1] - a[1], *b[2:]))
        points = {p for p in first if inside(p, second)} | {p for p in second if inside(p, first)}
        points = sorted(points | set(crossings(first, second)))
        hull = half_hull(points) + half_hull(points[::-1]) if len(points) > 2 else []
        overlap = area(hull) if len(hull) > 2 else Fraction(0)
        result.append((float(overlap), float(overlap / (area(first) + area(second) - overlap))))
    pathlib.Path(sys.argv[2]).write_bytes(np.array(result, "<f8").tobytes())


if __name__ == "__main__":
    main()
