//! The weighted means, without what the deployed nodes do with them.

use std::ops::Range;

use super::super::columns::Sampler;
use super::super::resize::ResizeScratch;
use super::super::source_rows::{ByteRows, SourceRows};
use super::super::{Contraction, ImageError, Kernels};
use super::TriangleGeometry;
use super::taps::{ColumnTaps, Window, windows};

/// Channels of the result.
const CHANNELS: usize = 3;
/// Positions that are computed together; rows in memory are whole blocks long.
pub(in crate::image) const BLOCK: usize = 16;
/// Sums beside one another: one a channel, and that of the weights.
const SUMS: usize = CHANNELS + 1;
/// No row number.
const NONE: usize = usize::MAX;
/// Most values that spread rows are kept in: 8 MiB. Windows that need more spread their rows anew each time.
const MOST_SPREAD_VALUES: usize = 2 << 20;

/// A crop of a resized image: its tables, computed once.
#[derive(Debug, Clone)]
pub(super) struct TriangleResize {
    pub(super) geometry: TriangleGeometry,
    contraction: Contraction,
    pub(super) kernels: Kernels,
    columns: ColumnTaps,
    rows: Vec<Window>,
    /// Spread source rows that are kept.
    slots: usize,
}

impl TriangleResize {
    pub(super) fn new(geometry: TriangleGeometry, contraction: Contraction) -> Self {
        let [across, down] = [0, 1].map(|i| {
            windows(
                geometry.source_px[i],
                geometry.resized_px[i],
                geometry.start_px[i],
                geometry.crop_px[i],
                contraction,
            )
        });
        let columns = ColumnTaps::new(&across.collect::<Vec<_>>(), geometry.source_px[0], BLOCK);
        let rows: Vec<_> = down.collect();
        let longest = rows.iter().map(|window| window.weights.len()).max().unwrap_or(0);
        let spread_values = CHANNELS * columns.columns.len().max(1);
        let slots = if longest * spread_values <= MOST_SPREAD_VALUES {
            longest.max(1)
        } else {
            1
        };
        Self {
            geometry,
            contraction,
            kernels: Kernels::detect(),
            columns,
            rows,
            slots,
        }
    }

    pub(super) fn with_kernels(mut self, kernels: Kernels) -> Self {
        self.kernels = kernels;
        self
    }

    pub(super) fn with_contraction(self, contraction: Contraction) -> Self {
        Self::new(self.geometry, contraction).with_kernels(self.kernels)
    }

    /// Computes the rows `out_rows` and hands each to `done` in three planes of the crop's width, in the order
    /// of the sampler's first three lanes. A mean is zero where no source pixel has weight.
    pub(super) fn means(
        &self,
        source: &mut impl ByteRows,
        sampler: &Sampler<4>,
        out_rows: Range<usize>,
        scratch: &mut ResizeScratch,
        mut done: impl FnMut(usize, [&[f32]; CHANNELS]),
    ) {
        let stride = self.columns.stride;
        let mut spread = SpreadRows::new(
            &mut scratch.floats,
            &mut scratch.held,
            self.slots,
            CHANNELS * self.columns.columns.len(),
        );
        let sums = &mut scratch.sums;
        if sums.len() < SUMS * stride {
            sums.resize(SUMS * stride, 0.0);
        }
        let sums = &mut sums[..SUMS * stride];
        for y in out_rows {
            sums.fill(0.0);
            let window = &self.rows[y];
            for (source_y, &weight) in (window.first..).zip(&window.weights) {
                let row = spread.get(source_y, |out| {
                    self.kernels.spread_row(
                        source.row(source_y),
                        sampler,
                        &self.columns.columns,
                        stride,
                        out,
                    );
                });
                self.kernels
                    .accumulate(self.contraction, row, &self.columns.weights, weight, sums);
            }
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

    pub(super) fn check_source(&self, source: &SourceRows<'_>) -> Result<(), ImageError> {
        source.check_size(self.geometry.source_px)
    }
}

/// Source rows spread over the taps, kept from one output row to the next.
struct SpreadRows<'a> {
    rows: &'a mut [f32],
    held: &'a mut [usize],
    row_len: usize,
}

impl<'a> SpreadRows<'a> {
    fn new(memory: &'a mut Vec<f32>, held: &'a mut Vec<usize>, slots: usize, row_len: usize) -> Self {
        if memory.len() < slots * row_len {
            memory.resize(slots * row_len, 0.0);
        }
        held.clear();
        held.resize(slots, NONE);
        Self {
            rows: &mut memory[..slots * row_len],
            held,
            row_len,
        }
    }

    fn get(&mut self, y: usize, fill: impl FnOnce(&mut [f32])) -> &[f32] {
        let slot = y % self.held.len();
        let row = &mut self.rows[slot * self.row_len..][..self.row_len];
        if self.held[slot] != y {
            fill(row);
            self.held[slot] = y;
        }
        row
    }
}

/// Spreads a source row over the taps: `out[tap][channel][x]` is the byte of channel `channel` of the column
/// that the tap of position `x` looks at, as a float.
pub(in crate::image) fn spread_row(
    row: &[u8],
    sampler: &Sampler<4>,
    columns: &[u32],
    stride: usize,
    out: &mut [f32],
) {
    let taps = columns
        .chunks_exact(stride)
        .zip(out.chunks_exact_mut(CHANNELS * stride));
    for (columns, out) in taps {
        for (plane, &byte) in out.chunks_exact_mut(stride).zip(&sampler.lane_byte) {
            for (value, &column) in plane.iter_mut().zip(columns) {
                *value = f32::from(row[column as usize * sampler.pixel_bytes + byte]);
            }
        }
    }
}

/// Adds the pixels of one spread source row to the sums of an output row: with `w = column weight * row weight`,
/// `sum = pixel * w + sum` for every channel and `sum = sum + w` for the weights, tap after tap.
///
/// Inlined into its callers, which compile it for the instruction set they are for.
#[inline(always)]
pub(in crate::image) fn accumulate<const FUSED: bool>(
    spread: &[f32],
    column_weights: &[f32],
    row_weight: f32,
    sums: &mut [f32],
) {
    let spread = spread.as_chunks::<BLOCK>().0;
    let column_weights = column_weights.as_chunks::<BLOCK>().0;
    let sums = sums.as_chunks_mut::<BLOCK>().0;
    let blocks = sums.len() / SUMS;
    for block in 0..blocks {
        let mut sum: [[f32; BLOCK]; SUMS] = std::array::from_fn(|i| sums[i * blocks + block]);
        let mut tap = block;
        let mut first = block;
        while tap < column_weights.len() {
            let weight = column_weights[tap].map(|weight| weight * row_weight);
            for channel in 0..CHANNELS {
                let pixels = &spread[first + channel * blocks];
                for i in 0..BLOCK {
                    let (pixel, old) = (pixels[i], sum[channel][i]);
                    sum[channel][i] = if FUSED {
                        pixel.mul_add(weight[i], old)
                    } else {
                        pixel * weight[i] + old
                    };
                }
            }
            for i in 0..BLOCK {
                sum[CHANNELS][i] += weight[i];
            }
            tap += blocks;
            first += CHANNELS * blocks;
        }
        for (i, sum) in sum.into_iter().enumerate() {
            sums[i * blocks + block] = sum;
        }
    }
}
