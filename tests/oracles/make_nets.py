"""Writes small networks with random weights and what ONNX Runtime makes of them: make_nets.py FOLDER (see
onnx_cases.py): an image transformer, a residual network, a detector's query decoder."""

import numpy as np
from onnx import TensorProto

from onnx_cases import case, ints, node, rng


class Net:
    """Nodes and constants as they come; values are named by a counter."""

    def __init__(self):
        self.nodes, self.constants, self.count = [], {}, 0

    def constant(self, array):
        name = f"k{len(self.constants)}"
        self.constants[name] = np.asarray(array)
        return name

    def weight(self, *shape, scale=None):
        scale = scale or 1 / np.sqrt(np.prod(shape[:-1]) if len(shape) < 3 else np.prod(shape[1:]))
        return self.constant((rng.normal(0, 1, shape) * scale).astype(np.float32))

    def __call__(self, op, *inputs, output=None, **attributes):
        names = [i if isinstance(i, str) else self.constant(i) for i in inputs]
        self.count += 1
        output = output or f"v{self.count}"
        self.nodes.append(node(op, names, output, **attributes))
        return output.split()[0] if " " not in output else output.split()

    def linear(self, x, inputs, outputs):
        product = self("MatMul", x, self.weight(inputs, outputs))
        return self("Add", product, self.weight(outputs, scale=0.1))

    def norm(self, x, width):
        gain = self.constant((1 + rng.normal(0, 0.1, width)).astype(np.float32))
        return self("LayerNormalization", x, gain, self.weight(width, scale=0.1), axis=-1)

    def gelu(self, x):
        scaled = self("Div", x, np.float32(2**0.5))
        sum_ = self("Add", self("Erf", scaled), np.float32(1))
        return self("Mul", self("Mul", x, sum_), np.float32(0.5))

    def heads(self, x, tokens, heads, width):
        split = self("Reshape", x, ints(-1, tokens, heads, width // heads))
        return self("Transpose", split, perm=[0, 2, 1, 3])

    def attention(self, queries, keys, sizes, heads, width, mask=None):
        q, k, v = (self.linear(x, width, width) for x in (queries, keys, keys))
        q = self.heads(q, sizes[0], heads, width)
        k, v = (self.heads(x, sizes[1], heads, width) for x in (k, v))
        scores = self("MatMul", q, self("Transpose", k, perm=[0, 1, 3, 2]))
        scores = self("Mul", scores, np.float32((width / heads) ** -0.5))
        if mask:
            scores = self("Where", mask, np.float32(-np.inf), scores)
        mixed = self("MatMul", self("Softmax", scores, axis=-1), v)
        joined = self("Reshape", self("Transpose", mixed, perm=[0, 2, 1, 3]), ints(-1, sizes[0], width))
        return self.linear(joined, width, width)

    def case(self, name, inputs, outputs, opset=17):
        case(name, self.nodes, inputs, self.constants, outputs, opset=opset)


def transformer():
    net, width, side, tokens = Net(), 32, 4, 17
    patches = net("Conv", "x", net.weight(width, 3, 8, 8), net.weight(width, scale=0.1), strides=[8, 8])
    rows = net("Transpose", net("Reshape", patches, ints(0, width, -1)), perm=[0, 2, 1])
    batch = net("Gather", net("Shape", "x"), ints(0))
    token = net("Expand", net.weight(1, 1, width), net("Concat", batch, ints(1, width), axis=0))
    x = net("Add", net("Concat", token, rows, axis=1), net.weight(1, tokens, width, scale=0.5))
    for _ in range(2):
        x = net("Add", x, net.attention(*[net.norm(x, width)] * 2, [tokens, tokens], 4, width))
        hidden = net.gelu(net.linear(net.norm(x, width), width, 4 * width))
        x = net("Add", x, net.linear(hidden, 4 * width, width))
    first = net("Gather", net.norm(x, width), np.array(0, np.int64), axis=1)
    net("Gemm", first, net.weight(width, 10), net.weight(10, scale=0.1), output="y")
    net.case("transformer", rng.normal(0, 1, (2, 3, 8 * side, 8 * side)).astype(np.float32), "y")


def residual():
    net = Net()

    def conv(x, inputs, outputs, kernel, stride=1):
        x = net("Conv", x, net.weight(outputs, inputs, kernel, kernel), strides=[stride] * 2, pads=[kernel // 2] * 4)
        constants = [1 + rng.normal(0, 0.1, outputs), rng.normal(0, 0.1, outputs), rng.normal(0, 0.1, outputs)]
        parameters = [*constants, 1 + rng.random(outputs)]
        return net("BatchNormalization", x, *(np.float32(p) for p in parameters))

    def block(x, inputs, outputs, stride):
        made = net("Relu", conv(x, inputs, outputs, 3, stride))
        made = conv(made, outputs, outputs, 3)
        kept = x if stride == 1 and inputs == outputs else conv(x, inputs, outputs, 1, stride)
        return net("Relu", net("Add", made, kept))

    x = net("Relu", conv("x", 3, 16, 7, 2))
    x = net("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    width = 16
    for stage in range(4):
        for index in range(2):
            outputs = 16 * 2**stage
            x = block(x, width, outputs, 2 if stage and not index else 1)
            width = outputs
    flat = net("Flatten", net("GlobalAveragePool", x))
    net("Gemm", flat, net.weight(10, width), net.weight(10, scale=0.1), transB=1, output="y")
    net.case("residual", rng.normal(0, 1, (1, 3, 64, 64)).astype(np.float32), "y", opset=13)


def decoder():
    net, width, side, queries, classes = Net(), 32, 12, 20, 5
    memory = net("Transpose", net("Reshape", "x", ints(0, width, -1)), perm=[0, 2, 1])
    scores = net.linear(net.norm(memory, width), width, classes)
    best = net("ReduceMax", scores, axes=[-1], keepdims=0)
    net("TopK", best, ints(queries), output="top at", axis=1)
    index = net("Unsqueeze", "at", ints(-1))
    spread = net("Expand", index, ints(1, queries, width))
    target = net("GatherElements", memory, spread, axis=1)
    row = net("Cast", net("Div", "at", ints(side)), to=TensorProto.FLOAT)
    column = net("Cast", net("Mod", "at", ints(side)), to=TensorProto.FLOAT)
    both = net("Concat", *(net("Unsqueeze", v, ints(-1)) for v in (column, row)), axis=-1)
    places = net("Div", net("Add", both, np.float32(0.5)), np.float32(side))
    # Weak queries are not looked at by the others.
    weak = net("Less", "top", np.float32(0.2))
    mask = net("Unsqueeze", net("And", weak, net("Not", net("Equal", "top", "top"))), ints(1, 2))
    maps = net("Conv", "x", net.weight(width, width, 3, 3), pads=[1] * 4)
    for _ in range(2):
        target = net("Add", target, net.attention(target, target, [queries] * 2, 4, width, mask))
        target = net.norm(target, width)
        target = net("Add", target, net.attention(target, memory, [queries, side * side], 4, width))
        target = net.norm(target, width)
        # Samples beside the places.
        offsets = net("Tanh", net.linear(target, width, 2))
        grid = net("Add", net("Sub", net("Mul", places, np.float32(2)), np.float32(1)), net("Mul", offsets, np.float32(0.2)))
        sampled = net("GridSample", maps, net("Unsqueeze", grid, ints(1)), mode="bilinear", padding_mode="zeros")
        sampled = net("Transpose", net("Squeeze", sampled, ints(2)), perm=[0, 2, 1])
        hidden = net("Relu", net.linear(net("Add", target, sampled), width, 64))
        target = net.norm(net("Add", target, net.linear(hidden, 64, width)), width)
        # The places move in the space where they are not bounded.
        bounded = net("Clip", places, np.float32(1e-3), np.float32(1 - 1e-3))
        opened = net("Log", net("Div", bounded, net("Sub", np.float32(1), bounded)))
        places = net("Sigmoid", net("Add", opened, net.linear(target, width, 2)))
    net("Identity", places, output="boxes")
    labels = net.linear(target, width, classes)
    net("ArgMax", labels, output="label", axis=-1, keepdims=0)
    net("ReduceMax", net("Sigmoid", labels), output="score", axes=[-1], keepdims=0)
    # What was found, back on the map.
    found = net("Concat", net("Cast", net("Mul", "at", ints(0)), to=TensorProto.INT64), "at", axis=0)
    place = net("Transpose", found, perm=[1, 0])
    empty = net("ConstantOfShape", ints(1, side * side))
    net("ScatterND", empty, place, net("Squeeze", "score", ints(0)), output="map")
    image = rng.normal(0, 1, (1, width, side, side)).astype(np.float32)
    net.case("decoder", image, "boxes label score map top", opset=17)


transformer()
residual()
decoder()
