//! Nearest-neighbour resizing as index tables.

use super::error::{NodeError, form, invalid};
use super::facts::NodeContext;
use crate::tensor::Shape;

/// Largest size along a resized axis.
const MAX_SIZE: usize = 1 << 16;

/// How output positions map to input positions. Formulas are those of ONNX's Resize.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Coordinates {
    HalfPixel,
    HalfPixelSymmetric,
    PytorchHalfPixel,
    AlignCorners,
    Asymmetric,
    TfHalfPixelForNn,
}

/// How a position between two elements is rounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rounding {
    PreferFloor,
    PreferCeil,
    Floor,
    Ceil,
}

/// A resize of `[N, C, H, W]`: output shape and the source index of each output row and column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NearestPlan {
    pub(super) rows: Vec<u32>,
    pub(super) columns: Vec<u32>,
}

/// Output shape and scale per axis of a Resize or Upsample.
pub(super) fn target(context: &NodeContext<'_>) -> Result<(Shape, Vec<f32>), NodeError> {
    let (node, shape) = (context.node, context.shape(0)?);
    let newer = node.op_type == "Resize" && context.opset >= 11;
    let (scales_at, sizes_at) = if newer { (2, Some(3)) } else { (1, None) };
    let axes: Vec<usize> = match node.ints("axes")? {
        Some(axes) => axes
            .iter()
            .map(|&a| super::facts::normal_axis(a, shape.rank()))
            .collect::<Result<_, _>>()?,
        None => (0..shape.rank()).collect(),
    };
    let sizes = sizes_at
        .map(|at| context.int_input(at))
        .transpose()?
        .flatten()
        .filter(|s| !s.is_empty());
    let scales = match node.floats("scales")? {
        Some(scales) => Some(scales.to_vec()),
        None => context.float_input(scales_at)?,
    };
    let mut dims = shape.to_vec();
    let mut factors = vec![1.0; shape.rank()];
    let given = |count: usize, what: &str| {
        if count == axes.len() {
            Ok(())
        } else {
            invalid(format!("{count} {what} for {} axes", axes.len()))
        }
    };
    match (sizes, scales.filter(|s| !s.is_empty())) {
        (Some(sizes), _) => {
            given(sizes.len(), "sizes")?;
            if node
                .text("keep_aspect_ratio_policy")?
                .is_some_and(|p| p != "stretch")
            {
                return form("keeping the aspect ratio");
            }
            for (&axis, &size) in axes.iter().zip(sizes) {
                dims[axis] = match usize::try_from(size) {
                    Ok(size) if (1..=MAX_SIZE).contains(&size) || size == shape[axis] => size,
                    _ => return invalid(format!("sizes {sizes:?}")),
                };
                factors[axis] = dims[axis] as f32 / shape[axis] as f32;
            }
        }
        (None, Some(scales)) => {
            given(scales.len(), "scales")?;
            for (&axis, &scale) in axes.iter().zip(&scales) {
                let size = (shape[axis] as f32 * scale).floor();
                if !(scale > 0.0 && size >= 1.0 && (size <= MAX_SIZE as f32 || scale == 1.0)) {
                    return invalid(format!("scales {scales:?} of shape {shape}"));
                }
                (dims[axis], factors[axis]) = if scale == 1.0 {
                    (shape[axis], 1.0)
                } else {
                    (size as usize, scale)
                };
            }
        }
        (None, None) => return invalid("neither sizes nor scales"),
    }
    Ok((Shape::new(&dims)?, factors))
}

/// The index tables of a nearest-neighbour Resize or Upsample of `[N, C, H, W]`.
pub(super) fn nearest(context: &NodeContext<'_>) -> Result<NearestPlan, NodeError> {
    let (node, shape) = (context.node, context.shape(0)?);
    let (output, scales) = target(context)?;
    let mode = node.text("mode")?.unwrap_or("nearest");
    if mode != "nearest" {
        return form(format!("mode `{mode}`"));
    }
    if node.int("antialias")?.unwrap_or(0) != 0 {
        return form("antialiasing");
    }
    if shape.rank() != 4 || shape[..2] != output[..2] || shape.elements() == 0 {
        return form(format!("resizing {shape} to {output}"));
    }
    let newer = node.op_type == "Resize" && context.opset >= 11;
    let (coordinates, rounding) = if newer {
        rules(context)?
    } else {
        (Coordinates::Asymmetric, Rounding::Floor)
    };
    if !newer && node.op_type == "Resize" && scales.iter().any(|&s| s < 1.0) {
        return form("shrinking before operator set 11, whose rounding was not defined,");
    }
    let table = |axis: usize| -> Vec<u32> {
        let (from, to) = (shape[axis], output[axis]);
        let index = |i: usize| nearest_index(i, from, to, scales[axis], coordinates, rounding) as u32;
        (0..to).map(index).collect()
    };
    Ok(NearestPlan {
        rows: table(2),
        columns: table(3),
    })
}

fn rules(context: &NodeContext<'_>) -> Result<(Coordinates, Rounding), NodeError> {
    let node = context.node;
    let coordinates = match node
        .text("coordinate_transformation_mode")?
        .unwrap_or("half_pixel")
    {
        "half_pixel" => Coordinates::HalfPixel,
        "half_pixel_symmetric" => Coordinates::HalfPixelSymmetric,
        "pytorch_half_pixel" => Coordinates::PytorchHalfPixel,
        "align_corners" => Coordinates::AlignCorners,
        "asymmetric" => Coordinates::Asymmetric,
        "tf_half_pixel_for_nn" => Coordinates::TfHalfPixelForNn,
        other => return form(format!("coordinate_transformation_mode `{other}`")),
    };
    let rounding = match node.text("nearest_mode")?.unwrap_or("round_prefer_floor") {
        "round_prefer_floor" => Rounding::PreferFloor,
        "round_prefer_ceil" => Rounding::PreferCeil,
        "floor" => Rounding::Floor,
        "ceil" => Rounding::Ceil,
        other => return form(format!("nearest_mode `{other}`")),
    };
    Ok((coordinates, rounding))
}

/// Source index of output index `i`. Positions are computed in f32, as the common runtimes do, so that ties
/// fall the same way.
fn nearest_index(
    i: usize,
    from: usize,
    to: usize,
    scale: f32,
    coordinates: Coordinates,
    rounding: Rounding,
) -> usize {
    if scale == 1.0 {
        return i.min(from - 1);
    }
    let (x, length, resized) = (i as f32, from as f32, to as f32);
    let position = match coordinates {
        Coordinates::HalfPixel => (x + 0.5) / scale - 0.5,
        Coordinates::HalfPixelSymmetric => {
            // `to` is a rounded product; the rest is shared between both ends. The sum is
            // computed in f64, as in the definition.
            let offset = length / 2.0 * (1.0 - resized / (scale * length));
            (f64::from(offset) + (f64::from(x) + 0.5) / f64::from(scale) - 0.5) as f32
        }
        Coordinates::PytorchHalfPixel if to == 1 => 0.0,
        Coordinates::PytorchHalfPixel => (x + 0.5) / scale - 0.5,
        Coordinates::AlignCorners if to == 1 => 0.0,
        Coordinates::AlignCorners => x * (length - 1.0) / (resized - 1.0),
        Coordinates::Asymmetric => x / scale,
        Coordinates::TfHalfPixelForNn => (x + 0.5) / scale,
    };
    let rounded = match rounding {
        Rounding::PreferFloor => (position - 0.5).ceil(),
        // Away from zero; what lies below zero is clamped to it.
        Rounding::PreferCeil => position.round(),
        Rounding::Floor => position.floor(),
        Rounding::Ceil => position.ceil(),
    };
    (rounded.max(0.0) as usize).min(from - 1)
}
