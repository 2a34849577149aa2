"""Reads and makes point-cloud files with pypcd4 and numpy.

cloud_files.py pcd FILE NAME...: float64 values of the named fields, one field after the other.
cloud_files.py npy FILE: the shape as JSON on a line, then the values as float64.
cloud_files.py make-npy FOLDER: one random cloud [100, 4] as array in several types and orders, and as float32 in
  reference.f32.
cloud_files.py npz FILE: a line of JSON for every array, {"name": ..., "type": ..., "values": [...]}.
cloud_files.py make-npz FOLDER: one random cloud as archives, packed and not, of several types and byte orders, and its
  columns x, y, z, intensity, ring, t as float64 in reference.f64; archives that are no clouds.
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
elif way == "npz":
    with np.load(path) as archive:
        for name in archive.files:
            array = archive[name]
            print(json.dumps({"name": name, "type": array.dtype.str, "values": array.tolist()}))
elif way == "make-npz":
    folder = Path(path)
    random = np.random.default_rng(5)
    columns = {name: random.uniform(-80, 80, 1000).astype("<f4") for name in "xyz"}
    columns["intensity"] = random.integers(0, 256, 1000).astype("<u1")
    columns["ring"] = random.integers(0, 128, 1000).astype("<u2")
    columns["t"] = random.integers(0, 10**8, 1000).astype("<i8")
    np.concatenate([column.astype("<f8") for column in columns.values()]).tofile(folder / "reference.f64")
    np.savez(folder / "stored.npz", **columns)
    np.savez_compressed(folder / "packed.npz", **columns, label=np.zeros((3, 4)), note=np.array("text"))
    big = {name: column.astype(column.dtype.newbyteorder(">")) for name, column in columns.items()}
    np.savez(folder / "big.npz", **big)
    np.savez_compressed(folder / "single.npz", np.stack([columns[name] for name in "xyz"], axis=1))
    np.savez(folder / "short.npz", **columns | {"ring": np.zeros(999, "u2")})
    np.savez(folder / "no_y.npz", x=columns["x"], z=columns["z"])
    np.savez(folder / "flat.npz", **columns | {"z": np.zeros((1000, 1), "f4")})
    np.savez(folder / "words.npz", **columns | {"x": np.array(["a"] * 1000)})
    np.savez_compressed(folder / "bomb.npz", **columns | {"x": np.zeros(2**26 + 1, "f4")})
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
