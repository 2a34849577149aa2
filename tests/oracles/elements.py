"""Converts floats as numpy and ml_dtypes do.

elements.py narrow DTYPE FILE: float32 values to the bytes of DTYPE, to nearest even.
elements.py widen DTYPE FILE: bytes of DTYPE to float32 values.
"""

import sys

import ml_dtypes
import numpy as np

way, name, path = sys.argv[1:]
dtype = np.dtype(getattr(ml_dtypes, name, name))
with np.errstate(over="ignore"):
    if way == "narrow":
        values = np.fromfile(path, "<f4")
        result = (values if dtype.kind not in "iu" else np.rint(values)).astype(dtype)
    else:
        result = np.fromfile(path, dtype).astype("<f4")
sys.stdout.buffer.write(result.tobytes())
