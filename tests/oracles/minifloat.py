"""Small floats by ml_dtypes and NumPy: minifloat.py DIR

DIR/cases.txt has lines "name dtype limit". DIR/shared.values and DIR/name.values hold float32 numbers; DIR/name.codes
receives the codes of both, in this order, after clipping to the limit (inf: no clipping), and DIR/name.decoded the
float32 values of all codes.
"""

import pathlib
import sys

import ml_dtypes
import numpy as np

folder = pathlib.Path(sys.argv[1])
shared = np.fromfile(folder / "shared.values", np.float32)
for line in (folder / "cases.txt").read_text().splitlines():
    name, dtype, limit = line.split()
    dtype = np.dtype(getattr(ml_dtypes, dtype, dtype))
    codes = np.dtype(f"u{dtype.itemsize}")
    values = np.concatenate([shared, np.fromfile(folder / f"{name}.values", np.float32)])
    count = 16 if name.startswith("float4") else 1 << 8 * dtype.itemsize
    with np.errstate(all="ignore"):
        np.clip(values, -np.float32(limit), np.float32(limit)).astype(dtype).view(codes).tofile(folder / f"{name}.codes")
        np.arange(count).astype(codes).view(dtype).astype(np.float32).tofile(folder / f"{name}.decoded")
