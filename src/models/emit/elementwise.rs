//! Functions of single elements, and of elements along one axis.

use super::super::error::{NodeError, broadcast, invalid};
use super::super::facts::NodeContext;
use super::super::lower::{Located, Lowerer};
use super::conv::norm_parameters;
use super::logic::is_whole;
use crate::device::{Activation, BinaryKind, OpDesc};
use crate::tensor::{Shape, View};
use crate::weights::{Array, ElementType, Node, Values};

/// An element-wise function.
pub(in crate::models) fn unary(
    lowerer: &mut Lowerer<'_>,
    node: &Node,
    input: &str,
    activation: Activation,
    output: &str,
) -> Result<(), NodeError> {
    let src = lowerer.operand(input)?;
    let dst = lowerer.destination_like(output, src.view.shape, &src)?;
    lowerer.apply_to(&node.name, activation, src, dst);
    lowerer.set(output, dst);
    Ok(())
}

pub(super) fn binary(
    lowerer: &mut Lowerer<'_>,
    context: &NodeContext<'_>,
    output: &str,
) -> Result<(), NodeError> {
    let kind = match context.node.op_type.as_str() {
        "Add" | "Sum" | "Mean" => BinaryKind::Add,
        "Sub" => BinaryKind::Sub,
        "Mul" => BinaryKind::Mul,
        // Whole numbers are divided towards zero.
        "Div" if is_whole(lowerer, output) => BinaryKind::Quotient,
        "Div" => BinaryKind::Div,
        "Max" => BinaryKind::Max,
        _ => BinaryKind::Min,
    };
    let mut operands: Vec<Located> = context
        .node
        .inputs
        .iter()
        .map(|i| lowerer.operand(i))
        .collect::<Result<_, _>>()?;
    if operands.iter().any(|operand| operand.dtype != operands[0].dtype) {
        return invalid("operands of different types");
    }
    if context.node.op_type == "Mean" && operands.len() > 1 {
        operands = vec![mean_of(lowerer, &context.node.name, &operands)?];
    }
    let shape = broadcast(&operands.iter().map(|o| o.view.shape).collect::<Vec<_>>())?;
    let Some((&first, rest)) = operands.split_first() else {
        return invalid("no input");
    };
    if rest.is_empty() {
        lowerer.finish(output, first);
        return Ok(());
    }
    let name = &context.node.name;
    let mut left = first;
    for (i, right) in rest.iter().enumerate() {
        let like = if left.view.shape == shape { left } else { *right };
        let dst = if i + 1 == rest.len() {
            lowerer.destination_like(output, shape, &like)?
        } else {
            lowerer.fresh_as(output, shape, left.dtype)?
        };
        lowerer.combine_to(name, kind, [left, *right], dst)?;
        left = dst;
    }
    lowerer.set(output, left);
    Ok(())
}

fn mean_of(lowerer: &mut Lowerer<'_>, name: &str, operands: &[Located]) -> Result<Located, NodeError> {
    let mut sum = operands[0];
    for operand in &operands[1..] {
        sum = lowerer.combine(name, BinaryKind::Add, sum, *operand)?;
    }
    let count = lowerer.number(operands.len() as f32, sum.dtype)?;
    lowerer.combine(name, BinaryKind::Div, sum, count)
}

/// From operator set 13 on along one axis; before, over all axes from the given one on.
pub(super) fn softmax(
    lowerer: &mut Lowerer<'_>,
    context: &NodeContext<'_>,
    output: &str,
) -> Result<(), NodeError> {
    let shape = context.shape(0)?;
    let flattens = context.opset < 13;
    let axis = context.axis(Some(if flattens { 1 } else { -1 }), shape.rank())?;
    let input = context.input(0)?;
    let launch = |lowerer: &mut Lowerer<'_>, src: Located, dst: Located, axis: usize| {
        let op = OpDesc::Softmax {
            src: src.operand(),
            dst: dst.operand(),
            axis,
        };
        lowerer.launch(&context.node.name, op, &[src.slot, dst.slot]);
    };
    // Trailing axes of one element add nothing to the sum.
    if !flattens || shape[axis + 1..].iter().all(|&d| d == 1) {
        let src = lowerer.operand(input)?;
        let dst = lowerer.destination_like(output, shape, &src)?;
        launch(lowerer, src, dst, axis);
        lowerer.set(output, dst);
        return Ok(());
    }
    let flat = Shape::new(&[shape[..axis].iter().product(), shape[axis..].iter().product()])?;
    let mut src = lowerer.operand(input)?;
    if src.view.reshape(flat).is_none() {
        src = lowerer.row_major(input)?;
    }
    let made = lowerer.fresh(output, flat)?;
    if let Some(view) = src.view.reshape(flat) {
        launch(lowerer, src.with_view(view), made, 1);
    }
    lowerer.finish(output, made.with_view(View::contiguous(shape)));
    Ok(())
}

/// A normalisation that follows no convolution: a product and a sum with one value per channel.
pub(super) fn normalised(
    lowerer: &mut Lowerer<'_>,
    context: &NodeContext<'_>,
    output: &str,
) -> Result<(), NodeError> {
    let shape = context.shape(0)?;
    let Some(&channels) = shape.get(1) else {
        return invalid("an input without channels");
    };
    let affine = norm_parameters(context)?.widened().affine(channels)?;
    let mut dims = vec![1; shape.rank() - 1];
    dims[0] = channels;
    let mut constant = |what: &str, values: Vec<f32>| {
        let array = Array::new(Shape::new(&dims)?, ElementType::F32, Values::F32(values));
        match array {
            Some(array) => lowerer.constant(&format!("{}.{what}", context.node.name), &array),
            None => invalid("parameters of another length"),
        }
    };
    let factor = constant("factor", affine.iter().map(|a| a.0 as f32).collect())?;
    let shift = constant("shift", affine.iter().map(|a| a.1 as f32).collect())?;
    let src = lowerer.operand(context.input(0)?)?;
    let product = lowerer.fresh(output, shape)?;
    lowerer.combine_to(&context.node.name, BinaryKind::Mul, [src, factor], product)?;
    let sum = lowerer.fresh(output, shape)?;
    lowerer.combine_to(&context.node.name, BinaryKind::Add, [product, shift], sum)?;
    lowerer.finish(output, sum);
    Ok(())
}
