//! Shapes of nodes that are not constant.

use super::error::{NodeError, broadcast, form, invalid};
use super::facts::{Fact, NodeContext, normal_axis};
use super::fold::concat_shape;
use super::movement::{self, Moved};
use super::resize;
use super::transposed::Axis;
use super::window::{Window, sizes};
use crate::tensor::{Shape, View};
use crate::weights::ElementType;

/// Shape and type of a node's outputs. Empty where an input's shape or the operation is not known.
pub(super) fn infer(context: &NodeContext<'_>) -> Result<Vec<Fact>, NodeError> {
    let node = context.node;
    let names = node.inputs.iter().filter(|n| !n.is_empty());
    let shapes: Option<Vec<Shape>> = names.map(|n| context.facts.shape(n)).collect();
    let Some(shapes) = shapes.filter(|s| !s.is_empty()) else {
        return Ok(Vec::new());
    };
    let first = shapes[0];
    let element = context.facts.get(context.input(0)?).and_then(|f| f.element);
    let shape = match node.op_type.as_str() {
        "Relu"
        | "LeakyRelu"
        | "PRelu"
        | "Clip"
        | "HardSwish"
        | "Sigmoid"
        | "HardSigmoid"
        | "Tanh"
        | "Exp"
        | "Log"
        | "Sqrt"
        | "Neg"
        | "Abs"
        | "Floor"
        | "Ceil"
        | "Elu"
        | "Erf"
        | "Softplus"
        | "Mish"
        | "Softmax"
        | "LogSoftmax"
        | "BatchNormalization"
        | "InstanceNormalization"
        | "LayerNormalization" => first,
        "Add" | "Sub" | "Mul" | "Div" | "Pow" | "Max" | "Min" => broadcast(&shapes)?,
        "Cast" => {
            let to = node
                .int("to")?
                .and_then(|code| i32::try_from(code).ok())
                .and_then(ElementType::from_code);
            return Ok(vec![fact(first, to)]);
        }
        "Conv" => conv(context, &shapes)?,
        "ConvTranspose" => conv_transpose(context)?.1,
        "MaxPool" | "AveragePool" => {
            let window = pool_window(context, &first)?;
            Shape::new(&[&first[..2], &window.output].concat())?
        }
        "GlobalAveragePool" | "GlobalMaxPool" => {
            let ones = vec![1; spatial(&first)?.len()];
            Shape::new(&[&first[..2], &ones].concat())?
        }
        "Resize" | "Upsample" => resize::target(context)?.0,
        "Concat" => concat_shape(&shapes, context.axis(Some(1), first.rank())?)?,
        "Pad" => padded(&first, &pads(context, first.rank())?)?,
        "ReduceMean" | "ReduceMax" | "ReduceMin" | "ReduceSum" => reduced(context, &first)?,
        "MatMul" => matmul(&first, shapes.get(1))?,
        "Gemm" => gemm(context, &first, shapes.get(1))?,
        _ => return moved(context, first, element),
    };
    Ok(vec![fact(shape, element)])
}

fn fact(shape: Shape, element: Option<ElementType>) -> Fact {
    Fact {
        shape: Some(shape),
        element,
        constant: None,
    }
}

/// Operations that move elements, and Gathers that are no slices.
fn moved(
    context: &NodeContext<'_>,
    first: Shape,
    element: Option<ElementType>,
) -> Result<Vec<Fact>, NodeError> {
    let shapes = match movement::movement(context, &View::contiguous(first))? {
        Some(Moved::Views(views)) => views.iter().map(|v| v.shape).collect(),
        Some(Moved::Reshape(shape)) => vec![shape],
        None if context.node.op_type == "Gather" => {
            let (axis, _, indices) = movement::gather_indices(context, &first)?;
            vec![movement::gather_shape(&first, axis, &indices)?]
        }
        None => Vec::new(),
    };
    Ok(shapes.into_iter().map(|s| fact(s, element)).collect())
}

fn spatial(shape: &Shape) -> Result<&[usize], NodeError> {
    match shape.get(2..) {
        Some(axes) if !axes.is_empty() => Ok(axes),
        _ => invalid(format!("a tensor {shape} without spatial axes")),
    }
}

fn conv(context: &NodeContext<'_>, shapes: &[Shape]) -> Result<Shape, NodeError> {
    let window = conv_window(context)?;
    let Some(weight) = shapes.get(1) else {
        return invalid("the weights are missing");
    };
    Ok(Shape::new(
        &[&[shapes[0][0], weight[0]], window.output.as_slice()].concat(),
    )?)
}

/// The window of a Conv, with channels, groups and weights checked against each other.
pub(super) fn conv_window(context: &NodeContext<'_>) -> Result<Window, NodeError> {
    let (input, weight) = (context.shape(0)?, context.shape(1)?);
    let image = spatial(&input)?;
    let groups = conv_groups(context)?;
    let fits = weight.rank() == input.rank()
        && weight[1].checked_mul(groups) == Some(input[1])
        && weight[0].is_multiple_of(groups)
        && weight[0] > 0
        && weight[1] > 0;
    if !fits {
        return invalid(format!(
            "weights {weight} in {groups} group(s) do not fit an input {input}"
        ));
    }
    if let Some(kernel) = context.node.ints("kernel_shape")?
        && !kernel
            .iter()
            .map(|&k| usize::try_from(k).ok())
            .eq(weight[2..].iter().map(|&k| Some(k)))
    {
        return invalid(format!("kernel_shape {kernel:?} with weights {weight}"));
    }
    Window::new(context, &weight[2..], image)
}

/// A ConvTranspose: its two axes and its output's shape, with channels, groups and weights checked against each other.
pub(super) fn conv_transpose(context: &NodeContext<'_>) -> Result<([Axis; 2], Shape), NodeError> {
    let (node, input, weight) = (context.node, context.shape(0)?, context.shape(1)?);
    let groups = conv_groups(context)?;
    let [n, channels, h, w] = input[..] else {
        return form(format!("an input of shape {input}"));
    };
    let fits = weight.rank() == 4
        && weight.elements() > 0
        && weight[0] == channels
        && channels.is_multiple_of(groups);
    if !fits {
        return invalid(format!(
            "weights {weight} in {groups} group(s) do not fit an input {input}"
        ));
    }
    match node.text("auto_pad")?.unwrap_or("NOTSET") {
        "NOTSET" | "VALID" => {}
        other => return form(format!("auto_pad {other}")),
    }
    if node.ints("output_shape")?.is_some() {
        return form("a given output shape");
    }
    if sizes(node, "dilations", 2, 1)? != [1, 1] {
        return form("dilation");
    }
    let stride = sizes(node, "strides", 2, 1)?;
    let extra = sizes(node, "output_padding", 2, 0)?;
    let pads = match node.text("auto_pad")? {
        Some("VALID") => vec![0; 4],
        _ => sizes(node, "pads", 4, 0)?,
    };
    let axis = |side: usize, size: usize| {
        let kernel = weight[2 + side];
        let whole = (size.max(1) - 1) * stride[side] + kernel + extra[side];
        match whole.checked_sub(pads[side] + pads[2 + side]) {
            Some(output) if output > 0 && size > 0 => Ok(Axis {
                kernel,
                stride: stride[side],
                pad: pads[side],
                input: size,
                output,
            }),
            _ => invalid(format!("pads {pads:?} leave nothing of {whole} elements")),
        }
    };
    let axes = [axis(0, h)?, axis(1, w)?];
    let shape = Shape::new(&[n, weight[1] * groups, axes[0].output, axes[1].output])?;
    Ok((axes, shape))
}

/// Number of groups of a Conv.
pub(super) fn conv_groups(context: &NodeContext<'_>) -> Result<usize, NodeError> {
    match usize::try_from(context.node.int("group")?.unwrap_or(1)) {
        Ok(groups) if groups > 0 => Ok(groups),
        _ => invalid("group must be positive"),
    }
}

/// The window of a MaxPool or AveragePool.
pub(super) fn pool_window(context: &NodeContext<'_>, input: &Shape) -> Result<Window, NodeError> {
    let image = spatial(input)?;
    if context.node.ints("kernel_shape")?.is_none() {
        return invalid("attribute `kernel_shape` is missing");
    }
    let window = Window::new(
        context,
        &sizes(context.node, "kernel_shape", image.len(), 1)?,
        image,
    )?;
    // A window that lies in the padding alone has no result.
    let empty = |a: usize| window.pad_begin[a] >= window.reach(a) || window.pad_end[a] >= window.reach(a);
    if (0..image.len()).any(empty) {
        return invalid("padding as large as the window");
    }
    Ok(window)
}

/// Elements added before and after each axis by a Pad; negative ones are cut off.
pub(super) fn pads(context: &NodeContext<'_>, rank: usize) -> Result<Vec<(i64, i64)>, NodeError> {
    let values = if context.opset < 11 {
        context.node.ints("pads")?
    } else {
        context.int_input(1)?
    };
    let Some(values) = values else {
        return invalid("pads are missing");
    };
    let axes: Vec<usize> = match context.int_input(3)? {
        Some(axes) => axes
            .iter()
            .map(|&a| normal_axis(a, rank))
            .collect::<Result<_, _>>()?,
        None => (0..rank).collect(),
    };
    if values.len() != 2 * axes.len() || values.iter().any(|v| v.unsigned_abs() > 1 << 24) {
        return invalid(format!("pads {values:?} for {} axes", axes.len()));
    }
    let mut pads = vec![(0, 0); rank];
    for (i, &axis) in axes.iter().enumerate() {
        pads[axis] = (values[i], values[i + axes.len()]);
    }
    Ok(pads)
}

fn padded(shape: &Shape, pads: &[(i64, i64)]) -> Result<Shape, NodeError> {
    let dims = shape.iter().zip(pads).map(|(&dim, &(before, after))| {
        let size = i64::try_from(dim)
            .ok()
            .and_then(|d| d.checked_add(before + after));
        size.and_then(|s| usize::try_from(s).ok())
    });
    match dims.collect::<Option<Vec<usize>>>() {
        Some(dims) => Ok(Shape::new(&dims)?),
        None => invalid(format!("pads {pads:?} cut more than {shape} holds")),
    }
}

/// Axes that a reduction removes, and whether they stay with size 1.
pub(super) fn reduce_axes(context: &NodeContext<'_>, rank: usize) -> Result<(Vec<usize>, bool), NodeError> {
    let axes = match context.ints("axes", 1)? {
        Some(axes) if !axes.is_empty() => axes
            .iter()
            .map(|&a| normal_axis(a, rank))
            .collect::<Result<Vec<_>, _>>()?,
        _ if context.node.int("noop_with_empty_axes")?.unwrap_or(0) != 0 => {
            return form("a reduction over no axis");
        }
        _ => (0..rank).collect(),
    };
    Ok((axes, context.node.int("keepdims")?.unwrap_or(1) != 0))
}

fn reduced(context: &NodeContext<'_>, shape: &Shape) -> Result<Shape, NodeError> {
    let (axes, keep) = reduce_axes(context, shape.rank())?;
    let dims: Vec<usize> = (0..shape.rank())
        .filter(|a| keep || !axes.contains(a))
        .map(|a| if axes.contains(&a) { 1 } else { shape[a] })
        .collect();
    Ok(Shape::new(&dims)?)
}

fn matmul(lhs: &Shape, rhs: Option<&Shape>) -> Result<Shape, NodeError> {
    match rhs {
        Some(rhs) if lhs.rank() >= 2 && rhs.rank() == 2 && lhs[lhs.rank() - 1] == rhs[0] => {
            Ok(Shape::new(&[&lhs[..lhs.rank() - 1], &rhs[1..]].concat())?)
        }
        Some(rhs) => form(format!("a product of {lhs} and {rhs}")),
        None => invalid("the second factor is missing"),
    }
}

fn gemm(context: &NodeContext<'_>, lhs: &Shape, rhs: Option<&Shape>) -> Result<Shape, NodeError> {
    let flag = |name: &str| Ok::<_, NodeError>(context.node.int(name)?.unwrap_or(0) != 0);
    let Some(rhs) = rhs.filter(|r| r.rank() == 2 && lhs.rank() == 2) else {
        return invalid("factors that are no matrices");
    };
    let rows = if flag("transA")? { lhs[1] } else { lhs[0] };
    let columns = if flag("transB")? { rhs[0] } else { rhs[1] };
    Ok(Shape::new(&[rows, columns])?)
}
