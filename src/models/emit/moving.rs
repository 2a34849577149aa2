//! Operations that move elements.

use std::sync::Arc;

use super::super::error::{NodeError, form};
use super::super::facts::NodeContext;
use super::super::infer;
use super::super::lower::Lowerer;
use super::super::movement::{self, Moved};
use super::super::place::same_elements;
use crate::device::{OpDesc, Scalar};
use crate::tensor::{Shape, View};

/// Operations that only move elements: a change of the view, or a copy where no view does it.
pub(super) fn moved(
    lowerer: &mut Lowerer<'_>,
    context: &NodeContext<'_>,
    output: &str,
) -> Result<(), NodeError> {
    let input = context.input(0)?;
    let located = lowerer.located(input)?;
    match movement::movement(context, &located.view)? {
        Some(Moved::Views(views)) => {
            for (slot, view) in views.into_iter().enumerate() {
                if let Some(name) = context.node.output(slot) {
                    lowerer.set(name, located.with_view(view));
                }
            }
        }
        Some(Moved::Reshape(shape)) => {
            let target = lowerer.fresh(output, shape)?;
            // Where the new layout can be seen under the old shape, the copy lands in it at once.
            match target.view.reshape(located.view.shape) {
                Some(as_before) => {
                    lowerer.copy(output, located, target.with_view(as_before));
                    lowerer.set(output, target);
                }
                None => {
                    let flat = lowerer.row_major(input)?;
                    lowerer.set(output, flat.with_view(View::contiguous(shape)));
                }
            }
        }
        None => gathered(lowerer, context, output)?,
    }
    Ok(())
}

fn gathered(lowerer: &mut Lowerer<'_>, context: &NodeContext<'_>, output: &str) -> Result<(), NodeError> {
    let src = lowerer.operand(context.input(0)?)?;
    let (axis, positions, indices) = movement::gather_indices(context, &src.view.shape)?;
    let shape = movement::gather_shape(&src.view.shape, axis, &indices)?;
    let mut dims = src.view.shape.to_vec();
    dims[axis] = positions.len();
    let dst = lowerer.fresh(output, Shape::new(&dims)?)?;
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

pub(super) fn cast(
    lowerer: &mut Lowerer<'_>,
    context: &NodeContext<'_>,
    output: &str,
) -> Result<(), NodeError> {
    if !movement::cast_to_float(context) {
        let to = lowerer.facts.get(output).and_then(|fact| fact.element);
        return match to.filter(|to| to.is_float()) {
            Some(to) => form(format!("a cast to {to}")),
            None => form("a cast to whole numbers"),
        };
    }
    let located = lowerer.located(context.input(0)?)?;
    lowerer.set(output, located);
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
    let mode = node.text("mode")?.unwrap_or("constant");
    if mode != "constant" {
        return form(format!("mode `{mode}`"));
    }
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
