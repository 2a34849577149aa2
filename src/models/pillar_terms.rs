//! The feature net of pillars from matrix products alone, for accelerators: an exact rewrite, and its two-term form.
//!
//! [`super::pillars::PillarFeatureNet`] is what this device runs by itself: one operation, fp32 inside. Here the same net
//! is written as products of whole matrices, the way a matrix unit takes it, so that a port can be followed step by step:
//!
//! 1. `h = relu(x W0 + b0)` for every point;
//! 2. `z = h Wz` with `Wz = [I | A | 0]`: `h` itself rides along in an identity, beside `h A`;
//! 3. the maximum `m` of `z` over the points of each pillar;
//! 4. `y = relu(m Wy + b1)` with `Wy = [B; I; 0]`: the pillar's maximum times `B`, plus the maximum of `h A`.
//!
//! The second layer's `W1 = [A; B]` is for the point and for the maximum. Adding what is the same for all points of a
//! pillar behind the maximum changes nothing, for rounding keeps the order of numbers; a product with 1 is exact.

use half::bf16;
use ndarray::{Array2, ArrayView3, Axis, s};

use super::block_error::BlockError;
use super::layers::{as_feature_map, free, new_map};
use super::pillars::PfnPlan;
use super::two_term::{TwoTermLinear, split_terms};
use crate::device::{Device, Geometry2d, OpDesc, Pool2dDesc, PoolKind};
use crate::ops::{DeviceTensor, OpContext};
use crate::tensor::{DType, Shape, View};

const NET: &str = "pillar feature net";

/// Features of a point are padded to this many.
pub const PADDED_FEATURES: usize = 16;

/// Widths of the layers between are padded to multiples of this.
const TILE: usize = 32;

/// How [`FoldedPfn::forward_host`] stores what lies between its steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HiddenRounding {
    /// fp32.
    None,
    /// bf16, to nearest even.
    Bf16,
}

/// A net of two layers as three matrices.
#[derive(Debug, Clone, PartialEq)]
pub struct FoldedPfn {
    features: usize,
    hidden: usize,
    /// `[PADDED_FEATURES, H]` with `H` the first layer's width, padded.
    w0: Array2<f32>,
    b0: Vec<f32>,
    /// `[H, Z]` with `Z` the two widths together, padded.
    wz: Array2<f32>,
    /// `[Z, outputs]`
    wy: Array2<f32>,
    b1: Vec<f32>,
}

impl FoldedPfn {
    /// The matrices of a net.
    ///
    /// # Errors
    /// [`BlockError::Weights`] for a net of one layer, more than [`PADDED_FEATURES`] features, or outputs that are no
    /// multiple of 32 (accelerators gather rows of whole tiles).
    pub fn new(plan: &PfnPlan) -> Result<Self, BlockError> {
        let [Some((w0, b0)), Some((w1, b1))] = plan.layers() else {
            return Err(BlockError::weights(
                NET,
                "the matrix form is for nets of two layers",
            ));
        };
        let ((features, hidden), outputs) = (w0.dim(), w1.ncols());
        let reason = if features > PADDED_FEATURES {
            format!("{features} features of a point, at most {PADDED_FEATURES} in the matrix form")
        } else if !outputs.is_multiple_of(TILE) {
            format!("{outputs} outputs: rows of multiples of {TILE} are gathered")
        } else {
            let (h, z) = (
                hidden.next_multiple_of(TILE),
                (hidden + outputs).next_multiple_of(TILE),
            );
            let mut first = Array2::zeros((PADDED_FEATURES, h));
            first.slice_mut(s![..features, ..hidden]).assign(&w0);
            let mut bias = b0.to_vec();
            bias.resize(h, 0.0);
            let mut widen = Array2::zeros((h, z));
            widen.slice_mut(s![..hidden, ..hidden]).diag_mut().fill(1.0);
            widen
                .slice_mut(s![..hidden, hidden..hidden + outputs])
                .assign(&w1.slice(s![..hidden, ..]));
            let mut last = Array2::zeros((z, outputs));
            last.slice_mut(s![..hidden, ..])
                .assign(&w1.slice(s![hidden.., ..]));
            last.slice_mut(s![hidden..hidden + outputs, ..])
                .diag_mut()
                .fill(1.0);
            return Ok(Self {
                features,
                hidden,
                w0: first,
                b0: bias,
                wz: widen,
                wy: last,
                b1: b1.to_vec(),
            });
        };
        Err(BlockError::weights(NET, reason))
    }

    /// Features of a point, without padding.
    #[must_use]
    pub const fn features(&self) -> usize {
        self.features
    }

    /// Width of the first layer, without padding.
    #[must_use]
    pub const fn hidden(&self) -> usize {
        self.hidden
    }

    /// Features of a pillar.
    #[must_use]
    pub const fn outputs(&self) -> usize {
        self.b1.len()
    }

    /// Shapes `[rows, columns]` of the three matrices.
    #[must_use]
    pub fn shapes(&self) -> [[usize; 2]; 3] {
        [&self.w0, &self.wz, &self.wy].map(|w| [w.nrows(), w.ncols()])
    }

    /// The net on the host in fp32: points `[pillars, points, features]` (fewer than [`PADDED_FEATURES`] are padded with
    /// zeros) to `[pillars, outputs]`. A pillar without points is `relu(b1)`.
    ///
    /// # Errors
    /// [`BlockError::Weights`] for more features.
    pub fn forward_host(
        &self,
        points: ArrayView3<'_, f32>,
        hidden: HiddenRounding,
    ) -> Result<Array2<f32>, BlockError> {
        let (pillars, _, features) = points.dim();
        if features > PADDED_FEATURES {
            let reason = format!("points of {features} features, at most {PADDED_FEATURES} are taken");
            return Err(BlockError::weights(NET, reason));
        }
        let round = |x: f32| match hidden {
            HiddenRounding::None => x,
            HiddenRounding::Bf16 => bf16::from_f32(x).to_f32(),
        };
        let relu = |sums: Array2<f32>, bias: &[f32]| {
            let bias = ndarray::aview1(bias);
            (sums + bias).mapv_into(|v| v.max(0.0))
        };
        let w0 = self.w0.slice(s![..features, ..]);
        let mut maxima = Array2::zeros((pillars, self.wz.ncols()));
        for (pillar, mut maximum) in points.outer_iter().zip(maxima.outer_iter_mut()) {
            if pillar.nrows() > 0 {
                let h = relu(pillar.dot(&w0), &self.b0).mapv_into(round);
                let z = h.dot(&self.wz).mapv_into(round);
                maximum.assign(&z.fold_axis(Axis(0), f32::NEG_INFINITY, |a, b| a.max(*b)));
            }
        }
        Ok(relu(maxima.dot(&self.wy), &self.b1))
    }
}

/// The matrix form on the device with two bf16 terms for every number, and fp32 between: bf16 rows that are within their
/// own rounding of fp32 arithmetic, from products of bf16. Weights are brought to the device in the first run.
#[derive(Debug)]
pub struct TwoTermPfn {
    first: TwoTermLinear,
    widen: TwoTermLinear,
    last: TwoTermLinear,
}

impl TwoTermPfn {
    /// A net.
    ///
    /// # Errors
    /// [`BlockError::Weights`].
    pub fn new(folded: &FoldedPfn) -> Result<Self, BlockError> {
        Ok(Self {
            first: TwoTermLinear::new("pfn.w0", folded.w0.view(), Some(&folded.b0), true)?,
            widen: TwoTermLinear::new("pfn.wz", folded.wz.view(), None, false)?,
            last: TwoTermLinear::new("pfn.wy", folded.wy.view(), Some(&folded.b1), true)?,
        })
    }

    /// Features `[pillars, outputs]`, bf16 and freed by the caller, of points `[pillars, points, PADDED_FEATURES]`, bf16 or
    /// fp32.
    ///
    /// # Errors
    /// [`BlockError`]; nothing stays allocated but weights.
    pub fn forward(
        &self,
        ops: &mut OpContext<'_>,
        points: &DeviceTensor,
    ) -> Result<DeviceTensor, BlockError> {
        let shape = points.view.shape;
        let [pillars, count, PADDED_FEATURES] = shape[..] else {
            let expected = format!("[pillars, points, {PADDED_FEATURES}]");
            return Err(BlockError::shape(NET, "the input", shape, expected));
        };
        let hidden = match points.dtype {
            DType::Bf16 => self.first.forward(ops, points, None)?,
            _ => apply(ops, &self.first, points)?,
        };
        let z = consume(ops, hidden, |ops, hidden| apply(ops, &self.widen, hidden))?;
        let maxima = consume(ops, z, |ops, z| point_maxima(ops, z, [pillars, count]))?;
        let y = consume(ops, maxima, |ops, maxima| apply(ops, &self.last, maxima))?;
        consume(ops, y, |ops, y| ops.to_bf16(y).map_err(BlockError::device(NET)))
    }

    /// Returns the weights' memory. The net may run again.
    pub fn release(&self, device: &mut dyn Device) {
        for layer in [&self.first, &self.widen, &self.last] {
            layer.release(device);
        }
    }
}

/// A step on a tensor that nobody needs behind it.
fn consume(
    ops: &mut OpContext<'_>,
    tensor: DeviceTensor,
    step: impl FnOnce(&mut OpContext<'_>, &DeviceTensor) -> Result<DeviceTensor, BlockError>,
) -> Result<DeviceTensor, BlockError> {
    let made = step(ops, &tensor);
    free(ops, &[tensor]);
    made
}

/// A layer on both terms of an fp32 tensor.
fn apply(
    ops: &mut OpContext<'_>,
    layer: &TwoTermLinear,
    input: &DeviceTensor,
) -> Result<DeviceTensor, BlockError> {
    let [high, low] = split_terms(ops, input)?;
    let made = layer.forward(ops, &high, Some(&low));
    free(ops, &[high, low]);
    made
}

/// The maxima `[pillars, width]` over the points of `[pillars, points, width]`.
fn point_maxima(
    ops: &mut OpContext<'_>,
    z: &DeviceTensor,
    [pillars, count]: [usize; 2],
) -> Result<DeviceTensor, BlockError> {
    let width = z.view.shape[2];
    let map = as_feature_map(z, [pillars, count, 1, width])?;
    let rows = Shape::new(&[pillars, width]).map_err(BlockError::tensor(NET))?;
    let maxima = new_map(ops, NET, [pillars, width, 1, 1], DType::F32)?;
    let pool = OpDesc::Pool2d(Pool2dDesc {
        input: map.operand(),
        output: maxima.operand(),
        geometry: Geometry2d {
            kernel: [count, 1],
            stride: [1; 2],
            dilation: [1; 2],
            pad_begin: [0; 2],
        },
        kind: PoolKind::Max,
    });
    match ops
        .run(&pool, &[map.buffer, maxima.buffer])
        .map_err(BlockError::device(NET))
    {
        // A new map is dense, and has one pixel an image.
        Ok(()) => Ok(DeviceTensor {
            view: View::contiguous(rows),
            ..maxima
        }),
        Err(error) => {
            free(ops, &[maxima]);
            Err(error)
        }
    }
}
