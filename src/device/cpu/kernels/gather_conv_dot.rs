//! Sparse convolution of bf16 tables and bf16 weights with instructions that multiply bf16.
//!
//! The gathered rows of a tap are strips of a tile, and the weights' terms are runs over the same rows. A tile's sums
//! begin at zero, so that they are a tap's alone; then they are added to the sums of the output rows.

use half::bf16;

use super::dot::{Bf16Dot, DOT_DEPTH, DOT_LANES, DOT_ROWS, DotFn, DotOps, DotTile, Run, ops_of};
use super::gather_conv::OP;
use super::ops::{Ops, PANEL_VECTORS};
use super::pack::Panels;
use super::{BufferRef, KernelSet};
use crate::device::{DeviceError, WeightForm};
use crate::tensor::{DType, HostTensor, TensorSpec};

/// Bytes of a bf16 value.
const SIZE: usize = 2;

/// Rows that a tap takes from the table, and the output rows that they belong to.
#[derive(Debug, Clone, Copy)]
pub(super) struct GatheredRows {
    /// As [`DotProducts::take_row`] lays them out.
    pub(super) rows: *const u8,
    pub(super) count: usize,
    pub(super) places: *const u32,
}

/// How the products of a tap are made.
pub(super) struct DotProducts {
    /// Panels whose rows are pairs of values: the biases, then for each tap zeros and the pairs of each term.
    panels: Panels,
    ops: &'static DotOps,
    kind: Bf16Dot,
    tiles: [DotFn; PANEL_VECTORS],
    form: WeightForm,
    cin: usize,
    /// Chunks of a row.
    chunks: usize,
    /// Values of a chunk: even, at most [`DOT_DEPTH`].
    chunk: usize,
}

impl DotProducts {
    /// The products of `[taps, cin, cout]`; `None` where weights are fp32 or the kernel set widens bf16.
    pub(super) fn new(
        [taps, cin, cout]: [usize; 3],
        form: WeightForm,
        set: KernelSet,
    ) -> Result<Option<Self>, DeviceError> {
        let ops = match form {
            WeightForm::Float32 => None,
            WeightForm::Bfloat16 | WeightForm::TwoTerms => ops_of(set),
        };
        let Some(ops) = ops else { return Ok(None) };
        let chunks = cin.div_ceil(DOT_DEPTH);
        let chunk = cin.div_ceil(chunks).next_multiple_of(2);
        let rows = taps * (1 + form.terms() * chunks * chunk / 2);
        Ok(Some(Self {
            panels: Panels::dense(OP, [rows, cout], DOT_LANES)?,
            tiles: [1, 2].map(|vectors| (ops.tile)(vectors, ops.most_rows)),
            ops,
            kind: set.bf16_dot,
            form,
            cin,
            chunks,
            chunk,
        }))
    }

    pub(super) const fn panels(&self) -> &Panels {
        &self.panels
    }

    pub(super) const fn kind(&self) -> Bf16Dot {
        self.kind
    }

    /// Values of a row, the zeros behind its channels included.
    const fn values(&self) -> usize {
        self.chunks * self.chunk
    }

    /// Four-byte values that a gathered row takes.
    pub(super) const fn row_values(&self) -> usize {
        self.values() / 2
    }

    /// Rows of a strip; as many more than a block must have room, because strips are always whole.
    pub(super) const fn most_rows(&self) -> usize {
        2 * DOT_ROWS
    }

    /// Values of a tile of sums.
    pub(super) const fn tile_values(&self) -> usize {
        2 * DOT_ROWS * PANEL_VECTORS * DOT_LANES
    }

    /// Rows of a panel for each tap.
    const fn tap_rows(&self) -> usize {
        1 + self.form.terms() * self.row_values()
    }

    /// The weight buffer: `weight(output channel, tap, input channel)`.
    pub(super) fn pack(
        &self,
        weight: impl Fn(usize, usize, usize) -> f32,
        bias: impl Fn(usize) -> f32,
    ) -> Result<HostTensor, DeviceError> {
        let mut packed = HostTensor::zeros(TensorSpec::new(&[self.panels.len()], DType::U32)?);
        let pairs = self.row_values();
        self.panels.fill(packed.as_mut_slice()?, |channel, row| {
            let Some(row) = row.checked_sub(1) else {
                return bias(channel).to_bits();
            };
            let (tap, row) = (row / self.tap_rows(), row % self.tap_rows());
            let Some(pair) = row.checked_sub(1) else { return 0 };
            let (term, pair) = (pair / pairs, pair % pairs);
            let value = |input: usize| match input < self.cin {
                // Exact: a term is bf16 already.
                true => {
                    u32::from(bf16::from_f32(self.form.split(weight(channel, tap, input))[term]).to_bits())
                }
                false => 0,
            };
            value(2 * pair) | value(2 * pair + 1) << 16
        });
        Ok(packed)
    }

    /// Readies the thread.
    ///
    /// # Safety
    /// The instructions are there.
    pub(super) unsafe fn begin(&self) {
        // SAFETY: rows and chunk are in their ranges; the caller vouches for the instructions.
        unsafe { (self.ops.begin)(self.ops.most_rows, self.chunk) };
    }

    /// Undoes that.
    ///
    /// # Safety
    /// The instructions are there.
    pub(super) unsafe fn end(&self) {
        // SAFETY: the caller vouches for the instructions.
        unsafe { (self.ops.end)() };
    }

    /// Copies a row of the table to the gathered row `at`, with zeros behind its channels.
    ///
    /// # Safety
    /// `from` is readable for the input channels; `rows` has room for the row.
    pub(super) unsafe fn take_row(&self, from: *const u8, rows: *mut f32, at: usize) {
        let (row, channels) = (self.values() * SIZE, self.cin * SIZE);
        // SAFETY: the caller's contract.
        unsafe {
            let to = rows.cast::<u8>().add(at * row);
            from.copy_to_nonoverlapping(to, channels);
            to.add(channels).write_bytes(0, row - channels);
        }
    }

    /// Adds the products of gathered rows with a tap's weights to the sums, which have a row every `sum_step` values.
    ///
    /// # Safety
    /// [`DotProducts::begin`] came before on this thread; the rows were gathered into room for two strips more;
    /// `weights` holds what [`DotProducts::pack`] made; `tile` has room for a tile; `sums` is valid for every place, and
    /// its rows for every panel.
    pub(super) unsafe fn add_tap(
        &self,
        weights: BufferRef,
        tap: usize,
        gathered: &GatheredRows,
        ops: &Ops,
        tile: *mut f32,
        (sums, sum_step): (*mut f32, usize),
    ) {
        let step = self.values() * SIZE;
        let strip = self.ops.most_rows;
        for panel in &self.panels.list {
            let width = panel.vectors * DOT_LANES;
            let begin = panel.offset + (1 + tap * self.tap_rows()) * width;
            for first in (0..gathered.count).step_by(2 * strip) {
                let run = [0, strip].map(|row| Run {
                    base: gathered.rows.wrapping_add((first + row) * step),
                    step: step as isize,
                });
                let runs = [run; 2];
                let left = gathered.count - first;
                let strips = if left > strip { 2 } else { 1 };
                let dot_tile = DotTile {
                    runs: runs.as_ptr(),
                    end: runs.as_ptr().wrapping_add(self.form.terms()),
                    panel: weights.at(begin as isize),
                    sums: tile,
                    chunks: self.chunks,
                    chunk: self.chunk,
                    rows: strip,
                    strips,
                };
                // SAFETY: both strips lie inside the rows' room, terms are at most the two runs, the panel has as many
                // pairs as the runs, and the places of the rows that are added are rows of the sums.
                unsafe {
                    self.tiles[panel.vectors - 1](&dot_tile);
                    for at in 0..strips {
                        (ops.add_rows)(
                            tile.add(at * DOT_ROWS * width),
                            width,
                            gathered.places.add(first + at * strip),
                            strip.min(left - at * strip),
                            sums.add(panel.channel),
                            sum_step,
                        );
                    }
                }
            }
        }
    }
}
