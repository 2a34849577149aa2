//! Segments on the host.

use std::ops::Range;

use ndarray::{Array2, ArrayView2};

use crate::device::SegmentOp;

/// Bits of a float as an integer of the same order: `-0` below `+0`, a NaN beyond the infinity of its sign.
const fn key(x: f32) -> i32 {
    let bits = x.to_bits().cast_signed();
    bits ^ ((bits >> 31) & i32::MAX)
}

/// What [`super::SegmentReduce`] computes: maximum and minimum in its order of numbers, sum and mean in float64. Offsets
/// are cut to the number of rows; a segment without rows gets `empty_value`.
#[must_use]
pub fn segment_reduce_host(
    rows: ArrayView2<'_, f32>,
    offsets: &[u32],
    op: SegmentOp,
    empty_value: f32,
) -> Array2<f32> {
    let segments = offsets.len().saturating_sub(1);
    Array2::from_shape_fn((segments, rows.ncols()), |(segment, column)| {
        let ends = [segment, segment + 1].map(|at| (offsets[at] as usize).min(rows.nrows()));
        let values = (ends[0]..ends[1]).map(|row| rows[[row, column]]);
        let sum = || values.clone().map(f64::from).sum::<f64>();
        let found = match op {
            SegmentOp::Max => values.max_by_key(|&x| key(x)),
            SegmentOp::Min => values.min_by_key(|&x| key(x)),
            SegmentOp::Sum => (ends[0] < ends[1]).then(|| sum() as f32),
            SegmentOp::Mean => (ends[0] < ends[1]).then(|| (sum() / (ends[1] - ends[0]) as f64) as f32),
        };
        found.unwrap_or(empty_value)
    })
}

/// Which segments each of `workers` workers has when the work is divided by rows and results: a segment belongs to the
/// worker in whose share of `rows + segments` steps its `offsets[s] + s` lies. For checked offsets.
#[must_use]
pub fn worker_segments(offsets: &[u32], rows: usize, workers: usize) -> Vec<Range<usize>> {
    let segments = offsets.len().saturating_sub(1);
    let total = rows + segments;
    let first = |worker: usize| {
        let cost = (total as u128 * worker as u128 / workers.max(1) as u128) as usize;
        let places: Vec<usize> = (0..segments).collect();
        places.partition_point(|&s| (offsets[s] as usize).min(rows) + s < cost)
    };
    (0..workers)
        .map(|worker| first(worker)..first(worker + 1))
        .collect()
}
