"""Times ONNX Runtime on request: FILE as argument, then lines of `THREADS RUNS`, each answered by a line of JSON."""

import json
import sys
import time


def answer(value):
    print(json.dumps(value), flush=True)


try:
    import numpy
    import onnxruntime
except ImportError as error:
    answer({"missing": str(error)})
    sys.exit(0)

TYPES = {"tensor(float)": "float32", "tensor(float16)": "float16", "tensor(double)": "float64", "tensor(int64)": "int64",
         "tensor(int32)": "int32", "tensor(uint8)": "uint8", "tensor(int8)": "int8", "tensor(bool)": "bool"}


def session(threads):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    made = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
    feeds = {}
    for value in made.get_inputs():
        dims = [size if isinstance(size, int) else 1 for size in value.shape]
        kind = TYPES[value.type]
        numbers = numpy.random.default_rng(0).uniform(-1, 1, dims) if kind.startswith("float") else numpy.zeros(dims)
        feeds[value.name] = numbers.astype(kind)
    return made, feeds


sessions = {}
answer({"version": onnxruntime.__version__})
for line in sys.stdin:
    threads, runs = map(int, line.split())
    try:
        if threads not in sessions:
            sessions[threads] = session(threads)
            sessions[threads][0].run(None, sessions[threads][1])
        made, feeds = sessions[threads]
        seconds = []
        for _ in range(runs):
            begin = time.perf_counter()
            made.run(None, feeds)
            seconds.append(time.perf_counter() - begin)
        answer({"seconds": seconds})
    except Exception as error:  # whatever the model makes it raise is told
        answer({"failed": f"{type(error).__name__}: {error}"})
