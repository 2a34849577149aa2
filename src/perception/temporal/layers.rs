//! Layers with weights out of a seed.

use ndarray::{Array1, Array2};

use super::TemporalOptions;
use super::random::SeededWeights;
use crate::device::{Activation, BufferClass, Device};
use crate::models::centerhead::HeadSpec;
use crate::models::{BlockError, ConvSpec, RowLinear};
use crate::ops::conv::{Conv2d, Conv2dSpec, LayerError};
use crate::ops::{DeviceTensor, OpContext};
use crate::precision::Math;
use crate::tensor::HostTensor;
use crate::trace::WorkError;

/// Size of biases.
const BIAS: f32 = 0.1;

/// A convolution with a ReLU: `channels` from and to, a square kernel that keeps the size at stride 1.
pub(super) fn conv(
    seed: u64,
    name: &str,
    [inputs, outputs]: [usize; 2],
    kernel: usize,
    stride: usize,
) -> Result<Conv2d, LayerError> {
    let mut drawn = SeededWeights::new(seed, name);
    let weight = drawn.conv(outputs, inputs, kernel);
    let bias = drawn.numbers(outputs, BIAS);
    let spec = Conv2dSpec::new(weight.view(), Some(&bias), Math::Native)
        .stride([stride; 2])
        .activation(Activation::Relu);
    Conv2d::new(name, spec)
}

/// The same as a block takes it.
pub(super) fn conv_spec(seed: u64, name: &str, [inputs, outputs]: [usize; 2], kernel: usize) -> ConvSpec {
    let mut drawn = SeededWeights::new(seed, name);
    let weight = drawn.conv(outputs, inputs, kernel);
    let bias = drawn.numbers(outputs, BIAS);
    ConvSpec::conv(weight.view(), &bias)
}

/// One output of a centre head, whose values lie around `centre` within about `gain`.
pub(super) fn head(
    seed: u64,
    name: &str,
    [inputs, hidden]: [usize; 2],
    centre: &[f32],
    gain: f32,
) -> HeadSpec {
    let mut drawn = SeededWeights::new(seed, name);
    let outputs = centre.len();
    let weight = drawn.conv(outputs, hidden, 1).mapv(|w| w * gain);
    HeadSpec {
        name: name.to_owned(),
        hidden: conv_spec(seed, &format!("{name}.hidden"), [inputs, hidden], 1),
        output: ConvSpec::conv(weight.view(), centre).linear(),
    }
}

/// A dense layer over rows.
pub(super) fn dense(
    seed: u64,
    name: &str,
    [inputs, outputs]: [usize; 2],
    relu: bool,
) -> Result<RowLinear, BlockError> {
    let mut drawn = SeededWeights::new(seed, name);
    let gain = if relu { std::f32::consts::SQRT_2 } else { 1.0 };
    let weight = drawn.dense(inputs, outputs, gain);
    let bias = drawn.numbers(outputs, BIAS);
    RowLinear::new(name, weight.view(), Some(&bias), relu)
}

/// A dense layer whose inputs are of different sizes (each is brought to about 1 by `input_scales`), and whose outputs
/// lie around `centre` within about `gain`.
pub(super) fn scaled_dense(
    seed: u64,
    name: &str,
    input_scales: &[f32],
    centre: &[f32],
    gain: f32,
) -> Result<RowLinear, BlockError> {
    let mut drawn = SeededWeights::new(seed, name);
    let mut weight: Array2<f32> = drawn.dense(input_scales.len(), centre.len(), gain);
    let scales = Array1::from(input_scales.to_vec());
    weight *= &scales.insert_axis(ndarray::Axis(1));
    RowLinear::new(name, weight.view(), Some(centre), false)
}

/// Returns the weights' memory of several layers.
pub(super) fn release_all(device: &mut dyn Device, convs: &[&Conv2d], dense: &[&RowLinear]) {
    convs.iter().for_each(|layer| layer.release(device));
    dense.iter().for_each(|layer| layer.release(device));
}

/// Brings constants to the device; nothing stays there if one of them is refused.
pub(super) fn upload_all<const N: usize>(
    ops: &mut OpContext<'_>,
    constants: [&HostTensor; N],
) -> Result<[DeviceTensor; N], WorkError> {
    let mut there = Vec::with_capacity(N);
    for constant in constants {
        match ops.upload(constant, BufferClass::Weight) {
            Ok(tensor) => there.push(tensor),
            Err(error) => {
                free_all(ops.device, &there);
                return Err(error.into());
            }
        }
    }
    there
        .try_into()
        .map_err(|_| "there are as many tensors as constants".into())
}

/// Returns constants' memory; a device that cannot take one back says so on the next call.
pub(super) fn free_all(device: &mut dyn Device, tensors: &[DeviceTensor]) {
    for tensor in tensors {
        if let Err(error) = device.free(tensor.buffer) {
            tracing::debug!(%error, "a buffer could not be returned");
        }
    }
}

/// Banks of a state: with room for one stream alone its states never leave.
pub(super) const fn bank_count(options: &TemporalOptions) -> usize {
    match options.streams.max_streams {
        0 | 1 => 0,
        streams => streams,
    }
}
