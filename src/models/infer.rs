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
        "Abs"
        | "BatchNormalization"
        | "Ceil"
        | "Clip"
        | "Elu"
        | "Erf"
        | "Exp"
        | "Floor"
        | "Gelu"
        | "GroupNormalization"
        | "HardSigmoid"
        | "HardSwish"
        | "InstanceNormalization"
        | "LayerNormalization"
        | "LeakyRelu"
        | "Log"
        | "LogSoftmax"
        | "LpNormalization"
        | "MeanVarianceNormalization"
        | "Mish"
        | "Neg"
        | "Not"
        | "PRelu"
        | "Reciprocal"
        | "Relu"
        | "Round"
        | "Scatter"
        | "ScatterElements"
        | "ScatterND"
        | "Selu"
        | "Sigmoid"
        | "Sign"
        | "Softmax"
        | "Softplus"
        | "Softsign"
        | "Sqrt"
        | "Tanh"
        | "ThresholdedRelu" => first,
        "Add" | "Sub" | "Mul" | "Div" | "Pow" | "Max" | "Min" | "Mod" | "Sum" | "Mean" => broadcast(&shapes)?,
        "And" | "Equal" | "Greater" | "GreaterOrEqual" | "Less" | "LessOrEqual" | "Or" | "Xor" => {
            return Ok(vec![fact(broadcast(&shapes)?, Some(ElementType::Bool))]);
        }
        "Where" => {
            let element = context.facts.get(context.input(1)?).and_then(|f| f.element);
            return Ok(vec![fact(broadcast(&shapes)?, element)]);
        }
        "Cast" => {
            let to = node
                .int("to")?
                .and_then(|code| i32::try_from(code).ok())
                .and_then(ElementType::from_code);
            return Ok(vec![fact(first, to)]);
        }
        "Conv" => conv(context, &shapes)?,
        "ConvTranspose" => conv_transpose(context)?.shape,
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
        "ReduceL1" | "ReduceL2" | "ReduceLogSum" | "ReduceLogSumExp" | "ReduceMax" | "ReduceMean"
        | "ReduceMin" | "ReduceProd" | "ReduceSum" | "ReduceSumSquare" => reduced(context, &first)?,
        "ArgMax" | "ArgMin" => {
            let axis = context.axis(Some(0), first.rank())?;
            let keep = node.int("keepdims")?.unwrap_or(1) != 0;
            return Ok(vec![fact(
                without(&first, &[axis], keep)?,
                Some(ElementType::I64),
            )]);
        }
        "TopK" => {
            let shape = top_k(context, &first)?;
            return Ok(vec![fact(shape, element), fact(shape, Some(ElementType::I64))]);
        }
        "GatherElements" => picked(context, &first)?,
        "GatherND" => gathered_nd(context, &first)?,
        "GridSample" => sampled(context, &first)?,
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
        Some(Moved::Reshape(_, shape)) => vec![shape],
        None if context.node.op_type == "Gather" => {
            let axis = context.axis(Some(0), first.rank())?;
            vec![movement::gather_shape(&first, axis, &context.shape(1)?)?]
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

/// A ConvTranspose: its axes (rows, columns), their dilations, and its output's shape.
#[derive(Debug)]
pub(super) struct Transposed {
    pub(super) axes: [Axis; 2],
    pub(super) dilation: [usize; 2],
    pub(super) shape: Shape,
}

/// A ConvTranspose over an image or a line: its axes (rows, columns) and its output's shape, with channels, groups and
/// weights checked against each other.
pub(super) fn conv_transpose(context: &NodeContext<'_>) -> Result<Transposed, NodeError> {
    let (node, input, weight) = (context.node, context.shape(0)?, context.shape(1)?);
    let groups = conv_groups(context)?;
    let (&[n, channels], sides) = match input[..].split_first_chunk() {
        Some((front, sides)) if matches!(sides.len(), 1 | 2) => (front, sides),
        _ => return form(format!("an input of shape {input}")),
    };
    let fits = weight.rank() == input.rank()
        && weight.elements() > 0
        && weight[0] == channels
        && channels.is_multiple_of(groups);
    if !fits {
        return invalid(format!(
            "weights {weight} in {groups} group(s) do not fit an input {input}"
        ));
    }
    let count = sides.len();
    let stride = sizes(node, "strides", count, 1)?;
    let dilation = sizes(node, "dilations", count, 1)?;
    let extra = sizes(node, "output_padding", count, 0)?;
    let pads = sizes(node, "pads", 2 * count, 0)?;
    let given = match node.ints("output_shape")? {
        // Batch and channels may be given too.
        Some(shape) if shape.len() > count => Some(shape[shape.len() - count..].to_vec()),
        Some(_) => Some(
            sizes(node, "output_shape", count, 0)?
                .iter()
                .map(|&s| s as i64)
                .collect(),
        ),
        None => None,
    };
    let auto = node.text("auto_pad")?.unwrap_or("NOTSET");
    if !matches!(auto, "NOTSET" | "VALID" | "SAME_UPPER" | "SAME_LOWER") {
        return form(format!("auto_pad {auto}"));
    }
    if stride.contains(&0) || dilation.contains(&0) {
        return invalid("a stride or dilation of 0");
    }
    let axis = |side: usize| {
        let (size, kernel) = (sides[side], weight[2 + side]);
        let reach = (kernel - 1) * dilation[side] + 1;
        let whole = (size.max(1) - 1) * stride[side] + reach + extra[side];
        let wanted = match (&given, auto) {
            (Some(given), _) => usize::try_from(given[side]).ok(),
            (None, "SAME_UPPER" | "SAME_LOWER") => size.checked_mul(stride[side]),
            _ => None,
        };
        // What is cut off in front and behind.
        let (front, output) = match wanted {
            Some(wanted) => {
                let total = whole.saturating_sub(wanted);
                let less = total / 2;
                (
                    if auto == "SAME_UPPER" { less } else { total - less },
                    Some(wanted),
                )
            }
            None if auto == "VALID" => (0, Some(whole)),
            None => (pads[side], whole.checked_sub(pads[side] + pads[count + side])),
        };
        match output {
            Some(output) if output > 0 && size > 0 => Ok(Axis {
                kernel,
                stride: stride[side],
                pad: front,
                input: size,
                output,
            }),
            _ => invalid(format!("pads {pads:?} leave nothing of {whole} elements")),
        }
    };
    let (axes, dilation) = match count {
        1 => ([Axis::SINGLE, axis(0)?], [1, dilation[0]]),
        _ => ([axis(0)?, axis(1)?], [dilation[0], dilation[1]]),
    };
    let outputs = &[axes[0].output, axes[1].output][2 - count..];
    let shape = Shape::new(&[&[n, weight[1] * groups], outputs].concat())?;
    Ok(Transposed {
        axes,
        dilation,
        shape,
    })
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

/// Axes that a reduction removes (`None`: it does nothing), and whether they stay with size 1.
pub(super) fn reduce_axes(
    context: &NodeContext<'_>,
    rank: usize,
) -> Result<(Option<Vec<usize>>, bool), NodeError> {
    let axes = match context.ints("axes", 1)? {
        Some(axes) if !axes.is_empty() => Some(axes_of(&axes, rank)?),
        _ if context.node.int("noop_with_empty_axes")?.unwrap_or(0) != 0 => None,
        _ => Some((0..rank).collect()),
    };
    Ok((axes, context.node.int("keepdims")?.unwrap_or(1) != 0))
}

/// Distinct axes counted from the front, in order.
pub(super) fn axes_of(axes: &[i64], rank: usize) -> Result<Vec<usize>, NodeError> {
    let mut axes: Vec<usize> = axes
        .iter()
        .map(|&a| normal_axis(a, rank))
        .collect::<Result<_, _>>()?;
    axes.sort_unstable();
    axes.dedup();
    Ok(axes)
}

fn reduced(context: &NodeContext<'_>, shape: &Shape) -> Result<Shape, NodeError> {
    match reduce_axes(context, shape.rank())? {
        (Some(axes), keep) => without(shape, &axes, keep),
        (None, _) => Ok(*shape),
    }
}

/// A shape without some axes, or with one element in them.
fn without(shape: &Shape, axes: &[usize], keep: bool) -> Result<Shape, NodeError> {
    let dims: Vec<usize> = (0..shape.rank())
        .filter(|a| keep || !axes.contains(a))
        .map(|a| if axes.contains(&a) { 1 } else { shape[a] })
        .collect();
    Ok(Shape::new(&dims)?)
}

fn top_k(context: &NodeContext<'_>, shape: &Shape) -> Result<Shape, NodeError> {
    let axis = context.axis(Some(-1), shape.rank())?;
    let count = match context.node.int("k")? {
        Some(count) => Some(count),
        None => context.int_input(1)?.and_then(|count| count.first().copied()),
    };
    let mut dims = shape.to_vec();
    dims[axis] = match count.and_then(|count| usize::try_from(count).ok()) {
        Some(count) if (1..=shape[axis]).contains(&count) => count,
        _ => {
            return invalid(format!(
                "{count:?} of the {} elements of axis {axis}",
                shape[axis]
            ));
        }
    };
    Ok(Shape::new(&dims)?)
}

/// The shape of the index of a GatherElements, checked against the data.
fn picked(context: &NodeContext<'_>, data: &Shape) -> Result<Shape, NodeError> {
    let (index, axis) = (context.shape(1)?, context.axis(Some(0), data.rank())?);
    let fits = index.rank() == data.rank() && (0..data.rank()).all(|a| a == axis || index[a] <= data[a]);
    if !fits {
        return invalid(format!("indices of shape {index} along axis {axis} of {data}"));
    }
    Ok(index)
}

fn gathered_nd(context: &NodeContext<'_>, data: &Shape) -> Result<Shape, NodeError> {
    let index = context.shape(1)?;
    match index.split_last() {
        Some((&axes, front)) if (1..=data.rank()).contains(&axes) => {
            Ok(Shape::new(&[front, &data[axes..]].concat())?)
        }
        _ => invalid(format!("positions of shape {index} in data {data}")),
    }
}

fn sampled(context: &NodeContext<'_>, image: &Shape) -> Result<Shape, NodeError> {
    match (&image[..], &context.shape(1)?[..]) {
        (&[n, c, _, _], &[places, h, w, 2]) if n == places => Ok(Shape::new(&[n, c, h, w])?),
        _ => form(format!("samples of {image} at {}", context.shape(1)?)),
    }
}

/// A product by the rules of numpy.
fn matmul(lhs: &Shape, rhs: Option<&Shape>) -> Result<Shape, NodeError> {
    let Some(rhs) = rhs else {
        return invalid("the second factor is missing");
    };
    let (Some(&inner), true) = (lhs.last(), rhs.rank() > 0) else {
        return invalid(format!("a product of {lhs} and {rhs}"));
    };
    if rhs[rhs.rank().saturating_sub(2)] != inner {
        return invalid(format!("factors {lhs} and {rhs} do not fit"));
    }
    let (rows, columns) = (lhs.rank() > 1, rhs.rank() > 1);
    let batch = |shape: &Shape| Shape::new(&shape[..shape.rank().saturating_sub(2)]);
    let mut dims = broadcast(&[batch(lhs)?, batch(rhs)?])?.to_vec();
    dims.extend(rows.then(|| lhs[lhs.rank() - 2]));
    dims.extend(columns.then(|| rhs[rhs.rank() - 1]));
    Ok(Shape::new(&dims)?)
}

fn gemm(context: &NodeContext<'_>, lhs: &Shape, rhs: Option<&Shape>) -> Result<Shape, NodeError> {
    let flag = |name: &str| Ok::<_, NodeError>(context.node.int(name)?.unwrap_or(0) != 0);
    let Some(rhs) = rhs.filter(|r| r.rank() == 2 && lhs.rank() == 2) else {
        return invalid("factors that are no matrices");
    };
    let (rows, inner) = if flag("transA")? {
        (lhs[1], lhs[0])
    } else {
        (lhs[0], lhs[1])
    };
    let (columns, other) = if flag("transB")? {
        (rhs[0], rhs[1])
    } else {
        (rhs[1], rhs[0])
    };
    if inner != other {
        return invalid(format!("factors {lhs} and {rhs} do not fit"));
    }
    Ok(Shape::new(&[rows, columns])?)
}
