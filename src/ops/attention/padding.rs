//! Heads that are padded to whole tiles.

use ndarray::{Array1, Array2, ArrayView1, ArrayView2};

use super::{AttentionError, KEY_ALIGNMENT, shape_error};
use crate::device::{BufferClass, OpDesc, Scalar};
use crate::ops::{DeviceTensor, OpContext};
use crate::tensor::TensorSpec;

/// The size to which heads of `size` values are padded.
#[must_use]
pub const fn padded_head_dim(size: usize) -> usize {
    size.next_multiple_of(KEY_ALIGNMENT)
}

/// `[B, H, S, D]` with zeros behind the values of each head, a new tensor `[B, H, S, padded_head_dim(D)]` that the caller
/// frees. Padding the weights ([`pad_head_columns`]) costs nothing and is to be preferred.
///
/// # Errors
/// [`AttentionError`]; nothing stays allocated.
pub fn pad_head_dim(ops: &mut OpContext<'_>, x: &DeviceTensor) -> Result<DeviceTensor, AttentionError> {
    let shape = x.view.shape;
    let Some((&size, front)) = shape.split_last() else {
        return Err(shape_error("the input", shape, "at least one axis"));
    };
    let padded_size = padded_head_dim(size);
    let dims = [front, &[padded_size]].concat();
    let padded = ops.alloc(&TensorSpec::new(&dims, x.dtype)?, BufferClass::Intermediate)?;
    let fill = |ops: &mut OpContext<'_>| -> Result<(), AttentionError> {
        let axis = shape.rank() - 1;
        let part = |first: usize, count: usize| -> Result<DeviceTensor, AttentionError> {
            Ok(DeviceTensor {
                view: padded.view.slice(axis, first, count, 1)?,
                ..padded
            })
        };
        ops.copy(x, &part(0, size)?)?;
        if padded_size > size {
            let zeros = OpDesc::Fill {
                dst: part(size, padded_size - size)?.operand(),
                value: Scalar::new(0.0),
            };
            ops.run(&zeros, &[padded.buffer])?;
        }
        Ok(())
    };
    match fill(ops) {
        Ok(()) => Ok(padded),
        Err(error) => {
            ops.free(&padded)?;
            Err(error)
        }
    }
}

fn head_size(what: &str, length: usize, heads: usize, size: usize) -> Result<usize, AttentionError> {
    if heads > 0 && size > 0 && heads.checked_mul(size) == Some(length) {
        return Ok(padded_head_dim(size));
    }
    let what = format!("{what} of {length}, for heads of {size},");
    Err(AttentionError::Heads { what, heads })
}

/// A projection to heads, `[inputs, H * D]` and its bias `[H * D]`, with zero columns behind each head, so that a head
/// has [`padded_head_dim`] values. Exact: products of padded queries and keys are those of the others.
///
/// # Errors
/// [`AttentionError::Heads`] where `heads * size` is not the number of columns or biases.
pub fn pad_head_columns(
    weight: ArrayView2<'_, f32>,
    bias: Option<ArrayView1<'_, f32>>,
    heads: usize,
    size: usize,
) -> Result<(Array2<f32>, Option<Array1<f32>>), AttentionError> {
    let padded = head_size("columns", weight.ncols(), heads, size)?;
    let mut wide = Array2::zeros((weight.nrows(), heads * padded));
    for (column, values) in weight.columns().into_iter().enumerate() {
        wide.column_mut(column / size * padded + column % size)
            .assign(&values);
    }
    let Some(bias) = bias else {
        return Ok((wide, None));
    };
    head_size("biases", bias.len(), heads, size)?;
    let mut wide_bias = Array1::zeros(heads * padded);
    for (column, &value) in bias.iter().enumerate() {
        wide_bias[column / size * padded + column % size] = value;
    }
    Ok((wide, Some(wide_bias)))
}

/// A projection from heads, `[H * D, outputs]`, with zero rows behind each head.
///
/// # Errors
/// [`AttentionError::Heads`] where `heads * size` is not the number of rows.
pub fn pad_head_rows(
    weight: ArrayView2<'_, f32>,
    heads: usize,
    size: usize,
) -> Result<Array2<f32>, AttentionError> {
    let padded = head_size("rows", weight.nrows(), heads, size)?;
    let mut tall = Array2::zeros((heads * padded, weight.ncols()));
    for (row, values) in weight.rows().into_iter().enumerate() {
        tall.row_mut(row / size * padded + row % size).assign(&values);
    }
    Ok(tall)
}
