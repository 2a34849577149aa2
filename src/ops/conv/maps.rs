//! Feature maps: made, brought to the device and back, given up.

use std::time::Duration;

use ndarray::{Array4, ArrayView4, Ix4};

use super::LayerError;
use crate::device::{BufferClass, Device, DeviceError};
use crate::ops::{DeviceTensor, OpContext};
use crate::tensor::{DType, HostTensor, TensorSpec};

const MAP: &str = "feature map";

/// A new feature map `[N, C, H, W]` of class [`BufferClass::Intermediate`], stored `[N, H, W, C]`.
///
/// # Errors
/// [`LayerError::Tensor`], [`LayerError::Device`].
pub fn new_map(
    ops: &mut OpContext<'_>,
    layer: &str,
    [n, c, h, w]: [usize; 4],
    dtype: DType,
) -> Result<DeviceTensor, LayerError> {
    let spec = TensorSpec::new(&[n, h, w, c], dtype).map_err(LayerError::tensor(layer))?;
    let tensor = ops
        .alloc(&spec, BufferClass::Intermediate)
        .map_err(LayerError::device(layer))?;
    channels_second(&tensor, layer)
}

/// A dense `[N, H, W, C]` tensor as `[N, C, H, W]`.
fn channels_second(tensor: &DeviceTensor, layer: &str) -> Result<DeviceTensor, LayerError> {
    let view = tensor
        .view
        .transpose(&[0, 3, 1, 2])
        .map_err(LayerError::tensor(layer))?;
    Ok(DeviceTensor { view, ..*tensor })
}

/// Brings an image `[N, C, H, W]` to the device, rounded to a type. For work outside of traces.
///
/// # Errors
/// [`LayerError::Weights`] for a type that does not hold the values; as [`OpContext::upload`].
pub fn map_from_host(
    ops: &mut OpContext<'_>,
    image: ArrayView4<'_, f32>,
    dtype: DType,
    class: BufferClass,
) -> Result<DeviceTensor, LayerError> {
    let last = image.permuted_axes([0, 2, 3, 1]);
    let values: Vec<f32> = last.iter().copied().collect();
    let host = HostTensor::from_slice(last.shape(), &values).map_err(LayerError::tensor(MAP))?;
    let host = host
        .cast(dtype)
        .map_err(|error| LayerError::weights(MAP, error.to_string()))?;
    let tensor = ops.upload(&host, class).map_err(LayerError::device(MAP))?;
    channels_second(&tensor, MAP)
}

/// Waits for a feature map and returns it to the host as fp32.
///
/// # Errors
/// [`LayerError::Shape`] for another rank; [`LayerError::Weights`] for a type that is no number; as
/// [`OpContext::download`].
pub fn map_to_host(
    ops: &mut OpContext<'_>,
    map: &DeviceTensor,
    deadline: Duration,
) -> Result<Array4<f32>, LayerError> {
    let host = ops.download(map, deadline).map_err(LayerError::device(MAP))?;
    let host = host
        .cast(DType::F32)
        .map_err(|error| LayerError::weights(MAP, error.to_string()))?;
    let array = host.array::<f32>().map_err(LayerError::tensor(MAP))?;
    array
        .into_dimensionality::<Ix4>()
        .map(|array| array.to_owned())
        .map_err(|_| LayerError::shape(MAP, "the map", map.view.shape, "[N, C, H, W]"))
}

/// Frees tensors; a device that cannot take one back says so on the next call.
pub(in crate::ops) fn free(ops: &mut OpContext<'_>, tensors: &[DeviceTensor]) {
    for tensor in tensors {
        give_back(ops.device.free(tensor.buffer));
    }
}

/// Logs that a buffer could not be returned.
pub(super) fn give_back(freed: Result<(), DeviceError>) {
    if let Err(error) = freed {
        tracing::debug!(%error, "a buffer could not be returned");
    }
}

/// Runs a function on a new map, and frees the map where it fails.
pub(in crate::ops) fn made(
    ops: &mut OpContext<'_>,
    map: DeviceTensor,
    run: impl FnOnce(&mut OpContext<'_>, &DeviceTensor) -> Result<(), LayerError>,
) -> Result<DeviceTensor, LayerError> {
    match run(ops, &map) {
        Ok(()) => Ok(map),
        Err(error) => {
            free(ops, &[map]);
            Err(error)
        }
    }
}

/// Runs a function on a map that is freed behind it.
pub(in crate::ops) fn lent<T>(
    ops: &mut OpContext<'_>,
    map: DeviceTensor,
    run: impl FnOnce(&mut OpContext<'_>, &DeviceTensor) -> Result<T, LayerError>,
) -> Result<T, LayerError> {
    let result = run(ops, &map);
    free(ops, &[map]);
    result
}

/// Returns buffers of weights.
pub(super) fn release(device: &mut dyn Device, buffers: impl Iterator<Item = crate::device::BufferId>) {
    for buffer in buffers {
        give_back(device.free(buffer));
    }
}
