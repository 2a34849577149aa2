//! The weighted means, without what the deployed nodes do with them.

use std::ops::Range;

use super::super::columns::Sampler;
use super::super::source_rows::ByteRows;
use super::super::{Contraction, Kernels};
use super::TriangleGeometry;
use super::taps::{ColumnTaps, Window, windows};

/// Channels of the result.
const CHANNELS: usize = 3;
/// Sums beside one another: one a channel, and that of the weights.
pub(in crate::image) const SUMS: usize = CHANNELS + 1;

/// A crop of a resized image: its tables, computed once.
#[derive(Debug, Clone)]
pub(super) struct TriangleResize {
    pub(super) geometry: TriangleGeometry,
    contraction: Contraction,
    kernels: Kernels,
    columns: ColumnTaps,
    rows: Vec<Window>,
    /// Most output rows that one source row takes part in.
    open_rows: usize,
}

/// Memory of a triangle resize.
#[derive(Debug, Clone, Default)]
pub(in crate::image) struct TriangleScratch {
    /// A source row, channel by channel.
    planes: Vec<u8>,
    /// Sums of the output rows that are being summed up.
    sums: Vec<f32>,
}

/// The part that a source row has in an output row.
#[derive(Debug, Clone, Copy)]
pub(in crate::image) struct Share {
    /// Where the sums of the output row begin.
    pub(in crate::image) sums_at: usize,
    /// Weight of the source row in it.
    pub(in crate::image) weight: f32,
}

impl TriangleResize {
    pub(super) fn new(geometry: TriangleGeometry, contraction: Contraction) -> Self {
        let [across, down] = [0, 1].map(|axis| {
            let windows = windows(
                geometry.source_px[axis],
                geometry.resized_px[axis],
                geometry.start_px[axis],
                geometry.crop_px[axis],
                contraction,
            );
            windows.collect::<Vec<_>>()
        });
        Self {
            geometry,
            contraction,
            kernels: Kernels::detect(),
            columns: ColumnTaps::new(&across, geometry.source_px[0]),
            open_rows: most_open(&down),
            rows: down,
        }
    }

    pub(super) fn with_kernels(mut self, kernels: Kernels) -> Self {
        self.kernels = kernels;
        self
    }

    /// Computes the rows `out_rows` and hands each to `done` in three planes of the crop's width, in the order
    /// of the sampler's first three lanes. A mean is zero where no source pixel has weight.
    ///
    /// Every source row is read once and added to all output rows that it has a part in.
    pub(super) fn means(
        &self,
        source: &mut impl ByteRows,
        sampler: &Sampler<4>,
        out_rows: Range<usize>,
        scratch: &mut TriangleScratch,
        mut done: impl FnMut(usize, [&[f32]; CHANNELS]),
    ) {
        let row_len = SUMS * self.columns.stride;
        let TriangleScratch { planes, sums } = scratch;
        if sums.len() < self.open_rows * row_len {
            sums.resize(self.open_rows * row_len, 0.0);
        }
        let sums_at = |y: usize| y % self.open_rows * row_len;
        // Rows from `closed` to `opened` are being summed up; those before are done.
        let (mut closed, mut opened) = (out_rows.start, out_rows.start);
        let first = self.rows.get(closed).map_or(0, |window| window.first);
        for source_y in first..self.geometry.source_px[1] {
            while opened < out_rows.end && self.rows[opened].first <= source_y {
                sums[sums_at(opened)..][..row_len].fill(0.0);
                opened += 1;
            }
            let row = source.row(source_y);
            let pixels = self.kernels.prepare_row(row, sampler, &self.columns, planes);
            for y in (closed..opened).step_by(2) {
                let share = |y: usize| Share {
                    sums_at: sums_at(y),
                    weight: self.rows[y].weights[source_y - self.rows[y].first],
                };
                if y + 1 < opened {
                    pixels.accumulate(self.contraction, [share(y), share(y + 1)], sums);
                } else {
                    pixels.accumulate(self.contraction, [share(y)], sums);
                }
            }
            while closed < opened && self.rows[closed].is_last(source_y) {
                self.close(closed, &mut sums[sums_at(closed)..][..row_len], &mut done);
                closed += 1;
            }
            if closed == out_rows.end {
                return;
            }
        }
        // What lies below the resized image.
        for y in closed..out_rows.end {
            let sums = &mut sums[sums_at(y)..][..row_len];
            sums.fill(0.0);
            self.close(y, sums, &mut done);
        }
    }

    fn close(&self, y: usize, sums: &mut [f32], done: &mut impl FnMut(usize, [&[f32]; CHANNELS])) {
        let stride = self.columns.stride;
        let (values, weights) = sums.split_at_mut(CHANNELS * stride);
        for plane in values.chunks_exact_mut(stride) {
            for (value, &weight) in plane.iter_mut().zip(&*weights) {
                *value /= if weight > 0.0 { weight } else { 1.0 };
            }
        }
        done(
            y,
            [0, 1, 2].map(|c| &values[c * stride..][..self.geometry.crop_px[0]]),
        );
    }
}

/// Most windows that have a sample in common with the first of them, and one at least.
fn most_open(windows: &[Window]) -> usize {
    let mut end = 0;
    let open = windows.iter().enumerate().map(|(y, window)| {
        while windows
            .get(end)
            .is_some_and(|w| w.first < window.first + window.weights.len())
        {
            end += 1;
        }
        end.saturating_sub(y)
    });
    open.max().unwrap_or(0).max(1)
}

/// Adds the pixels of a source row to the sums of `ROWS` output rows: with `w = column weight * row weight`,
/// `sum = pixel * w + sum` for every channel and `sum = sum + w` for the weights, tap after tap.
pub(in crate::image) fn accumulate<const FUSED: bool, const ROWS: usize>(
    row: &[u8],
    sampler: &Sampler<4>,
    taps: &ColumnTaps,
    shares: [Share; ROWS],
    sums: &mut [f32],
) {
    let stride = taps.stride;
    for (i, (&column, &column_weight)) in taps.columns.iter().zip(&taps.weights).enumerate() {
        let x = i % stride;
        let pixel = &row[column as usize * sampler.pixel_bytes..];
        for share in shares {
            let weight = column_weight * share.weight;
            for channel in 0..CHANNELS {
                let sum = &mut sums[share.sums_at + channel * stride + x];
                let value = f32::from(pixel[sampler.lane_byte[channel]]);
                *sum = if FUSED {
                    value.mul_add(weight, *sum)
                } else {
                    value * weight + *sum
                };
            }
            sums[share.sums_at + CHANNELS * stride + x] += weight;
        }
    }
}
