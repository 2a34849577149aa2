//! Operations that only move elements, as changes of a view.

use super::error::{NodeError, broadcast, form, invalid};
use super::facts::{NodeContext, normal_axis};
use crate::tensor::{MAX_RANK, Shape, TensorError, View};

/// The outcome of moving a view.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Moved {
    /// One view for each output.
    Views(Vec<View>),
    /// The elements of a view in row-major order under another shape, for which the view's strides offer no way.
    Reshape(View, Shape),
}

/// Moves the view of a node's first input; `None` if the node does more than move elements.
pub(super) fn movement(context: &NodeContext<'_>, view: &View) -> Result<Option<Moved>, NodeError> {
    let node = context.node;
    let one = match node.op_type.as_str() {
        "Identity" => *view,
        "Dropout" => match node.output(1) {
            Some(_) => return form("the mask of a Dropout"),
            None => *view,
        },
        "Transpose" => view.transpose(&permutation(context, view.rank())?)?,
        "Reshape" => return reshape(view, reshaped(context, &view.shape)?),
        "Flatten" => return reshape(view, flattened(context, &view.shape)?),
        "Squeeze" => return reshape(view, squeezed(context, &view.shape)?),
        "Unsqueeze" => return reshape(view, unsqueezed(context, &view.shape)?),
        "Slice" => slice(context, view)?,
        "Split" => return split(context, view).map(|views| Some(Moved::Views(views))),
        "Gather" if !has_constant_indices(context) => return Ok(None),
        "Gather" => return gathered(context, view),
        "DepthToSpace" => return depth_to_space(context, view).map(Some),
        "SpaceToDepth" => return space_to_depth(context, view).map(Some),
        "Expand" => view.broadcast_to(expanded(context, view.shape)?)?,
        "Tile" => return tiled(context, view),
        _ => return Ok(None),
    };
    Ok(Some(Moved::Views(vec![one])))
}

/// The view of the input of which a node makes `output` by moving elements one to one; `None` if the node
/// does something else or the strides offer no such view.
pub(super) fn inverse(context: &NodeContext<'_>, output: &View) -> Result<Option<View>, NodeError> {
    match context.node.op_type.as_str() {
        "Identity" | "Dropout" => Ok(Some(*output)),
        "Transpose" => {
            let perm = permutation(context, output.rank())?;
            let mut back = vec![0; perm.len()];
            for (axis, &from) in perm.iter().enumerate() {
                if from < back.len() {
                    back[from] = axis;
                }
            }
            Ok(Some(output.transpose(&back)?))
        }
        "Reshape" | "Flatten" | "Squeeze" | "Unsqueeze" => Ok(output.reshape(context.shape(0)?)),
        _ => Ok(None),
    }
}

fn reshape(view: &View, shape: Shape) -> Result<Option<Moved>, NodeError> {
    if shape.elements() != view.shape.elements() {
        return invalid(format!(
            "{} elements cannot take shape {shape}",
            view.shape.elements()
        ));
    }
    Ok(Some(match view.reshape(shape) {
        Some(view) => Moved::Views(vec![view]),
        None => Moved::Reshape(*view, shape),
    }))
}

fn permutation(context: &NodeContext<'_>, rank: usize) -> Result<Vec<usize>, NodeError> {
    match context.node.ints("perm")? {
        None => Ok((0..rank).rev().collect()),
        Some(perm) => perm.iter().map(|&axis| normal_axis(axis, rank)).collect(),
    }
}

fn reshaped(context: &NodeContext<'_>, from: &Shape) -> Result<Shape, NodeError> {
    let Some(target) = context.ints("shape", 1)? else {
        return invalid("the new shape is missing");
    };
    let allow_zero = context.node.int("allowzero")?.unwrap_or(0) != 0;
    let mut open = None;
    let mut dims = Vec::with_capacity(target.len());
    for (axis, &size) in target.iter().enumerate() {
        dims.push(match size {
            -1 if open.is_none() => {
                open = Some(axis);
                1
            }
            0 if !allow_zero => match from.get(axis) {
                Some(&kept) => kept,
                None => {
                    return invalid(format!(
                        "shape {target:?} keeps axis {axis}, which {from} does not have"
                    ));
                }
            },
            _ => match usize::try_from(size) {
                Ok(size) => size,
                Err(_) => return invalid(format!("shape {target:?}")),
            },
        });
    }
    if let Some(axis) = open {
        let rest = Shape::new(&dims)?.elements();
        if rest == 0 || !from.elements().is_multiple_of(rest) {
            return invalid(format!("{from} cannot take shape {target:?}"));
        }
        dims[axis] = from.elements() / rest;
    }
    Ok(Shape::new(&dims)?)
}

fn flattened(context: &NodeContext<'_>, from: &Shape) -> Result<Shape, NodeError> {
    let axis = context.node.int("axis")?.unwrap_or(1);
    // The axis may be the rank itself: then everything is in front of it.
    let axis = if axis == from.rank() as i64 {
        from.rank()
    } else {
        normal_axis(axis, from.rank())?
    };
    let (front, back) = from.split_at(axis);
    Ok(Shape::new(&[front.iter().product(), back.iter().product()])?)
}

fn squeezed(context: &NodeContext<'_>, from: &Shape) -> Result<Shape, NodeError> {
    let drop: Vec<usize> = match context.ints("axes", 1)? {
        Some(axes) => axes
            .iter()
            .map(|&a| normal_axis(a, from.rank()))
            .collect::<Result<_, _>>()?,
        None => (0..from.rank()).filter(|&a| from[a] == 1).collect(),
    };
    if let Some(&axis) = drop.iter().find(|&&a| from[a] != 1) {
        return invalid(format!("axis {axis} of {from} is not of size 1"));
    }
    let dims: Vec<usize> = (0..from.rank())
        .filter(|a| !drop.contains(a))
        .map(|a| from[a])
        .collect();
    Ok(Shape::new(&dims)?)
}

fn unsqueezed(context: &NodeContext<'_>, from: &Shape) -> Result<Shape, NodeError> {
    let Some(axes) = context.ints("axes", 1)? else {
        return invalid("the new axes are missing");
    };
    let rank = from.rank() + axes.len();
    let axes: Vec<usize> = axes
        .iter()
        .map(|&a| normal_axis(a, rank))
        .collect::<Result<_, _>>()?;
    let mut rest = from.iter().copied();
    let dims: Vec<usize> = (0..rank)
        .map(|a| {
            if axes.contains(&a) {
                1
            } else {
                rest.next().unwrap_or(1)
            }
        })
        .collect();
    if rest.next().is_some() {
        return invalid(format!("axes {axes:?} are not distinct"));
    }
    Ok(Shape::new(&dims)?)
}

fn slice(context: &NodeContext<'_>, view: &View) -> Result<View, NodeError> {
    let (Some(starts), Some(ends)) = (context.ints("starts", 1)?, context.ints("ends", 2)?) else {
        return invalid("starts or ends are missing");
    };
    let axes = context
        .ints("axes", 3)?
        .unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = context
        .int_input(4)?
        .map_or_else(|| vec![1; starts.len()], <[i64]>::to_vec);
    if [ends.len(), axes.len(), steps.len()] != [starts.len(); 3] {
        return invalid("starts, ends, axes and steps differ in length");
    }
    let mut out = *view;
    for (i, &axis) in axes.iter().enumerate() {
        let axis = normal_axis(axis, view.rank())?;
        let (start, count, step) = bounds(starts[i], ends[i], steps[i], out.shape[axis])?;
        out = out.slice(axis, start, count, step)?;
    }
    Ok(out)
}

/// First index, number of indices and step of a slice of `dim` elements, with ONNX's clamping.
fn bounds(start: i64, end: i64, step: i64, dim: usize) -> Result<(usize, usize, isize), NodeError> {
    if step == 0 {
        return invalid("a slice with step 0");
    }
    // i128 holds every sum of these i64 values.
    let size = dim as i128;
    let from_front = |index: i64| i128::from(index) + if index < 0 { size } else { 0 };
    let (low, high) = if step > 0 { (0, size) } else { (-1, size - 1) };
    let first = from_front(start).clamp(0, high.max(0));
    let last = from_front(end).clamp(low, high);
    let step = i128::from(step);
    let reach = if step > 0 { last - first } else { first - last };
    let count = (reach + step.abs() - 1).div_euclid(step.abs()).max(0);
    if count == 0 || size == 0 {
        return Ok((0, 0, 1));
    }
    // With two or more elements the step is smaller than the axis; with one it has no effect.
    let step = if count == 1 { 1 } else { step as isize };
    Ok((first as usize, count as usize, step))
}

fn split(context: &NodeContext<'_>, view: &View) -> Result<Vec<View>, NodeError> {
    let axis = context.axis(Some(0), view.rank())?;
    let (dim, parts) = (view.shape[axis], context.node.outputs.len());
    let sizes: Vec<usize> = match context.ints("split", 1)? {
        Some(sizes) => {
            let sizes: Result<Vec<usize>, _> = sizes.iter().map(|&s| usize::try_from(s)).collect();
            sizes.map_err(|_| NodeError::Invalid("a part of negative size".to_owned()))?
        }
        None => {
            // Equal parts; the last one may be smaller.
            let size = dim.div_ceil(parts.max(1));
            (0..parts)
                .map(|i| size.min(dim.saturating_sub(i * size)))
                .collect()
        }
    };
    if sizes.len() != parts || sizes.iter().try_fold(0_usize, |sum, &s| sum.checked_add(s)) != Some(dim) {
        return invalid(format!(
            "{dim} elements cannot be split into {sizes:?} for {parts} outputs"
        ));
    }
    let mut start = 0;
    let views = sizes.iter().map(|&size| {
        let part = view.slice(axis, start, size, 1);
        start += size;
        part
    });
    Ok(views.collect::<Result<_, TensorError>>()?)
}

/// Axis, positions (checked) and shape of the indices of a Gather with constant indices.
pub(super) fn gather_indices(
    context: &NodeContext<'_>,
    shape: &Shape,
) -> Result<(usize, Vec<usize>, Shape), NodeError> {
    let axis = context.axis(Some(0), shape.rank())?;
    let Some(array) = context.array(1)? else {
        return invalid("indices are missing");
    };
    let Some(indices) = array.as_i64() else {
        return invalid("indices must be whole numbers");
    };
    let positions = indices.iter().map(|&i| normal_axis(i, shape[axis]));
    let positions: Vec<usize> = positions.collect::<Result<_, _>>().map_err(|_| {
        NodeError::Invalid(format!(
            "an index outside the {} elements of axis {axis}",
            shape[axis]
        ))
    })?;
    Ok((axis, positions, *array.shape()))
}

/// Shape of a Gather's result.
pub(super) fn gather_shape(shape: &Shape, axis: usize, indices: &Shape) -> Result<Shape, NodeError> {
    let dims = [&shape[..axis], indices, &shape[axis + 1..]].concat();
    Ok(Shape::new(&dims)?)
}

/// A Gather whose indices rise or fall evenly is a slice.
fn gathered(context: &NodeContext<'_>, view: &View) -> Result<Option<Moved>, NodeError> {
    let (axis, positions, indices) = gather_indices(context, &view.shape)?;
    let shape = gather_shape(&view.shape, axis, &indices)?;
    let Some(&first) = positions.first() else {
        return form("a Gather of nothing");
    };
    let step = match positions.get(1) {
        Some(&second) => second as isize - first as isize,
        None => 1,
    };
    let even = positions
        .windows(2)
        .all(|w| w[1] as isize - w[0] as isize == step);
    if !even || step == 0 {
        return Ok(None);
    }
    let part = view.slice(axis, first, positions.len(), step)?;
    reshape(&part, shape)
}

fn expanded(context: &NodeContext<'_>, from: Shape) -> Result<Shape, NodeError> {
    let Some(target) = context.int_input(1)? else {
        return invalid("the new shape is missing");
    };
    let sizes: Result<Vec<usize>, _> = target.iter().map(|&d| usize::try_from(d)).collect();
    match sizes {
        Ok(sizes) => broadcast(&[from, Shape::new(&sizes)?]),
        Err(_) => invalid(format!("shape {target:?}")),
    }
}

/// Repeating is a broadcast of an axis of size 1, put in front of each axis that has more than one element.
fn tiled(context: &NodeContext<'_>, view: &View) -> Result<Option<Moved>, NodeError> {
    let Some(repeats) = context.int_input(1)? else {
        return invalid("repeats are missing");
    };
    if repeats.len() != view.rank() {
        return invalid(format!(
            "{} repeats for a tensor of rank {}",
            repeats.len(),
            view.rank()
        ));
    }
    let times: Result<Vec<usize>, _> = repeats.iter().map(|&r| usize::try_from(r)).collect();
    let Ok(times) = times else {
        return invalid(format!("repeats {repeats:?}"));
    };
    let (mut split, mut spread, mut joined) = (Vec::new(), Vec::new(), Vec::new());
    for (&dim, &times) in view.shape.iter().zip(&times) {
        if times != 1 && dim != 1 {
            split.push(1);
            spread.push(times);
        }
        split.push(dim);
        spread.push(if dim == 1 { times } else { dim });
        let Some(size) = dim.checked_mul(times) else {
            return invalid(format!("repeats {repeats:?} of shape {}", view.shape));
        };
        joined.push(size);
    }
    if split.len() > MAX_RANK {
        return form(format!("repeating {repeats:?} of shape {}", view.shape));
    }
    let Some(view) = view.reshape(Shape::new(&split)?) else {
        return invalid("axes of one element that are none");
    };
    reshape(&view.broadcast_to(Shape::new(&spread)?)?, Shape::new(&joined)?)
}

/// Size of the blocks of a DepthToSpace or SpaceToDepth, and the four axes of its input.
fn blocks(context: &NodeContext<'_>, shape: &Shape) -> Result<(usize, [usize; 4]), NodeError> {
    let size = context
        .node
        .int("blocksize")?
        .and_then(|b| usize::try_from(b).ok());
    match (size.filter(|b| (1..=1 << 12).contains(b)), &shape[..]) {
        (Some(block), &[n, c, h, w]) => Ok((block, [n, c, h, w])),
        (None, _) => invalid("attribute `blocksize` must be positive"),
        (Some(_), _) => form(format!("an input of shape {shape}")),
    }
}

/// The elements of a view under `split`, its axes then in the order `perm`, and that as `joined`.
fn rearranged(view: &View, split: &[usize], perm: &[usize], joined: [usize; 4]) -> Result<Moved, NodeError> {
    let shape = Shape::new(&joined)?;
    let Some(view) = view.reshape(Shape::new(split)?) else {
        return invalid(format!("{} cannot be divided into {split:?}", view.shape));
    };
    let view = view.transpose(perm)?;
    Ok(match view.reshape(shape) {
        Some(view) => Moved::Views(vec![view]),
        None => Moved::Reshape(view, shape),
    })
}

fn depth_to_space(context: &NodeContext<'_>, view: &View) -> Result<Moved, NodeError> {
    let (block, [n, c, h, w]) = blocks(context, &view.shape)?;
    if !c.is_multiple_of(block * block) {
        return invalid(format!("{c} channels are no {block} x {block} blocks"));
    }
    let depth = c / (block * block);
    let joined = [n, depth, h * block, w * block];
    match context.node.text("mode")?.unwrap_or("DCR") {
        "DCR" => rearranged(view, &[n, block, block, depth, h, w], &[0, 3, 4, 1, 5, 2], joined),
        "CRD" => rearranged(view, &[n, depth, block, block, h, w], &[0, 1, 4, 2, 5, 3], joined),
        other => form(format!("mode `{other}`")),
    }
}

fn space_to_depth(context: &NodeContext<'_>, view: &View) -> Result<Moved, NodeError> {
    let (block, [n, c, h, w]) = blocks(context, &view.shape)?;
    if !h.is_multiple_of(block) || !w.is_multiple_of(block) {
        return invalid(format!("{h} x {w} elements are no {block} x {block} blocks"));
    }
    let split = [n, c, h / block, block, w / block, block];
    let joined = [n, c * block * block, h / block, w / block];
    rearranged(view, &split, &[0, 3, 5, 1, 2, 4], joined)
}

/// Whether the indices of a Gather are known before anything runs.
fn has_constant_indices(context: &NodeContext<'_>) -> bool {
    let indices = context.node.input(1);
    indices.is_none_or(|indices| context.facts.array(indices).is_some())
}
