//! Normalisations by the mean and variance of what is normalised.

use super::super::error::{NodeError, form, invalid};
use super::super::facts::NodeContext;
use super::super::infer;
use super::super::lower::{Located, Lowerer};
use crate::device::{BinaryKind, LayerNormDesc, OpDesc, ReduceKind, Scalar};
use crate::tensor::{Shape, View};

/// LayerNormalization over the axes from `axis` on, with factors and, where they are given, summands.
pub(super) fn layer(
    lowerer: &mut Lowerer<'_>,
    context: &NodeContext<'_>,
    output: &str,
) -> Result<(), NodeError> {
    if context.node.output(1).is_some() || context.node.output(2).is_some() {
        return form("the mean and deviation of a LayerNormalization");
    }
    let src = lowerer.operand(context.input(0)?)?;
    let (shape, rank) = (src.view.shape, src.view.rank());
    let axis = context.axis(Some(-1), rank)?;
    let of_axes = Shape::new(&shape[axis..])?;
    let gamma = lowerer.operand(context.input(1)?)?.spread(of_axes)?;
    let beta = match context.node.input(2) {
        Some(beta) => Some(lowerer.operand(beta)?.spread(of_axes)?),
        None => None,
    };
    let dst = lowerer.destination(output, shape)?;
    let epsilon = context.node.float("epsilon")?.unwrap_or(1e-5);
    normalise(
        lowerer,
        context,
        [src, dst],
        [Some(gamma), beta],
        rank - axis,
        epsilon,
    )?;
    lowerer.set(output, dst);
    Ok(())
}

/// InstanceNormalization (each channel of each image), GroupNormalization (groups of channels of each image) and
/// MeanVarianceNormalization (given axes).
pub(super) fn grouped(
    lowerer: &mut Lowerer<'_>,
    context: &NodeContext<'_>,
    output: &str,
) -> Result<(), NodeError> {
    let node = context.node;
    let src = lowerer.operand(context.input(0)?)?;
    let shape = src.view.shape;
    if node.op_type == "MeanVarianceNormalization" {
        return mean_variance(lowerer, context, src, output);
    }
    let [n, channels, ..] = shape[..] else {
        return invalid(format!("an input of shape {shape}"));
    };
    let instances = node.op_type == "InstanceNormalization";
    let groups = match node.int("num_groups")?.and_then(|g| usize::try_from(g).ok()) {
        _ if instances && channels > 0 => channels,
        Some(groups) if groups > 0 && channels.is_multiple_of(groups) => groups,
        _ => return invalid(format!("num_groups that does not divide {channels} channels")),
    };
    let epsilon = node.float("epsilon")?.unwrap_or(1e-5);
    let divided = Shape::new(&[&[n, groups, channels / groups], &shape[2..]].concat())?;
    let made = lowerer.fresh(output, shape)?;
    let (Some(from), Some(to)) = (src.view.reshape(divided), made.view.reshape(divided)) else {
        return form(format!("groups of an input of shape {shape}"));
    };
    let places = [src.with_view(from), made.with_view(to)];
    normalise(
        lowerer,
        context,
        places,
        [None, None],
        divided.rank() - 2,
        epsilon,
    )?;
    // From operator set 21 on, and for instances, one value per channel; before, one per group.
    let mut by_channel = |index: usize| -> Result<Located, NodeError> {
        let given = lowerer.operand(context.input(index)?)?;
        let of_groups = !instances && context.opset < 21;
        let count = if of_groups { groups } else { channels };
        if given.view.shape[..] != [count] {
            return invalid(format!("{} values for {count}", given.view.shape));
        }
        let spread = if of_groups {
            given.view.reshape(Shape::new(&[groups, 1])?)
        } else {
            given.view.reshape(Shape::new(&[groups, channels / groups])?)
        };
        let Some(view) = spread else {
            return invalid("values that are no row");
        };
        let whole = Shape::new(&[groups, channels / groups])?;
        let mut view = view.broadcast_to(whole)?;
        let ones = vec![1; divided.rank() - 3];
        view.shape = Shape::new(&[&whole[..], &ones].concat())?;
        Ok(given.with_view(view))
    };
    let (factor, addend) = (by_channel(1)?, by_channel(2)?);
    let name = &node.name;
    let normal = places[1];
    let scaled = lowerer.combine(name, BinaryKind::Mul, normal, factor)?;
    let shifted = lowerer.combine(name, BinaryKind::Add, scaled, addend)?;
    match shifted.view.reshape(shape) {
        Some(view) => lowerer.finish(output, shifted.with_view(view)),
        None => return form(format!("groups of an input of shape {shape}")),
    }
    Ok(())
}

/// `(x - mean) / sqrt(variance)` over some axes, by default all but the channels.
fn mean_variance(
    lowerer: &mut Lowerer<'_>,
    context: &NodeContext<'_>,
    src: Located,
    output: &str,
) -> Result<(), NodeError> {
    let rank = src.view.rank();
    let axes = match context.node.ints("axes")? {
        Some(axes) => axes.to_vec(),
        None => vec![0, 2, 3],
    };
    let axes = infer::axes_of(&axes, rank)?;
    let kept: Vec<usize> = (0..rank).filter(|axis| !axes.contains(axis)).collect();
    let order = [&kept[..], &axes[..]].concat();
    let dst = lowerer.destination(output, src.view.shape)?;
    let places = [src, dst].map(|l| l.view.transpose(&order).map(|view| l.with_view(view)));
    let [from, to] = places;
    // The definition adds 1e-9 to the deviation; the operation adds its square to the variance.
    normalise(lowerer, context, [from?, to?], [None, None], axes.len(), 1e-18)?;
    lowerer.set(output, dst);
    Ok(())
}

fn normalise(
    lowerer: &mut Lowerer<'_>,
    context: &NodeContext<'_>,
    [src, dst]: [Located; 2],
    [gamma, beta]: [Option<Located>; 2],
    axes: usize,
    epsilon: f32,
) -> Result<(), NodeError> {
    if !(epsilon > 0.0 && epsilon.is_finite()) {
        return form(format!("epsilon = {epsilon}"));
    }
    let name = &context.node.name;
    let src = at_equal_distances(lowerer, name, src, axes)?;
    let mut given = [gamma, beta];
    for given in given.iter_mut().flatten() {
        *given = at_equal_distances(lowerer, name, *given, axes)?;
    }
    let [gamma, beta] = given;
    let shape = dst.view.shape;
    let made = match line(&dst.view, axes)? {
        Some(_) => dst,
        None => lowerer.reserve_as(name, shape, View::contiguous(shape), dst.dtype)?,
    };
    let desc = LayerNormDesc {
        src: src.operand(),
        dst: made.operand(),
        residual: None,
        gamma: gamma.map(|gamma| gamma.operand()),
        beta: beta.map(|beta| beta.operand()),
        axes,
        epsilon: Scalar::new(epsilon),
    };
    let mut slots = vec![src.slot, made.slot];
    slots.extend([gamma, beta].into_iter().flatten().map(|given| given.slot));
    lowerer.launch(name, OpDesc::LayerNorm(desc), &slots);
    if made != dst {
        lowerer.copy(name, made, dst);
    }
    Ok(())
}

/// The last axes of a view as one, where their elements lie at equal distances, as the device wants those that it
/// normalises.
fn line(view: &View, axes: usize) -> Result<Option<View>, NodeError> {
    let (front, last) = view.shape.split_at(view.rank() - axes);
    let joined = Shape::new(&[front, &[last.iter().product()]].concat())?;
    Ok(view.reshape(joined))
}

/// A value whose last axes lie so, by a copy where they do not.
fn at_equal_distances(
    lowerer: &mut Lowerer<'_>,
    name: &str,
    value: Located,
    axes: usize,
) -> Result<Located, NodeError> {
    if line(&value.view, axes)?.is_some() {
        return Ok(value);
    }
    let shape = value.view.shape;
    let copy = lowerer.reserve_as(name, shape, View::contiguous(shape), value.dtype)?;
    lowerer.copy(name, value, copy);
    Ok(copy)
}

/// LpNormalization: a value over its norm along one axis; nothing is done against a norm of 0.
pub(super) fn by_norm(
    lowerer: &mut Lowerer<'_>,
    context: &NodeContext<'_>,
    output: &str,
) -> Result<(), NodeError> {
    let src = lowerer.operand(context.input(0)?)?;
    let axis = context.axis(Some(-1), src.view.rank())?;
    let kind = match context.node.int("p")?.unwrap_or(2) {
        1 => ReduceKind::L1,
        2 => ReduceKind::L2,
        other => return form(format!("p = {other}")),
    };
    let norm = lowerer.reduced(&context.node.name, kind, src, &[axis])?;
    let dst = lowerer.destination_like(output, src.view.shape, &src)?;
    lowerer.combine_to(&context.node.name, BinaryKind::Div, [src, norm], dst)?;
    lowerer.set(output, dst);
    Ok(())
}

/// LogSoftmax: `x - max - log(sum(exp(x - max)))`. Before operator set 13 over all axes from the given one on.
pub(super) fn log_softmax(
    lowerer: &mut Lowerer<'_>,
    context: &NodeContext<'_>,
    output: &str,
) -> Result<(), NodeError> {
    use crate::device::Activation;
    let name = &context.node.name;
    let src = lowerer.operand(context.input(0)?)?;
    let rank = src.view.rank();
    let flattens = context.opset < 13;
    let axis = context.axis(Some(if flattens { 1 } else { -1 }), rank)?;
    let axes: Vec<usize> = if flattens {
        (axis..rank).collect()
    } else {
        vec![axis]
    };
    let top = lowerer.reduced(name, ReduceKind::Max, src, &axes)?;
    let below = lowerer.combine(name, BinaryKind::Sub, src, top)?;
    let powers = lowerer.apply(name, Activation::Exp, below)?;
    let sum = lowerer.reduced(name, ReduceKind::Sum, powers, &axes)?;
    let log = lowerer.apply(name, Activation::Log, sum)?;
    let dst = lowerer.destination_like(output, src.view.shape, &src)?;
    lowerer.combine_to(name, BinaryKind::Sub, [below, log], dst)?;
    lowerer.set(output, dst);
    Ok(())
}
