//! Heads side by side in a row, and apart.

use super::{AttentionError, shape_error};
use crate::device::BufferClass;
use crate::ops::{DeviceTensor, OpContext};
use crate::tensor::{Shape, TensorSpec};

/// `[B, 1, S, H * D]` as `[B, H, S, D]`: a view, no operation.
///
/// # Errors
/// [`AttentionError::Shape`], [`AttentionError::Heads`].
pub fn split_heads(x: &DeviceTensor, heads: usize) -> Result<DeviceTensor, AttentionError> {
    let shape = x.view.shape;
    if shape.rank() != 4 || shape[1] != 1 {
        return Err(shape_error("the input", shape, "[batch, 1, rows, heads * size]"));
    }
    if heads == 0 || !shape[3].is_multiple_of(heads) {
        let what = format!("{} columns", shape[3]);
        return Err(AttentionError::Heads { what, heads });
    }
    let size = shape[3] / heads;
    let mut view = x.view;
    view.shape = Shape::new(&[shape[0], heads, shape[2], size])?;
    view.strides[1] = x.view.strides[3] * size as isize;
    Ok(DeviceTensor { view, ..*x })
}

/// Some columns of `[B, 1, S, C]`.
fn columns(x: &DeviceTensor, first: usize, count: usize) -> Result<DeviceTensor, AttentionError> {
    Ok(DeviceTensor {
        view: x.view.slice(3, first, count, 1)?,
        ..*x
    })
}

/// A projection `[B, 1, S, (H + 2 Hkv) * D]` of queries, keys and values side by side as three tensors of heads: views,
/// no operation. `kv_heads` is `num_heads` where keys and values have as many.
///
/// # Errors
/// [`AttentionError::Shape`], [`AttentionError::Heads`].
pub fn split_qkv(
    qkv: &DeviceTensor,
    num_heads: usize,
    kv_heads: usize,
) -> Result<[DeviceTensor; 3], AttentionError> {
    let shape = qkv.view.shape;
    let parts = kv_heads
        .checked_mul(2)
        .and_then(|both| both.checked_add(num_heads));
    let (Some(parts), [_, 1, _, width]) = (parts.filter(|_| num_heads > 0 && kv_heads > 0), &shape[..])
    else {
        return Err(shape_error(
            "the projection",
            shape,
            "[batch, 1, rows, (heads + 2 * kv_heads) * size]",
        ));
    };
    if !width.is_multiple_of(parts) {
        let what = format!("{width} columns of queries, keys and values");
        return Err(AttentionError::Heads { what, heads: parts });
    }
    let size = width / parts;
    let [q, k, v] = [
        (0, num_heads),
        (num_heads * size, kv_heads),
        ((num_heads + kv_heads) * size, kv_heads),
    ]
    .map(|(first, heads)| split_heads(&columns(qkv, first, heads * size)?, heads));
    Ok([q?, k?, v?])
}

/// Queries `[B, 1, S, H * D]` and a projection `[B, 1, S, 2 * Hkv * D]` of keys and values of the same rows as three
/// tensors of heads: views, no operation. For rows of another number, split both apart with [`split_heads`].
///
/// # Errors
/// [`AttentionError::Shape`], [`AttentionError::Heads`].
pub fn split_q_kv(
    q: &DeviceTensor,
    kv: &DeviceTensor,
    num_heads: usize,
    kv_heads: usize,
) -> Result<[DeviceTensor; 3], AttentionError> {
    let q_heads = split_heads(q, num_heads)?;
    let shape = kv.view.shape;
    let (rows, size) = (q.view.shape[2], q_heads.view.shape[3]);
    if shape.rank() != 4 || shape[..3] != q.view.shape[..3] {
        let expected = format!(
            "[{}, 1, {rows}, 2 * kv_heads * {size}]: as many rows as the queries; split heads apart for others",
            q.view.shape[0]
        );
        return Err(shape_error("the keys and values", shape, expected));
    }
    if shape[3] != 2 * kv_heads * size {
        let what = format!("{} columns of keys and values for heads of {size}", shape[3]);
        return Err(AttentionError::Heads {
            what,
            heads: kv_heads,
        });
    }
    let k = split_heads(&columns(kv, 0, kv_heads * size)?, kv_heads)?;
    let v = split_heads(&columns(kv, kv_heads * size, kv_heads * size)?, kv_heads)?;
    Ok([q_heads, k, v])
}

/// `[B, H, S, D]` as `[B, 1, S, H * D]`. Where the heads of a row lie side by side already (what [`split_heads`] made) it
/// is a view of the same buffer; else a new tensor, which the caller frees. The two cases differ in
/// [`DeviceTensor::buffer`].
///
/// # Errors
/// [`AttentionError`]; nothing stays allocated.
pub fn merge_heads(ops: &mut OpContext<'_>, x: &DeviceTensor) -> Result<DeviceTensor, AttentionError> {
    let shape = x.view.shape;
    if shape.rank() != 4 {
        return Err(shape_error("the input", shape, "[batch, heads, rows, size]"));
    }
    let dims = Shape::new(&[shape[0], 1, shape[2], shape[1] * shape[3]])?;
    let turned = DeviceTensor {
        view: x.view.transpose(&[0, 2, 1, 3])?,
        ..*x
    };
    if let Some(view) = turned.view.reshape(dims) {
        return Ok(DeviceTensor { view, ..*x });
    }
    let merged = ops.alloc(&TensorSpec::new(&dims, x.dtype)?, BufferClass::Intermediate)?;
    let copied =
        split_heads(&merged, shape[1]).and_then(|heads| ops.copy(x, &heads).map_err(AttentionError::from));
    match copied {
        Ok(()) => Ok(merged),
        Err(error) => {
            ops.free(&merged)?;
            Err(error)
        }
    }
}
