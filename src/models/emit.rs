//! The launches of each operation.

use std::sync::Arc;

use super::error::{NodeError, form, invalid};
use super::facts::NodeContext;
use super::fuse::{Group, GroupKind, activation};
use super::infer;
use super::lower::{Located, Lowerer};
use super::movement::{self, Moved};
use super::place::same_elements;
use super::plan::WeightPlan;
use super::resize;
use crate::device::{Activation, BinaryKind, Conv2dDesc, Geometry2d, OpDesc, Pool2dDesc, PoolKind, Scalar};
use crate::tensor::{Shape, View};
use crate::weights::{Array, BatchNorm, ElementType, Node, OnnxModel, Values, fold_bn_conv};

/// Operations that [`node`] knows besides those that only move elements.
const KNOWN: &[&str] = &[
    "Add",
    "AveragePool",
    "BatchNormalization",
    "Cast",
    "Clip",
    "Concat",
    "Conv",
    "Div",
    "Exp",
    "GlobalAveragePool",
    "GlobalMaxPool",
    "HardSigmoid",
    "HardSwish",
    "LeakyRelu",
    "Max",
    "MaxPool",
    "Min",
    "Mul",
    "Pad",
    "ReduceMax",
    "ReduceMean",
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
        return moved(lowerer, &context, output);
    }
    match node.op_type.as_str() {
        "Cast" => cast(lowerer, &context, output),
        "Concat" => concat(lowerer, &context, output),
        "MaxPool" | "AveragePool" => pool(lowerer, &context, output),
        "GlobalAveragePool" | "GlobalMaxPool" => global_pool(lowerer, &context, output),
        "ReduceMean" | "ReduceMax" => reduce(lowerer, &context, output),
        "Resize" | "Upsample" => resized(lowerer, &context, output),
        "Pad" => padded(lowerer, &context, output),
        "Softmax" => softmax(lowerer, &context, output),
        "BatchNormalization" => normalised(lowerer, &context, output),
        "Add" | "Sub" | "Mul" | "Div" | "Max" | "Min" => binary(lowerer, &context, output),
        _ => match activation(node, lowerer.facts) {
            Some(activation) => unary(lowerer, node, context.input(0)?, activation, output),
            None => form("a setting that is no constant"),
        },
    }
}

/// A convolution with its followers.
pub(super) fn conv(lowerer: &mut Lowerer<'_>, group: &Group) -> Result<(), NodeError> {
    let GroupKind::Conv {
        conv,
        norm,
        bias,
        activation,
        residual,
    } = &group.kind
    else {
        return invalid("a convolution was expected");
    };
    let context = lowerer.context(*conv);
    let window = infer::conv_window(&context)?;
    let geometry = window.geometry()?;
    let (mut weight, mut offsets) = match (context.float_input(1)?, context.float_input(2)?) {
        (Some(weight), offsets) => (weight, offsets),
        (None, _) => return invalid("the weights are missing"),
    };
    let channels = context.shape(1)?[0];
    if offsets.as_ref().is_some_and(|o| o.len() != channels) {
        return invalid(format!(
            "a bias of other length than the {channels} output channels"
        ));
    }
    if let Some(norm) = norm {
        let norm = norm_parameters(&lowerer.context(*norm))?;
        let (folded, shifted) = fold_bn_conv(&weight, offsets.as_deref(), &norm.borrowed())?;
        (weight, offsets) = (folded, Some(shifted));
    }
    if let Some(addend) = bias.as_ref().and_then(|name| lowerer.facts.array(name)?.to_f32()) {
        let added = |c: usize| f64::from(if addend.len() == 1 { addend[0] } else { addend[c] });
        let before = |c: usize| offsets.as_ref().map_or(0.0, |o| f64::from(o[c]));
        offsets = Some((0..channels).map(|c| (before(c) + added(c)) as f32).collect());
    }
    let shape = Shape::new(&[context.shape(0)?[0], channels, window.output[0], window.output[1]])?;
    let input = lowerer.channels_last(context.input(0)?)?;
    let residual = residual.as_ref().map(|r| lowerer.channels_last(r)).transpose()?;
    let output = one_channel_step(lowerer.destination(&group.output, shape)?);
    let desc = Conv2dDesc {
        input: input.operand(),
        output: output.operand(),
        residual: residual.map(|r| r.operand()),
        geometry,
        groups: infer::conv_groups(&context)?,
        activation: *activation,
    };
    let slot = super::plan::Slot::Weight(lowerer.weights.len());
    lowerer.weights.push(WeightPlan::Conv2d {
        name: context.input(1)?.to_owned(),
        desc: Box::new(desc.clone()),
        weight,
        bias: offsets,
    });
    let mut slots = vec![input.slot, slot, output.slot];
    slots.extend(residual.map(|r| r.slot));
    lowerer.launch(&context.node.name, OpDesc::Conv2d(desc), &slots);
    lowerer.set(&group.output, output);
    Ok(())
}

/// One channel may have any step; kernels are promised 1.
fn one_channel_step(mut located: Located) -> Located {
    located.view.strides[1] = 1;
    located
}

/// An element-wise function.
pub(super) fn unary(
    lowerer: &mut Lowerer<'_>,
    node: &Node,
    input: &str,
    activation: Activation,
    output: &str,
) -> Result<(), NodeError> {
    let src = lowerer.operand(input)?;
    let dst = lowerer.destination_like(output, src.view.shape, &src)?;
    let op = OpDesc::Unary {
        src: src.operand(),
        dst: dst.operand(),
        activation,
    };
    lowerer.launch(&node.name, op, &[src.slot, dst.slot]);
    lowerer.set(output, dst);
    Ok(())
}

fn binary(lowerer: &mut Lowerer<'_>, context: &NodeContext<'_>, output: &str) -> Result<(), NodeError> {
    let kind = match context.node.op_type.as_str() {
        "Add" => BinaryKind::Add,
        "Sub" => BinaryKind::Sub,
        "Mul" => BinaryKind::Mul,
        "Div" => BinaryKind::Div,
        "Max" => BinaryKind::Max,
        _ => BinaryKind::Min,
    };
    let operands: Vec<Located> = context
        .node
        .inputs
        .iter()
        .map(|i| lowerer.operand(i))
        .collect::<Result<_, _>>()?;
    let shape = super::error::broadcast(&operands.iter().map(|o| o.view.shape).collect::<Vec<_>>())?;
    let Some((&first, rest)) = operands.split_first() else {
        return invalid("no input");
    };
    if rest.is_empty() {
        lowerer.finish(output, first);
        return Ok(());
    }
    let mut left = first;
    for (i, right) in rest.iter().enumerate() {
        let like = if left.view.shape == shape { left } else { *right };
        let dst = if i + 1 == rest.len() {
            lowerer.destination_like(output, shape, &like)?
        } else {
            lowerer.fresh(output, shape)?
        };
        pairwise(lowerer, &context.node.name, kind, left, *right, dst)?;
        left = dst;
    }
    lowerer.set(output, left);
    Ok(())
}

fn pairwise(
    lowerer: &mut Lowerer<'_>,
    name: &str,
    kind: BinaryKind,
    left: Located,
    right: Located,
    dst: Located,
) -> Result<(), NodeError> {
    let spread =
        |operand: Located| Ok::<_, NodeError>(operand.with_view(operand.view.broadcast_to(dst.view.shape)?));
    let op = OpDesc::Binary {
        lhs: spread(left)?.operand(),
        rhs: spread(right)?.operand(),
        dst: dst.operand(),
        kind,
    };
    lowerer.launch(name, op, &[left.slot, right.slot, dst.slot]);
    Ok(())
}

/// Operations that only move elements: a change of the view, or a copy where no view does it.
fn moved(lowerer: &mut Lowerer<'_>, context: &NodeContext<'_>, output: &str) -> Result<(), NodeError> {
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

fn cast(lowerer: &mut Lowerer<'_>, context: &NodeContext<'_>, output: &str) -> Result<(), NodeError> {
    if !movement::cast_to_float(context) {
        return form("a cast to whole numbers");
    }
    let located = lowerer.located(context.input(0)?)?;
    lowerer.set(output, located);
    Ok(())
}

/// Parts that were made in place cost nothing; the others are copied in.
fn concat(lowerer: &mut Lowerer<'_>, context: &NodeContext<'_>, output: &str) -> Result<(), NodeError> {
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

fn pool(lowerer: &mut Lowerer<'_>, context: &NodeContext<'_>, output: &str) -> Result<(), NodeError> {
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

fn global_pool(lowerer: &mut Lowerer<'_>, context: &NodeContext<'_>, output: &str) -> Result<(), NodeError> {
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

/// A reduction over rows, columns or both is a pooling with one window.
fn reduce(lowerer: &mut Lowerer<'_>, context: &NodeContext<'_>, output: &str) -> Result<(), NodeError> {
    let input = context.shape(0)?;
    let (axes, _) = infer::reduce_axes(context, input.rank())?;
    let [n, c, h, w] = input[..] else {
        return form(format!("a reduction of {input}"));
    };
    if axes.iter().any(|&a| a < 2) {
        return form(format!("a reduction over axes {axes:?}"));
    }
    let window = |axis: usize, size: usize| if axes.contains(&axis) { size } else { 1 };
    let kernel = [window(2, h), window(3, w)];
    let kind = match context.node.op_type.as_str() {
        "ReduceMax" => PoolKind::Max,
        _ => PoolKind::AverageExcludingPad,
    };
    let dst = lowerer.fresh(output, Shape::new(&[n, c, h / kernel[0], w / kernel[1]])?)?;
    pooled(lowerer, context, whole_window(kernel), kind, dst)?;
    let view = lowerer
        .facts
        .shape(output)
        .and_then(|shape| dst.view.reshape(shape));
    match view {
        Some(view) => lowerer.finish(output, dst.with_view(view)),
        None => return form("this shape of the result"),
    }
    Ok(())
}

fn resized(lowerer: &mut Lowerer<'_>, context: &NodeContext<'_>, output: &str) -> Result<(), NodeError> {
    let plan = resize::nearest(context)?;
    let (shape, _) = resize::target(context)?;
    let src = lowerer.channels_last(context.input(0)?)?;
    let dst = one_channel_step(lowerer.destination(output, shape)?);
    let op = OpDesc::ResizeNearest {
        src: src.operand(),
        dst: dst.operand(),
        rows: plan.rows.into(),
        columns: plan.columns.into(),
    };
    lowerer.launch(&context.node.name, op, &[src.slot, dst.slot]);
    lowerer.set(output, dst);
    Ok(())
}

fn padded(lowerer: &mut Lowerer<'_>, context: &NodeContext<'_>, output: &str) -> Result<(), NodeError> {
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

/// From operator set 13 on along one axis; before, over all axes from the given one on.
fn softmax(lowerer: &mut Lowerer<'_>, context: &NodeContext<'_>, output: &str) -> Result<(), NodeError> {
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

/// Parameters of a BatchNormalization node.
struct NormParameters {
    values: [Vec<f32>; 4],
    epsilon: f32,
}

impl NormParameters {
    fn borrowed(&self) -> BatchNorm<'_> {
        let [scale, shift, mean, variance] = &self.values;
        BatchNorm {
            scale,
            shift,
            mean,
            variance,
            epsilon: self.epsilon,
        }
    }
}

fn norm_parameters(context: &NodeContext<'_>) -> Result<NormParameters, NodeError> {
    if context.node.int("training_mode")?.unwrap_or(0) != 0 || context.node.output(1).is_some() {
        return form("training");
    }
    let value = |index: usize| match context.float_input(index)? {
        Some(values) => Ok(values),
        None => invalid(format!("input {index} is missing")),
    };
    Ok(NormParameters {
        values: [value(1)?, value(2)?, value(3)?, value(4)?],
        epsilon: context.node.float("epsilon")?.unwrap_or(1e-5),
    })
}

/// A normalisation that follows no convolution: a product and a sum with one value per channel.
fn normalised(lowerer: &mut Lowerer<'_>, context: &NodeContext<'_>, output: &str) -> Result<(), NodeError> {
    let shape = context.shape(0)?;
    let Some(&channels) = shape.get(1) else {
        return invalid("an input without channels");
    };
    let affine = norm_parameters(context)?.borrowed().affine(channels)?;
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
    pairwise(lowerer, &context.node.name, BinaryKind::Mul, src, factor, product)?;
    let sum = lowerer.fresh(output, shape)?;
    pairwise(lowerer, &context.node.name, BinaryKind::Add, product, shift, sum)?;
    lowerer.finish(output, sum);
    Ok(())
}
