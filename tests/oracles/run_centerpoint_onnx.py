"""A CenterPoint of two ONNX files with ONNX Runtime: run_centerpoint_onnx.py ENCODER HEAD POINTS INDEX HEIGHT WIDTH.

POINTS is a file of little-endian float32 (P, 32, 9), INDEX one of little-endian uint32 (HEIGHT * WIDTH) with each cell's
pillar; P and above stand for an empty cell. To standard output go the head maps one after the other as float32.
"""

import sys

import numpy as np
import onnxruntime as ort


def session(path: str) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def main() -> None:
    encoder, head, points_file, index_file, height, width = sys.argv[1:]
    points = np.fromfile(points_file, "<f4").reshape(-1, 32, 9)
    index = np.fromfile(index_file, "<u4").astype(np.int64)
    (rows,) = session(encoder).run(None, {"input_features": points})
    table = np.concatenate([rows.reshape(len(points), -1), np.zeros((1, rows.shape[-1]), np.float32)])
    canvas = table[np.minimum(index, len(points))].reshape(int(height), int(width), -1)
    canvas = np.ascontiguousarray(canvas.transpose(2, 0, 1)[None])
    for output in session(head).run(["heatmap", "reg", "height", "dim", "rot", "vel"], {"spatial_features": canvas}):
        sys.stdout.buffer.write(np.ascontiguousarray(output, "<f4").tobytes())


if __name__ == "__main__":
    main()
