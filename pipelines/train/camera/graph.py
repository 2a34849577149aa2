"""The network as it is deployed: normalisation folded into the convolutions, written as ONNX.

The operators and the one output are those of the public YOLOX files, which the runtime and other tools read: `output`,
float32 (1, cells, 10), a row per cell: dx, dy, log w, log h in strides, then objectness and the probability of each
class after the sigmoid.
"""

import operator

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import fx, nn

from cells import STRIDES, grid_cells
from frames import CLASS_NAMES
from model import BOX_CHANNELS, ConvLayer, Focus, Yolox
from preprocess import INPUT_HEIGHT_PX, INPUT_WIDTH_PX

OPSET = 11
IR_VERSION = 6
INPUT, OUTPUT = "images", "output"
TO_THE_END = np.iinfo(np.int64).max


def build(model: Yolox) -> onnx.ModelProto:
    """The network with folded weights and no metadata."""
    traced = _Layers().trace(model)
    modules = dict(model.named_modules())
    writer = _Writer()
    values: dict[fx.Node, object] = {}
    for node in traced.nodes:
        values[node] = writer.layer(node, modules, values)
    graph = helper.make_graph(
        writer.nodes,
        "yolox_nano",
        [helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, [1, 3, INPUT_HEIGHT_PX, INPUT_WIDTH_PX])],
        [helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, [1, len(grid_cells()), _row_values()])],
        writer.initializers,
    )
    built = helper.make_model(
        graph, producer_name="sensorium", opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION
    )
    onnx.checker.check_model(built, full_check=True)
    return built


def _row_values() -> int:
    return BOX_CHANNELS + 1 + len(CLASS_NAMES)


class _Layers(fx.Tracer):
    """Walks through the network layer by layer: what has a form of its own in ONNX is not looked into."""

    def is_leaf_module(self, module: nn.Module, name: str) -> bool:
        return isinstance(module, (Focus, ConvLayer, nn.Conv2d, nn.MaxPool2d, nn.Upsample))


class _Writer:
    """Collects nodes and weights. Values are named after the layer that they come from."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []

    def layer(self, node: fx.Node, modules: dict[str, nn.Module], values: dict[fx.Node, object]) -> object:
        """Writes what a traced step does; the name of its result."""
        given = fx.node.map_arg(node.args, lambda before: values[before])
        if node.op == "placeholder":
            return INPUT
        if node.op == "output":
            return self._output(given[0])
        if node.op == "call_module":
            return self._module(node.target, modules[node.target], *given)
        if node.target is torch.cat:
            return self._add("Concat", list(given[0]), node.name, axis=1)
        if node.target is operator.add:
            return self._add("Add", list(given), node.name)
        raise TypeError(f"{node.target} has no form in ONNX here: add it to graph.py")

    def _module(self, name: str, module: nn.Module, maps: str) -> str:
        match module:
            case Focus():
                return self._focus(name, maps)
            case ConvLayer():
                normalised = self._conv(f"{name}.conv", module.conv, *_folded(module), maps)
                return self._add("Mul", [normalised, self._add("Sigmoid", [normalised], f"{name}.gate")], name)
            case nn.Conv2d():
                return self._conv(name, module, module.weight, module.bias, maps)
            case nn.MaxPool2d():
                sides = [module.kernel_size] * 2, [module.stride] * 2, [module.padding] * 4
                return self._add("MaxPool", [maps], name, kernel_shape=sides[0], strides=sides[1], pads=sides[2])
            case nn.Upsample():
                return self._twice_as_large(maps)
        raise TypeError(f"{type(module).__name__} has no form in ONNX here: add it to graph.py")

    def _conv(self, name: str, conv: nn.Conv2d, weight: torch.Tensor, bias: torch.Tensor, maps: str) -> str:
        inputs = [maps, self._constant(f"{name}.weight", weight), self._constant(f"{name}.bias", bias)]
        return self._add(
            "Conv",
            inputs,
            name,
            dilations=list(conv.dilation),
            group=conv.groups,
            kernel_shape=list(conv.kernel_size),
            pads=list(conv.padding) * 2,
            strides=list(conv.stride),
        )

    def _focus(self, name: str, images: str) -> str:
        end, step = self._integers("slice.end", [TO_THE_END]), self._integers("slice.step", [2])
        axes = [self._integers(f"slice.axis{axis}", [axis]) for axis in (2, 3)]
        starts = [self._integers(f"slice.start{start}", [start]) for start in (0, 1)]
        parts = []
        for row, column in Focus.OFFSETS:
            rows = self._add("Slice", [images, starts[row], end, axes[0], step], f"{name}.rows{row}{column}")
            parts.append(self._add("Slice", [rows, starts[column], end, axes[1], step], f"{name}.part{row}{column}"))
        return self._add("Concat", parts, name, axis=1)

    def _twice_as_large(self, maps: str) -> str:
        no_region = self._constant("resize.region", torch.zeros(0))
        scales = self._constant("resize.scales", torch.tensor([1.0, 1.0, 2.0, 2.0]))
        return self._add(
            "Resize",
            [maps, no_region, scales],
            f"{maps}.twice",
            coordinate_transformation_mode="asymmetric",
            cubic_coeff_a=-0.75,
            mode="nearest",
            nearest_mode="floor",
        )

    def _output(self, levels: list[tuple[str, str, str]]) -> str:
        flat = []
        for stride, (box, objectness, classes) in zip(STRIDES, levels):
            chances = [self._add("Sigmoid", [logits], f"{logits}.chance") for logits in (objectness, classes)]
            joined = self._add("Concat", [box, *chances], f"stride{stride}", axis=1)
            shape = self._integers(f"flat{stride}", [1, _row_values(), -1])
            flat.append(self._add("Reshape", [joined, shape], f"stride{stride}.flat"))
        return self._add("Transpose", [self._add("Concat", flat, "columns", axis=2)], OUTPUT, perm=[0, 2, 1])

    def _add(self, kind: str, inputs: list[str], name: str, **attributes: object) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [name], name=f"{kind}:{name}", **attributes))
        return name

    def _constant(self, name: str, values: torch.Tensor) -> str:
        return self._initializer(name, values.detach().numpy().astype(np.float32))

    def _integers(self, name: str, values: list[int]) -> str:
        return self._initializer(name, np.array(values, np.int64))

    def _initializer(self, name: str, values: np.ndarray) -> str:
        if all(known.name != name for known in self.initializers):
            self.initializers.append(numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name


def _folded(layer: ConvLayer) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights and biases of the convolution with its normalisation, in float64."""
    norm = layer.norm
    gain = norm.weight.double() / torch.sqrt(norm.running_var.double() + norm.eps)
    weight = layer.conv.weight.double() * gain[:, None, None, None]
    return weight, norm.bias.double() - gain * norm.running_mean.double()
