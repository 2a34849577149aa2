//! The launches of each operation.

mod conv;
mod dense;
mod elementwise;
mod logic;
mod moving;
mod norm;
mod pick;
mod pool;
mod product;
mod reduce;
mod resize;
mod select;
mod steps;

pub(super) use conv::conv;
pub(super) use dense::{dense, pillars};
pub(super) use elementwise::unary;

use super::error::{NodeError, form, invalid};
use super::fuse::{Group, activation};
use super::lower::{Located, Lowerer};
use crate::weights::{Node, OnnxModel};

/// Operations that [`node`] knows besides those that only move elements.
const KNOWN: &[&str] = &[
    "Abs",
    "Add",
    "And",
    "ArgMax",
    "ArgMin",
    "AveragePool",
    "BatchNormalization",
    "Cast",
    "Ceil",
    "Clip",
    "Concat",
    "Conv",
    "ConvTranspose",
    "Div",
    "Elu",
    "Equal",
    "Erf",
    "Exp",
    "Floor",
    "GatherElements",
    "GatherND",
    "Gelu",
    "Gemm",
    "GlobalAveragePool",
    "GlobalMaxPool",
    "Greater",
    "GreaterOrEqual",
    "GridSample",
    "GroupNormalization",
    "HardSigmoid",
    "HardSwish",
    "InstanceNormalization",
    "LayerNormalization",
    "LeakyRelu",
    "Less",
    "LessOrEqual",
    "Log",
    "LogSoftmax",
    "LpNormalization",
    "MatMul",
    "Max",
    "MaxPool",
    "Mean",
    "MeanVarianceNormalization",
    "Min",
    "Mish",
    "Mod",
    "Mul",
    "Neg",
    "Not",
    "Or",
    "PRelu",
    "Pad",
    "Pow",
    "Reciprocal",
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSum",
    "ReduceSumSquare",
    "Relu",
    "Resize",
    "Round",
    "Scatter",
    "ScatterElements",
    "ScatterND",
    "Selu",
    "Sigmoid",
    "Sign",
    "Softmax",
    "Softplus",
    "Softsign",
    "Sqrt",
    "Sub",
    "Sum",
    "Tanh",
    "ThresholdedRelu",
    "TopK",
    "Upsample",
    "Where",
    "Xor",
];
/// Operations that only move elements.
const MOVES: &[&str] = &[
    "DepthToSpace",
    "Dropout",
    "Expand",
    "Flatten",
    "Gather",
    "Identity",
    "Reshape",
    "Slice",
    "SpaceToDepth",
    "Split",
    "Squeeze",
    "Tile",
    "Transpose",
    "Unsqueeze",
];

/// Whether the importer knows an operation at all.
pub(super) fn is_known(node: &Node) -> bool {
    let op = node.op_type.as_str();
    matches!(node.domain.as_str(), "" | "ai.onnx") && (KNOWN.contains(&op) || MOVES.contains(&op))
}

/// Refuses a group whose last node is of an unknown operation.
pub(super) fn check_known(model: &OnnxModel, group: &Group) -> Result<(), (usize, NodeError)> {
    if is_known(&model.all_nodes()[group.at]) {
        Ok(())
    } else {
        Err((group.at, NodeError::UnknownOp))
    }
}

/// The launches of a single node.
pub(super) fn node(lowerer: &mut Lowerer<'_>, index: usize) -> Result<(), NodeError> {
    let context = lowerer.context(index);
    let node = context.node;
    let output = match node.output(0) {
        Some(output) => output,
        // The positions of a TopK may be all that is wanted.
        None if node.op_type == "TopK" => "",
        None => return invalid("the first output is missing"),
    };
    if MOVES.contains(&node.op_type.as_str()) {
        return moving::moved(lowerer, &context, output);
    }
    match node.op_type.as_str() {
        "Cast" => logic::cast(lowerer, &context, output),
        "Concat" => moving::concat(lowerer, &context, output),
        "MaxPool" | "AveragePool" => pool::pool(lowerer, &context, output),
        "GlobalAveragePool" | "GlobalMaxPool" => pool::global_pool(lowerer, &context, output),
        "Resize" | "Upsample" => resize::resized(lowerer, &context, output),
        "Pad" => moving::padded(lowerer, &context, output),
        "Softmax" => elementwise::softmax(lowerer, &context, output),
        "LogSoftmax" => norm::log_softmax(lowerer, &context, output),
        "BatchNormalization" => elementwise::normalised(lowerer, &context, output),
        "LayerNormalization" => norm::layer(lowerer, &context, output),
        "InstanceNormalization" | "GroupNormalization" | "MeanVarianceNormalization" => {
            norm::grouped(lowerer, &context, output)
        }
        "LpNormalization" => norm::by_norm(lowerer, &context, output),
        "Add" | "Sub" | "Mul" | "Div" | "Max" | "Min" | "Sum" | "Mean" => {
            elementwise::binary(lowerer, &context, output)
        }
        "MatMul" => product::product(lowerer, &context, output),
        "Gemm" => product::gemm(lowerer, &context, output),
        "Pow" => logic::power(lowerer, &context, output),
        "Mod" => logic::remainder(lowerer, &context, output),
        "Not" => logic::negated(lowerer, &context, output),
        "Where" => logic::chosen(lowerer, &context, output),
        "And" | "Equal" | "Greater" | "GreaterOrEqual" | "Less" | "LessOrEqual" | "Or" | "PRelu" | "Xor" => {
            logic::compared(lowerer, &context, output)
        }
        "Selu" | "Sign" | "Softsign" | "ThresholdedRelu" => logic::piecewise(lowerer, &context, output),
        "GatherElements" => pick::gather_elements(lowerer, &context, output),
        "GatherND" => pick::gather_nd(lowerer, &context, output),
        "Scatter" | "ScatterElements" => pick::scatter_elements(lowerer, &context, output),
        "ScatterND" => pick::scatter_nd(lowerer, &context, output),
        "TopK" => select::top_k(lowerer, &context),
        "ArgMax" | "ArgMin" => select::arg(lowerer, &context, output),
        "GridSample" => select::grid_sample(lowerer, &context, output),
        op if op.starts_with("Reduce") => reduce::reduce(lowerer, &context, output),
        _ => match activation(node, lowerer.facts) {
            Some(activation) => unary(lowerer, node, context.input(0)?, activation, output),
            None => form("a setting that is no constant"),
        },
    }
}

/// One channel may have any step; kernels are promised 1.
fn one_channel_step(mut located: Located) -> Located {
    located.view.strides[1] = 1;
    located
}
