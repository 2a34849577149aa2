//! The tables that sparse layers read: rows of features, stored in fp32 or as one or two bf16 terms.

use half::bf16;
use ndarray::ArrayView2;

use super::super::block_error::BlockError;
use super::super::gather::gather_rows_into;
use super::super::layers::free;
use crate::device::BufferClass;
use crate::ops::{DeviceTensor, OpContext};
use crate::tensor::{DType, HostTensor, Shape, TensorError, TensorSpec};

const DENSE: &str = "dense gather";

/// How a table stores a value `x`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum TableForm {
    /// fp32, exact.
    #[default]
    Float32,
    /// bf16, rounded to nearest even.
    Bfloat16,
    /// Two bf16 terms, `hi = bf16(x)` and `lo = bf16(x - hi)`, which together hold 16 bits of it. All `hi` of a row come
    /// first, then all `lo`.
    TwoTerms,
}

impl TableForm {
    /// Type of the table's elements.
    #[must_use]
    pub const fn dtype(self) -> DType {
        match self {
            Self::Float32 => DType::F32,
            Self::Bfloat16 | Self::TwoTerms => DType::Bf16,
        }
    }

    /// Elements that hold one value.
    #[must_use]
    pub const fn terms(self) -> usize {
        match self {
            Self::Float32 | Self::Bfloat16 => 1,
            Self::TwoTerms => 2,
        }
    }
}

/// Why features were not packed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// More rows than the table has.
    #[error("{rows} rows of features do not fit a table of {capacity}; choose a larger capacity")]
    Rows {
        /// Rows of the features.
        rows: usize,
        /// Rows of the table.
        capacity: usize,
    },
    /// Rows that are too short for the terms.
    #[error("{terms} terms of {channels} channels do not fit rows of {width}")]
    Width {
        /// Channels of the features.
        channels: usize,
        /// Terms of a value.
        terms: usize,
        /// Elements of a row.
        width: usize,
    },
    /// A table of another type or rank.
    #[error(
        "a table of {found} cannot hold features in the form {form:?}: it must be [rows, columns] of {expected}"
    )]
    Table {
        /// Shape and type of the table.
        found: String,
        /// The form.
        form: TableForm,
        /// Type that is needed.
        expected: DType,
    },
    /// A size that cannot be.
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

/// The table `(capacity, width)` of features `(N, C)`: rows past the features, and columns past the terms, are zeros.
/// `width` is the terms of the form times C if it is not given. The sentinel of an index into it is `capacity`, a row
/// that it does not have.
///
/// # Errors
/// [`TableError`].
pub fn pack_table(
    features: ArrayView2<'_, f32>,
    capacity: usize,
    form: TableForm,
    width: Option<usize>,
) -> Result<HostTensor, TableError> {
    let width = width.unwrap_or(form.terms() * features.ncols());
    let mut table = HostTensor::zeros(TensorSpec::new(&[capacity, width], form.dtype())?);
    pack_table_into(features, form, &mut table)?;
    Ok(table)
}

/// As [`pack_table`], into a table of another frame.
///
/// # Errors
/// [`TableError`]; the table is unchanged then.
pub fn pack_table_into(
    features: ArrayView2<'_, f32>,
    form: TableForm,
    table: &mut HostTensor,
) -> Result<(), TableError> {
    let (rows, channels) = features.dim();
    let (capacity, width) = match table.shape()[..] {
        [capacity, width] if table.dtype() == form.dtype() => (capacity, width),
        _ => {
            return Err(TableError::Table {
                found: format!("{} {}", table.shape(), table.dtype()),
                form,
                expected: form.dtype(),
            });
        }
    };
    if rows > capacity {
        return Err(TableError::Rows { rows, capacity });
    }
    let terms = form.terms();
    if channels.checked_mul(terms).is_none_or(|needed| needed > width) {
        return Err(TableError::Width {
            channels,
            terms,
            width,
        });
    }
    match form {
        TableForm::Float32 => {
            let values: &mut [f32] = table.as_mut_slice()?;
            write_rows(features, values, width, 0.0, |row, values| {
                for (to, &value) in row.iter_mut().zip(values) {
                    *to = value;
                }
            });
        }
        TableForm::Bfloat16 | TableForm::TwoTerms => {
            let values: &mut [bf16] = table.as_mut_slice()?;
            write_rows(features, values, width, bf16::ZERO, |row, values| {
                let (first, second) = row.split_at_mut(channels);
                for (to, &value) in first.iter_mut().zip(values.clone()) {
                    *to = bf16::from_f32(value);
                }
                if terms == 2 {
                    for ((to, &value), high) in second.iter_mut().zip(values).zip(first) {
                        *to = bf16::from_f32(value - high.to_f32());
                    }
                }
            });
        }
    }
    Ok(())
}

/// Clears a table and writes the features' rows.
fn write_rows<'a, T: Copy>(
    features: ArrayView2<'a, f32>,
    table: &mut [T],
    width: usize,
    zero: T,
    mut write: impl FnMut(&mut [T], ndarray::iter::Iter<'_, f32, ndarray::Ix1>),
) {
    table.fill(zero);
    if width == 0 {
        return;
    }
    for (row, values) in table.chunks_exact_mut(width).zip(features.outer_iter()) {
        write(row, values.iter());
    }
}

/// A dense form of a table `[V, D]` by slices of the grid: `index` is `[S, ..]`, one row number for each cell of a slice
/// and anything else, such as a sentinel, where no voxel is active. The result `[cells, S * D]` has slice `s` in
/// columns `s * D ..`, zeros where the index is none of the rows: with cells in the order of rows and columns of a map,
/// the feature map whose channels are the slices' channels one slice after another. It is freed by the caller.
///
/// # Errors
/// [`BlockError`]; nothing stays allocated.
pub fn dense_gather(
    ops: &mut OpContext<'_>,
    table: &DeviceTensor,
    index: &DeviceTensor,
) -> Result<DeviceTensor, BlockError> {
    let shape = index.view.shape;
    let sizes = shape.split_first().zip(table.view.shape.last());
    let Some(((&slices, cells), &columns)) = sizes.filter(|_| table.view.rank() == 2) else {
        let expected = "an index [S, ..] and a table [V, D]";
        return Err(BlockError::shape(DENSE, "the index", shape, expected));
    };
    let cells: usize = cells.iter().product();
    let dims = [cells, slices.saturating_mul(columns)];
    let spec = TensorSpec::new(&dims, table.dtype).map_err(BlockError::tensor(DENSE))?;
    let dense = ops
        .alloc(&spec, BufferClass::Intermediate)
        .map_err(BlockError::device(DENSE))?;
    for slice in 0..slices {
        let gathered = dense_slice(index, &dense, slice, [slices, cells, columns])
            .and_then(|[index, to]| gather_rows_into(ops, table, &index, &to));
        if let Err(error) = gathered {
            free(ops, &[dense]);
            return Err(error);
        }
    }
    Ok(dense)
}

/// One slice's row of the index, and its columns of the result.
fn dense_slice(
    index: &DeviceTensor,
    dense: &DeviceTensor,
    slice: usize,
    [slices, cells, columns]: [usize; 3],
) -> Result<[DeviceTensor; 2], BlockError> {
    let flat = Shape::new(&[slices, cells]).map_err(BlockError::tensor(DENSE))?;
    let flat = index
        .view
        .reshape(flat)
        .ok_or_else(|| BlockError::shape(DENSE, "the index", index.view.shape, "cells at equal distances"))?;
    let entries = flat.slice(0, slice, 1, 1).map_err(BlockError::tensor(DENSE))?;
    let to = (dense.view.slice(1, slice * columns, columns, 1)).map_err(BlockError::tensor(DENSE))?;
    Ok([
        DeviceTensor {
            view: entries,
            ..*index
        },
        DeviceTensor { view: to, ..*dense },
    ])
}
