//! The launches of each operation.

mod conv;
mod dense;
mod elementwise;
mod moving;
mod pool;
mod reduce;

pub(super) use conv::conv;
pub(super) use dense::{dense, pillars};
pub(super) use elementwise::unary;

use super::error::{NodeError, form, invalid};
use super::fuse::{Group, activation};
use super::lower::{Located, Lowerer};
use crate::weights::{Node, OnnxModel};

/// Operations that [`node`] knows besides those that only move elements.
const KNOWN: &[&str] = &[
    "Add",
    "AveragePool",
    "BatchNormalization",
    "Cast",
    "Clip",
    "Concat",
    "Conv",
    "ConvTranspose",
    "Div",
    "Exp",
    "Gemm",
    "GlobalAveragePool",
    "GlobalMaxPool",
    "HardSigmoid",
    "HardSwish",
    "LeakyRelu",
    "MatMul",
    "Max",
    "MaxPool",
    "Min",
    "Mul",
    "Pad",
    "ReduceMax",
    "ReduceMean",
    "ReduceSum",
    "Relu",
    "Resize",
    "Sigmoid",
    "Softmax",
    "Sub",
    "Tanh",
    "Upsample",
];
/// Operations that only move elements.
const MOVES: &[&str] = &[
    "Dropout",
    "Expand",
    "Flatten",
    "Gather",
    "Identity",
    "Reshape",
    "Slice",
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
    let Some(output) = node.output(0) else {
        return invalid("the first output is missing");
    };
    if MOVES.contains(&node.op_type.as_str()) {
        return moving::moved(lowerer, &context, output);
    }
    match node.op_type.as_str() {
        "Cast" => moving::cast(lowerer, &context, output),
        "Concat" => moving::concat(lowerer, &context, output),
        "MaxPool" | "AveragePool" => pool::pool(lowerer, &context, output),
        "GlobalAveragePool" | "GlobalMaxPool" => pool::global_pool(lowerer, &context, output),
        "ReduceMean" | "ReduceMax" | "ReduceSum" => reduce::reduce(lowerer, &context, output),
        "Resize" | "Upsample" => pool::resized(lowerer, &context, output),
        "Pad" => moving::padded(lowerer, &context, output),
        "Softmax" => elementwise::softmax(lowerer, &context, output),
        "BatchNormalization" => elementwise::normalised(lowerer, &context, output),
        "Add" | "Sub" | "Mul" | "Div" | "Max" | "Min" => elementwise::binary(lowerer, &context, output),
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
