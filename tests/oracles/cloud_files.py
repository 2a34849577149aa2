"""Reads and makes point-cloud files with pypcd4 and numpy.

cloud_files.py pcd FILE NAME...: float64 values of the named fields, one field after the other.
cloud_files.py npy FILE: the shape as JSON on a line, then the values as float64.
cloud_files.py make-npy FOLDER: one random cloud [100, 4] as array in several types and orders, and as float32 in
  reference.f32.
"""

import json
import sys
from pathlib import Path

import numpy as np

way, path = sys.argv[1:3]
out = sys.stdout.buffer
if way == "pcd":
    from pypcd4 import PointCloud

    cloud = PointCloud.from_path(path)
    for name in sys.argv[3:]:
        out.write(cloud.pc_data[name].astype("<f8").tobytes())
elif way == "npy":
    array = np.load(path)
    out.write(json.dumps(array.shape).encode() + b"\n" + array.astype("<f8").tobytes())
else:
    folder = Path(path)
    # Values that float16 holds, so that every file says the same.
    points = np.random.default_rng(3).uniform(-80, 80, (100, 4)).astype("<f2")
    points[:, 3] = np.abs(points[:, 3])
    for dtype in ("<f2", "<f4", "<f8", ">f2", ">f4", ">f8"):
        np.save(folder / f"{'little' if dtype[0] == '<' else 'big'}_{dtype[1:]}.npy", points.astype(dtype))
    np.save(folder / "fortran_f4.npy", np.asfortranarray(points.astype("<f4")))
    np.save(folder / "organised_f4.npy", points.astype("<f4").reshape(5, 20, 4))
    with open(folder / "version2.npy", "wb") as file:
        np.lib.format.write_array(file, points.astype("<f4"), version=(2, 0))
    points.astype("<f4").tofile(folder / "reference.f32")
    np.save(folder / "whole.npy", np.zeros((3, 4), "i4"))
    np.save(folder / "flat.npy", np.zeros(12, "f4"))
    np.save(folder / "fortran_organised.npy", np.asfortranarray(np.zeros((2, 3, 4), "f4")))
    np.save(folder / "narrow.npy", np.zeros((3, 2), "f4"))
