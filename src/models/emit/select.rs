//! The largest or smallest elements along an axis, and samples of images at given places.

use super::super::error::{NodeError, form, invalid};
use super::super::facts::NodeContext;
use super::super::lower::{Located, Lowerer};
use super::one_channel_step;
use crate::device::{GridSampleDesc, OpDesc, OutsidePixels, SampleWeights, Sampling, TopKDesc, TopKOrder};
use crate::tensor::{DType, Shape, View};

/// TopK with a constant number of elements, in order; equal elements come by rising position.
pub(super) fn top_k(lowerer: &mut Lowerer<'_>, context: &NodeContext<'_>) -> Result<(), NodeError> {
    let node = context.node;
    let src = lowerer.operand(context.input(0)?)?;
    let rank = src.view.rank();
    let axis = context.axis(Some(-1), rank)?;
    let Some(shape) = node
        .output(0)
        .or(node.output(1))
        .and_then(|name| lowerer.facts.shape(name))
    else {
        return form("a result of unknown shape");
    };
    let order = match node.int("largest")?.unwrap_or(1) {
        0 => TopKOrder::Smallest,
        _ => TopKOrder::Largest,
    };
    let names = [0, 1].map(|slot| node.output(slot).unwrap_or(&node.name));
    let (values, indices) = select(lowerer, context, (src, axis), shape, order, names)?;
    if let Some(name) = node.output(0) {
        lowerer.finish(name, values);
    }
    if let Some(name) = node.output(1) {
        lowerer.finish(name, indices);
    }
    Ok(())
}

/// ArgMax and ArgMin: the position of the first of the largest or smallest elements.
pub(super) fn arg(
    lowerer: &mut Lowerer<'_>,
    context: &NodeContext<'_>,
    output: &str,
) -> Result<(), NodeError> {
    let node = context.node;
    if node.int("select_last_index")?.unwrap_or(0) != 0 {
        return form("the last of equal elements");
    }
    let src = lowerer.operand(context.input(0)?)?;
    let axis = context.axis(Some(0), src.view.rank())?;
    let mut dims = src.view.shape.to_vec();
    dims[axis] = 1;
    let order = match node.op_type.as_str() {
        "ArgMax" => TopKOrder::Largest,
        _ => TopKOrder::Smallest,
    };
    let names = [&*node.name, output];
    let (_, indices) = select(lowerer, context, (src, axis), Shape::new(&dims)?, order, names)?;
    let shape = lowerer.facts.shape(output);
    match shape.and_then(|shape| indices.view.reshape(shape)) {
        Some(view) => lowerer.finish(output, indices.with_view(view)),
        None => return form("this shape of the result"),
    }
    Ok(())
}

fn select(
    lowerer: &mut Lowerer<'_>,
    context: &NodeContext<'_>,
    (src, axis): (Located, usize),
    shape: Shape,
    order: TopKOrder,
    names: [&str; 2],
) -> Result<(Located, Located), NodeError> {
    // Positions are used as whole numbers later.
    if src.view.shape[axis] > 1 << 24 {
        return form(format!(
            "an axis of {} elements, beyond 2^24,",
            src.view.shape[axis]
        ));
    }
    let values = lowerer.reserve_as(names[0], shape, View::contiguous(shape), src.dtype)?;
    let indices = lowerer.reserve_as(names[1], shape, View::contiguous(shape), DType::U32)?;
    let op = OpDesc::TopK(TopKDesc {
        src: src.operand(),
        values: values.operand(),
        indices: indices.operand(),
        axis,
        order,
    });
    lowerer.launch(&context.node.name, op, &[src.slot, values.slot, indices.slot]);
    Ok((values, indices))
}

/// GridSample of images.
pub(super) fn grid_sample(
    lowerer: &mut Lowerer<'_>,
    context: &NodeContext<'_>,
    output: &str,
) -> Result<(), NodeError> {
    let node = context.node;
    let sampling = match node.text("mode")?.unwrap_or("linear") {
        "linear" | "bilinear" => Sampling::Bilinear,
        "nearest" => Sampling::Nearest,
        other => return form(format!("mode `{other}`")),
    };
    let outside = match node.text("padding_mode")?.unwrap_or("zeros") {
        "zeros" => OutsidePixels::Zeros,
        "border" => OutsidePixels::Border,
        "reflection" => OutsidePixels::Reflection,
        other => return form(format!("padding_mode `{other}`")),
    };
    let input = lowerer.channels_last(context.input(0)?)?;
    let grid = lowerer.operand_as(context.input(1)?, DType::F32)?;
    let Some(shape) = lowerer.facts.shape(output) else {
        return invalid("a result of unknown shape");
    };
    let dst = one_channel_step(lowerer.fresh(output, shape)?);
    let op = OpDesc::GridSample(GridSampleDesc {
        input: input.operand(),
        grid: grid.operand(),
        output: dst.operand(),
        sampling,
        outside,
        align_corners: node.int("align_corners")?.unwrap_or(0) != 0,
        weights: SampleWeights::Exact,
    });
    lowerer.launch(&node.name, op, &[input.slot, grid.slot, dst.slot]);
    lowerer.finish(output, dst);
    Ok(())
}
