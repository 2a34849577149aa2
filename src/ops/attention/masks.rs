//! Masks over keys.

use super::{AttentionError, KEY_ALIGNMENT, shape_error};
use crate::ops::DeviceTensor;
use crate::tensor::{DType, HostTensor, Shape, TensorSpec};

/// The next multiple of [`KEY_ALIGNMENT`]: how many keys masked attention over `keys` runs on.
#[must_use]
pub const fn aligned_keys(keys: usize) -> usize {
    keys.next_multiple_of(KEY_ALIGNMENT)
}

/// 0 for keys that may be seen and `-inf` for others, fp32 `[1, 1, 1, Sk]`.
///
/// # Errors
/// [`AttentionError::Tensor`] for a length that cannot be.
pub fn key_bias_row(valid: &[bool]) -> Result<HostTensor, AttentionError> {
    key_bias(valid, 1)
}

/// [`key_bias_row`] for every query, fp32 `[1, 1, Sq, Sk]`.
///
/// # Errors
/// [`AttentionError::Tensor`] for a size that cannot be.
pub fn key_bias(valid: &[bool], queries: usize) -> Result<HostTensor, AttentionError> {
    let spec = TensorSpec::new(&[1, 1, queries, valid.len()], DType::F32)?;
    let mut bias = HostTensor::zeros(spec);
    for row in bias.as_mut_slice::<f32>()?.chunks_exact_mut(valid.len().max(1)) {
        for (value, &valid) in row.iter_mut().zip(valid) {
            *value = if valid { 0.0 } else { f32::NEG_INFINITY };
        }
    }
    Ok(bias)
}

/// A row of [`key_bias_row`] on the device as the mask of `queries` queries: a view, no operation. The row can be an
/// input that changes from frame to frame.
///
/// # Errors
/// [`AttentionError::Shape`].
pub fn expand_key_bias(row: &DeviceTensor, queries: usize) -> Result<DeviceTensor, AttentionError> {
    let shape = row.view.shape;
    if shape.rank() != 4 || shape[..3] != [1, 1, 1] {
        return Err(shape_error("the row", shape, "[1, 1, 1, keys]"));
    }
    Ok(DeviceTensor {
        view: row.view.broadcast_to(Shape::new(&[1, 1, queries, shape[3]])?)?,
        ..*row
    })
}
