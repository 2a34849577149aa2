#!/usr/bin/env python3
"""Times ml_dtypes and NumPy beside our number formats, 16 Mi values each, and prints GB/s and ratios.

    python benches/peers/formats.py [--rounds 3] [--json FILE]

Needs a Python with the packages of tests/oracles/requirements.txt. Both write to memory that exists already, on one
thread; bytes are those read and written. Ours and theirs alternate, so that a busy machine slows both; the best median
of all rounds counts, with the fastest single run beside it. "peer" is their time as a multiple of ours: above 1 ours is
faster. "copy" is the time of a plain copy that reads and writes as many bytes, as a multiple of ours. ml_dtypes keeps
one FP4 code in a byte, ours are packed.
"""

import argparse
import json
import pathlib

import ml_dtypes
import numpy as np

from compare import ours, timed

GROUP = "formats_16Mi"
VALUES = 16 << 20
# Our name, the peer's type, bytes of one of our codes.
FORMATS = (
    ("e3m4", ml_dtypes.float8_e3m4, 1),
    ("e4m3", ml_dtypes.float8_e4m3fn, 1),
    ("e5m2", ml_dtypes.float8_e5m2, 1),
    ("fp4", ml_dtypes.float4_e2m1fn, 0.5),
    ("bf16", ml_dtypes.bfloat16, 2),
    ("f16", np.float16, 2),
)
COPIES = {0.5: "fp4", 1: "fp8", 2: "16_bit"}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()

    random = np.random.default_rng(42)
    exponents = random.integers(107, 147, VALUES, np.uint32) << 23
    values = (random.integers(0, 1 << 32, VALUES, np.uint32) & 0x807FFFFF | exponents).view(np.float32)
    decoded = np.zeros(VALUES, np.float32)

    best = {}
    for _ in range(arguments.rounds):
        measured = ours("formats", GROUP, {})
        for name, dtype, code_bytes in FORMATS:
            with np.errstate(all="ignore"):
                codes = values.astype(dtype)
                calls = {
                    "encode": lambda: np.copyto(codes, values, casting="unsafe"),
                    "decode": lambda: np.copyto(decoded, codes, casting="unsafe"),
                }
                for direction, call in calls.items():
                    theirs = timed(call, 1.0)
                    mine = measured[f"{GROUP}/{direction}/{name}"]
                    copy = measured[f"{GROUP}/copy/as_{COPIES[code_bytes]}"]
                    old = best.get(f"{direction}/{name}", ((9e9, 9e9),) * 3)
                    best[f"{direction}/{name}"] = [tuple(map(min, *pair)) for pair in zip(old, (mine, theirs, copy))]

    print(f"{'':12} {'median: ours, peer (ms)':>24} {'peer':>6} {'copy':>5}   {'fastest: ours, peer (ms)':>24} {'peer':>6} {'copy':>5} {'GB/s':>6}")
    for name, (mine, theirs, copy) in best.items():
        code_bytes = next(size for format_name, _, size in FORMATS if name.endswith("/" + format_name))
        line = f"{name:12}"
        for i in (0, 1):
            line += f" {mine[i] * 1e3:14.2f} {theirs[i] * 1e3:9.1f} {theirs[i] / mine[i]:6.1f} {copy[i] / mine[i]:5.2f}  "
        print(f"{line}{(4 + code_bytes) * VALUES / mine[1] / 1e9:5.1f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(best, indent=2))


if __name__ == "__main__":
    main()
