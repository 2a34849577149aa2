"""Block floats by their definition, on whole arrays of integers: blockfloat.py DIR

DIR/cases.txt has lines "name rows cols"; DIR/name.f32 holds the bits of each matrix. For both formats F
(bfp8, bfp4) of each case, the matrix in plain order goes to DIR/name.F.exponents, DIR/name.F.mantissas and
DIR/name.F.decoded, and its 32 x 32 tiles to DIR/name.F.tiles; DIR/name.F.untiled are the values of the tiles.
DIR/codes.F.decoded receives the values of all codes in order, for each exponent from 0 to 255.
"""

import pathlib
import sys

import numpy as np


def encode(blocks, width):
    """Exponents [n] and signed codes [n, 16] of bits [n, 16], with `width` magnitude bits."""
    field = blocks >> 23 & 0xFF
    shared = field.max(axis=1)
    significand = np.where(field == 0, 0, blocks % 2**23 + 2**23)
    aligned = significand >> np.minimum(shared[:, None] - field, 40)
    step = 2 ** (24 - width)
    whole, rest = np.divmod(aligned, step)
    round_up = (2 * rest > step) | ((2 * rest == step) & (whole % 2 == 1))
    magnitude = np.minimum(whole + round_up, 2**width - 1)
    sign = np.where(magnitude > 0, blocks >> 31, 0)
    return shared, sign * 2**width + magnitude


def decode(shared, codes, width):
    """Bits [n, 16] of the values."""
    sign, magnitude = np.divmod(codes, 2**width)
    top = 2 ** (width - 1)
    normal, field = magnitude.copy(), np.broadcast_to(shared[:, None], codes.shape).copy()
    for _ in range(width - 1):
        low = (normal > 0) & (normal < top)
        normal[low] *= 2
        field[low] -= 1
    bits = sign * 2**31 + field * 2**23 + (normal - top) * 2 ** (24 - width)
    bits[(magnitude == 0) | (field < 0)] = 0

    # The same as products with powers of two, wherever those are normal numbers.
    product = np.ldexp(magnitude * (1.0 - 2.0 * sign), shared[:, None] - 126 - width)
    plain = (magnitude > 0) & (field > 0) & (field < 255)
    values = bits.astype("<u4").view("<f4").astype(np.float64)
    assert np.array_equal(values[plain], product[plain])
    return bits


def pack(codes, width):
    return codes if width == 7 else codes[:, 0::2] + 16 * codes[:, 1::2]


def face_rows(matrix):
    """Face rows [tiles, 64, 16] of a matrix whose sides are multiples of 32."""
    down, across = (side // 32 for side in matrix.shape)
    split = matrix.reshape(down, 2, 16, across, 2, 16)
    return split.transpose(0, 3, 1, 4, 2, 5).reshape(down * across, 64, 16)


def matrix_of(rows, down, across):
    """The inverse of `face_rows`."""
    split = rows.reshape(down, across, 2, 2, 16, 16)
    return split.transpose(0, 2, 4, 1, 3, 5).reshape(32 * down, 32 * across)


folder = pathlib.Path(sys.argv[1])
for label, width in (("bfp8", 7), ("bfp4", 3)):
    count = 2 ** (width + 1)
    codes = np.tile(np.arange(count), 256).reshape(-1, 16)
    values = decode(np.repeat(np.arange(256), count // 16), codes, width)
    values.astype("<u4").tofile(folder / f"codes.{label}.decoded")

for line in (folder / "cases.txt").read_text().splitlines():
    name, *sides = line.split()
    rows, cols = map(int, sides)
    bits = np.fromfile(folder / f"{name}.f32", "<u4").astype(np.int64)
    assert bits.size == rows * cols
    blocks = np.pad(bits, (0, -bits.size % 16)).reshape(-1, 16)
    padded = np.pad(bits.reshape(rows, cols), ((0, -rows % 32), (0, -cols % 32)))
    tiles = face_rows(padded)
    for label, width in (("bfp8", 7), ("bfp4", 3)):

        def save(suffix, array, dtype):
            array.astype(dtype).tofile(folder / f"{name}.{label}.{suffix}")

        exponents, codes = encode(blocks, width)
        save("exponents", exponents, "u1")
        save("mantissas", pack(codes, width), "u1")
        save("decoded", decode(exponents, codes, width).reshape(-1)[: bits.size], "<u4")

        exponents, codes = encode(tiles.reshape(-1, 16), width)
        packed = pack(codes, width).reshape(len(tiles), -1)
        save("tiles", np.concatenate([exponents.reshape(-1, 64), packed], axis=1), "u1")
        values = decode(exponents, codes, width)
        values = matrix_of(values, padded.shape[0] // 32, padded.shape[1] // 32)
        save("untiled", values[:rows, :cols], "<u4")
