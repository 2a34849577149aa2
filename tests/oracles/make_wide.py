"""Writes models of one operation each, in its forms and operator sets, and what ONNX Runtime makes of them:
make_wide.py FOLDER (see onnx_cases.py).  A case whose name starts with `exact_` must be met bit for bit."""

import numpy as np
from onnx import TensorProto

from onnx_cases import case, floats, ints, node, rng, values

x2, x3, x4 = values(5, 7), values(3, 5, 7), values(2, 6, 5, 7)
positive = lambda *shape: np.abs(values(*shape)) + np.float32(0.1)
truth = lambda *shape: rng.random(shape) < 0.5

# Functions of one element.
for op, data in {
    "Abs": x4,
    "Ceil": x4,
    "Floor": x4,
    "Neg": x4,
    "Round": np.array([[0.5, 1.5, 2.5, -0.5, -1.5, 3.2, -3.7]], np.float32),
}.items():
    case(f"exact_{op}".lower(), node(op, "x", "y"), data)
for op, data in {
    "Erf": x4,
    "Log": positive(3, 40),
    "Reciprocal": positive(3, 40),
    "Softplus": x4 * 8,
    "Sqrt": positive(3, 40),
    "Softsign": x4,
    "Elu": x4,
    "Selu": x4,
    "ThresholdedRelu": x4,
    "Sign": np.array([[0.0, -0.0, 2, -3, 1e-30, -1e30]], np.float32),
}.items():
    case(op.lower(), node(op, "x", "y"), data)
case("elu_alpha", node("Elu", "x", "y", alpha=0.5), x4)
case("selu_settings", node("Selu", "x", "y", alpha=1.2, gamma=0.7), x4)
case("thresholded_relu_alpha", node("ThresholdedRelu", "x", "y", alpha=0.3), x4)
case("mish", node("Mish", "x", "y"), x4, opset=18)
for approximate in ["none", "tanh"]:
    case(f"gelu_{approximate}", node("Gelu", "x", "y", approximate=approximate), x4, opset=20)
half, one, root, two = (np.float32(v) for v in (0.5, 1, 2**0.5, 2))
erf = [node("Div", "x root", "a"), node("Erf", "a", "b"), node("Add", "b one", "c")]
gelus = {
    "product_last": [*erf, node("Mul", "x c", "d"), node("Mul", "d half", "y")],
    "half_first": [node("Mul", "x half", "h"), *erf, node("Mul", "h c", "y")],
    "half_inside": [*erf, node("Mul", "c half", "d"), node("Mul", "x d", "y")],
    "by_product": [node("Mul", "x inverse", "a"), *erf[1:], node("Mul", "x c", "d"), node("Mul", "half d", "y")],
}
spelled = {"half": half, "one": one, "root": root, "inverse": np.float32(0.5**0.5)}
for name, nodes in gelus.items():
    case(f"gelu_spelled_{name}", nodes, x3, spelled)
    case(f"gelu_seen_{name}", nodes, x3, spelled, "y c")
case("gelu_not", [*erf, node("Mul", "x c", "y")], x3, spelled)
for slope, name in [(values(6, 1, 1), "channels"), (values(1), "one"), (values(7), "columns")]:
    case(f"prelu_{name}", node("PRelu", "x s", "y"), x4, {"s": slope}, opset=16)
for exponent in [2, 3, 4, 5, 8, 1, 0.5, 1.5, -1, -2, -0.5, 2.5]:
    name = str(exponent).replace("-", "minus_").replace(".", "_")
    case(f"pow_{name}", node("Pow", "x e", "y"), positive(3, 40), {"e": np.float32(exponent)}, opset=15)
case("pow_whole_exponent", node("Pow", "x e", "y"), x2, {"e": np.array(3, np.int64)}, opset=15)
case("clip_inputs", node("Clip", "x l h", "y"), x4, {"l": np.float32(-1), "h": np.float32(0.5)}, opset=13)
for op in ["Sum", "Mean", "Max", "Min"]:
    case(f"{op}_three".lower(), node(op, "a b c", "y"), {"a": values(3, 1), "b": values(1, 4), "c": values(1)}, opset=13)

# Comparisons, truth values, choices.
a, b = values(4, 1, 6).round(), values(5, 6).round()
b[0, 0] = a[0, 0, 0]
for op in ["Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"]:
    compare = [node(op, "a b", "c"), node("Cast", "c", "y", to=TensorProto.FLOAT)]
    case(f"exact_{op}_broadcast".lower(), compare, {"a": a, "b": b}, opset=16)
    case(f"exact_{op}_constant".lower(), compare, {"a": a}, {"b": b}, opset=16)
    case(f"exact_{op}_output".lower(), node(op, "a b", "y"), {"a": a, "b": b}, opset=16)
    whole = {k: v.astype(np.int64) for k, v in {"a": a, "b": b}.items()}
    case(f"exact_{op}_whole".lower(), compare, whole, opset=16)
nan = np.array([1, np.nan, 2, np.nan], np.float32)
for op in ["Equal", "Less", "LessOrEqual"]:
    case(f"exact_{op}_nan".lower(), node(op, "a b", "y"), {"a": nan, "b": np.float32([1, 1, np.nan, np.nan])}, opset=16)
p, q = truth(4, 1, 6), truth(5, 6)
for op in ["And", "Or", "Xor", "Equal"]:
    case(f"exact_{op}_truth".lower(), [node(op, "a b", "y")], {"a": p, "b": q})
case("exact_not", node("Not", "x", "y"), p)
wide = np.array([[np.inf, 1, -np.inf, np.nan], [0, -0.0, 5, 6]], np.float32)
case("exact_where", node("Where", "c a b", "y"), {"c": truth(2, 4), "a": wide, "b": wide[::-1].copy()})
case("exact_where_broadcast", node("Where", "c a b", "y"), {"c": truth(3, 1, 4), "a": values(2, 1), "b": values(4)})
masked = [node("Greater", "x z", "c"), node("Where", "c x low", "y")]
case("exact_where_mask", masked, x3, {"z": np.float32(0), "low": np.float32(-np.inf)})
case("exact_where_whole", [node("Where", "c a b", "y")], {"c": truth(4), "a": ints(1, -2, 3, 4)}, {"b": ints(9, 8, 7, 6)})

# Whole numbers.
whole = rng.integers(-50, 50, (6, 7))
divisor = rng.integers(1, 9, 7) * np.array([1, -1, 1, 1, -1, 1, -1])
for op in ["Add", "Sub", "Mul", "Div", "Mod", "Max", "Min"]:
    case(f"exact_whole_{op}".lower(), node(op, "a b", "y"), {"a": whole}, {"b": divisor})
for op in ["Abs", "Neg"]:
    case(f"exact_whole_{op}".lower(), node(op, "x", "y"), whole)
case("exact_cast_to_whole", [node("Cast", "x", "y", to=TensorProto.INT64)], x4 * 10)
case("exact_cast_to_truth", [node("Cast", "x", "y", to=TensorProto.BOOL)], np.array([0, -0.0, 0.1, np.nan, -7], np.float32))
case("exact_cast_of_truth", [node("Cast", "x", "t", to=TensorProto.INT64), node("Mul", "t k", "y")], p, {"k": ints(7)})
case("exact_cast_of_whole", [node("Cast", "x", "t", to=TensorProto.FLOAT), node("Mul", "t k", "y")], whole, {"k": half})
case("exact_whole_int32", [node("Add", "x k", "y")], whole.astype(np.int32), {"k": divisor.astype(np.int32)})
byte = rng.integers(0, 255, (3, 4)).astype(np.uint8)
case("exact_cast_of_bytes", [node("Cast", "x", "y", to=TensorProto.FLOAT)], byte)

# Moving elements.
deep = values(2, 12, 4, 6)
for mode in ["DCR", "CRD"]:
    case(f"exact_depth_to_space_{mode}".lower(), node("DepthToSpace", "x", "y", blocksize=2, mode=mode), deep)
case("exact_depth_to_space_1", node("DepthToSpace", "x", "y", blocksize=2), deep, opset=9)
case("exact_space_to_depth", node("SpaceToDepth", "x", "y", blocksize=2), deep)
pixels = [node("DepthToSpace", "x", "d", blocksize=2), node("Relu", "d", "r"), node("SpaceToDepth", "r", "y", blocksize=2)]
case("exact_depth_and_back", pixels, deep)
case("exact_tile_many", node("Tile", "x r", "y"), values(2, 3, 4), {"r": ints(2, 3, 2)})
case("exact_tile_one", node("Tile", "x r", "y"), values(3, 1, 4), {"r": ints(1, 5, 2)})
for mode in ["edge", "reflect"]:
    case(f"exact_pad_{mode}", node("Pad", "x p", "y", mode=mode), x4, {"p": ints(0, 2, 3, 1, 1, 0, 2, 4)})
    case(f"exact_pad_{mode}_2", node("Pad", "x", "y", mode=mode, pads=[0, 0, 1, 1, 0, 0, 2, 0]), x4, opset=10)
case("exact_pad_wrap", node("Pad", "x p", "y", mode="wrap"), x4, {"p": ints(0, 2, 3, 1, 1, 0, 2, 4)}, opset=19)
case("exact_pad_reflect_mixed", node("Pad", "x p", "y", mode="reflect"), x4, {"p": ints(0, 0, 2, -1, 0, 0, -1, 3)})
case("exact_split_parts", node("Split", "x", "a b c", axis=-1, num_outputs=3), x2, outputs="c a b", opset=18)
case("exact_split_attribute", node("Split", "x", "a b", axis=1, split=[2, 4]), x4, outputs="a b", opset=11)
case("exact_expand_both", node("Expand", "x s", "y"), values(3, 1, 5), {"s": ints(2, 1, 4, 1)})

# By an index.
def positions(size, *shape):
    return rng.integers(-size, size, shape)


for axis, size in enumerate(x4.shape):
    picks = positions(size, 4)
    case(f"exact_gather_{axis}", node("Gather", "x i", "y", axis=axis), {"x": x4, "i": picks})
    each = positions(size, *(3 if a == axis else max(1, s - 1) for a, s in enumerate(x4.shape)))
    case(f"exact_gather_elements_{axis}", node("GatherElements", "x i", "y", axis=axis), {"x": x4, "i": each})
    case(f"exact_gather_elements_{axis}_constant", node("GatherElements", "x i", "y", axis=axis), x4, {"i": each})
case("exact_gather_scalar", node("Gather", "x i", "y", axis=1), {"x": x4, "i": np.array(-2, np.int64)})
case("exact_gather_block", node("Gather", "x i", "y", axis=1), {"x": x3, "i": positions(5, 2, 3)})
case("exact_gather_of_view", [node("Transpose", "x", "t", perm=[2, 0, 1]), node("Gather", "t i", "y", axis=1)], {"x": x3, "i": positions(3, 4)})
case("exact_gather_int32", node("Gather", "x i", "y"), {"x": x2, "i": positions(5, 6).astype(np.int32)})
case("exact_gather_whole", [node("Gather", "k i", "y")], {"i": positions(4, 3)}, {"k": ints(10, 20, 30, 40)})
for name, shape, last in [("rows", (2, 1), 1), ("pairs", (4, 2), 2), ("grid", (2, 3, 2), 2), ("all", (5, 3), 3), ("one", (2,), 2)]:
    place = np.stack([positions(x3.shape[a], *shape[:-1]) for a in range(last)], -1)
    case(f"exact_gather_nd_{name}", node("GatherND", "x i", "y"), {"x": x3, "i": place})
    case(f"exact_gather_nd_{name}_constant", node("GatherND", "x i", "y"), x3, {"i": place})
    apart = np.unravel_index(rng.permutation(np.prod(x3.shape[:last]))[: np.prod(shape[:-1], dtype=int)], x3.shape[:last])
    place = np.stack(apart, -1).reshape(shape)
    updates = values(*shape[:-1], *x3.shape[last:])
    case(f"exact_scatter_nd_{name}", node("ScatterND", "x i u", "y"), {"x": x3, "i": place, "u": updates}, opset=16)
    case(f"exact_scatter_nd_{name}_constant", node("ScatterND", "x i u", "y"), {"x": x3, "u": updates}, {"i": place}, opset=16)
    negative = place - np.array(x3.shape[:last])
    case(f"exact_scatter_nd_{name}_back", node("ScatterND", "x i u", "y"), {"x": x3, "u": updates}, {"i": negative}, opset=16)
repeated = np.array([[1], [0], [1], [1]])
for reduction in ["add", "mul", "max", "min"]:
    inputs = {"x": x3, "u": values(4, 5, 7)}
    case(f"scatter_nd_{reduction}", node("ScatterND", "x i u", "y", reduction=reduction), inputs, {"i": repeated}, opset=18)
    inputs = {"x": x2, "u": values(4, 7), "i": rng.integers(-5, 5, (4, 7))}
    case(f"scatter_elements_{reduction}", node("ScatterElements", "x i u", "y", reduction=reduction), inputs, opset=18)
for axis in range(2):
    lines = np.stack([rng.permutation(x2.shape[axis])[:3] for _ in range(x2.shape[1 - axis] - 1)], 1 - axis)
    lines = lines - rng.integers(0, 2, lines.shape) * x2.shape[axis]
    inputs = {"x": x2, "i": lines, "u": values(*lines.shape)}
    case(f"exact_scatter_elements_{axis}", node("ScatterElements", "x i u", "y", axis=axis), inputs, opset=16)
case("exact_scatter_9", node("Scatter", "x i u", "y", axis=1), {"x": x2, "u": values(5, 2)}, {"i": np.tile(ints(3, 1), (5, 1))}, opset=9)
chain = [node("Relu", "x", "r"), node("ScatterND", "r i u", "s"), node("Sigmoid", "s", "y")]
case("scatter_then", chain, {"x": x3, "u": values(1, 5, 7)}, {"i": np.array([[2]])}, opset=16)

# Orders.
scores = rng.permutation(2 * 6 * 5 * 7).reshape(2, 6, 5, 7).astype(np.float32) / 8
for axis in range(4):
    for largest in [0, 1]:
        name = f"exact_top_k_{axis}_{largest}"
        case(name, node("TopK", "x k", "v i", axis=axis, largest=largest), scores, {"k": ints(2)}, "v i")
    for op in ["ArgMax", "ArgMin"]:
        for keep in [0, 1]:
            case(f"exact_{op}_{axis}_{keep}".lower(), node(op, "x", "y", axis=axis, keepdims=keep), scores)
case("exact_top_k_indices", node("TopK", "x k", "v i", axis=-1), scores, {"k": ints(3)}, "i")
case("exact_top_k_ties", node("TopK", "x k", "v i"), np.array([[3, 1, 3, 3, 2, 1]], np.float32), {"k": ints(6)}, "v i")
case("exact_top_k_1", node("TopK", "x", "v i", axis=1, k=3), scores, outputs="v i", opset=9)
case("exact_argmax_ties", node("ArgMax", "x", "y", axis=1), np.array([[3, 5, 5, 1], [2, 2, 2, 2]], np.float32))
picked = [
    node("TopK", "x k", "v i", axis=1),
    node("Div", "i width", "row"),
    node("Mod", "i width", "column"),
    node("Gather", "table column", "y", axis=0),
    node("Cast", "row", "r", to=TensorProto.FLOAT),
]
case("exact_top_k_decoded", picked, values(1, 60), {"k": ints(9), "width": ints(7), "table": values(7, 3)}, "y r v")

# Reductions.
for op in ["L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare"]:
    data = positive(3, 5, 4) if op in ["LogSum", "Prod"] else values(3, 5, 4)
    for axes in [[1], [-1], [0, 2], [0, 1, 2]]:
        for keep in [0, 1]:
            name = f"reduce_{op}_{''.join(str(a % 3) for a in axes)}_{keep}".lower()
            if op == "Sum":
                case(name, node(f"Reduce{op}", "x a", "y", keepdims=keep), data, {"a": ints(*axes)})
            else:
                case(name, node(f"Reduce{op}", "x", "y", axes=axes, keepdims=keep), data)
            case(f"{name}_18", node(f"Reduce{op}", "x a", "y", keepdims=keep), data, {"a": ints(*axes)}, opset=18)
case("reduce_sum_nothing", node("ReduceSum", "x a", "y", noop_with_empty_axes=1), x3, {"a": ints()})
case("reduce_max_of_channels_last", [node("MaxPool", "x", "m", kernel_shape=[2, 2]), node("ReduceMax", "m", "y", axes=[1])], x4)
case("reduce_whole", node("ReduceSum", "x a", "y"), whole, {"a": ints(1)})

# Normalisations.
for axis in range(4):
    scale = {"s": values(*x4.shape[axis:]), "b": values(*x4.shape[axis:])}
    case(f"layer_norm_{axis}", node("LayerNormalization", "x s b", "y", axis=axis), x4, scale, opset=17)
case("layer_norm_plain", node("LayerNormalization", "x s", "y", epsilon=1e-3), x3, {"s": values(7)}, opset=17)
case("layer_norm_given", node("LayerNormalization", "x s b", "y"), {"x": x3, "s": values(7), "b": values(7)}, opset=17)
spelled_norm = [
    node("ReduceMean", "x", "m", axes=[-1]),
    node("Sub", "x m", "d"),
    node("Pow", "d two", "q"),
    node("ReduceMean", "q", "v", axes=[-1]),
    node("Add", "v eps", "w"),
    node("Sqrt", "w", "s"),
    node("Div", "d s", "n"),
    node("Mul", "n g", "o"),
    node("Add", "o b", "y"),
]
case("layer_norm_spelled", spelled_norm, x3, {"two": two, "eps": np.float32(1e-5), "g": values(7), "b": values(7)})
for name, data in [("image", x4), ("line", x3), ("one", values(1, 3, 8, 8))]:
    scale = {"s": values(data.shape[1]), "b": values(data.shape[1])}
    case(f"instance_norm_{name}", node("InstanceNormalization", "x s b", "y", epsilon=1e-3), data, scale)
for groups in [1, 2, 3, 6]:
    scale = {"s": values(6), "b": values(6)}
    case(f"group_norm_{groups}", node("GroupNormalization", "x s b", "y", num_groups=groups), x4, scale, opset=21, ir_version=10)
    scale = {"s": values(groups), "b": values(groups)}
    case(f"group_norm_{groups}_18", node("GroupNormalization", "x s b", "y", num_groups=groups), x4, scale, opset=18)
case("mean_variance", node("MeanVarianceNormalization", "x", "y"), x4)
case("mean_variance_axes", node("MeanVarianceNormalization", "x", "y", axes=[2, 3]), x4)
for p_norm in [1, 2]:
    case(f"lp_norm_{p_norm}", node("LpNormalization", "x", "y", axis=1, p=p_norm), x4)
for axis in range(3):
    case(f"log_softmax_{axis}", node("LogSoftmax", "x", "y", axis=axis), x3)
    case(f"log_softmax_{axis}_11", node("LogSoftmax", "x", "y", axis=axis), x3, opset=11)

# Products of matrices.
for name, left, right in [
    ("square", (5, 7), (7, 4)),
    ("batch", (2, 3, 5, 7), (2, 3, 7, 4)),
    ("broadcast", (2, 1, 5, 7), (3, 7, 4)),
    ("left", (2, 3, 5, 7), (7, 4)),
    ("right", (5, 7), (2, 7, 4)),
    ("row", (7,), (7, 4)),
    ("column", (5, 7), (7,)),
    ("row_batch", (7,), (3, 7, 4)),
    ("column_batch", (3, 5, 7), (7,)),
    ("dot", (7,), (7,)),
]:
    inputs = {"a": values(*left), "b": values(*right)}
    case(f"matmul_{name}", node("MatMul", "a b", "y"), inputs)
    case(f"matmul_{name}_left_constant", node("MatMul", "a b", "y"), {"b": inputs["b"]}, {"a": inputs["a"]})
    case(f"matmul_{name}_right_constant", node("MatMul", "a b", "y"), {"a": inputs["a"]}, {"b": inputs["b"]})
turned = [node("Transpose", "b", "t", perm=[0, 2, 1]), node("MatMul", "a t", "y")]
case("matmul_turned", turned, {"a": values(3, 5, 7), "b": values(3, 6, 7)})
for ta in [0, 1]:
    for tb in [0, 1]:
        left, right = values(*((7, 5) if ta else (5, 7))), values(*((4, 7) if tb else (7, 4)))
        for name, addend in [("row", values(4)), ("column", values(5, 1)), ("whole", values(5, 4)), ("one", values(1)), ("number", np.float32(0.3))]:
            gemm = node("Gemm", "a b c", "y", transA=ta, transB=tb, alpha=0.5, beta=1.5)
            case(f"gemm_{ta}{tb}_{name}", gemm, {"a": left, "b": right, "c": addend})
            case(f"gemm_{ta}{tb}_{name}_constant", gemm, {"a": left}, {"b": right, "c": addend})
        case(f"gemm_{ta}{tb}", node("Gemm", "a b", "y", transA=ta, transB=tb), {"a": left, "b": right})

# Transposed convolutions.
small = values(2, 4, 5, 3)
for name, kernel, attributes in [
    ("dilated", [3, 2], dict(dilations=[2, 3])),
    ("dilated_strided", [3, 3], dict(dilations=[2, 2], strides=[3, 2], pads=[1, 2, 0, 1])),
    ("gaps", [1, 2], dict(strides=[3, 4])),
    ("gaps_padded", [2, 1], dict(strides=[3, 3], output_padding=[1, 2])),
    ("given", [3, 3], dict(strides=[2, 2], output_shape=[10, 7])),
    ("given_upper", [3, 3], dict(strides=[2, 2], output_shape=[10, 7], auto_pad="SAME_UPPER")),
    ("same_upper", [3, 4], dict(strides=[2, 3], auto_pad="SAME_UPPER")),
    ("same_lower", [3, 4], dict(strides=[2, 3], auto_pad="SAME_LOWER")),
]:
    transposed = node("ConvTranspose", "x w b", "y", **attributes)
    case(f"conv_transpose_{name}", transposed, small, {"w": values(4, 3, *kernel), "b": values(3)})
grouped = node("ConvTranspose", "x w b", "y", group=2, strides=[2, 2], dilations=[2, 1], pads=[1, 0, 1, 1])
case("conv_transpose_grouped_dilated", grouped, small, {"w": values(4, 3, 3, 3), "b": values(6)})
line = node("ConvTranspose", "x w b", "y", strides=[2], pads=[1, 0], output_padding=[1])
case("conv_transpose_1d", line, values(2, 4, 9), {"w": values(4, 3, 4), "b": values(3)})

# Resizing between elements.
image = values(2, 4, 9, 11)
for mode in ["linear", "cubic"]:
    for coordinates in ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]:
        settings = dict(mode=mode, coordinate_transformation_mode=coordinates)
        scaled = node("Resize", ["x", "", "s"], "y", **settings)
        sized = node("Resize", ["x", "", "", "s"], "y", **settings)
        case(f"resize_{mode}_{coordinates}_up", scaled, x4, {"s": floats(1, 1, 2, 2.6)})
        case(f"resize_{mode}_{coordinates}_down", scaled, image, {"s": floats(1, 1, 0.6, 0.5)})
        case(f"resize_{mode}_{coordinates}_sizes", sized, x4, {"s": ints(2, 6, 8, 3)})
        case(f"resize_{mode}_{coordinates}_one", sized, x4, {"s": ints(2, 6, 1, 1)})
    symmetric = dict(mode=mode, coordinate_transformation_mode="half_pixel_symmetric")
    case(f"resize_{mode}_symmetric", node("Resize", ["x", "", "s"], "y", **symmetric), x4, {"s": floats(1, 1, 2.4, 0.7)}, opset=19)
for a in [-0.75, -0.5]:
    excluded = node("Resize", ["x", "", "s"], "y", mode="cubic", exclude_outside=1, cubic_coeff_a=a)
    case(f"resize_cubic_excluded_{a}", excluded, x4, {"s": floats(1, 1, 2, 1.5)})
case("resize_linear_10", node("Resize", "x s", "y", mode="linear"), x4, {"s": floats(1, 1, 2, 1.5)}, opset=10)
case("upsample_linear", node("Upsample", "x s", "y", mode="linear"), x4, {"s": floats(1, 1, 2, 2)}, opset=9)
case("resize_linear_of_line", node("Resize", ["x", "", "s"], "y", mode="linear"), x3, {"s": floats(1, 1, 2)})
case("resize_of_line", node("Resize", ["x", "", "s"], "y"), x3, {"s": floats(1, 1, 2)})
grid = (rng.random((2, 3, 4, 2)) * 2.6 - 1.3).astype(np.float32)
for mode in ["linear", "nearest"]:
    for padding in ["zeros", "border", "reflection"]:
        for align in [0, 1]:
            sample = node("GridSample", "x g", "y", mode=mode, padding_mode=padding, align_corners=align)
            case(f"grid_sample_{mode}_{padding}_{align}", sample, {"x": x4, "g": grid}, opset=20)
case("grid_sample_16", node("GridSample", "x g", "y", mode="bilinear"), {"x": x4, "g": grid}, opset=16)

# Constants evaluated on the way.
k = values(4, 3)
for name, nodes in {
    "where": [node("Greater", "k z", "c"), node("Where", "c k z", "f"), node("Add", "x f", "y")],
    "range": [node("Range", "r0 r1 r2", "r"), node("Cast", "r", "f", to=TensorProto.FLOAT), node("Add", "x f", "y")],
    "waves": [node("Sin", "k", "s"), node("Cos", "k", "c"), node("Mul", "s c", "f"), node("Add", "x f", "y")],
    "sums": [node("CumSum", "k one", "c", reverse=1, exclusive=1), node("Add", "x c", "y")],
    "power": [node("Abs", "k", "a"), node("Pow", "a e", "p"), node("Exp", "p", "f"), node("Add", "x f", "y")],
    "triangle": [node("Trilu", "k one", "t", upper=0), node("Add", "x t", "y")],
    "tile": [node("Tile", "t0 t1", "t"), node("Add", "x t", "y")],
    "logic": [
        node("Shape", "x", "s"),
        node("Equal", "s minus", "q"),
        node("Not", "q", "n"),
        node("Where", "n s s", "w"),
        node("Reshape", "x w", "v"),
        node("ReduceProd", "s", "p", keepdims=1),
        node("Reshape", "v p", "y"),
    ],
}.items():
    constants = {
        "k": k,
        "z": np.float32(0),
        "r0": np.array(0, np.int64),
        "r1": np.array(9, np.int64),
        "r2": np.array(3, np.int64),
        "one": np.array(1, np.int64),
        "e": np.float32(0.3),
        "t0": values(2, 3),
        "t1": ints(2, 1),
        "minus": ints(-1, -1),
    }
    case(f"folded_{name}", nodes, values(4, 3), constants, opset=16)
other = positive(3)
for op in ["Add", "Sub", "Mul", "Div", "Max", "Min"]:
    case(f"folded_float_{op}".lower(), [node(op, "k o", "f"), node("Add", "x f", "y")], values(4, 3), {"k": k, "o": other})
for op in ["Abs", "Ceil", "Floor", "Neg", "Round"]:
    case(f"folded_float_{op}".lower(), [node(op, "k", "f"), node("Add", "x f", "y")], values(4, 3), {"k": k})
case("folded_float_sqrt", [node("Sqrt", "o", "f"), node("Add", "x f", "y")], values(4, 3), {"o": other})
