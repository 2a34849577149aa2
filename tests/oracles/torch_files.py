"""Checkpoints as torch.save writes them, without PyTorch: torch_files.py FOLDER.

The pickles are Python's own. Classes that are pickled by name stand in modules made here. Prints one JSON line a
tensor of `all.pth`: name, dtype, shape, values.
"""

import collections
import io
import json
import pickle
import sys
import types
import zipfile

import ml_dtypes
import numpy as np

KINDS = {
    "FloatStorage": np.float32,
    "DoubleStorage": np.float64,
    "HalfStorage": np.float16,
    "BFloat16Storage": ml_dtypes.bfloat16,
    "LongStorage": np.int64,
    "IntStorage": np.int32,
    "ShortStorage": np.int16,
    "CharStorage": np.int8,
    "ByteStorage": np.uint8,
    "BoolStorage": np.bool_,
}

torch = types.ModuleType("torch")
utils = types.ModuleType("torch._utils")
sys.modules.update({"torch": torch, "torch._utils": utils})
for kind in KINDS:
    setattr(torch, kind, type(kind, (), {"__module__": "torch"}))


def _rebuild_tensor_v2():
    raise AssertionError


def _rebuild_parameter():
    raise AssertionError


for function in (_rebuild_tensor_v2, _rebuild_parameter):
    function.__module__ = "torch._utils"
    setattr(utils, function.__name__, function)


class Storage:
    def __init__(self, array):
        self.array = array


class Tensor:
    """A view of a storage: offset, sizes, strides in elements."""

    def __init__(self, storage, offset, sizes, strides):
        self.storage, self.offset, self.sizes, self.strides = storage, offset, sizes, strides

    def __reduce__(self):
        hooks = collections.OrderedDict()
        return _rebuild_tensor_v2, (self.storage, self.offset, self.sizes, self.strides, False, hooks)

    def numpy(self):
        array = self.storage.array
        strides = tuple(s * array.itemsize for s in self.strides)
        return np.lib.stride_tricks.as_strided(array[self.offset :], self.sizes, strides)


class Parameter:
    def __init__(self, tensor):
        self.tensor = tensor

    def __reduce__(self):
        return _rebuild_parameter, (self.tensor, True, collections.OrderedDict())

    def numpy(self):
        return self.tensor.numpy()


def kind_of(array):
    return next(kind for kind, dtype in KINDS.items() if np.dtype(dtype) == array.dtype)


class Pickler(pickle.Pickler):
    def __init__(self, file, protocol, old):
        super().__init__(file, protocol)
        self.storages, self.old = {}, old

    def persistent_id(self, thing):
        if not isinstance(thing, Storage):
            return None
        key = next((k for k, s in self.storages.items() if s is thing), str(len(self.storages)))
        self.storages[key] = thing
        reference = ("storage", getattr(torch, kind_of(thing.array)), key, "cuda:0", thing.array.size)
        return reference + (None,) if self.old else reference


def save(path, thing, protocol=2, order="little", prefix="archive", method=zipfile.ZIP_STORED):
    stream = io.BytesIO()
    pickler = Pickler(stream, protocol, False)
    pickler.dump(thing)
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr(f"{prefix}/data.pkl", stream.getvalue())
        archive.writestr(f"{prefix}/byteorder", order)
        for key, storage in pickler.storages.items():
            array = storage.array.byteswap() if order == "big" else storage.array
            archive.writestr(f"{prefix}/data/{key}", array.tobytes())
        archive.writestr(f"{prefix}/version", "3\n")


def save_old(path, thing):
    with open(path, "wb") as file:
        pickle.dump(0x1950A86A20F9469CFC6C, file, 2)
        pickle.dump(1001, file, 2)
        pickle.dump({"protocol_version": 1001, "little_endian": True, "type_sizes": {"int": 4}}, file, 2)
        pickler = Pickler(file, 2, True)
        pickler.dump(thing)
        pickle.dump(sorted(pickler.storages), file, 2)
        for _, storage in sorted(pickler.storages.items()):
            file.write(storage.array.size.to_bytes(8, "little"))
            file.write(storage.array.tobytes())


def whole(array):
    strides = tuple(s // array.itemsize for s in array.strides)
    return Tensor(Storage(array.ravel()), 0, array.shape, strides)


class Gadget:
    def __reduce__(self):
        return print, ("this must never be printed",)


folder = sys.argv[1]
rng = np.random.default_rng(3)
tensors = collections.OrderedDict()
for kind, dtype in KINDS.items():
    values = rng.normal(0, 50, (3, 4))
    values = np.abs(values) if kind == "ByteStorage" else values > 0 if kind == "BoolStorage" else values
    tensors[f"plain.{kind}"] = whole(values.astype(dtype))
shared = Storage(np.arange(24, dtype=np.float32))
tensors["views.transposed"] = Tensor(shared, 0, (6, 4), (1, 6))
tensors["views.middle"] = Tensor(shared, 5, (2, 3), (6, 2))
tensors["views.scalar"] = Tensor(shared, 23, (), ())
tensors["views.empty"] = Tensor(shared, 0, (0, 3), (3, 1))
tensors["views.parameter"] = Parameter(Tensor(shared, 0, (2, 12), (12, 1)))
tensors["bn.weight"] = whole(rng.uniform(0.5, 2, 4).astype(np.float32))
tensors["bn.bias"] = whole(rng.normal(0, 1, 4).astype(np.float32))
tensors["bn.running_mean"] = whole(rng.normal(0, 1, 4).astype(np.float32))
tensors["bn.running_var"] = whole(rng.uniform(0.1, 2, 4).astype(np.float32))
tensors["bn.num_batches_tracked"] = whole(np.array(12, dtype=np.int64))

save(f"{folder}/all.pth", tensors)
save(f"{folder}/big.pth", tensors, order="big")
for protocol in (3, 4, 5):
    save(f"{folder}/protocol{protocol}.pth", tensors, protocol)
save_old(f"{folder}/old.pth", tensors)
training = {"epoch": 3, "lr": 0.5, "best": None, "model_state": dict(tensors), "seen": [1, 2, (True, 2**40, -1)]}
save(f"{folder}/training.ckpt", training)
save(f"{folder}/two.pt", {"state_dict": dict(tensors), "model": dict(tensors), "ema": {"net": dict(tensors)}})
save(f"{folder}/gadget.pth", {"w": tensors["bn.weight"], "x": Gadget()})
save(f"{folder}/numpy.pth", {"w": np.zeros(3)})
one = Storage(np.arange(4, dtype=np.float32))
save(f"{folder}/outside.pth", {"w": Tensor(one, 2, (3,), (1,))})
save(f"{folder}/negative.pth", {"w": Tensor(one, 3, (2,), (-1,))})
save(f"{folder}/expanded.pth", {"w": Tensor(one, 0, (1 << 40,), (0,))})
wide = Storage(np.zeros(2000, np.float32))
save(f"{folder}/shared.pth", {f"w{i}": Tensor(wide, 0, (2000,), (1,)) for i in range(200)})
save(f"{folder}/bomb.pth", {"w": whole(np.zeros(1 << 24, np.float32))}, method=zipfile.ZIP_DEFLATED)
save(f"{folder}/huge.pth", {"w": Tensor(one, 0, (1 << 40, 1 << 40), (1, 1))})
save(f"{folder}/small.pth", collections.OrderedDict(a=Tensor(one, 0, (2, 2), (2, 1)), b=Tensor(one, 1, (2,), (1,))))
save_old(f"{folder}/small_old.pth", collections.OrderedDict(a=Tensor(one, 0, (2, 2), (2, 1))))

for name, tensor in tensors.items():
    array = tensor.numpy()
    # Floats as the bits of their float64.
    floats = array.dtype.kind in "fV"
    values = array.astype(np.float64).ravel().view(np.uint64) if floats else array.astype(np.int64).ravel()
    line = {"name": name, "dtype": array.dtype.name, "shape": list(array.shape), "values": values.tolist()}
    print(json.dumps(line))
