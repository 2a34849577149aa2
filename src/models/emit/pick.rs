//! Reading and writing by indices that are known only when the network runs.
//!
//! The device checks every index: one outside its axis reads zeros and writes nothing. Positions along several axes at
//! once are brought into one first, for which one that is outside its axis counts on from the other end.

use super::super::error::{NodeError, form, invalid};
use super::super::facts::NodeContext;
use super::super::lower::{Located, Lowerer};
use crate::device::{BinaryKind, OpDesc};
use crate::tensor::{DType, MAX_RANK, Shape, View};

/// Gather by any index along one axis.
pub(super) fn gather(
    lowerer: &mut Lowerer<'_>,
    context: &NodeContext<'_>,
    output: &str,
) -> Result<(), NodeError> {
    let src = lowerer.operand(context.input(0)?)?;
    let index = index(lowerer, context)?;
    let (shape, picks) = (src.view.shape, index.view.shape);
    let axis = context.axis(Some(0), shape.rank())?;
    let line = Shape::new(&[picks.elements()])?;
    let index = flat(lowerer, context.input(1)?, index, line)?;
    // One index for all elements before and behind the axis.
    let mut dims = shape.to_vec();
    dims[axis] = picks.elements();
    let dims = Shape::new(&dims)?;
    let mut view = View::contiguous(dims);
    view.strides = [0; MAX_RANK];
    view.strides[axis] = index.view.strides[0];
    view.offset = index.view.offset;
    let made = lowerer.fresh_as(output, dims, src.dtype)?;
    pick(lowerer, context, src, index.with_view(view), made, axis);
    let whole = Shape::new(&[&shape[..axis], &picks, &shape[axis + 1..]].concat())?;
    reshaped(lowerer, output, made, whole)
}

/// GatherElements: an index for every element of the result.
pub(super) fn gather_elements(
    lowerer: &mut Lowerer<'_>,
    context: &NodeContext<'_>,
    output: &str,
) -> Result<(), NodeError> {
    let src = lowerer.operand(context.input(0)?)?;
    let index = index(lowerer, context)?;
    let axis = context.axis(Some(0), src.view.rank())?;
    let made = lowerer.destination_as(output, index.view.shape, src.dtype)?;
    pick(lowerer, context, src, index, made, axis);
    lowerer.set(output, made);
    Ok(())
}

/// GatherND without batch axes: the last axis of the index holds positions along the first axes of the data.
pub(super) fn gather_nd(
    lowerer: &mut Lowerer<'_>,
    context: &NodeContext<'_>,
    output: &str,
) -> Result<(), NodeError> {
    if context.node.int("batch_dims")?.unwrap_or(0) != 0 {
        return form("batch axes of a GatherND");
    }
    let data = lowerer.operand(context.input(0)?)?;
    let (index, rows, shape) = positions(lowerer, context, data.view.shape)?;
    let count = index.view.shape[0];
    let behind = Shape::new(&shape[rows..])?;
    let flat_data = Shape::new(&[shape[..rows].iter().product(), behind.elements()])?;
    let data = flat(lowerer, context.input(0)?, data, flat_data)?;
    let dims = Shape::new(&[count, behind.elements()])?;
    let made = lowerer.reserve_as(output, dims, View::contiguous(dims), data.dtype)?;
    pick(
        lowerer,
        context,
        data,
        index.with_view(column(&index.view, dims)?),
        made,
        0,
    );
    let Some(whole) = lowerer.facts.shape(output) else {
        return form("a result of unknown shape");
    };
    reshaped(lowerer, output, made, whole)
}

/// ScatterElements: an index for every update.
pub(super) fn scatter_elements(
    lowerer: &mut Lowerer<'_>,
    context: &NodeContext<'_>,
    output: &str,
) -> Result<(), NodeError> {
    let data = lowerer.operand(context.input(0)?)?;
    let index = index(lowerer, context)?;
    let updates = lowerer.operand(context.input(2)?)?;
    let axis = context.axis(Some(0), data.view.rank())?;
    let dst = lowerer.destination_as(output, data.view.shape, data.dtype)?;
    lowerer.copy(context.input(0)?, data, dst);
    place(lowerer, context, [updates, index, dst], axis)?;
    lowerer.set(output, dst);
    Ok(())
}

/// ScatterND: the last axis of the index holds positions along the first axes of the data.
pub(super) fn scatter_nd(
    lowerer: &mut Lowerer<'_>,
    context: &NodeContext<'_>,
    output: &str,
) -> Result<(), NodeError> {
    let data = lowerer.operand(context.input(0)?)?;
    let updates = lowerer.operand(context.input(2)?)?;
    let (index, rows, shape) = positions(lowerer, context, data.view.shape)?;
    let behind: usize = shape[rows..].iter().product();
    let dims = Shape::new(&[index.view.shape[0], behind])?;
    if dims.elements() != updates.view.shape.elements() {
        return invalid(format!(
            "updates of shape {} for {dims} places",
            updates.view.shape
        ));
    }
    let updates = flat(lowerer, context.input(2)?, updates, dims)?;
    let whole = Shape::new(&[shape[..rows].iter().product(), behind])?;
    let made = lowerer.reserve_as(output, shape, View::contiguous(shape), data.dtype)?;
    lowerer.copy(context.input(0)?, data, made);
    let Some(view) = made.view.reshape(whole) else {
        return form(format!("data of shape {shape}"));
    };
    let index = index.with_view(column(&index.view, dims)?);
    place(lowerer, context, [updates, index, made.with_view(view)], 0)?;
    lowerer.finish(output, made);
    Ok(())
}

/// The index of a node in a type that the device takes.
fn index(lowerer: &mut Lowerer<'_>, context: &NodeContext<'_>) -> Result<Located, NodeError> {
    let name = context.input(1)?;
    let index = lowerer.located(name)?;
    match index.dtype {
        DType::U32 | DType::I32 | DType::F32 => Ok(index),
        _ => lowerer.operand_as(name, DType::F32),
    }
}

/// The rows of positions along the first axes of data, each as one position in row-major order: `[rows]`; and how many
/// axes they count along. Negative positions count from the end of their axis.
fn positions(
    lowerer: &mut Lowerer<'_>,
    context: &NodeContext<'_>,
    shape: Shape,
) -> Result<(Located, usize, Shape), NodeError> {
    let name = context.input(1)?;
    let index = lowerer.operand_as(name, DType::F32)?;
    let Some((&axes, front)) = index
        .view
        .shape
        .split_last()
        .filter(|(n, _)| (1..=shape.rank()).contains(*n))
    else {
        return invalid(format!("positions of shape {} in data {shape}", index.view.shape));
    };
    let counted: usize = shape[..axes].iter().product();
    if counted > 1 << 24 {
        return form(format!("positions among {counted} elements, beyond 2^24,"));
    }
    let lines = Shape::new(&[front.iter().product(), axes])?;
    let index = flat(lowerer, name, index, lines)?;
    let mut position: Option<Located> = None;
    for (axis, &dim) in shape[..axes].iter().enumerate() {
        let mut along = index.with_view(index.view.select(1, axis)?);
        if axes > 1 {
            let len = lowerer.number(dim as f32, DType::F32)?;
            along = lowerer.combine(name, BinaryKind::Remainder, along, len)?;
        }
        position = Some(match position {
            None => along,
            Some(before) => {
                let len = lowerer.number(dim as f32, DType::F32)?;
                let rows = lowerer.combine(name, BinaryKind::Mul, before, len)?;
                lowerer.combine(name, BinaryKind::Add, rows, along)?
            }
        });
    }
    match position {
        Some(position) => Ok((position, axes, shape)),
        None => invalid("positions along no axis"),
    }
}

/// `[rows]` as `[rows, columns]`, the same for all columns.
fn column(view: &View, dims: Shape) -> Result<View, NodeError> {
    let one = view.reshape(Shape::new(&[dims[0], 1])?);
    match one {
        Some(one) => Ok(one.broadcast_to(dims)?),
        None => invalid("positions that are no line"),
    }
}

/// A value under another shape of as many elements, by a copy where its strides offer no way.
fn flat(lowerer: &mut Lowerer<'_>, name: &str, value: Located, shape: Shape) -> Result<Located, NodeError> {
    if let Some(view) = value.view.reshape(shape) {
        return Ok(value.with_view(view));
    }
    let from = value.view.shape;
    let copy = lowerer.reserve_as(name, from, View::contiguous(from), value.dtype)?;
    lowerer.copy(name, value, copy);
    Ok(copy.with_view(View::contiguous(shape)))
}

fn reshaped(lowerer: &mut Lowerer<'_>, output: &str, made: Located, shape: Shape) -> Result<(), NodeError> {
    let made = flat(lowerer, output, made, shape)?;
    lowerer.finish(output, made);
    Ok(())
}

fn pick(
    lowerer: &mut Lowerer<'_>,
    context: &NodeContext<'_>,
    src: Located,
    index: Located,
    dst: Located,
    axis: usize,
) {
    let op = OpDesc::GatherElements {
        src: src.operand(),
        index: index.operand(),
        dst: dst.operand(),
        axis,
    };
    lowerer.launch(&context.node.name, op, &[src.slot, index.slot, dst.slot]);
}

fn place(
    lowerer: &mut Lowerer<'_>,
    context: &NodeContext<'_>,
    [updates, index, dst]: [Located; 3],
    axis: usize,
) -> Result<(), NodeError> {
    let combine = match context.node.text("reduction")?.unwrap_or("none") {
        "none" => None,
        "add" => Some(BinaryKind::Add),
        "mul" => Some(BinaryKind::Mul),
        "max" => Some(BinaryKind::Max),
        "min" => Some(BinaryKind::Min),
        other => return form(format!("reduction `{other}`")),
    };
    let op = OpDesc::ScatterElements {
        updates: updates.operand(),
        index: index.operand(),
        dst: dst.operand(),
        axis,
        combine,
    };
    lowerer.launch(&context.node.name, op, &[updates.slot, index.slot, dst.slot]);
    Ok(())
}
