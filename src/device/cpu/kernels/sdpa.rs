//! Attention without a matrix of scores in memory.
//!
//! A task is some queries of one head. Blocks of keys and values are packed into the thread's scratch; every tile of
//! queries meets the block: products with the keys, exponentials relative to the largest score so far, products with
//! the values, which are added to the sums carried over from the blocks before.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::check::{MAX_CHANNELS, MAX_SCRATCH, ensure, required_bytes, storage, writes_each_place_once};
use super::elementwise::{load_run, store_run};
use super::matrix::Matrix;
use super::nest::share;
use super::ops::{Ops, PANEL_VECTORS};
use super::rows::{RowOps, Scores};
use super::tile::Tap;
use super::{BufferRef, Kernel};
use crate::device::cpu::pool::ComputePool;
use crate::device::{DeviceError, Operand, SdpaDesc};

const OP: &str = "sdpa";

/// Queries of one task at most: enough to make up for packing the keys and values, few enough for their sums to stay
/// in the second-level cache.
const MOST_QUERIES: usize = 512;

/// Queries of one task at least, where tasks are made for the sake of other threads.
const LEAST_QUERIES: usize = 64;

/// Rows of a tile on any instruction set at most.
const MOST_ROWS: usize = 16;

/// An operand's matrices and the steps of batch and head.
#[derive(Debug, Clone, Copy)]
struct Heads {
    matrix: Matrix,
    batch_step: isize,
    head_step: isize,
}

impl Heads {
    fn new(operand: &Operand) -> Self {
        Self {
            matrix: Matrix::new(operand),
            batch_step: operand.view.strides[0],
            head_step: operand.view.strides[1],
        }
    }

    const fn of(&self, batch: usize, head: usize) -> Matrix {
        let moved = batch as isize * self.batch_step + head as isize * self.head_step;
        self.matrix.moved(moved)
    }
}

struct Sdpa {
    batches: usize,
    heads: usize,
    /// Heads that share keys and values.
    shared: usize,
    queries: usize,
    keys: usize,
    /// Size of a query and a key, and of a value.
    sizes: [usize; 2],
    query: Heads,
    key: Heads,
    value: Heads,
    output: Heads,
    mask: Option<Heads>,
    scale: f32,
    block: usize,
    required: Vec<usize>,
    ops: &'static Ops,
    rows: &'static RowOps,
}

/// A thread's scratch, in fp32 values.
struct Areas<'a> {
    keys: &'a mut [f32],
    values: &'a mut [f32],
    query: &'a mut [f32],
    sums: &'a mut [f32],
    mask: &'a mut [f32],
    scores: &'a mut [f32],
    /// Results of the task's queries so far.
    results: &'a mut [f32],
    /// Largest score and sum of exponentials of each query so far.
    largest: &'a mut [f32],
    totals: &'a mut [f32],
}

/// The matrices of one batch and head.
#[derive(Clone, Copy)]
struct Head {
    query: Matrix,
    key: Matrix,
    value: Matrix,
    output: Matrix,
    mask: Option<Matrix>,
}

/// Prepares attention.
pub(super) fn prepare(
    desc: &SdpaDesc,
    ops: &'static Ops,
    rows: &'static RowOps,
) -> Result<Arc<dyn Kernel>, DeviceError> {
    let operands = [
        ("query", &desc.query),
        ("key", &desc.key),
        ("value", &desc.value),
        ("output", &desc.output),
    ];
    for (name, operand) in operands {
        storage(OP, &[(name, operand)])?;
        ensure(operand.view.rank() == 4, OP, || {
            format!(
                "{name} has shape {}, expected [batch, heads, rows, size]",
                operand.view.shape
            )
        })?;
    }
    let [q, k, v, out] = operands.map(|(_, operand)| operand.view.shape);
    let fits = q[0] == k[0]
        && k[..3] == v[..3]
        && q[3] == k[3]
        && out[..] == [q[0], q[1], q[2], v[3]]
        && (q[1] == 0 || (k[1] > 0 && q[1].is_multiple_of(k[1])));
    ensure(fits, OP, || {
        format!(
            "query {q}, key {k}, value {v} and output {out} do not fit: expected [B, H, Sq, D], [B, Hkv, Sk, D], \
             [B, Hkv, Sk, Dv] and [B, H, Sq, Dv] with Hkv dividing H"
        )
    })?;
    ensure(q[3].max(v[3]) <= MAX_CHANNELS, OP, || {
        format!(
            "heads of {} and {} values, above the supported {MAX_CHANNELS}",
            q[3], v[3]
        )
    })?;
    ensure(desc.key_block > 0, OP, || "a block of no keys".into())?;
    writes_each_place_once(OP, "output", &desc.output)?;
    let mut required = Vec::with_capacity(5);
    for (name, operand) in operands {
        required.push(required_bytes(OP, name, operand)?);
    }
    if let Some(mask) = &desc.mask {
        storage(OP, &[("mask", mask)])?;
        let (shape, scores) = (mask.view.shape, [q[0], q[1], q[2], k[2]]);
        ensure(shape[..] == scores, OP, || {
            format!("mask has shape {shape}, the scores {scores:?}")
        })?;
        required.push(required_bytes(OP, "mask", mask)?);
    }
    let kernel = Sdpa {
        batches: q[0],
        heads: q[1],
        shared: q[1] / k[1].max(1),
        queries: q[2],
        keys: k[2],
        sizes: [q[3], v[3]],
        query: Heads::new(&desc.query),
        key: Heads::new(&desc.key),
        value: Heads::new(&desc.value),
        output: Heads::new(&desc.output),
        mask: desc.mask.as_ref().map(Heads::new),
        scale: desc.scale.get(),
        block: desc.key_block.min(k[2].max(1)),
        required,
        ops,
        rows,
    };
    let scratch = kernel.areas_sizes().map(|sizes| sizes.iter().sum::<usize>());
    ensure(
        scratch.is_some_and(|values| values <= MAX_SCRATCH / size_of::<f32>()),
        OP,
        || {
            format!(
                "{} keys of {} values at a time exceed the scratch memory of {MAX_SCRATCH} bytes",
                kernel.block, kernel.sizes[0]
            )
        },
    )?;
    Ok(Arc::new(kernel))
}

impl Sdpa {
    /// Queries of a tile at most.
    fn tile_rows(&self) -> usize {
        self.ops.tile_rows().min(MOST_ROWS)
    }

    /// Columns of a full panel.
    const fn width(&self) -> usize {
        PANEL_VECTORS * self.ops.lanes
    }

    /// Values that a result's row takes in the scratch.
    const fn result(&self) -> usize {
        self.sizes[1].next_multiple_of(self.width())
    }

    /// Values of the scratch areas, or `None` beyond what a thread may be asked for.
    fn areas_sizes(&self) -> Option<[usize; 9]> {
        let (rows, width, [size, _]) = (self.tile_rows(), self.width(), self.sizes);
        let queries = self.queries.min(MOST_QUERIES);
        let sizes = [
            self.block.next_multiple_of(width).checked_mul(size + 1)?,
            (self.block + 1).checked_mul(self.result())?,
            if self.query.matrix.is_direct() {
                0
            } else {
                rows * size
            },
            rows * width,
            if self.mask.is_some() { rows * width } else { 0 },
            rows.checked_mul(self.block)?,
            queries.checked_mul(self.result())?,
            queries,
            queries,
        ];
        let fits = sizes.iter().all(|&size| size <= MAX_SCRATCH / size_of::<f32>());
        fits.then(|| sizes.map(|size| size.next_multiple_of(16)))
    }

    fn areas<'a>(&self, scratch: &'a mut [u8]) -> Areas<'a> {
        let mut rest: &mut [f32] = bytemuck::cast_slice_mut(scratch);
        // Preparation has checked the sizes.
        let [keys, values, query, sums, mask, scores, results, largest, totals] =
            self.areas_sizes().unwrap_or_default().map(|size| {
                let (area, tail) = std::mem::take(&mut rest).split_at_mut(size);
                rest = tail;
                area
            });
        Areas {
            keys,
            values,
            query,
            sums,
            mask,
            scores,
            results,
            largest,
            totals,
        }
    }

    /// Copies a block of keys (turned) and values.
    ///
    /// # Safety
    /// As [`Kernel::run`].
    unsafe fn pack(&self, buffers: &[BufferRef], head: &Head, block: &Range<usize>, areas: &mut Areas<'_>) {
        let (width, [size, value_size]) = (self.width(), self.sizes);
        for (i, first) in block.clone().step_by(width).enumerate() {
            let keys = first..(first + width).min(block.end);
            let to = &mut areas.keys[i * (size + 1) * width..];
            // SAFETY: the block lies inside the checked view.
            unsafe { head.key.turned().pack(self.ops, buffers[1], 0..size, keys, to) };
        }
        for (i, first) in (0..value_size).step_by(width).enumerate() {
            let columns = first..(first + width).min(value_size);
            let to = &mut areas.values[i * (block.len() + 1) * width..];
            // SAFETY: the block lies inside the checked view.
            unsafe { head.value.pack(self.ops, buffers[2], block.clone(), columns, to) };
        }
    }

    /// The scores of a tile of queries for a block of keys.
    ///
    /// # Safety
    /// As [`Kernel::run`]; the block is packed.
    unsafe fn scores(
        &self,
        buffers: &[BufferRef],
        head: &Head,
        (rows, block): (&Range<usize>, &Range<usize>),
        areas: &mut Areas<'_>,
    ) {
        let (width, [size, _]) = (self.width(), self.sizes);
        // SAFETY: the queries lie inside the checked view.
        let tap = unsafe {
            head.query
                .rows(self.ops, buffers[0], rows.clone(), size, areas.query)
        };
        for (i, first) in block.clone().step_by(width).enumerate() {
            let count = width.min(block.end - first);
            let vectors = count.div_ceil(self.ops.lanes);
            let (mut mask, mut mask_step): (*const f32, isize) = (std::ptr::null(), 0);
            if let Some(matrix) = &head.mask {
                if matrix.is_direct() {
                    mask = buffers[4].at::<f32>(matrix.at(rows.start, first));
                    mask_step = matrix.row_step;
                } else {
                    for (row, to) in rows.clone().zip(areas.mask.chunks_exact_mut(width)) {
                        let place = (matrix.at(row, first), matrix.step);
                        // SAFETY: the row lies inside the checked view.
                        unsafe { load_run(self.ops, matrix.dtype, buffers[4], place, &mut to[..count]) };
                    }
                    (mask, mask_step) = (areas.mask.as_ptr(), width as isize);
                }
            }
            let packed = &areas.keys[i * (size + 1) * width..];
            let dense = self.ops.dense[vectors - 1][rows.len() - 1];
            // SAFETY: the tap covers the tile's queries, the panel is packed, sums and scores have room for the tile,
            // and the mask's rows lie inside the checked view or were just widened.
            unsafe {
                dense(&[tap], size, packed.as_ptr(), areas.sums.as_mut_ptr());
                (self.rows.scores)(&Scores {
                    sums: areas.sums.as_ptr(),
                    width: vectors * self.ops.lanes,
                    rows: rows.len(),
                    count,
                    scale: self.scale,
                    mask,
                    mask_step,
                    to: areas.scores.as_mut_ptr().add(first - block.start),
                    to_step: block.len(),
                });
            }
        }
    }

    /// Turns a tile's scores into exponentials and adds what they give of the values. `first` is the tile's first query
    /// in the task.
    ///
    /// # Safety
    /// As [`Kernel::run`]; the block is packed, the scores are there.
    unsafe fn accumulate(&self, first: usize, rows: usize, keys: usize, areas: &mut Areas<'_>) {
        let (width, result) = (self.width(), self.result());
        let mut factors = [0.0; MOST_ROWS];
        for (row, scores) in areas.scores.chunks_exact_mut(keys).take(rows).enumerate() {
            let query = first + row;
            // SAFETY: the processor has the instruction set.
            let step = unsafe { (self.rows.softmax_step)(scores, areas.largest[query]) };
            areas.largest[query] = step.largest;
            areas.totals[query] = areas.totals[query].mul_add(step.factor, step.sum);
            factors[row] = step.factor;
        }
        let tap = Tap {
            base: areas.scores.as_ptr(),
            step: keys as isize,
        };
        for (i, column) in (0..self.sizes[1]).step_by(width).enumerate() {
            let vectors = width.min(self.sizes[1] - column).div_ceil(self.ops.lanes);
            let packed = &areas.values[i * (keys + 1) * width..];
            let dense = self.ops.dense[vectors - 1][rows - 1];
            // SAFETY: the tap covers the tile's exponentials, the panel is packed, the sums have room for the tile.
            unsafe { dense(&[tap], keys, packed.as_ptr(), areas.sums.as_mut_ptr()) };
            let span = vectors * self.ops.lanes;
            for (row, sums) in areas.sums.chunks_exact(span).take(rows).enumerate() {
                let begin = (first + row) * result + column;
                // SAFETY: the processor has the instruction set.
                unsafe { (self.rows.carry)(&mut areas.results[begin..begin + span], factors[row], sums) };
            }
        }
    }

    /// Some queries of one head.
    ///
    /// # Safety
    /// As [`Kernel::run`].
    unsafe fn queries(
        &self,
        buffers: &[BufferRef],
        head: &Head,
        queries: Range<usize>,
        areas: &mut Areas<'_>,
    ) {
        let most = self.tile_rows();
        let tiles = queries.len().div_ceil(most);
        let bound = |tile: usize| queries.start + queries.len() * tile / tiles;
        areas.largest.fill(f32::NEG_INFINITY);
        areas.totals.fill(0.0);
        areas.results.fill(0.0);
        for first in (0..self.keys).step_by(self.block) {
            let block = first..(first + self.block).min(self.keys);
            // SAFETY: the same contract.
            unsafe { self.pack(buffers, head, &block, areas) };
            for tile in 0..tiles {
                let rows = bound(tile)..bound(tile + 1);
                // SAFETY: the same contract; the block is packed.
                unsafe {
                    self.scores(buffers, head, (&rows, &block), areas);
                    self.accumulate(rows.start - queries.start, rows.len(), block.len(), areas);
                }
            }
        }
        for (row, query) in queries.enumerate() {
            let total = areas.totals[row];
            // A query that saw no key has no exponentials.
            let factor = if total == 0.0 { 0.0 } else { 1.0 / total };
            let begin = row * self.result();
            let result = &mut areas.results[begin..begin + self.sizes[1]];
            let place = (head.output.at(query, 0), head.output.step);
            // SAFETY: the row lies inside the checked view.
            unsafe {
                (self.rows.scale_bias)(result, self.sizes[1], factor, &[], 0);
                store_run(self.ops, head.output.dtype, buffers[3], place, result);
            }
        }
    }
}

impl Kernel for Sdpa {
    fn scratch_bytes(&self) -> usize {
        let values = self.areas_sizes().unwrap_or_default();
        values.iter().sum::<usize>() * size_of::<f32>()
    }

    fn required_bytes(&self) -> &[usize] {
        &self.required
    }

    unsafe fn run(&self, buffers: &[BufferRef], pool: &ComputePool) {
        let heads = self.batches * self.heads;
        if heads * self.queries * self.sizes[1] == 0 {
            return;
        }
        // Few heads are also divided by queries, so that every thread is busy; each part packs the keys anew.
        let wanted = match pool.threads() {
            1 => 1,
            threads => (4 * threads)
                .div_ceil(heads)
                .min(self.queries.div_ceil(LEAST_QUERIES)),
        };
        let parts = wanted.max(self.queries.div_ceil(MOST_QUERIES));
        let work = self.queries.div_ceil(parts) * (self.keys + 1) * (self.sizes[0] + self.sizes[1]) / 8 + 1;
        share(pool, heads * parts, work, &|units, scratch| {
            let mut areas = self.areas(scratch);
            for unit in units {
                let (head, part) = (unit / parts, unit % parts);
                let (batch, head) = (head / self.heads, head % self.heads);
                let of_head = Head {
                    query: self.query.of(batch, head),
                    key: self.key.of(batch, head / self.shared),
                    value: self.value.of(batch, head / self.shared),
                    output: self.output.of(batch, head),
                    mask: self.mask.map(|mask| mask.of(batch, head)),
                };
                let queries = self.queries * part / parts..self.queries * (part + 1) / parts;
                // SAFETY: the caller's contract; different units write different rows.
                unsafe { self.queries(buffers, &of_head, queries, &mut areas) };
            }
        });
    }
}

impl fmt::Debug for Sdpa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Sdpa({}, {} x {} heads, {} queries, {} keys of {} in blocks of {}{})",
            self.query.matrix.dtype,
            self.batches,
            self.heads,
            self.queries,
            self.keys,
            self.sizes[0],
            self.block,
            if self.mask.is_some() { ", masked" } else { "" }
        )
    }
}
