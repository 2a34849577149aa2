//! Weights on the device, one buffer for each form in which a layer ran.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use super::LayerError;
use super::maps::release;
use crate::device::{BufferId, Conv2dDesc, Device, DeviceError, OpDesc, WeightDesc};
use crate::ops::{DeviceTensor, OpContext};
use crate::tensor::{DType, Shape};

/// An input for which a layer has its weights ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PreparedInput {
    /// Logical shape, `[N, C, H, W]`.
    pub shape: Shape,
    /// Element type.
    pub dtype: DType,
}

/// Host weights of one convolution of a layer: `[Cout, Cin / groups, KH, KW]` and a bias.
#[derive(Debug, Clone)]
pub(in crate::ops) struct HostWeights {
    pub(in crate::ops) weight: Vec<f32>,
    pub(in crate::ops) bias: Option<Vec<f32>>,
}

#[derive(Debug, Default)]
struct Ready {
    inputs: Vec<PreparedInput>,
    buffers: HashMap<(usize, Conv2dDesc), BufferId>,
}

/// The prepared weights of a layer.
#[derive(Debug, Default)]
pub(in crate::ops) struct Prepared(Mutex<Ready>);

impl Prepared {
    /// Launches a convolution with some of a layer's weights, `part` telling which; they are prepared if they are not yet.
    pub(in crate::ops) fn run(
        &self,
        ops: &mut OpContext<'_>,
        layer: &str,
        (part, weights): (usize, &HostWeights),
        desc: Conv2dDesc,
        [input, output]: [&DeviceTensor; 2],
        residual: Option<&DeviceTensor>,
    ) -> Result<(), LayerError> {
        let weights = self.buffer(ops.device, part, weights, &desc);
        let mut buffers = vec![
            input.buffer,
            weights.map_err(LayerError::device(layer))?,
            output.buffer,
        ];
        buffers.extend(residual.map(|residual| residual.buffer));
        ops.run(&OpDesc::Conv2d(desc), &buffers)
            .map_err(LayerError::device(layer))
    }

    fn buffer(
        &self,
        device: &mut dyn Device,
        part: usize,
        weights: &HostWeights,
        desc: &Conv2dDesc,
    ) -> Result<BufferId, DeviceError> {
        let mut ready = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (part, desc.clone());
        if let Some(&buffer) = ready.buffers.get(&key) {
            return Ok(buffer);
        }
        let buffer = device.prepare_weights(&WeightDesc::Conv2d {
            desc,
            weight: &weights.weight,
            bias: weights.bias.as_deref(),
        })?;
        ready.buffers.insert(key, buffer);
        Ok(buffer)
    }

    /// Remembers that a layer has run on an input of this kind.
    pub(in crate::ops) fn ran(&self, input: &DeviceTensor) {
        let input = PreparedInput {
            shape: input.view.shape,
            dtype: input.dtype,
        };
        let mut ready = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !ready.inputs.contains(&input) {
            ready.inputs.push(input);
        }
    }

    pub(in crate::ops) fn inputs(&self) -> Vec<PreparedInput> {
        let ready = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ready.inputs.clone()
    }

    pub(in crate::ops) fn release(&self, device: &mut dyn Device) {
        let ready = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        release(device, ready.buffers.into_values());
    }
}
