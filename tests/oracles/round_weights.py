"""Rounds the weights of every convolution of an ONNX file: round_weights.py MODEL FORMAT OUT.  The floats are those of
numpy and ml_dtypes (8 bits: held at the largest finite value first), the block floats are computed here."""

import sys

import ml_dtypes
import numpy as np
import onnx
from onnx import numpy_helper


def through(weights, dtype):
    largest = float(ml_dtypes.finfo(dtype).max)
    return np.clip(weights, -largest, largest).astype(dtype).astype(np.float32)


def blocks(weights, width):
    """Rows of weights on the grid of the largest exponent of each 16, `width` bits beside the sign."""
    rows = weights.reshape(len(weights), -1)
    length = rows.shape[1]
    padded = np.pad(rows, ((0, 0), (0, -length % 16))).reshape(len(rows), -1, 16).astype(np.float64)
    padded[np.abs(padded) < 2.0**-126] = 0
    # frexp gives a fraction in 0.5..1, so a value's exponent is one less than what it says.
    exponent = np.max(np.where(padded == 0, -999, np.frexp(padded)[1] - 1), axis=2, keepdims=True)
    last_of_24_bits = np.ldexp(1.0, exponent - 23)
    kept = np.trunc(np.abs(padded) / last_of_24_bits)
    step = 2.0 ** (24 - width)
    magnitude = np.minimum(np.rint(kept / step), 2**width - 1)
    values = np.where(exponent == -999, 0, np.sign(padded) * magnitude * step * last_of_24_bits)
    return values.reshape(len(rows), -1)[:, :length].astype(np.float32).reshape(weights.shape)


FORMATS = {
    "fp32": lambda w: w,
    "bf16": lambda w: through(w, ml_dtypes.bfloat16),
    "fp16": lambda w: through(w, np.float16),
    "fp8_e4m3": lambda w: through(w, ml_dtypes.float8_e4m3fn),
    "fp8_e5m2": lambda w: through(w, ml_dtypes.float8_e5m2),
    "fp8_e3m4": lambda w: through(w, ml_dtypes.float8_e3m4),
    "bfp8": lambda w: blocks(w, 7),
    "bfp4": lambda w: blocks(w, 3),
}

source, name, target = sys.argv[1:]
model = onnx.load(source)
weights = {node.input[1] for node in model.graph.node if node.op_type == "Conv"}
for tensor in model.graph.initializer:
    if tensor.name in weights:
        rounded = FORMATS[name](numpy_helper.to_array(tensor))
        tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(rounded, np.float32), tensor.name))
onnx.save(model, target)
