//! What a convolution is made of.

use ndarray::ArrayView4;

use super::LayerError;
use super::prepared::HostWeights;
use crate::device::{Activation, Geometry2d};
use crate::precision::{Math, OperandFormat};
use crate::tensor::DType;

/// Zeros around the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Padding {
    /// `dilation * (kernel / 2)` on each side: at stride 1, an odd kernel's output has the input's size.
    Same,
    /// So many rows and columns.
    Explicit {
        /// Rows above.
        top: usize,
        /// Columns to the left.
        left: usize,
        /// Rows below.
        bottom: usize,
        /// Columns to the right.
        right: usize,
    },
}

impl Padding {
    /// As many on every side.
    #[must_use]
    pub const fn all(size: usize) -> Self {
        Self::Explicit {
            top: size,
            left: size,
            bottom: size,
            right: size,
        }
    }

    /// No padding.
    pub const NONE: Self = Self::all(0);
}

/// How a layer's work is divided into launches. The result has the same bits either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slicing {
    /// One launch.
    Whole,
    /// So many launches, each for some of the output's rows; each has weights of its own on the device.
    Height(usize),
}

/// How many bf16 numbers make a weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightTerms {
    /// One; or, where operands are not bf16, the weight as it is.
    One,
    /// The sum of two, see [`super::bf16_terms`]: almost fp32 weights and bias at twice the products. Rounded weights, not rounded
    /// activations, dominate the error of deep networks, since the error of a weight is the same at every pixel.
    Two,
}

/// A 2-D convolution: weights, geometry, arithmetic, and what follows the sum.
#[derive(Debug, Clone)]
pub struct Conv2dSpec {
    pub(super) dims: [usize; 4],
    pub(super) weights: HostWeights,
    pub(super) math: Math,
    pub(super) stride: [usize; 2],
    pub(super) padding: Padding,
    pub(super) dilation: [usize; 2],
    pub(super) groups: usize,
    pub(super) activation: Activation,
    pub(super) output: Option<DType>,
    pub(super) slicing: Slicing,
    pub(super) terms: WeightTerms,
}

impl Conv2dSpec {
    /// Weights `[Cout, Cin / groups, KH, KW]`, one bias per output channel (zeros if absent), and how they are multiplied and
    /// summed. Stride 1, padding [`Padding::Same`], no dilation, one group, no activation, output of the input's type.
    #[must_use]
    pub fn new(weight: ArrayView4<'_, f32>, bias: Option<&[f32]>, math: impl Into<Math>) -> Self {
        let (a, b, c, d) = weight.dim();
        Self {
            dims: [a, b, c, d],
            weights: HostWeights {
                weight: weight.iter().copied().collect(),
                bias: bias.map(<[f32]>::to_vec),
            },
            math: math.into(),
            stride: [1; 2],
            padding: Padding::Same,
            dilation: [1; 2],
            groups: 1,
            activation: Activation::Identity,
            output: None,
            slicing: Slicing::Whole,
            terms: WeightTerms::One,
        }
    }

    /// With a step between windows, `[rows, columns]`.
    #[must_use]
    pub fn stride(self, stride: [usize; 2]) -> Self {
        Self { stride, ..self }
    }

    /// With other padding.
    #[must_use]
    pub fn padding(self, padding: Padding) -> Self {
        Self { padding, ..self }
    }

    /// With a step between the taps of a window, `[rows, columns]`.
    #[must_use]
    pub fn dilation(self, dilation: [usize; 2]) -> Self {
        Self { dilation, ..self }
    }

    /// With channels in groups.
    #[must_use]
    pub fn groups(self, groups: usize) -> Self {
        Self { groups, ..self }
    }

    /// With an activation behind the sum.
    #[must_use]
    pub fn activation(self, activation: Activation) -> Self {
        Self { activation, ..self }
    }

    /// With an output of this type whatever the input's.
    #[must_use]
    pub fn output(self, dtype: DType) -> Self {
        Self {
            output: Some(dtype),
            ..self
        }
    }

    /// With several launches.
    #[must_use]
    pub fn slicing(self, slicing: Slicing) -> Self {
        Self { slicing, ..self }
    }

    /// With weights of two terms, or one.
    #[must_use]
    pub fn weight_terms(self, terms: WeightTerms) -> Self {
        Self { terms, ..self }
    }

    /// Input channels.
    #[must_use]
    pub const fn inputs(&self) -> usize {
        self.dims[1] * self.groups
    }

    /// Output channels.
    #[must_use]
    pub const fn outputs(&self) -> usize {
        self.dims[0]
    }

    /// Rows and columns of the kernel.
    #[must_use]
    pub const fn kernel(&self) -> [usize; 2] {
        [self.dims[2], self.dims[3]]
    }

    /// `[begin, end]` of the padding along rows (0) or columns (1).
    pub(super) const fn pads(&self, axis: usize) -> [usize; 2] {
        match self.padding {
            Padding::Same => [self.dilation[axis] * (self.kernel()[axis] / 2); 2],
            Padding::Explicit {
                top,
                left,
                bottom,
                right,
            } => [[top, bottom], [left, right]][axis],
        }
    }

    /// Positions that one window spans along an axis.
    pub(super) const fn reach(&self, axis: usize) -> usize {
        (self.kernel()[axis] - 1) * self.dilation[axis] + 1
    }

    pub(super) fn geometry(&self) -> Geometry2d {
        Geometry2d {
            kernel: self.kernel(),
            stride: self.stride,
            dilation: self.dilation,
            pad_begin: [0, 1].map(|axis| self.pads(axis)[0]),
        }
    }

    /// Output size along an axis; `None` where the kernel does not fit.
    pub(super) fn out_size(&self, axis: usize, input: usize) -> Option<usize> {
        let [begin, end] = self.pads(axis);
        let padded = input.checked_add(begin)?.checked_add(end)?;
        Some(padded.checked_sub(self.reach(axis))? / self.stride[axis] + 1)
    }

    pub(super) fn check(&self, layer: &str) -> Result<(), LayerError> {
        /// As far as devices go, and far below what could overflow.
        const MAX_WINDOW: usize = 1 << 12;
        let steps = [self.stride, self.dilation, self.kernel(), self.pads_checked()];
        let bias = self.weights.bias.as_ref().map(Vec::len);
        let reason = if self.dims.contains(&0) {
            format!("weights {:?}: no dimension may be 0", self.dims)
        } else if steps.iter().flatten().any(|&size| size > MAX_WINDOW) {
            format!(
                "kernel {:?}, stride {:?}, dilation {:?} or padding {:?} is above the supported {MAX_WINDOW}",
                self.kernel(),
                self.stride,
                self.dilation,
                self.padding
            )
        } else if self.stride.contains(&0) || self.dilation.contains(&0) {
            format!(
                "stride {:?} and dilation {:?} are at least 1",
                self.stride, self.dilation
            )
        } else if self.groups == 0 || !self.outputs().is_multiple_of(self.groups) {
            format!(
                "{} groups do not divide {} output channels",
                self.groups,
                self.outputs()
            )
        } else if bias.is_some_and(|count| count != self.outputs()) {
            let count = bias.unwrap_or_default();
            format!("{count} biases for {} output channels", self.outputs())
        } else if self.slicing == Slicing::Height(0) {
            "0 slices: at least one is needed".to_owned()
        } else {
            return self.check_traps(layer);
        };
        Err(LayerError::weights(layer, reason))
    }

    /// Largest padding along each axis, with what cannot be multiplied as too large.
    fn pads_checked(&self) -> [usize; 2] {
        [0, 1].map(|axis| match self.padding {
            Padding::Same => self.dilation[axis].saturating_mul(self.kernel()[axis] / 2),
            Padding::Explicit { .. } => self.pads(axis)[0].max(self.pads(axis)[1]),
        })
    }

    /// What would run, but not as expected.
    fn check_traps(&self, layer: &str) -> Result<(), LayerError> {
        let whole = [0, 1].into_iter().find(|&axis| {
            let [begin, end] = self.pads(axis);
            begin.max(end) >= self.reach(axis)
        });
        if let Some(axis) = whole {
            let what = ["rows", "columns"][axis];
            let reason = format!(
                "padding {:?} is not less than the {} {what} of a window: some outputs would be of zeros alone",
                self.pads(axis),
                self.reach(axis)
            );
            return Err(LayerError::refused(layer, reason));
        }
        if let (WeightTerms::Two, Math::Matrix(math)) = (self.terms, self.math)
            && math.weights != OperandFormat::Bf16
        {
            let reason = format!(
                "two terms are of bf16, but weights are stored as {}; take one term, or bf16 weights",
                math.weights
            );
            return Err(LayerError::refused(layer, reason));
        }
        Ok(())
    }
}
