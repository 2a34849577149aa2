"""Writes FOLDER/all.safetensors with the safetensors package: write_safetensors.py FOLDER.

For each tensor NAME, FOLDER/NAME.values holds what numpy and ml_dtypes make of it: float32 for floats (float64 for
F64), int64 for integers and truth values. FOLDER/NAME.bytes are its elements as they are.
"""

import sys
from pathlib import Path

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

folder = Path(sys.argv[1])
rng = np.random.default_rng(5)
codes8 = np.arange(256, dtype=np.uint8).reshape(2, 8, 16)
codes16 = np.arange(65536, dtype=np.uint16).reshape(256, 256)
tensors = {
    "e4m3": codes8.view(ml_dtypes.float8_e4m3fn),
    "e5m2": codes8.view(ml_dtypes.float8_e5m2),
    "bf16": codes16.view(ml_dtypes.bfloat16),
    "f16": codes16.view(np.float16),
    "f32": rng.integers(0, 2**32, 1000, dtype=np.uint32).view(np.float32),
    "f64": rng.integers(0, 2**64, 1000, dtype=np.uint64).view(np.float64),
    "bool": rng.integers(0, 2, (3, 5)).astype(bool),
    "scalar": np.array(1.5, np.float32),
    "empty": np.zeros((4, 0, 3), np.float32),
}
for width in (8, 16, 32, 64):
    for kind in ("int", "uint"):
        info = np.iinfo(f"{kind}{width}")
        high = min(info.max, 2**63 - 1)
        values = rng.integers(info.min, high, 98, dtype=info.dtype, endpoint=True)
        tensors[f"{kind}{width}"] = np.append(values, np.array([info.min, high], info.dtype)).reshape(10, 10)

save_file(tensors, folder / "all.safetensors", {"format": "np", "made by": "a test"})
for name, tensor in tensors.items():
    carrier = "<f8" if name == "f64" else "<i8" if tensor.dtype.kind in "iub" else "<f4"
    tensor.astype(carrier).tofile(folder / f"{name}.values")
    tensor.tofile(folder / f"{name}.bytes")
