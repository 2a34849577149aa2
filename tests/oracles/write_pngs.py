"""PNG files of several kinds, made by OpenCV: write_pngs.py DIR"""

import pathlib
import struct
import sys
import zlib

import cv2
import numpy as np

folder = pathlib.Path(sys.argv[1])
rng = np.random.default_rng(5)


def noise(*shape, dtype=np.uint8):
    return rng.integers(0, np.iinfo(dtype).max + 1, shape, dtype=dtype)


def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


cv2.imwrite(str(folder / "grey8.png"), noise(23, 37))
cv2.imwrite(str(folder / "rgb8.png"), noise(23, 37, 3))
cv2.imwrite(str(folder / "rgba8.png"), noise(23, 37, 4))
cv2.imwrite(str(folder / "rgb16.png"), noise(23, 37, 3, dtype=np.uint16))
cv2.imwrite(str(folder / "black_white.png"), noise(23, 37), [cv2.IMWRITE_PNG_BILEVEL, 1])

# OpenCV does not write palettes.
rows = b"".join(b"\0" + bytes(row) for row in noise(23, 37) % 5)
(folder / "palette.png").write_bytes(
    b"\x89PNG\r\n\x1a\n"
    + chunk(b"IHDR", struct.pack(">IIBBBBB", 37, 23, 8, 3, 0, 0, 0))
    + chunk(b"PLTE", bytes(noise(15)))
    + chunk(b"IDAT", zlib.compress(rows))
    + chunk(b"IEND", b"")
)
