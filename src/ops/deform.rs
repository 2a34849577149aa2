//! Maps sampled at given places: the places, made on the host, and the sampling.
//!
//! Places are made for [`grid_sample`] without aligned corners, whatever the model's own normalisation: what counts is the
//! pixel that is meant, and in this form whole pixels are exact where a side is a power of two, so that an identity is a
//! copy. Zeros outside act on pixels, so both forms sample the same.

use ndarray::{Array4, ArrayView4, s};

use super::{DeviceTensor, OpContext, OpRefusal, PortRule};
use crate::device::{GridSampleDesc, OpDesc, OutsidePixels, SampleWeights, Sampling};
use crate::tensor::DType;

const OP: &str = "grid_sample";

/// A place none of whose neighbours lies in any image.
pub const OUTSIDE: f32 = -4.0;

/// Channels come in multiples of this on accelerators ([`PortRule::Accelerator`]).
pub const CHANNEL_MULTIPLE: usize = 32;

/// The place of a pixel (0 is the centre of the first) on a side of `size` pixels: `(2 px + 1) / size - 1` in fp32. Exact
/// for whole pixels where `size` is a power of two.
#[must_use]
pub fn pixel_to_grid(px: f32, size: usize) -> f32 {
    (2.0 * px + 1.0) / size as f32 - 1.0
}

/// The pixel that a sampling makes of a place: `g * size / 2 + (size - 1) / 2` in fp32.
#[must_use]
pub fn kernel_pixels(place: f32, size: usize) -> f32 {
    place * (size as f32 / 2.0) + (size as f32 - 1.0) / 2.0
}

/// Pixels `[N, H, W, 2]` (x, y) that an affine map of output pixels names: `x' = a x + b y + c`, `y' = d x + e y + f` for
/// each `[a, b, c, d, e, f]`, in fp32 with a rounding a step.
#[must_use]
pub fn affine_pixel_coords(transforms: &[[f32; 6]], [height, width]: [usize; 2]) -> Array4<f32> {
    Array4::from_shape_fn((transforms.len(), height, width, 2), |(n, y, x, axis)| {
        let [a, b, c] = match (axis, transforms[n]) {
            (0, [a, b, c, ..]) => [a, b, c],
            (_, [.., d, e, f]) => [d, e, f],
        };
        a * x as f32 + b * y as f32 + c
    })
}

/// A grid `[N, H, W, 2]` for [`affine_pixel_coords`] into images of `input` rows and columns. Maps that are not valid are
/// [`OUTSIDE`] everywhere, so that their samples are zeros: an empty slot of a history.
///
/// # Errors
/// [`OpRefusal::Invalid`] for a side of 0, or another number of flags than of transforms.
pub fn affine_grid(
    transforms: &[[f32; 6]],
    input: [usize; 2],
    output: [usize; 2],
    valid: Option<&[bool]>,
) -> Result<Array4<f32>, OpRefusal> {
    const OP: &str = "affine_grid";
    sides(OP, input)?;
    if let Some(valid) = valid.filter(|valid| valid.len() != transforms.len()) {
        let reason = format!("{} flags for {} transforms", valid.len(), transforms.len());
        return Err(OpRefusal::invalid(OP, reason));
    }
    let mut grid = affine_pixel_coords(transforms, output);
    for (axis, size) in [(0, input[1]), (1, input[0])] {
        grid.slice_mut(s![.., .., .., axis])
            .mapv_inplace(|px| pixel_to_grid(px, size));
    }
    for (n, &valid) in valid.unwrap_or_default().iter().enumerate() {
        if !valid {
            grid.slice_mut(s![n, .., .., ..]).fill(OUTSIDE);
        }
    }
    Ok(grid)
}

/// The source pixel of each of `output` pixels when a side of `input` pixels is resized: first and last pixels on each
/// other with aligned corners, `(i + 0.5) input / output - 0.5` kept inside the image without.
#[must_use]
pub fn resize_pixel_coords(input: usize, output: usize, align_corners: bool) -> Vec<f64> {
    let last = input.saturating_sub(1) as f64;
    let source = |i: usize| {
        if align_corners {
            let steps = output.saturating_sub(1).max(1);
            i as f64 * last / steps as f64
        } else {
            ((i as f64 + 0.5) * input as f64 / output as f64 - 0.5).clamp(0.0, last)
        }
    };
    (0..output).map(source).collect()
}

/// A grid `[batch, H, W, 2]` that resizes images of `input` rows and columns to `output`; places are computed in float64
/// and rounded once. Every source pixel lies inside the image, so it is the same as a bilinear interpolation.
///
/// # Errors
/// [`OpRefusal::Invalid`] for a side of 0.
pub fn resize_grid(
    input: [usize; 2],
    output: [usize; 2],
    align_corners: bool,
    batch: usize,
) -> Result<Array4<f32>, OpRefusal> {
    sides("resize_grid", input)?;
    let places = |axis: usize| -> Vec<f32> {
        let size = input[axis] as f64;
        let pixels = resize_pixel_coords(input[axis], output[axis], align_corners);
        pixels
            .into_iter()
            .map(|px| ((2.0 * px + 1.0) / size - 1.0) as f32)
            .collect()
    };
    let (rows, columns) = (places(0), places(1));
    Ok(Array4::from_shape_fn(
        (batch, output[0], output[1], 2),
        |(_, y, x, axis)| if axis == 0 { columns[x] } else { rows[y] },
    ))
}

fn sides(op: &'static str, input: [usize; 2]) -> Result<(), OpRefusal> {
    match input.contains(&0) {
        true => Err(OpRefusal::invalid(
            op,
            format!("an image of {input:?} has no pixels"),
        )),
        false => Ok(()),
    }
}

/// Channels rounded up to a multiple of [`CHANNEL_MULTIPLE`].
#[must_use]
pub const fn padded_channels(channels: usize) -> usize {
    channels.next_multiple_of(CHANNEL_MULTIPLE)
}

/// Images `[N, H, W, C]` with channels of zeros up to [`padded_channels`], which stay zeros through a sampling.
#[must_use]
pub fn pad_channels(images: ArrayView4<'_, f32>) -> Array4<f32> {
    let (n, h, w, c) = images.dim();
    let mut padded = Array4::zeros((n, h, w, padded_channels(c)));
    padded.slice_mut(s![.., .., .., ..c]).assign(&images);
    padded
}

/// How maps are sampled. The default is bilinear with zeros outside, corners not aligned, exact weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GridSampleOptions {
    /// Between pixels.
    pub sampling: Sampling,
    /// Outside the image.
    pub outside: OutsidePixels,
    /// Whether -1 and 1 are the centres of the outer pixels rather than their outer edges.
    pub align_corners: bool,
    /// The weights of a bilinear sampling.
    pub weights: SampleWeights,
    /// What may be asked for.
    pub port_rule: PortRule,
}

impl Default for GridSampleOptions {
    fn default() -> Self {
        Self {
            sampling: Sampling::Bilinear,
            outside: OutsidePixels::Zeros,
            align_corners: false,
            weights: SampleWeights::Exact,
            port_rule: PortRule::Here,
        }
    }
}

impl GridSampleOptions {
    /// As accelerators sample: what they do not compute, or compute wrongly, is refused, and weights are cut to bf16.
    #[must_use]
    pub fn accelerator() -> Self {
        Self {
            weights: SampleWeights::TruncatedBf16,
            port_rule: PortRule::Accelerator,
            ..Self::default()
        }
    }

    fn check(&self, input: &DeviceTensor) -> Result<(), OpRefusal> {
        if self.port_rule == PortRule::Here {
            return Ok(());
        }
        let channels = input.view.shape[1];
        let reason = if !channels.is_multiple_of(CHANNEL_MULTIPLE) {
            format!("{channels} channels: pad them to {}", padded_channels(channels))
        } else if input.dtype != DType::Bf16 {
            format!(
                "input of {}: with fp32 accumulation it is sampled wrongly, use bfloat16",
                input.dtype
            )
        } else if self.sampling != Sampling::Bilinear
            || self.outside != OutsidePixels::Zeros
            || self.align_corners
        {
            "only bilinear sampling with zeros outside and corners not aligned".to_owned()
        } else {
            return Ok(());
        };
        Err(OpRefusal::Unportable { op: OP, reason })
    }
}

/// Samples maps `[N, C, H, W]` at places `[N, OH, OW, 2]` (x, y; fp32): a map `[N, C, OH, OW]` of the input's type, freed
/// by the caller. See [`GridSampleDesc`] for the arithmetic.
///
/// # Errors
/// [`OpRefusal`]: a grid of another type (places in bf16 are off by pixels) or another number of grids than of maps (they
/// are not repeated in silence; a view that repeats one is taken), and what the [`PortRule`] asks for. Nothing stays
/// allocated.
pub fn grid_sample(
    ops: &mut OpContext<'_>,
    input: &DeviceTensor,
    grid: &DeviceTensor,
    options: &GridSampleOptions,
) -> Result<DeviceTensor, OpRefusal> {
    let (shape, places) = (input.view.shape, grid.view.shape);
    let [n, c, ..] = shape[..] else {
        return Err(OpRefusal::shape(OP, "the input", shape, "[N, C, H, W]"));
    };
    let [grids, height, width, 2] = places[..] else {
        return Err(OpRefusal::shape(OP, "the grid", places, "[N, OH, OW, 2]"));
    };
    if shape.rank() != 4 {
        return Err(OpRefusal::shape(OP, "the input", shape, "[N, C, H, W]"));
    }
    if grids != n {
        let expected = format!("one grid for each of {n} maps: a grid is not repeated");
        return Err(OpRefusal::shape(OP, "the grid", places, expected));
    }
    if grid.dtype != DType::F32 {
        return Err(OpRefusal::DType {
            op: OP,
            tensor: "the grid",
            found: grid.dtype,
            expected: format!("{}: places in 16 bits are off by pixels", DType::F32),
        });
    }
    options.check(input)?;
    ops.make_map(OP, [n, c, height, width], input.dtype, |ops, output| {
        let desc = GridSampleDesc {
            input: input.operand(),
            grid: grid.operand(),
            output: output.operand(),
            sampling: options.sampling,
            outside: options.outside,
            align_corners: options.align_corners,
            weights: options.weights,
        };
        let buffers = [input.buffer, grid.buffer, output.buffer];
        ops.run(&OpDesc::GridSample(desc), &buffers)
            .map_err(OpRefusal::device(OP))
    })
}

/// What an accelerator's sampling of images `[N, H, W, C]` at places `[N, OH, OW, 2]` gives, on the host: fractions in
/// fp32, weights cut to bf16, neighbours outside left out, in the order of [`GridSampleDesc`].
///
/// # Errors
/// [`OpRefusal::Invalid`] for another number of grids than of images, or places that are no pairs.
pub fn emulate_grid_sample(
    images: ArrayView4<'_, f32>,
    grid: ArrayView4<'_, f32>,
) -> Result<Array4<f32>, OpRefusal> {
    const OP: &str = "emulate_grid_sample";
    let (n, h, w, c) = images.dim();
    let (grids, out_h, out_w, pair) = grid.dim();
    if grids != n || pair != 2 {
        let reason = format!("a grid of {:?} for images of {:?}", grid.shape(), images.shape());
        return Err(OpRefusal::invalid(OP, reason));
    }
    let truncated = |weight: f32| f32::from_bits(weight.to_bits() & 0xffff_0000);
    Ok(Array4::from_shape_fn((n, out_h, out_w, c), |(n, y, x, c)| {
        let px = kernel_pixels(grid[[n, y, x, 0]], w);
        let py = kernel_pixels(grid[[n, y, x, 1]], h);
        let (x0, y0) = (px.floor(), py.floor());
        let (fx, fy) = (px - x0, py - y0);
        let neighbours = [
            (y0, x0, (1.0 - fy) * (1.0 - fx)),
            (y0, x0 + 1.0, (1.0 - fy) * fx),
            (y0 + 1.0, x0, fy * (1.0 - fx)),
            (y0 + 1.0, x0 + 1.0, fy * fx),
        ];
        let inside = |at: f32, len: usize| at >= 0.0 && at < len as f32;
        let samples = neighbours.into_iter().filter_map(|(y, x, weight)| {
            let weight = truncated(weight);
            let counts = inside(y, h) && inside(x, w) && weight != 0.0;
            counts.then(|| weight * images[[n, y as usize, x as usize, c]])
        });
        samples.reduce(|sum, sample| sum + sample).unwrap_or(0.0)
    }))
}
