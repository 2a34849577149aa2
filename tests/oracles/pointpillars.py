"""A small PointPillars in float64 from its checkpoint: pointpillars.py CHECKPOINT FEATURES INDEX HEIGHT WIDTH OUT.

FEATURES is float32 [pillars, points, 9], INDEX int32 [pillars] (row * WIDTH + column). Writes float32
[HEIGHT / 2, WIDTH / 2, 24]: 6 channels of the class head, 14 of the box head, 4 of the direction head. The checkpoint is
read by Python's own pickle.
"""

import collections
import io
import pickle
import sys
import zipfile

import numpy as np

EPSILON = 1e-5


def state_dict(path):
    archive = zipfile.ZipFile(path)
    pickled = next(name for name in archive.namelist() if name.endswith("/data.pkl"))
    root = pickled[: -len("data.pkl")]
    kinds = {"FloatStorage": np.float32, "LongStorage": np.int64}

    def rebuild(storage, offset, sizes, strides, *_):
        assert offset + np.prod(sizes, dtype=int) <= storage.size
        steps = tuple(s * storage.itemsize for s in strides)
        return np.lib.stride_tricks.as_strided(storage[offset:], sizes, steps).astype(np.float64)

    class Reader(pickle.Unpickler):
        def find_class(self, module, name):
            known = {"OrderedDict": collections.OrderedDict, "_rebuild_tensor_v2": rebuild}
            return known.get(name) or kinds[name]

        def persistent_load(self, reference):
            _, kind, key, _, _ = reference
            return np.frombuffer(archive.read(f"{root}data/{key}"), kind)

    return Reader(io.BytesIO(archive.read(pickled))).load()


def main():
    checkpoint, features, index, height, width, out = sys.argv[1:]
    height, width = int(height), int(width)
    w = state_dict(checkpoint)
    index = np.fromfile(index, np.int32)
    points = np.fromfile(features, np.float32).astype(np.float64).reshape(len(index), -1, 9)

    def norm_relu(x, name):
        mean, var = w[f"{name}.running_mean"], w[f"{name}.running_var"]
        return np.maximum((x - mean) / np.sqrt(var + EPSILON) * w[f"{name}.weight"] + w[f"{name}.bias"], 0)

    # Channels last throughout.
    def conv(x, name, stride, padding):
        kernel = w[f"{name}.weight"]
        size = kernel.shape[2]
        padded = np.pad(x, ((padding, padding), (padding, padding), (0, 0)))
        rows = (padded.shape[0] - size) // stride + 1
        columns = (padded.shape[1] - size) // stride + 1
        y = np.zeros((rows, columns, kernel.shape[0]))
        for i in range(size):
            for j in range(size):
                taken = padded[i : i + stride * rows : stride, j : j + stride * columns : stride]
                y += taken[:rows, :columns] @ kernel[:, :, i, j].T
        return y + w[f"{name}.bias"]

    def stretch(x, name):
        kernel = w[f"{name}.weight"]
        size = kernel.shape[2]
        y = np.zeros((x.shape[0] * size, x.shape[1] * size, kernel.shape[1]))
        for i in range(size):
            for j in range(size):
                y[i::size, j::size] = x @ kernel[:, :, i, j]
        return y + w[f"{name}.bias"]

    encoded = points @ w["pillar_encoder.mlp.0.weight"].T + w["pillar_encoder.mlp.0.bias"]
    pillars = norm_relu(encoded, "pillar_encoder.mlp.1").max(axis=1)
    canvas = np.zeros((height * width, pillars.shape[1]))
    canvas[index] = pillars
    one = canvas.reshape(height, width, -1)
    one = norm_relu(conv(one, "backbone.block_one.0", 2, 1), "backbone.block_one.1")
    one = norm_relu(conv(one, "backbone.block_one.3", 1, 1), "backbone.block_one.4")
    two = norm_relu(conv(one, "backbone.block_two.0", 2, 1), "backbone.block_two.1")
    two = norm_relu(conv(two, "backbone.block_two.3", 1, 1), "backbone.block_two.4")
    up_one = norm_relu(stretch(one, "backbone.stretch_one.0"), "backbone.stretch_one.1")
    up_two = norm_relu(stretch(two, "backbone.stretch_two.0"), "backbone.stretch_two.1")
    neck = np.concatenate([up_one, up_two], axis=2)
    heads = [conv(neck, f"detection_head.{head}_head", 1, 0) for head in ("class", "box", "dir")]
    np.concatenate(heads, axis=2).astype(np.float32).tofile(out)


if __name__ == "__main__":
    main()
