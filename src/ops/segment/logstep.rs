//! The maximum of segments without an operation for it: in steps that double the reach of every row.
//!
//! After round `r` every row holds the maximum of itself and the rows of its segment up to `2^(r + 1) - 1` before it, so
//! the last row of a segment ends with the segment's maximum. It is exact, and has the bits of
//! [`super::SegmentReduce`], but for one thing: zeros of both signs are equal here, so a segment whose maximum is zero may
//! give the zero of the other sign.

use ndarray::{Array2, ArrayView2};

use super::super::gather::gather_rows;
use super::super::{DeviceTensor, OpContext, OpRefusal};
use crate::device::{BinaryKind, OpDesc};

/// Rounds for segments of up to `longest` rows: the logarithm to base 2, rounded up.
#[must_use]
pub const fn segment_rounds(longest: usize) -> usize {
    match longest {
        0 | 1 => 0,
        _ => (longest - 1).ilog2() as usize + 1,
    }
}

/// For each round and row the row to compare with: `2^round` before it where that is one of its segment, else the row
/// itself. `ids` are the sorted segment numbers of the rows.
#[must_use]
pub fn segment_shift_tables(ids: &[u32], rounds: usize) -> Vec<Vec<u32>> {
    let shifted = |round: usize, row: usize| {
        let before = 1_usize
            .checked_shl(round as u32)
            .and_then(|step| row.checked_sub(step));
        before.filter(|&before| ids[before] == ids[row]).unwrap_or(row) as u32
    };
    (0..rounds)
        .map(|round| (0..ids.len()).map(|row| shifted(round, row)).collect())
        .collect()
}

/// The last row of each segment; `empty_row`, which is none of the rows, for a segment that has none.
#[must_use]
pub fn segment_last_rows(offsets: &[u32], empty_row: u32) -> Vec<u32> {
    let last = |ends: &[u32]| if ends[0] < ends[1] { ends[1] - 1 } else { empty_row };
    offsets.windows(2).map(last).collect()
}

/// The maxima `[segments, C]` of the segments of rows `[.., R, C]`: a gather and a maximum for each table of
/// [`segment_shift_tables`], then a gather of [`segment_last_rows`]. Segments without rows are zeros. Exact for segments of
/// up to `2^rounds` rows. Freed by the caller.
///
/// # Errors
/// [`OpRefusal`]; nothing stays allocated.
pub fn logstep_segment_max(
    ops: &mut OpContext<'_>,
    rows: &DeviceTensor,
    shift_tables: &[DeviceTensor],
    last_rows: &DeviceTensor,
) -> Result<DeviceTensor, OpRefusal> {
    const OP: &str = "logstep_segment_max";
    let mut last = rows
        .as_rows()
        .ok_or_else(|| OpRefusal::shape(OP, "the rows", rows.view.shape, "rows at equal distances"))?;
    for table in shift_tables {
        let step = round(ops, OP, &last, table);
        if last.buffer != rows.buffer {
            ops.discard(&[last]);
        }
        last = step?;
    }
    let maxima = gather_rows(ops, &last, last_rows);
    if last.buffer != rows.buffer {
        ops.discard(&[last]);
    }
    maxima
}

fn round(
    ops: &mut OpContext<'_>,
    op: &'static str,
    rows: &DeviceTensor,
    table: &DeviceTensor,
) -> Result<DeviceTensor, OpRefusal> {
    let shifted = gather_rows(ops, rows, table)?;
    let made = ops.make(op, &rows.view.shape, rows.dtype, |ops, larger| {
        let maximum = OpDesc::Binary {
            lhs: rows.operand(),
            rhs: shifted.operand(),
            dst: larger.operand(),
            kind: BinaryKind::Max,
        };
        ops.run(&maximum, &[rows.buffer, shifted.buffer, larger.buffer])
            .map_err(OpRefusal::device(op))
    });
    ops.discard(&[shifted]);
    made
}

/// [`logstep_segment_max`] on the host.
#[must_use]
pub fn logstep_segment_max_host(
    rows: ArrayView2<'_, f32>,
    shift_tables: &[Vec<u32>],
    last_rows: &[u32],
) -> Array2<f32> {
    let mut last = rows.to_owned();
    for table in shift_tables {
        let before = last.clone();
        for ((row, column), value) in last.indexed_iter_mut() {
            *value = value.max(before[[table[row] as usize, column]]);
        }
    }
    Array2::from_shape_fn((last_rows.len(), rows.ncols()), |(segment, column)| {
        last.get((last_rows[segment] as usize, column))
            .copied()
            .unwrap_or(0.0)
    })
}
