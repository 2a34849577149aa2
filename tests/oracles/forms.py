"""NumPy's side of tests/serving/forms: forms.py FILE

Reads the encoded arrays of FILE, and writes arrays of every type, order and byte order in every encoding, and float32
rounded to 6 significant digits. Numbers that are compared are told by the bits of their float64.
"""

import base64
import io
import json
import sys

import numpy as np


def bits(values):
    return np.asarray(values, dtype=np.float64).ravel().view(np.uint64).tolist()


def decode(form):
    if form["encoding"] == "list":
        array = np.array(form["data"], dtype=form["dtype"])
    else:
        data = base64.b64decode(form["data"], validate=True)
        if form["encoding"] == "raw":
            array = np.frombuffer(data, dtype=form["dtype"]).reshape(form["shape"])
        else:
            array = np.load(io.BytesIO(data))[form["key"]]
    assert array.dtype == np.dtype(form["dtype"]) and list(array.shape) == form["shape"], form
    return bits(array)


def b64(data):
    return base64.b64encode(data).decode()


def cases():
    rng = np.random.default_rng(3)
    for code in ["b1", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8"]:
        for dims in [(), (3,), (2, 3, 4)]:
            values = np.asarray(np.abs(rng.normal(0, 40, dims)))
            native = values.astype(np.dtype("<" + code))
            facts = {"values": bits(native), "shape": list(dims)}
            for big in [False, True]:
                for order in "CF":
                    stored = native.astype(np.dtype((">" if big else "<") + code))
                    form = {"encoding": "raw", "dtype": str(native.dtype), "shape": list(dims), "order": order}
                    form |= {"byte_order": "big" if big else "little", "data": b64(stored.tobytes(order=order))}
                    yield {"form": form} | facts
            for save, encoding in [(np.savez, "npz"), (np.savez_compressed, "npz_compressed")]:
                file = io.BytesIO()
                save(file, a=np.asfortranarray(native) if dims else native, other=np.zeros(1))
                yield {"form": {"encoding": encoding, "key": "a", "data": b64(file.getvalue())}} | facts
            if dims:
                form = {"encoding": "list", "dtype": str(native.dtype), "data": native.tolist()}
                yield {"form": form} | facts


def rounded():
    rng = np.random.default_rng(5)
    patterns = rng.integers(0, 2**32, 3000, dtype=np.uint32)
    floats = patterns.view(np.float32)
    keep = np.isfinite(floats)
    wide = floats[keep].astype(np.float64)
    return [[int(b), bits(float(f"{f:.6g}"))[0]] for b, f in zip(patterns[keep], wide)]


with open(sys.argv[1]) as file:
    ours = json.load(file)
out = {"read": {name: decode(form) for name, form in ours.items()}, "written": list(cases()), "rounded": rounded()}
print(json.dumps(out))
