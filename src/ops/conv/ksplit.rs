//! The convolution of a concatenation, without the concatenation.

use ndarray::{Array4, ArrayView4, s};

use super::joined::activate;
use super::maps::{free, made, new_map};
use super::{Conv2d, Conv2dSpec, LayerError, Slicing, WeightTerms};
use crate::device::{Activation, Device};
use crate::ops::{DeviceTensor, OpContext};
use crate::tensor::DType;

/// Weights `[Cout, Cin, KH, KW]` divided along the input channels.
///
/// # Errors
/// [`LayerError::Weights`] where the parts are not all channels together, or one is empty.
pub fn split_k_weights(
    layer: &str,
    weight: ArrayView4<'_, f32>,
    parts: &[usize],
) -> Result<Vec<Array4<f32>>, LayerError> {
    let inputs = weight.dim().1;
    let total = parts.iter().try_fold(0_usize, |sum, &part| sum.checked_add(part));
    if total != Some(inputs) || parts.contains(&0) {
        let reason = format!("parts {parts:?} do not divide {inputs} input channels");
        return Err(LayerError::weights(layer, reason));
    }
    let mut first = 0;
    let split = parts.iter().map(|&part| {
        let of = weight.slice(s![.., first..first + part, .., ..]).to_owned();
        first += part;
        of
    });
    Ok(split.collect())
}

/// What a [`KSplitConv`] is made of.
#[derive(Debug, Clone)]
pub struct KSplitSpec {
    whole: Conv2dSpec,
    parts: Vec<usize>,
    accumulate: DType,
}

impl KSplitSpec {
    /// A convolution over the concatenation of inputs of `parts` channels each, and the type that the partial sums have
    /// between them: fp32, or the inputs'.
    #[must_use]
    pub fn new(whole: Conv2dSpec, parts: &[usize], accumulate: DType) -> Self {
        Self {
            whole,
            parts: parts.to_vec(),
            accumulate,
        }
    }
}

/// `conv(concat(x_1 .. x_n))` as `conv_1(x_1) + bias + conv_2(x_2) + ..`, where the inputs do not lie in one map. Each
/// convolution adds to the sum of those before it, in fp32, and stores it in the type for partial sums; the activation
/// follows the last.
///
/// The same sum in another order: not the bits of the concatenated convolution.
#[derive(Debug)]
pub struct KSplitConv {
    name: String,
    whole: Conv2dSpec,
    parts: Vec<Conv2d>,
    accumulate: DType,
}

impl KSplitConv {
    /// A layer; errors and logs name it.
    ///
    /// # Errors
    /// [`LayerError::Weights`]; [`LayerError::Refused`] for groups, two-term weights or slices, which have no form of this kind.
    pub fn new(name: &str, spec: KSplitSpec) -> Result<Self, LayerError> {
        let KSplitSpec {
            whole,
            parts,
            accumulate,
        } = spec;
        whole.check(name)?;
        let refused = [
            (whole.groups != 1, "groups"),
            (whole.terms != WeightTerms::One, "two-term weights"),
            (whole.slicing != Slicing::Whole, "slices"),
        ];
        if let Some((_, what)) = refused.into_iter().find(|&(asked, _)| asked) {
            let reason = format!("a convolution split along its input channels has no {what}");
            return Err(LayerError::refused(name, reason));
        }
        let [a, b, c, d] = whole.dims;
        // The values came out of an array of these dimensions.
        let weight = ArrayView4::from_shape((a, b, c, d), &whole.weights.weight)
            .map_err(|error| LayerError::weights(name, error.to_string()))?;
        let split = split_k_weights(name, weight, &parts)?;
        let parts = split.into_iter().enumerate().map(|(index, weight)| {
            let bias = whole.weights.bias.as_deref().filter(|_| index == 0);
            let spec = Conv2dSpec::new(weight.view(), bias, whole.math)
                .stride(whole.stride)
                .padding(whole.padding)
                .dilation(whole.dilation);
            Conv2d::new(&format!("{name}.part{index}"), spec)
        });
        Ok(Self {
            name: name.into(),
            parts: parts.collect::<Result<_, _>>()?,
            whole,
            accumulate,
        })
    }

    /// Runs into a new feature map of the type that the layer names or else the inputs', which the caller frees.
    ///
    /// # Errors
    /// [`LayerError::Count`], [`LayerError::Shape`], [`LayerError::DType`], [`LayerError::Device`]; nothing stays allocated but
    /// weights.
    pub fn forward(
        &self,
        ops: &mut OpContext<'_>,
        inputs: &[DeviceTensor],
    ) -> Result<DeviceTensor, LayerError> {
        let (Some(first), true) = (inputs.first(), inputs.len() == self.parts.len()) else {
            return Err(LayerError::Count {
                layer: self.name.clone(),
                found: inputs.len(),
                expected: self.parts.len(),
            });
        };
        if let Some(other) = inputs.iter().find(|input| input.dtype != first.dtype) {
            return Err(LayerError::dtype(
                &self.name,
                "an input",
                other.dtype,
                first.dtype,
            ));
        }
        if ![DType::F32, first.dtype].contains(&self.accumulate) {
            return Err(LayerError::dtype(
                &self.name,
                "the partial sum",
                self.accumulate,
                DType::F32,
            ));
        }
        let sum = self.sum(ops, inputs, first)?;
        let activated = activate(ops, &self.name, self.whole.activation, &sum);
        let dtype = self.whole.output.unwrap_or(first.dtype);
        let finished = activated.and_then(|()| {
            if dtype == sum.dtype {
                return Ok(sum);
            }
            let [n, c, h, w] = self.parts[0].out_shape(first)?;
            let map = new_map(ops, &self.name, [n, c, h, w], dtype)?;
            made(ops, map, |ops, map| {
                ops.copy(&sum, map).map_err(LayerError::device(&self.name))
            })
        });
        if !matches!(&finished, Ok(map) if map.buffer == sum.buffer) {
            free(ops, &[sum]);
        }
        finished
    }

    /// The sum of all parts, before the activation.
    fn sum(
        &self,
        ops: &mut OpContext<'_>,
        inputs: &[DeviceTensor],
        first: &DeviceTensor,
    ) -> Result<DeviceTensor, LayerError> {
        let shape = self.parts[0].out_shape(first)?;
        let mut sum: Option<DeviceTensor> = None;
        for (part, input) in self.parts.iter().zip(inputs) {
            let next = new_map(ops, &self.name, shape, self.accumulate).and_then(|map| {
                made(ops, map, |ops, map| match &sum {
                    None => part.forward_into(ops, input, map),
                    Some(sum) => part.forward_added(ops, input, sum, Activation::Identity, map),
                })
            });
            if let Some(sum) = sum {
                free(ops, &[sum]);
            }
            sum = Some(next?);
        }
        // There is one part at least, since the parts divide the channels.
        sum.ok_or_else(|| LayerError::weights(&self.name, "there are no parts"))
    }

    /// The layer of each part.
    #[must_use]
    pub fn parts(&self) -> &[Conv2d] {
        &self.parts
    }

    /// Returns the weights' memory. The layer may run again.
    pub fn release(&self, device: &mut dyn Device) {
        for part in &self.parts {
            part.release(device);
        }
    }

    /// One line for logs.
    #[must_use]
    pub fn describe(&self) -> String {
        let sizes: Vec<usize> = self.parts.iter().map(|part| part.spec().inputs()).collect();
        format!(
            "{}: {sizes:?} input channels apart, sums in {}",
            self.name, self.accumulate
        )
    }
}
