//! Reductions over any axes.

use super::super::error::{NodeError, form};
use super::super::facts::NodeContext;
use super::super::infer;
use super::super::lower::{Located, Lowerer};
use crate::device::{Activation, BinaryKind, ReduceKind};

/// ReduceSum, ReduceMean and their kin. LogSum is the logarithm of a sum; LogSumExp takes out the largest element first,
/// as it must to stay finite.
pub(super) fn reduce(
    lowerer: &mut Lowerer<'_>,
    context: &NodeContext<'_>,
    output: &str,
) -> Result<(), NodeError> {
    let name = &context.node.name;
    let src = lowerer.operand(context.input(0)?)?;
    let axes = match infer::reduce_axes(context, src.view.rank())? {
        (Some(axes), _) => axes,
        (None, _) => {
            lowerer.finish(output, src);
            return Ok(());
        }
    };
    let kind = match context.node.op_type.as_str() {
        "ReduceSum" | "ReduceLogSum" => ReduceKind::Sum,
        "ReduceMean" => ReduceKind::Mean,
        "ReduceMax" => ReduceKind::Max,
        "ReduceMin" => ReduceKind::Min,
        "ReduceProd" => ReduceKind::Prod,
        "ReduceL1" => ReduceKind::L1,
        "ReduceL2" => ReduceKind::L2,
        "ReduceSumSquare" => ReduceKind::SumSquare,
        _ => return log_sum_exp(lowerer, context, src, &axes, output),
    };
    let mut made = lowerer.reduced(name, kind, src, &axes)?;
    if context.node.op_type == "ReduceLogSum" {
        made = lowerer.apply(name, Activation::Log, made)?;
    }
    finish(lowerer, output, made)
}

fn log_sum_exp(
    lowerer: &mut Lowerer<'_>,
    context: &NodeContext<'_>,
    src: Located,
    axes: &[usize],
    output: &str,
) -> Result<(), NodeError> {
    let name = &context.node.name;
    let top = lowerer.reduced(name, ReduceKind::Max, src, axes)?;
    let below = lowerer.combine(name, BinaryKind::Sub, src, top)?;
    let powers = lowerer.apply(name, Activation::Exp, below)?;
    let sum = lowerer.reduced(name, ReduceKind::Sum, powers, axes)?;
    let log = lowerer.apply(name, Activation::Log, sum)?;
    let made = lowerer.combine(name, BinaryKind::Add, log, top)?;
    finish(lowerer, output, made)
}

/// Takes away the axes that the node does not keep.
fn finish(lowerer: &mut Lowerer<'_>, output: &str, made: Located) -> Result<(), NodeError> {
    let shape = lowerer.facts.shape(output);
    match shape.and_then(|shape| made.view.reshape(shape)) {
        Some(view) => lowerer.finish(output, made.with_view(view)),
        None => return form("this shape of the result"),
    }
    Ok(())
}
