#!/usr/bin/env python3
"""Times ml_dtypes and NumPy beside our number formats, 16 Mi values each, and prints GB/s and ratios.

    python benches/peers/formats.py [--rounds 3] [--json FILE]

Needs a Python with the packages of tests/oracles/requirements.txt. Both write to memory that exists already, on one
thread; bytes are those read and written. Ours and theirs alternate, and the best median of all rounds counts. The first
ratio is theirs to ours: above 1 ours is faster. The second is ours to a plain copy of as many bytes. ml_dtypes keeps one
FP4 code in a byte, ours are packed.
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
                    theirs = timed(call, 1.0)[0]
                    mine = measured[f"{GROUP}/{direction}/{name}"][0]
                    copy = measured[f"{GROUP}/copy/as_{COPIES[code_bytes]}"][0]
                    bytes_ours, bytes_theirs = (4 + code_bytes) * VALUES, (4 + codes.itemsize) * VALUES
                    old = best.get(f"{direction}/{name}", (0, 9e9, 0, 9e9, 9e9))
                    best[f"{direction}/{name}"] = (
                        bytes_ours, min(mine, old[1]), bytes_theirs, min(theirs, old[3]), min(copy, old[4]),
                    )

    print(f"{'format':14} {'ours ms':>8} {'peer ms':>8} {'ours GB/s':>9} {'peer GB/s':>9} {'peer/ours':>9} {'copy/ours':>9}")
    for name, (bytes_ours, mine, bytes_theirs, theirs, copy) in best.items():
        cells = (mine * 1e3, theirs * 1e3, bytes_ours / mine / 1e9, bytes_theirs / theirs / 1e9, theirs / mine, copy / mine)
        print("{:14} {:8.2f} {:8.2f} {:9.2f} {:9.2f} {:9.1f} {:9.2f}".format(name, *cells))
    if arguments.json:
        arguments.json.write_text(json.dumps(best, indent=2))


if __name__ == "__main__":
    main()
