"""NumPy's side of tests/numbers/npz.rs.

npz.py write FOLDER   archives of every type, order and byte order, and what NumPy says their values are
npz.py check FILE     what NumPy reads of a file that Sensorium wrote, one JSON line an array
"""

import json
import sys
import zipfile

import ml_dtypes
import numpy as np


def line(name, array):
    if array.dtype == np.dtype("V2"):
        array = array.view(ml_dtypes.bfloat16)
    # Floats as the bits of their float64.
    values = array.astype(np.float64).ravel().view(np.uint64) if array.dtype.kind in "fV" else array.ravel()
    if array.dtype.kind == "b":
        values = values.astype(np.int64)
    return json.dumps(
        {"name": name, "dtype": str(array.dtype), "shape": list(array.shape), "values": values.tolist()}
    )


def write(folder):
    rng = np.random.default_rng(7)
    arrays = {}
    for code in ["b1", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "f2", "f4", "f8"]:
        for order in "<>":
            dtype = np.dtype(order + code)
            for label, dims in {"cube": (2, 3, 4), "scalar": (), "empty": (0, 3)}.items():
                values = rng.normal(0, 100, dims)
                values = np.abs(values) if code[0] == "u" else values
                arrays[f"{label}_{'le' if order == '<' else 'be'}_{code}"] = np.asarray(values).astype(dtype)
    arrays["u8"] = np.array([0, 2**63 - 1], dtype=np.uint64)
    arrays["brain"] = rng.normal(0, 1, (3, 5)).astype(ml_dtypes.bfloat16)
    arrays["fortran"] = np.asfortranarray(rng.normal(0, 1, (3, 4, 2)).astype(np.float32))
    arrays["fortran_flat"] = np.asfortranarray(rng.integers(0, 9, (5, 7)).astype(">i4"))
    meta = {"model": "ünïcode 🚗", "tolerance": 0.5, "shape": [1, 2]}
    np.savez(f"{folder}/stored.npz", **arrays, __meta__=np.array(json.dumps(meta, ensure_ascii=False)))
    np.savez_compressed(f"{folder}/deflated.npz", **arrays, __meta__=np.array(json.dumps(meta)))
    np.savez(f"{folder}/complex.npz", wave=np.zeros(3, np.complex64))
    np.savez(f"{folder}/objects.npz", things=np.array([{}, None], dtype=object))
    np.savez(f"{folder}/text.npz", words=np.array(["a", "b"]))
    np.savez(f"{folder}/record.npz", table=np.zeros(2, dtype=[("a", "<f4"), ("b", "<i4")]))
    np.savez(f"{folder}/wide.npz", large=np.array([2**63], dtype=np.uint64))
    np.savez(f"{folder}/deep.npz", deep=np.zeros((1,) * 9))
    np.savez(f"{folder}/meta.npz", __meta__=np.array("{not json"))
    np.savez_compressed(f"{folder}/bomb.npz", zeros=np.zeros(1 << 26, np.uint8))
    with zipfile.ZipFile(f"{folder}/other.npz", "w") as archive:
        archive.writestr("notes.npy", b"these are no numbers")
    for name, array in arrays.items():
        print(line(name, array))


def check(path):
    with np.load(path, allow_pickle=False) as archive:
        for name in archive.files:
            if name == "__meta__":
                print(json.dumps({"name": name, "meta": json.loads(str(archive[name]))}))
            else:
                print(line(name, archive[name]))


if __name__ == "__main__":
    {"write": write, "check": check}[sys.argv[1]](sys.argv[2])
