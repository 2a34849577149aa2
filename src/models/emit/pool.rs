//! Poolings.

use super::super::error::{NodeError, form};
use super::super::facts::NodeContext;
use super::super::infer;
use super::super::lower::{Located, Lowerer};
use super::one_channel_step;
use crate::device::{Geometry2d, OpDesc, Pool2dDesc, PoolKind};
use crate::tensor::Shape;

pub(super) fn pool(
    lowerer: &mut Lowerer<'_>,
    context: &NodeContext<'_>,
    output: &str,
) -> Result<(), NodeError> {
    let input = context.shape(0)?;
    let window = infer::pool_window(context, &input)?;
    if context.node.output(1).is_some() {
        return form("the positions of the largest elements");
    }
    let kind = if context.node.op_type == "MaxPool" {
        PoolKind::Max
    } else if context.node.int("count_include_pad")?.unwrap_or(0) == 0 {
        PoolKind::AverageExcludingPad
    } else if window.overhangs(&input[2..]) {
        return form("counting padding with windows that reach beyond it");
    } else {
        PoolKind::AverageIncludingPad
    };
    let shape = Shape::new(&[&input[..2], &window.output].concat())?;
    let dst = lowerer.destination(output, shape)?;
    pooled(lowerer, context, window.geometry()?, kind, dst)?;
    lowerer.set(output, dst);
    Ok(())
}

fn pooled(
    lowerer: &mut Lowerer<'_>,
    context: &NodeContext<'_>,
    geometry: Geometry2d,
    kind: PoolKind,
    dst: Located,
) -> Result<(), NodeError> {
    let src = lowerer.channels_last(context.input(0)?)?;
    let dst = one_channel_step(dst);
    let op = OpDesc::Pool2d(Pool2dDesc {
        input: src.operand(),
        output: dst.operand(),
        geometry,
        kind,
    });
    lowerer.launch(&context.node.name, op, &[src.slot, dst.slot]);
    Ok(())
}

fn whole_window(kernel: [usize; 2]) -> Geometry2d {
    Geometry2d {
        kernel,
        stride: [1, 1],
        dilation: [1, 1],
        pad_begin: [0, 0],
    }
}

pub(super) fn global_pool(
    lowerer: &mut Lowerer<'_>,
    context: &NodeContext<'_>,
    output: &str,
) -> Result<(), NodeError> {
    let [n, c, h, w] = context.shape(0)?[..] else {
        return form("other than two spatial axes");
    };
    let kind = match context.node.op_type.as_str() {
        "GlobalMaxPool" => PoolKind::Max,
        _ => PoolKind::AverageExcludingPad,
    };
    let dst = lowerer.destination(output, Shape::new(&[n, c, 1, 1])?)?;
    pooled(lowerer, context, whole_window([h, w]), kind, dst)?;
    lowerer.set(output, dst);
    Ok(())
}
