"""Writes small models and what ONNX Runtime makes of them: make_ops.py FOLDER.  For each case NAME there are
NAME.onnx, NAME.in (all inputs, float32) and NAME.out (all outputs, float32)."""

import numpy as np
from onnx import TensorProto, helper

from onnx_cases import case, floats, ints, node, values

# Moving elements.
x4 = values(1, 6, 5, 7)
for name, starts, ends, axes, steps in [
    ("plain", [1, 2], [5, 6], [1, 3], [1, 2]),
    ("backwards", [-1, 4], [-100, 0], [3, 2], [-1, -2]),
    ("clamped", [-100, 2], [100, 2**62], [2, 1], [3, 1]),
    ("far_back", [100], [-(2**62)], [1], [-4]),
]:
    constants = {"s": ints(*starts), "e": ints(*ends), "a": ints(*axes), "t": ints(*steps)}
    case(f"slice_{name}", node("Slice", "x s e a t", "y"), x4, constants)
case("slice_1", node("Slice", "x", "y", starts=[1, -3], ends=[3, 100], axes=[1, 3]), x4, opset=9)
case("transpose", node("Transpose", "x", "y", perm=[0, 3, 1, 2]), x4)
case("transpose_reversed", node("Transpose", "x", "y"), x4)
case("reshape_zero", node("Reshape", "x s", "y"), x4, {"s": ints(0, -1, 7)})
case(
    "reshape_after_transpose",
    [node("Transpose", "x", "t", perm=[0, 2, 3, 1]), node("Reshape", "t s", "y")],
    x4,
    {"s": ints(5, -1)},
)
case(
    "shuffle",
    [
        node("Reshape", "x a", "t"),
        node("Transpose", "t", "u", perm=[0, 2, 1, 3, 4]),
        node("Reshape", "u b", "v"),
        node("Relu", "v", "y"),
    ],
    x4,
    {"a": ints(1, 2, 3, 5, 7), "b": ints(1, -1, 5, 7)},
)
case("flatten", node("Flatten", "x", "y", axis=2), x4)
case("flatten_end", node("Flatten", "x", "y", axis=4), x4)
case("squeeze", node("Squeeze", "x", "y"), values(1, 3, 1, 2))
case("squeeze_axes", node("Squeeze", "x a", "y"), values(1, 3, 1, 2), {"a": ints(-2)})
case("unsqueeze", node("Unsqueeze", "x a", "y"), values(3, 2), {"a": ints(0, -1)})
case("split", node("Split", "x", "y z", axis=1), x4, outputs="z y")
case("split_sizes", node("Split", "x s", "y z", axis=3), x4, {"s": ints(2, 5)}, "y z")
case("split_uneven", node("Split", "x", "y z", axis=3, num_outputs=2), x4, outputs="y z", opset=18)
case("gather_scalar", node("Gather", "x i", "y", axis=1), x4, {"i": np.array(-2, np.int64)})
case("gather_range", node("Gather", "x i", "y", axis=3), x4, {"i": ints(5, 3, 1)})
case("gather_any", node("Gather", "x i", "y", axis=2), x4, {"i": ints(4, 0, 0, -1)})
case("gather_matrix", node("Gather", "x i", "y", axis=1), values(2, 5, 3), {"i": np.array([[0, 2], [4, 1]], np.int64)})
case("expand", node("Expand", "x s", "y"), values(3, 1), {"s": ints(2, 1, 4)})
case("tile", node("Tile", "x r", "y"), values(2, 1, 3), {"r": ints(1, 4, 1)})

# Joining and padding.
for axis in range(4):
    shape = [1, 3, 4, 5]
    shape[axis] = 2
    inputs = {"a": values(1, 3, 4, 5), "b": values(*shape)}
    case(f"concat_{axis}", node("Concat", "a b", "y", axis=axis), inputs)
case(
    "concat_nested",
    [
        node("Relu", "x", "a"),
        node("Concat", "a x a", "b", axis=1),
        node("Sigmoid", "b", "c"),
        node("Concat", "b c k", "d", axis=1),
        node("Transpose", "d", "y", perm=[0, 2, 3, 1]),
    ],
    x4,
    {"k": values(1, 2, 5, 7)},
    "y b",
)
case(
    "concat_of_views",
    [
        node("Transpose", "x", "t", perm=[0, 1, 3, 2]),
        node("Relu", "t", "r"),
        node("Reshape", "r s", "f"),
        node("Sigmoid", "x", "g"),
        node("Reshape", "g s", "h"),
        node("Concat", "f h", "c", axis=2),
        node("Transpose", "c", "y", perm=[0, 2, 1]),
    ],
    x4,
    {"s": ints(1, 6, -1)},
)
case("pad", node("Pad", "x p v", "y"), x4, {"p": ints(0, 1, 2, 0, 0, 0, 1, 3), "v": floats(-1.5)})
case("pad_cut", node("Pad", "x p", "y"), x4, {"p": ints(0, -1, 1, 0, 0, 2, -2, 0)})
case("pad_nothing", node("Pad", "x p", "y"), x4, {"p": ints(*[0] * 8)})
case("pad_2", node("Pad", "x", "y", pads=[0, 0, 1, 1, 0, 0, 2, 0], value=0.5), x4, opset=10)
case("pad_axes", node("Pad", ["x", "p", "", "a"], "y"), x4, {"p": ints(1, 2), "a": ints(-1)}, opset=18)

# Windows.
image = values(2, 4, 9, 11)
for name, attributes in {
    "plain": dict(kernel_shape=[3, 2], strides=[2, 3]),
    "padded": dict(kernel_shape=[3, 3], strides=[2, 2], pads=[1, 0, 2, 1]),
    "ceil": dict(kernel_shape=[3, 3], strides=[2, 4], ceil_mode=1),
    "ceil_padded": dict(kernel_shape=[2, 3], strides=[3, 3], pads=[1, 1, 1, 1], ceil_mode=1),
    "same_upper": dict(kernel_shape=[4, 3], strides=[2, 2], auto_pad="SAME_UPPER"),
    "same_lower": dict(kernel_shape=[4, 3], strides=[2, 2], auto_pad="SAME_LOWER"),
    "valid": dict(kernel_shape=[4, 3], strides=[2, 2], auto_pad="VALID"),
}.items():
    case(f"max_pool_{name}", node("MaxPool", "x", "y", **attributes), image)
    case(f"average_pool_{name}", node("AveragePool", "x", "y", **attributes), image)
    if "ceil" not in name:
        included = node("AveragePool", "x", "y", count_include_pad=1, **attributes)
        case(f"average_pool_{name}_included", included, image)
case("max_pool_dilated", node("MaxPool", "x", "y", kernel_shape=[2, 3], dilations=[3, 2]), image)
case("global_average", node("GlobalAveragePool", "x", "y"), image)
case("global_max", node("GlobalMaxPool", "x", "y"), image)
case("reduce_mean", node("ReduceMean", "x", "y", axes=[2, 3]), image)
case("reduce_mean_flat", node("ReduceMean", "x", "y", axes=[-1, -2], keepdims=0), image)
case("reduce_max", node("ReduceMax", "x", "y", axes=[3], keepdims=0), image)
weights = {"w": values(6, 4, 3, 2), "b": values(6)}
for name, attributes in {
    "plain": {},
    "strided": dict(strides=[2, 3], pads=[1, 2, 0, 1]),
    "dilated": dict(dilations=[2, 3], pads=[2, 1, 2, 2]),
    "same_lower": dict(auto_pad="SAME_LOWER", strides=[2, 2]),
}.items():
    case(f"conv_{name}", node("Conv", "x w b", "y", **attributes), image, weights)
case("conv_grouped", node("Conv", "x w", "y", group=2, pads=[1, 1, 1, 1]), image, {"w": values(6, 2, 3, 3)})
case("conv_depthwise", node("Conv", "x w", "y", group=4, pads=[1, 1, 1, 1]), image, {"w": values(8, 1, 3, 3)})
case("conv_of_slice", [node("Split", "x", "p q", axis=1), node("Conv", "q w", "y")], image, {"w": values(3, 2, 1, 1)})
tiled = [node("Tile", "x r", "t"), node("Conv", "t w b", "y")]
case("conv_of_tile", tiled, values(2, 4, 9, 1), {"r": ints(1, 1, 1, 5), **weights})

line = values(2, 4, 9)
case("conv_1d", node("Conv", "x w b", "y", pads=[1, 2], strides=[2]), line, {"w": values(6, 4, 3), "b": values(6)})
case("conv_1d_pointwise", node("Conv", "x w", "y", kernel_shape=[1]), line, {"w": values(6, 4, 1)})
by_points = [node("Transpose", "x", "t", perm=[0, 2, 1]), node("Conv", "t w", "c"), node("ReduceMax", "c", "y", axes=[-1])]
case("conv_1d_of_view", by_points, values(3, 5, 4), {"w": values(6, 4, 1)})

# Transposed convolutions.
small = values(2, 4, 5, 3)
for name, kernel, attributes in [
    ("pointwise", [1, 1], {}),
    ("doubling", [2, 2], dict(strides=[2, 2])),
    ("fourfold", [4, 4], dict(strides=[4, 4])),
    ("overlapping", [3, 3], dict(strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1])),
    ("smooth", [4, 4], dict(strides=[2, 2], pads=[1, 1, 1, 1])),
    ("uneven", [3, 5], dict(strides=[2, 3], pads=[0, 2, 1, 1])),
    ("unstrided", [3, 3], {}),
    ("cut", [2, 2], dict(strides=[2, 2], pads=[3, 1, 2, 3])),
    ("valid", [3, 2], dict(strides=[2, 2], auto_pad="VALID")),
]:
    transposed = node("ConvTranspose", "x w b", "y", **attributes)
    case(f"conv_transpose_{name}", transposed, small, {"w": values(4, 3, *kernel), "b": values(3)})
grouped = node("ConvTranspose", "x w", "y", group=2, strides=[2, 2])
case("conv_transpose_grouped", grouped, small, {"w": values(4, 3, 3, 3)})
double = node("ConvTranspose", "x w", "c", strides=[2, 2])
norm3 = {k: values(3) for k in ["s", "o", "m"]} | {"v": np.abs(values(3)) + 0.1}
normed = [double, node("BatchNormalization", "c s o m v", "n", epsilon=1e-3), node("Relu", "n", "y")]
case("conv_transpose_norm", normed, small, {"w": values(4, 3, 2, 2), **norm3})
joined = [double, node("Add", "c a", "y")]
case("conv_transpose_residual", joined, {"x": small, "a": values(2, 3, 10, 6)}, {"w": values(4, 3, 2, 2)})
beside = [double, node("Relu", "c", "r"), node("Conv", "a k", "d"), node("Concat", "r d", "y", axis=1)]
case("conv_transpose_in_place", beside, {"x": small, "a": values(2, 5, 10, 6)}, {"w": values(4, 3, 2, 2), "k": values(2, 5, 1, 1)})

# Products of rows with a matrix.
rows = values(3, 5, 4)
square = {"w": values(4, 6)}
case("matmul_2", node("MatMul", "x w", "y"), values(7, 4), square)
case("matmul_3", node("MatMul", "x w", "y"), rows, square)
case("matmul_4", node("MatMul", "x w", "y"), values(1, 3, 5, 4), square)
case("matmul_of_view", [node("Transpose", "x", "t", perm=[2, 1, 0]), node("MatMul", "t w", "y")], values(4, 5, 3), square)
case("matmul_of_slice", [node("Split", "x", "p q", axis=2), node("MatMul", "q w", "y")], values(3, 5, 8), square)
case("matmul_bias", [node("MatMul", "x w", "m"), node("Add", "b m", "a"), node("Relu", "a", "y")], rows, {**square, "b": values(6)})
case("matmul_scalar_bias", [node("MatMul", "x w", "m"), node("Add", "m b", "y")], rows, {**square, "b": np.float32(0.7)})
case("matmul_row_bias", [node("MatMul", "x w", "m"), node("Add", "m b", "y")], rows, {**square, "b": values(5, 1)})
case("matmul_twice", [node("MatMul", "x w", "m"), node("Relu", "m", "r"), node("Add", "m r", "y")], rows, square)
norm6 = {k: values(6) for k in ["s", "o", "m"]} | {"v": np.abs(values(6)) + 0.1}
turn = dict(perm=[0, 2, 1])
normed = [
    node("MatMul", "x w", "p"),
    node("Transpose", "p", "t", **turn),
    node("BatchNormalization", "t s o m v", "n", epsilon=1e-3),
    node("Transpose", "n", "u", **turn),
    node("Relu", "u", "y"),
]
case("matmul_norm", normed, rows, {**square, **norm6})
case("matmul_norm_seen", normed, rows, {**square, **norm6}, "y n")
case("matmul_norm_2", [node("MatMul", "x w", "p"), node("BatchNormalization", "p s o m v", "y")], values(7, 4), {**square, **norm6})
parts = [node("MatMul", "x w", "p"), node("Relu", "p", "r"), node("Concat", "r x", "y", axis=2)]
case("matmul_in_place", parts, rows, square)
case("gemm", node("Gemm", "x w b", "y", transB=1, alpha=0.5, beta=2.0), values(7, 4), {"w": values(6, 4), "b": values(6)})
case("gemm_plain", node("Gemm", "x w b", "y"), values(7, 4), {**square, "b": values(1)})
case("gemm_unbiased", node("Gemm", "x w", "y"), values(7, 4), square)

# Reductions over any axes.
for op in ["ReduceMax", "ReduceMean", "ReduceSum"]:
    opset = 11 if op == "ReduceSum" else 13
    name = op.lower().replace("reduce", "reduce_")
    for axes in [[1], [-1], [0], [0, 2], [0, 1, 2]]:
        for keep in [0, 1]:
            reduction = node(op, "x", "y", axes=axes, keepdims=keep)
            case(f"{name}_{''.join(str(a % 3) for a in axes)}_{keep}", reduction, values(3, 5, 4), opset=opset)
    case(f"{name}_channels", node(op, "x", "y", axes=[1]), image, opset=opset)
    case(f"{name}_images", node(op, "x", "y", axes=[0, 3], keepdims=0), image, opset=opset)
    case(f"{name}_all", node(op, "x", "y"), image, opset=opset)
    seen = [node("Transpose", "x", "t", perm=[2, 0, 1]), node(op, "t", "r", axes=[0]), node("Relu", "r", "y")]
    case(f"{name}_of_view", seen, values(3, 5, 4), opset=opset)
case("reduce_sum_13", node("ReduceSum", "x a", "y", keepdims=0), values(3, 5, 4), {"a": ints(1)})
joined = [node("ReduceMax", "x", "m", axes=[1]), node("Concat", "m x", "y", axis=1)]
case("reduce_in_place", joined, values(3, 5, 4))

# Feature nets of pillars: layers, maxima over the points, the maximum beside every point.
net = {"w": values(4, 6), "u": values(12, 8)}
first = [node("MatMul", "x w", "p"), node("Relu", "p", "h"), node("ReduceMax", "h", "m", axes=[1])]
last = [node("MatMul", "c u", "q"), node("Relu", "q", "z"), node("ReduceMax", "z", "y", axes=[1], keepdims=0)]
repeat = [node("Tile", "m r", "t"), node("Concat", "h t", "c", axis=2)]
repeats = {"r": ints(1, 5, 1)}
case("pillars_one", first, rows, net, "m")
case("pillars_squeezed", [*first, node("Squeeze", "m a", "y")], rows, {**net, "a": ints(1)})
case("pillars_two", [*first, *repeat, *last], rows, {**net, **repeats})
case("pillars_seen", [*first, *repeat, *last], rows, {**net, **repeats}, "y h")
case("pillars_followed", [*first, *repeat, *last, node("Sigmoid", "y", "s")], rows, {**net, **repeats}, "s")
expand = [node("Expand", "m s", "e"), node("Tile", "e r", "t"), node("Concat", "h t", "c", axis=-1)]
case("pillars_expanded", [*first, *expand, *last], rows, {**net, **repeats, "s": ints(3, 1, 6)})
swapped = [node("Tile", "m r", "t"), node("Concat", "t h", "c", axis=2)]
case("pillars_swapped", [*first, *swapped, *last], rows, {**net, **repeats})
other = [node("MatMul", "x w", "p"), node("Sigmoid", "p", "h"), node("ReduceMax", "h", "m", axes=[1])]
case("pillars_sigmoid", [*other, *repeat, *last], rows, {**net, **repeats})
features = [node("MatMul", "x w", "p"), node("Relu", "p", "h"), node("ReduceMax", "h", "y", axes=[2])]
case("pillars_other_axis", features, rows, net)

# Resizing to the nearest element.
for mode in ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric"]:
    for rounding in ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]:
        resize = node("Resize", ["x", "", "s"], "y", coordinate_transformation_mode=mode, nearest_mode=rounding)
        resize_to = node("Resize", ["x", "", "", "s"], "y", coordinate_transformation_mode=mode, nearest_mode=rounding)
        symmetric = mode == "half_pixel_symmetric"
        opset = 19 if symmetric else 13
        # At scale 2.6 symmetric positions lie halfway between elements but for the last bit.
        grow = floats(1, 1, 2, 2.4 if symmetric else 2.6)
        case(f"resize_{mode}_{rounding}_up", resize, x4, {"s": grow}, opset=opset)
        case(f"resize_{mode}_{rounding}_down", resize, image, {"s": floats(1, 1, 0.6, 0.5)}, opset=opset)
        case(f"resize_{mode}_{rounding}_sizes", resize_to, x4, {"s": ints(1, 6, 8, 3)}, opset=opset)
tf = node("Resize", "x e s", "y", coordinate_transformation_mode="tf_half_pixel_for_nn", nearest_mode="floor")
case("resize_tf", tf, x4, {"e": floats(), "s": floats(1, 1, 3, 0.4)}, opset=11)
case("resize_10", node("Resize", "x s", "y"), x4, {"s": floats(1, 1, 2, 3)}, opset=10)
case("upsample_9", node("Upsample", "x s", "y"), x4, {"s": floats(1, 1, 2, 1.5)}, opset=9)
case("upsample_7", node("Upsample", "x", "y", scales=[1.0, 1.0, 2.0, 2.0]), x4, opset=7)

# Element by element.
for op, attributes in [
    ("Relu", {}),
    ("Sigmoid", {}),
    ("Tanh", {}),
    ("Exp", {}),
    ("LeakyRelu", dict(alpha=0.1)),
    ("LeakyRelu", {}),
    ("HardSigmoid", {}),
    ("HardSigmoid", dict(alpha=0.3, beta=0.4)),
    ("HardSwish", {}),
]:
    case(f"{op}_{len(attributes)}".lower(), node(op, "x", "y", **attributes), x4, opset=14)
case("clip_6", node("Clip", "x", "y", min=-0.5, max=1.5), x4, opset=6)
case("clip_low", node("Clip", "x l", "y"), x4, {"l": np.float32(-0.25)})
case("clip_high", node("Clip", ["x", "", "h"], "y"), x4, {"h": np.float32(0.75)})
for op in ["Add", "Sub", "Mul", "Div", "Max", "Min"]:
    case(f"{op}_two".lower(), node(op, "a b", "y"), {"a": x4, "b": values(6, 1, 7)})
    case(f"{op}_constant".lower(), node(op, "k x", "y"), x4, {"k": values(1, 6, 1, 1)})
    case(f"{op}_both".lower(), node(op, "a b", "y"), {"a": values(3, 1), "b": values(1, 4)})
case("max_three", node("Max", "a b c", "y"), {"a": values(3, 1), "b": values(1, 4), "c": values(1)})
norm = {k: values(6) for k in "sbm"} | {"v": np.abs(values(6))}
case("norm", node("BatchNormalization", "x s b m v", "y", epsilon=1e-3), x4, norm)
case("norm_rank_3", node("BatchNormalization", "x s b m v", "y"), values(2, 6, 5), norm)
for axis in [1, 2, 3, -1]:
    case(f"softmax_11_axis_{axis % 4}", node("Softmax", "x", "y", axis=axis), x4, opset=11)
    case(f"softmax_13_axis_{axis % 4}", node("Softmax", "x", "y", axis=axis), x4, opset=13)
case("softmax_11_default", node("Softmax", "x", "y"), x4, opset=11)
case("softmax_13_default", node("Softmax", "x", "y"), x4, opset=13)
seen = [node("Transpose", "x", "t", perm=[0, 2, 3, 1]), node("Softmax", "t", "s"), node("Relu", "s", "y")]
case("softmax_of_view", seen, x4)
case("softmax_11_of_view", seen, x4, opset=11)

# What becomes one launch.
conv = node("Conv", "x w b", "c", pads=[1, 1, 1, 1])
square = {"w": values(4, 4, 3, 3) / 4, "b": values(4)}
three, six, zero, sixth = (np.float32(v) for v in (3, 6, 0, 1 / 6))
constants = {"three": three, "six": six, "zero": zero, "sixth": sixth}
gate = [node("Add", "c three", "p"), node("Clip", "p zero six", "q")]
for name, nodes in {
    "silu": [node("Sigmoid", "c", "p"), node("Mul", "c p", "y")],
    "silu_swapped": [node("Sigmoid", "c", "p"), node("Mul", "p c", "y")],
    "hard_swish": [node("HardSwish", "c", "y")],
    "hard_sigmoid_product": [node("HardSigmoid", "c", "p", alpha=1 / 6, beta=0.5), node("Mul", "c p", "y")],
    "hard_swish_mul_div": [*gate, node("Mul", "c q", "r"), node("Div", "r six", "y")],
    "hard_swish_div_mul": [*gate, node("Div", "q six", "r"), node("Mul", "r c", "y")],
    "hard_swish_mul_mul": [*gate, node("Mul", "c q", "r"), node("Mul", "r sixth", "y")],
    "relu6": [node("Clip", "c zero six", "y")],
    "residual": [node("Relu", "c", "r"), node("Add", "r x", "y")],
    "residual_then_relu": [node("Add", "x c", "r"), node("Relu", "r", "y")],
    "twice": [node("Add", "c c", "y")],
    "gate_used_twice": [node("Sigmoid", "c", "p"), node("Mul", "c p", "q"), node("Add", "q p", "y")],
    "sum_used_twice": [node("Relu", "c", "r"), node("Add", "r c", "y")],
    "square": [node("Mul", "c c", "y")],
}.items():
    case(f"fused_{name}", [conv, *nodes], image, {**square, **constants}, opset=14)
norm4 = {k: values(4) for k in ["s", "o", "m"]} | {"v": np.abs(values(4)) + 0.1}
normed = [conv, node("BatchNormalization", "c s o m v", "n"), node("LeakyRelu", "n", "y", alpha=0.1)]
case("fused_norm", normed, image, {**square, **norm4})
unbiased = node("Conv", "x w", "c", pads=[1, 1, 1, 1])
added = [unbiased, node("Add", "c k", "n"), node("Relu", "n", "y")]
case("fused_bias", added, image, {"w": square["w"], "k": values(4, 1, 1)})
case("fused_scalar_bias", added, image, {"w": square["w"], "k": np.float32(0.7)})
case("unfused_row_bias", added, image, {"w": square["w"], "k": values(9, 1)})
case("output_in_between", [conv, node("Relu", "c", "y")], image, square, "c y")
case("spelled_silu", [node("Sigmoid", "x", "p"), node("Mul", "x p", "q"), node("Sub", "q x", "y")], x4)

# Constants evaluated on the way.
folded = [
    node("Shape", "x", "s"),
    node("Gather", "s two", "h"),
    node("Cast", "h", "f", to=TensorProto.FLOAT),
    node("Div", "f half", "g"),
    node("Floor", "g", "g2"),
    node("Cast", "g2", "i", to=TensorProto.INT64),
    node("Unsqueeze", "i axis", "u"),
    node("Slice", "s zero two1", "front"),
    node("Concat", "front u minus", "target", axis=0),
    node("Reshape", "x target", "y"),
]
case(
    "folded_shape",
    folded,
    values(1, 6, 10, 7),
    {
        "two": np.array(2, np.int64),
        "half": np.float32(2),
        "axis": ints(0),
        "zero": ints(0),
        "two1": ints(2),
        "minus": ints(-1),
    },
)
# Constants that are stored as, or cast to, floats of 8 bits.
spread = (values(64) * np.exp2(np.linspace(-12, 14, 64))).astype(np.float32)
for kind in ["FLOAT8E4M3FN", "FLOAT8E5M2"]:
    code = getattr(TensorProto, kind)
    for saturate in [0, 1]:
        # Beyond the range that is not saturated lie only infinities and NaN, which no difference tells apart.
        held = np.clip(spread, -400, 400) if saturate == 0 else spread
        cast = [
            node("Cast", "k", "c", to=code, saturate=saturate),
            node("Cast", "c", "f", to=TensorProto.FLOAT),
            node("Add", "x f", "y"),
        ]
        case(f"cast_{kind}_{saturate}".lower(), cast, np.zeros(64, np.float32), {"k": held}, opset=19, ir_version=9)
filled = [node("ConstantOfShape", "s", "k", value=helper.make_tensor("v", TensorProto.FLOAT, [1], [0.5]))]
case("constant_of_shape", [*filled, node("Mul", "x k", "y")], x4, {"s": ints(5, 1)})
case("identity", [node("Identity", "x", "i"), node("Dropout", "i", "y")], x4)
