//! Resizing as tables: which elements each output row and column takes, and with what weights.

use super::error::{NodeError, form, invalid};
use super::facts::NodeContext;
use crate::device::{Scalar, TapTable};
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

/// How values between elements are made.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Interpolation {
    Nearest(Rounding),
    Linear,
    /// The cubic kernel with this slope at its corners.
    Cubic(f32),
}

/// A resize of `[N, C, H, W]` along its rows and columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ResizePlan {
    /// The source of each output row and column.
    Nearest { rows: Vec<u32>, columns: Vec<u32> },
    /// The sources of each output row and column, and their weights.
    Weighted { rows: TapTable, columns: TapTable },
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

/// The tables of a Resize or Upsample of `[N, C, H, W]` or `[N, C, L]`.
pub(super) fn plan(context: &NodeContext<'_>) -> Result<ResizePlan, NodeError> {
    let (node, shape) = (context.node, context.shape(0)?);
    let (output, scales) = target(context)?;
    if !matches!(shape.rank(), 3 | 4) || shape[..2] != output[..2] || shape.elements() == 0 {
        return form(format!("resizing {shape} to {output}"));
    }
    let newer = node.op_type == "Resize" && context.opset >= 11;
    let rules = Rules::new(context, newer)?;
    let nearest = matches!(rules.interpolation, Interpolation::Nearest(_));
    if nearest && !newer && node.op_type == "Resize" && scales.iter().any(|&s| s < 1.0) {
        return form("shrinking before operator set 11, whose rounding was not defined,");
    }
    let axis = |axis: usize| Axis {
        from: shape[axis],
        to: output[axis],
        scale: scales[axis],
    };
    let columns = axis(shape.rank() - 1);
    // Along one axis: an image of one row.
    let rows = match shape.rank() {
        3 => Axis {
            from: 1,
            to: 1,
            scale: 1.0,
        },
        _ => axis(2),
    };
    Ok(match rules.interpolation {
        Interpolation::Nearest(rounding) => {
            let table = |axis: Axis| -> Vec<u32> {
                let source = |i: usize| axis.nearest(i, rules.coordinates, rounding) as u32;
                (0..axis.to).map(source).collect()
            };
            ResizePlan::Nearest {
                rows: table(rows),
                columns: table(columns),
            }
        }
        _ => ResizePlan::Weighted {
            rows: rows.table(&rules)?,
            columns: columns.table(&rules)?,
        },
    })
}

/// How a node resizes.
#[derive(Debug, Clone, Copy)]
struct Rules {
    coordinates: Coordinates,
    interpolation: Interpolation,
    /// Whether elements outside the image are left out instead of repeating the border.
    exclude_outside: bool,
}

impl Rules {
    fn new(context: &NodeContext<'_>, newer: bool) -> Result<Self, NodeError> {
        let node = context.node;
        if node.int("antialias")?.unwrap_or(0) != 0 {
            return form("antialiasing");
        }
        let mode = node.text("mode")?.unwrap_or("nearest");
        let coordinates = match node
            .text("coordinate_transformation_mode")?
            .unwrap_or("half_pixel")
        {
            _ if !newer => Coordinates::Asymmetric,
            "half_pixel" => Coordinates::HalfPixel,
            "half_pixel_symmetric" => Coordinates::HalfPixelSymmetric,
            "pytorch_half_pixel" => Coordinates::PytorchHalfPixel,
            "align_corners" => Coordinates::AlignCorners,
            "asymmetric" => Coordinates::Asymmetric,
            "tf_half_pixel_for_nn" => Coordinates::TfHalfPixelForNn,
            other => return form(format!("coordinate_transformation_mode `{other}`")),
        };
        let rounding = match node.text("nearest_mode")?.unwrap_or("round_prefer_floor") {
            _ if !newer => Rounding::Floor,
            "round_prefer_floor" => Rounding::PreferFloor,
            "round_prefer_ceil" => Rounding::PreferCeil,
            "floor" => Rounding::Floor,
            "ceil" => Rounding::Ceil,
            other => return form(format!("nearest_mode `{other}`")),
        };
        let interpolation = match mode {
            "nearest" => Interpolation::Nearest(rounding),
            "linear" | "bilinear" => Interpolation::Linear,
            "cubic" if newer => Interpolation::Cubic(node.float("cubic_coeff_a")?.unwrap_or(-0.75)),
            other => return form(format!("mode `{other}`")),
        };
        Ok(Self {
            coordinates,
            interpolation,
            exclude_outside: node.int("exclude_outside")?.unwrap_or(0) != 0,
        })
    }
}

/// One axis of a resize.
#[derive(Debug, Clone, Copy)]
struct Axis {
    from: usize,
    to: usize,
    scale: f32,
}

impl Axis {
    /// Position in the source of output element `i`. Computed in f32, as the common runtimes do, so that ties fall the
    /// same way.
    fn position(&self, i: usize, coordinates: Coordinates) -> f32 {
        let Self { from, to, scale } = *self;
        let (x, length, resized) = (i as f32, from as f32, to as f32);
        match coordinates {
            _ if scale == 1.0 => x,
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
        }
    }

    /// Source index of output element `i`.
    fn nearest(&self, i: usize, coordinates: Coordinates, rounding: Rounding) -> usize {
        if self.scale == 1.0 {
            return i.min(self.from - 1);
        }
        let position = self.position(i, coordinates);
        let rounded = match rounding {
            Rounding::PreferFloor => (position - 0.5).ceil(),
            // Away from zero; what lies below zero is clamped to it.
            Rounding::PreferCeil => position.round(),
            Rounding::Floor => position.floor(),
            Rounding::Ceil => position.ceil(),
        };
        (rounded.max(0.0) as usize).min(self.from - 1)
    }

    /// Sources and weights of all output elements.
    fn table(&self, rules: &Rules) -> Result<TapTable, NodeError> {
        let lines: Vec<Vec<(u32, f32)>> = (0..self.to).map(|i| self.taps(i, rules)).collect();
        let taps = lines.iter().map(Vec::len).max().unwrap_or(1).max(1);
        if taps.saturating_mul(self.to) > MAX_SIZE * 64 {
            return form(format!("shrinking {} elements to {}", self.from, self.to));
        }
        // Lines with fewer taps take the first element with weight 0 as the others.
        let filled = |line: &[(u32, f32)]| -> Vec<(u32, f32)> {
            let first = line.first().map_or(0, |tap| tap.0);
            let mut line = line.to_vec();
            line.resize(taps, (first, 0.0));
            line
        };
        let all: Vec<(u32, f32)> = lines.iter().flat_map(|line| filled(line)).collect();
        Ok(TapTable {
            taps,
            positions: all.iter().map(|tap| tap.0).collect(),
            weights: all.iter().map(|tap| Scalar::new(tap.1)).collect(),
        })
    }

    /// Sources and weights of output element `i`.
    fn taps(&self, i: usize, rules: &Rules) -> Vec<(u32, f32)> {
        if self.scale == 1.0 {
            return vec![(i.min(self.from - 1) as u32, 1.0)];
        }
        let position = f64::from(self.position(i, rules.coordinates));
        let last = self.from as i64 - 1;
        let at = |place: i64| place.clamp(0, last) as u32;
        let Interpolation::Cubic(slope) = rules.interpolation else {
            let position = position.clamp(0.0, last as f64);
            let (below, part) = (position.floor() as i64, position.fract());
            return vec![(at(below), (1.0 - part) as f32), (at(below + 1), part as f32)];
        };
        let below = position.floor();
        let places = (-1..=2).map(|step| below as i64 + step);
        let mut taps: Vec<(i64, f64)> = places
            .map(|place| (place, cubic(place as f64 - position, slope.into())))
            .collect();
        if rules.exclude_outside {
            taps.retain(|&(place, _)| (0..=last).contains(&place));
            let sum: f64 = taps.iter().map(|tap| tap.1).sum();
            taps.iter_mut().for_each(|tap| tap.1 /= sum);
        }
        taps.into_iter()
            .map(|(place, weight)| (at(place), weight as f32))
            .collect()
    }
}

/// The cubic convolution kernel of Keys (1981) with slope `a` at distance 1.
fn cubic(x: f64, a: f64) -> f64 {
    let x = x.abs();
    if x <= 1.0 {
        ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    } else if x < 2.0 {
        ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a
    } else {
        0.0
    }
}
