//! Operations that move elements.

use std::sync::Arc;

use super::super::error::{NodeError, form};
use super::super::facts::NodeContext;
use super::super::infer;
use super::super::lower::{Located, Lowerer};
use super::super::movement::{self, Moved};
use super::super::place::same_elements;
use super::pick;
use crate::device::{OpDesc, Scalar};
use crate::tensor::{Shape, View};

/// Operations that only move elements: a change of the view, or a copy where no view does it.
pub(super) fn moved(
    lowerer: &mut Lowerer<'_>,
    context: &NodeContext<'_>,
    output: &str,
) -> Result<(), NodeError> {
    let input = context.input(0)?;
    let mut located = lowerer.located(input)?;
    if context.node.op_type == "Transpose" && !lowerer.passes.transposes {
        located = transposed(lowerer, context, located, output)?;
        lowerer.set(output, located);
        return Ok(());
    }
    match movement::movement(context, &located.view)? {
        Some(Moved::Views(views)) => {
            for (slot, view) in views.into_iter().enumerate() {
                if let Some(name) = context.node.output(slot) {
                    lowerer.set(name, located.with_view(view));
                }
            }
        }
        Some(Moved::Reshape(view, shape)) => {
            let located = located.with_view(view);
            let dtype = lowerer.dtype_of(output);
            let target = lowerer.fresh_as(output, shape, dtype)?;
            // Where the new layout can be seen under the old shape, the copy lands in it at once.
            match target.view.reshape(view.shape) {
                Some(as_before) => {
                    lowerer.copy(output, located, target.with_view(as_before));
                    lowerer.set(output, target);
                }
                None => {
                    let dense = View::contiguous(view.shape);
                    let flat = lowerer.reserve_as(input, view.shape, dense, dtype)?;
                    lowerer.copy(input, located, flat);
                    lowerer.set(output, flat.with_view(View::contiguous(shape)));
                }
            }
        }
        None => return gathered(lowerer, context, output),
    }
    Ok(())
}

/// A transposed copy, for those who ask for one.
fn transposed(
    lowerer: &mut Lowerer<'_>,
    context: &NodeContext<'_>,
    located: Located,
    output: &str,
) -> Result<Located, NodeError> {
    let Some(Moved::Views(views)) = movement::movement(context, &located.view)? else {
        return form("a Transpose that is no view");
    };
    let Some(&view) = views.first() else {
        return form("a Transpose without a result");
    };
    let copy = lowerer.fresh_as(output, view.shape, lowerer.dtype_of(output))?;
    lowerer.copy(output, located.with_view(view), copy);
    Ok(copy)
}

fn gathered(lowerer: &mut Lowerer<'_>, context: &NodeContext<'_>, output: &str) -> Result<(), NodeError> {
    let indices = context.input(1)?;
    if lowerer.facts.array(indices).is_none() {
        return pick::gather(lowerer, context, output);
    }
    let src = lowerer.operand(context.input(0)?)?;
    let (axis, positions, indices) = movement::gather_indices(context, &src.view.shape)?;
    let shape = movement::gather_shape(&src.view.shape, axis, &indices)?;
    let mut dims = src.view.shape.to_vec();
    dims[axis] = positions.len();
    let dst = lowerer.fresh_as(output, Shape::new(&dims)?, src.dtype)?;
    let positions: Result<Arc<[u32]>, _> = positions.iter().map(|&p| u32::try_from(p)).collect();
    let Ok(indices) = positions else {
        return form("an axis of more than 2^32 elements");
    };
    let op = OpDesc::Gather {
        src: src.operand(),
        dst: dst.operand(),
        axis,
        indices,
    };
    lowerer.launch(&context.node.name, op, &[src.slot, dst.slot]);
    match dst.view.reshape(shape) {
        Some(view) => lowerer.set(output, dst.with_view(view)),
        None => return form(format!("indices of shape {shape}")),
    }
    Ok(())
}

/// Parts that were made in place cost nothing; the others are copied in.
pub(super) fn concat(
    lowerer: &mut Lowerer<'_>,
    context: &NodeContext<'_>,
    output: &str,
) -> Result<(), NodeError> {
    let Some(shape) = lowerer.facts.shape(output) else {
        return form("a result of unknown shape");
    };
    let whole = lowerer.destination(output, shape)?;
    let axis = context.axis(Some(1), shape.rank())?;
    let mut start = 0;
    for input in &context.node.inputs {
        let part = lowerer.located(input)?;
        let size = part.view.shape[axis];
        let target = whole.with_view(whole.view.slice(axis, start, size, 1)?);
        let there = part.slot == target.slot && same_elements(&part.view, &target.view);
        if !there && size > 0 {
            lowerer.copy(input, part, target);
        }
        start += size;
    }
    lowerer.set(output, whole);
    Ok(())
}

pub(super) fn padded(
    lowerer: &mut Lowerer<'_>,
    context: &NodeContext<'_>,
    output: &str,
) -> Result<(), NodeError> {
    let node = context.node;
    let mode = match node.text("mode")?.unwrap_or("constant") {
        "constant" => None,
        "edge" => Some(Border::Edge),
        "reflect" => Some(Border::Reflect),
        "wrap" => Some(Border::Wrap),
        other => return form(format!("mode `{other}`")),
    };
    let value = match node.float("value")? {
        Some(value) => value,
        None if context.opset < 11 => 0.0,
        None => match context.array(2)? {
            Some(array) => array
                .scalar_f32()
                .ok_or_else(|| NodeError::Invalid("the value is no number".to_owned()))?,
            None => 0.0,
        },
    };
    let src = lowerer.located(context.input(0)?)?;
    let pads = infer::pads(context, src.view.rank())?;
    if pads.iter().all(|&p| p == (0, 0)) {
        lowerer.finish(output, src);
        return Ok(());
    }
    let src = lowerer.operand(context.input(0)?)?;
    if let Some(border) = mode {
        return repeated(lowerer, context, src, &pads, border, output);
    }
    let Some(shape) = lowerer.facts.shape(output) else {
        return form("a result of unknown shape");
    };
    let dst = lowerer.destination(output, shape)?;
    let (mut from, mut to) = (src.view, dst.view);
    for (axis, &(before, after)) in pads.iter().enumerate() {
        let cut = |pad: i64| usize::try_from(-pad).unwrap_or(0);
        let kept = src.view.shape[axis].saturating_sub(cut(before) + cut(after));
        from = from.slice(axis, cut(before), kept, 1)?;
        to = to.slice(axis, usize::try_from(before).unwrap_or(0), kept, 1)?;
    }
    let fill = OpDesc::Fill {
        dst: dst.operand(),
        value: Scalar::new(value),
    };
    lowerer.launch(&node.name, fill, &[dst.slot]);
    if from.shape.elements() > 0 {
        lowerer.copy(context.input(0)?, src.with_view(from), dst.with_view(to));
    }
    lowerer.set(output, dst);
    Ok(())
}

/// What stands outside of an axis.
#[derive(Debug, Clone, Copy)]
enum Border {
    /// The outermost element.
    Edge,
    /// The elements mirrored at the outermost one.
    Reflect,
    /// The elements from the other end.
    Wrap,
}

impl Border {
    /// The element of an axis that stands at a position before, in or behind it.
    fn source(self, position: i64, len: i64) -> i64 {
        match self {
            Self::Edge => position.clamp(0, len - 1),
            Self::Wrap => position.rem_euclid(len),
            Self::Reflect if len == 1 => 0,
            Self::Reflect => {
                let there = position.rem_euclid(2 * (len - 1));
                if there < len { there } else { 2 * (len - 1) - there }
            }
        }
    }
}

/// A Pad that repeats elements: one axis after the other, each by an index table.
fn repeated(
    lowerer: &mut Lowerer<'_>,
    context: &NodeContext<'_>,
    src: Located,
    pads: &[(i64, i64)],
    border: Border,
    output: &str,
) -> Result<(), NodeError> {
    let mut made = src;
    for (axis, &(before, after)) in pads.iter().enumerate().filter(|(_, pad)| **pad != (0, 0)) {
        let len = made.view.shape[axis] as i64;
        if len == 0 {
            return form("an empty axis");
        }
        let positions = -before..len.saturating_add(after);
        let indices: Arc<[u32]> = positions
            .map(|position| border.source(position, len) as u32)
            .collect();
        let mut dims = made.view.shape.to_vec();
        dims[axis] = indices.len();
        let padded = lowerer.fresh_as(output, Shape::new(&dims)?, made.dtype)?;
        let op = OpDesc::Gather {
            src: made.operand(),
            dst: padded.operand(),
            axis,
            indices,
        };
        lowerer.launch(&context.node.name, op, &[made.slot, padded.slot]);
        made = padded;
    }
    lowerer.finish(output, made);
    Ok(())
}
