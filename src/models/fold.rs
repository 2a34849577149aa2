//! Nodes whose inputs are constants, evaluated once on the host.

use super::error::{NodeError, form, invalid};
use super::facts::NodeContext;
use super::movement::{self, Moved};
use super::{fold_math, fold_select};
use crate::numeric::{Fp8Format, Fp8Policy, fp8_decode, fp8_encode, round_to_bf16, round_to_f16};
use crate::tensor::{Shape, View};
use crate::weights::{Array, ElementType, Node, Values};

/// Largest number of elements that a folded constant may have.
const MAX_FOLDED: usize = 1 << 24;

/// Operations that are known only where they make constants.
const FOLDED: &[&str] = &[
    "Constant",
    "ConstantOfShape",
    "Cos",
    "CumSum",
    "NonZero",
    "Range",
    "Shape",
    "Sin",
    "Size",
    "Trilu",
];

/// Whether an operation is known where it makes constants.
pub(super) fn folds(node: &Node) -> bool {
    matches!(node.domain.as_str(), "" | "ai.onnx") && FOLDED.contains(&node.op_type.as_str())
}

/// The constants that a node makes, or `None` if it is not a constant node (or not one that is folded).
pub(super) fn fold(context: &NodeContext<'_>) -> Result<Option<Vec<Array>>, NodeError> {
    let node = context.node;
    match node.op_type.as_str() {
        "Constant" => return constant(context).map(|a| Some(vec![a])),
        "Shape" => return shape_of(context),
        "Size" => {
            let size = |s: Shape| scalar(ElementType::I64, s.elements() as i64).map(|a| vec![a]);
            return context.known_shape(0)?.map(size).transpose();
        }
        _ => {}
    }
    let names = node.inputs.iter().filter(|n| !n.is_empty());
    let arrays: Option<Vec<&Array>> = names.map(|n| context.facts.array(n).map(AsRef::as_ref)).collect();
    let Some(arrays) = arrays.filter(|a| !a.is_empty()) else {
        return Ok(None);
    };
    let first = arrays[0];
    let folded = match node.op_type.as_str() {
        "ConstantOfShape" => constant_of_shape(context, first)?,
        "Cast" => cast(context, first)?,
        "Concat" => concat(context, &arrays)?,
        "Gather" => gather(context, first)?,
        "Where" if arrays.len() == 3 => fold_select::choose([first, arrays[1], arrays[2]])?,
        "Range" if arrays.len() == 3 => fold_select::range([first, arrays[1], arrays[2]])?,
        "CumSum" if arrays.len() == 2 => fold_select::cumulative(context, first, arrays[1])?,
        "Trilu" => fold_select::triangle(context, first)?,
        "NonZero" => fold_select::non_zero(first)?,
        op if fold_math::is_function(op) => match fold_math::function(context, &arrays)? {
            Some(folded) => folded,
            None => return Ok(None),
        },
        _ => match movement::movement(context, &View::contiguous(*first.shape()))? {
            Some(Moved::Views(views)) => {
                return views
                    .iter()
                    .map(|v| take(first, v))
                    .collect::<Result<_, _>>()
                    .map(Some);
            }
            Some(Moved::Reshape(view, shape)) => {
                bounded(&view.shape)?;
                pick(first, &indices_of(&view), shape)?
            }
            None => return Ok(None),
        },
    };
    Ok(Some(vec![folded]))
}

pub(super) fn array(shape: Shape, element: ElementType, values: Values) -> Result<Array, NodeError> {
    match Array::new(shape, element, values) {
        Some(array) => Ok(array),
        None => invalid(format!(
            "a constant of shape {shape} and type {element} with other values"
        )),
    }
}

fn scalar(element: ElementType, value: i64) -> Result<Array, NodeError> {
    array(Shape::new(&[])?, element, Values::I64(vec![value]))
}

pub(super) fn vector(values: Values, element: ElementType) -> Result<Array, NodeError> {
    array(Shape::new(&[values.len()])?, element, values)
}

pub(super) fn bounded(shape: &Shape) -> Result<(), NodeError> {
    if shape.elements() > MAX_FOLDED {
        return form(format!("a constant of shape {shape}"));
    }
    Ok(())
}

fn constant(context: &NodeContext<'_>) -> Result<Array, NodeError> {
    let node = context.node;
    if let Some(value) = node.tensor("value")? {
        return Ok(value.as_ref().clone());
    }
    if let Some(value) = node.int("value_int")? {
        return scalar(ElementType::I64, value);
    }
    if let Some(value) = node.float("value_float")? {
        return array(Shape::new(&[])?, ElementType::F32, Values::F32(vec![value]));
    }
    if let Some(values) = node.ints("value_ints")? {
        return vector(Values::I64(values.to_vec()), ElementType::I64);
    }
    if let Some(values) = node.floats("value_floats")? {
        return vector(Values::F32(values.to_vec()), ElementType::F32);
    }
    form("a constant that is neither tensor, numbers nor whole numbers")
}

fn shape_of(context: &NodeContext<'_>) -> Result<Option<Vec<Array>>, NodeError> {
    let Some(shape) = context.known_shape(0)? else {
        return Ok(None);
    };
    let rank = shape.rank() as i64;
    let index = |attribute: &str, default: i64| -> Result<usize, NodeError> {
        let given = context.node.int(attribute)?.unwrap_or(default);
        let from_front = if given < 0 {
            given.saturating_add(rank)
        } else {
            given
        };
        Ok(from_front.clamp(0, rank) as usize)
    };
    let (start, end) = (index("start", 0)?, index("end", rank)?);
    let dims: Vec<i64> = shape.iter().take(end).skip(start).map(|&d| d as i64).collect();
    vector(Values::I64(dims), ElementType::I64).map(|a| Some(vec![a]))
}

fn constant_of_shape(context: &NodeContext<'_>, dims: &Array) -> Result<Array, NodeError> {
    let sizes: Option<Vec<usize>> = dims
        .as_i64()
        .and_then(|d| d.iter().map(|&d| usize::try_from(d).ok()).collect());
    let Some(sizes) = sizes else {
        return invalid("dimensions must be whole and not negative");
    };
    let shape = Shape::new(&sizes)?;
    bounded(&shape)?;
    let n = shape.elements();
    match context.node.tensor("value")? {
        None => array(shape, ElementType::F32, Values::F32(vec![0.0; n])),
        Some(value) => {
            let values = match value.values() {
                Values::F32(v) if v.len() == 1 => Values::F32(vec![v[0]; n]),
                Values::F64(v) if v.len() == 1 => Values::F64(vec![v[0]; n]),
                Values::I64(v) if v.len() == 1 => Values::I64(vec![v[0]; n]),
                _ => return invalid("attribute `value` must hold one element"),
            };
            array(shape, value.element(), values)
        }
    }
}

fn cast(context: &NodeContext<'_>, from: &Array) -> Result<Array, NodeError> {
    let code = context.node.int("to")?.and_then(|c| i32::try_from(c).ok());
    let element = match code.and_then(ElementType::from_code) {
        None | Some(ElementType::F4E2M1) => return form("the target type"),
        Some(element) => element,
    };
    let policy = match context.node.int("saturate")? {
        Some(0) => Fp8Policy::OCP_NONSAT,
        _ => Fp8Policy::OCP,
    };
    let through = |format, x| fp8_decode(format, &policy, fp8_encode(format, &policy, x));
    let rounded = |x: f32| match element {
        ElementType::F16 => round_to_f16(x),
        ElementType::Bf16 => round_to_bf16(x),
        ElementType::F8E4M3Fn => through(Fp8Format::E4M3, x),
        ElementType::F8E5M2 => through(Fp8Format::E5M2, x),
        _ => x,
    };
    let floats = |values: Vec<f64>| match element {
        ElementType::F64 => Values::F64(values),
        _ => Values::F32(values.into_iter().map(|v| rounded(v as f32)).collect()),
    };
    let values = match from.values() {
        Values::F32(v) if element.is_float() => floats(v.iter().map(|&x| f64::from(x)).collect()),
        Values::F64(v) if element.is_float() => floats(v.clone()),
        Values::I64(v) if element.is_float() => floats(v.iter().map(|&x| x as f64).collect()),
        Values::F32(v) => Values::I64(v.iter().map(|&x| to_integer(f64::from(x), element)).collect()),
        Values::F64(v) => Values::I64(v.iter().map(|&x| to_integer(x, element)).collect()),
        Values::I64(v) => Values::I64(v.iter().map(|&x| wrapped(x, element)).collect()),
    };
    array(*from.shape(), element, values)
}

/// A float cut to an integer; what lies outside the type has no defined result and saturates.
fn to_integer(x: f64, element: ElementType) -> i64 {
    match element {
        ElementType::Bool => i64::from(x != 0.0),
        ElementType::I32 => i64::from(x as i32),
        ElementType::U8 => i64::from(x as u8),
        ElementType::I8 => i64::from(x as i8),
        ElementType::U16 => i64::from(x as u16),
        ElementType::I16 => i64::from(x as i16),
        ElementType::U32 => i64::from(x as u32),
        _ => x as i64,
    }
}

/// An integer brought into a narrower type by dropping its upper bits.
fn wrapped(x: i64, element: ElementType) -> i64 {
    match element {
        ElementType::Bool => i64::from(x != 0),
        ElementType::I32 => i64::from(x as i32),
        ElementType::U8 => i64::from(x as u8),
        ElementType::I8 => i64::from(x as i8),
        ElementType::U16 => i64::from(x as u16),
        ElementType::I16 => i64::from(x as i16),
        ElementType::U32 => i64::from(x as u32),
        _ => x,
    }
}

fn concat(context: &NodeContext<'_>, arrays: &[&Array]) -> Result<Array, NodeError> {
    let first = arrays[0];
    let axis = context.axis(Some(1), first.shape().rank())?;
    let shapes: Vec<Shape> = arrays.iter().map(|a| *a.shape()).collect();
    let shape = concat_shape(&shapes, axis)?;
    bounded(&shape)?;
    if arrays.iter().any(|a| a.element() != first.element()) {
        return invalid("parts of different types");
    }
    let outer: usize = shape[..axis].iter().product();
    let values = match first.values() {
        Values::F32(_) => Values::F32(join(arrays, outer, |a| match a.values() {
            Values::F32(v) => v,
            Values::F64(_) | Values::I64(_) => &[],
        })),
        Values::F64(_) => Values::F64(join(arrays, outer, |a| match a.values() {
            Values::F64(v) => v,
            Values::F32(_) | Values::I64(_) => &[],
        })),
        Values::I64(_) => Values::I64(join(arrays, outer, |a| match a.values() {
            Values::I64(v) => v,
            Values::F32(_) | Values::F64(_) => &[],
        })),
    };
    array(shape, first.element(), values)
}

/// One run of each part after the other, `outer` times.
fn join<T: Copy>(arrays: &[&Array], outer: usize, values: impl Fn(&Array) -> &[T]) -> Vec<T> {
    let parts: Vec<(&[T], usize)> = arrays
        .iter()
        .map(|a| (values(a), a.shape().elements() / outer.max(1)))
        .collect();
    let rows = (0..outer).flat_map(|row| {
        parts
            .iter()
            .flat_map(move |&(v, run)| &v[row * run..(row + 1) * run])
    });
    rows.copied().collect()
}

/// Shape of a concatenation.
pub(super) fn concat_shape(shapes: &[Shape], axis: usize) -> Result<Shape, NodeError> {
    let Some(first) = shapes.first() else {
        return invalid("no input");
    };
    let mut dims = first.to_vec();
    dims[axis] = 0;
    for shape in shapes {
        let fits =
            shape.rank() == first.rank() && (0..first.rank()).all(|a| a == axis || shape[a] == first[a]);
        if !fits {
            return invalid(format!("{shape} does not fit {first} along axis {axis}"));
        }
        dims[axis] += shape[axis];
    }
    Ok(Shape::new(&dims)?)
}

fn gather(context: &NodeContext<'_>, from: &Array) -> Result<Array, NodeError> {
    let (axis, positions, indices) = movement::gather_indices(context, from.shape())?;
    let shape = movement::gather_shape(from.shape(), axis, &indices)?;
    bounded(&shape)?;
    let (dim, inner) = (
        from.shape()[axis],
        from.shape()[axis + 1..].iter().product::<usize>(),
    );
    let outer: usize = from.shape()[..axis].iter().product();
    let runs = (0..outer).flat_map(|o| positions.iter().map(move |&p| (o * dim + p) * inner));
    let elements: Vec<usize> = runs.flat_map(|start| start..start + inner).collect();
    pick(from, &elements, shape)
}

/// The elements of a constant under a view, row-major.
pub(super) fn take(from: &Array, view: &View) -> Result<Array, NodeError> {
    bounded(&view.shape)?;
    pick(from, &indices_of(view), view.shape)
}

pub(super) fn pick(from: &Array, indices: &[usize], shape: Shape) -> Result<Array, NodeError> {
    let values = match from.values() {
        Values::F32(v) => Values::F32(indices.iter().map(|&i| v[i]).collect()),
        Values::F64(v) => Values::F64(indices.iter().map(|&i| v[i]).collect()),
        Values::I64(v) => Values::I64(indices.iter().map(|&i| v[i]).collect()),
    };
    array(shape, from.element(), values)
}

/// Element indices of a view in row-major order.
fn indices_of(view: &View) -> Vec<usize> {
    let mut indices = vec![view.offset as isize];
    for (&dim, &step) in view.shape.iter().zip(view.steps()) {
        indices = indices
            .iter()
            .flat_map(|&base| (0..dim as isize).map(move |i| base + i * step))
            .collect();
    }
    indices.into_iter().map(|i| i as usize).collect()
}
