//! Runs of rows reduced to one row each.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::check::{MAX_CHANNELS, ensure, required_bytes, storage, writes_each_place_once};
use super::elementwise::{load_run, store_run};
use super::nest::share;
use super::ops::Ops;
use super::{BufferRef, Kernel};
use crate::device::cpu::pool::ComputePool;
use crate::device::{DeviceError, SegmentOp, SegmentReduceDesc};
use crate::tensor::DType;

const OP: &str = "segment_reduce";

/// Bits of a float as an integer of the same order, and back.
const fn ordered(bits: i32) -> i32 {
    bits ^ ((bits >> 31) & i32::MAX)
}

/// A prepared reduction.
///
/// The segments are divided by the rows they have plus one for their result, so long ones do not pile up on one thread.
/// Each is reduced by one thread in the order of its rows: who does it changes nothing.
struct SegmentReduce {
    rows: usize,
    columns: usize,
    segments: usize,
    /// Offset and steps of the rows.
    input: (isize, [isize; 2]),
    offsets: (isize, isize),
    output: (isize, [isize; 2]),
    kind: SegmentOp,
    empty: f32,
    dtypes: [DType; 2],
    required: [usize; 3],
    ops: &'static Ops,
}

/// Prepares a reduction.
pub(super) fn prepare(desc: &SegmentReduceDesc, ops: &'static Ops) -> Result<Arc<dyn Kernel>, DeviceError> {
    let dtypes = [
        storage(OP, &[("rows", &desc.rows)])?,
        storage(OP, &[("the result", &desc.output)])?,
    ];
    let shapes = [&desc.rows, &desc.offsets, &desc.output].map(|operand| operand.view.shape);
    let [from, offsets, to] = &shapes;
    let fits = from.rank() == 2
        && offsets.rank() == 1
        && to.rank() == 2
        && to[1] == from[1]
        && offsets[0].checked_sub(1) == Some(to[0]);
    ensure(fits, OP, || {
        format!(
            "rows {from}, offsets {offsets} and result {to} do not fit: expected [rows, columns], [segments + 1] and \
             [segments, columns]"
        )
    })?;
    ensure(desc.offsets.dtype == DType::U32, OP, || {
        format!("offsets of {}, expected {}", desc.offsets.dtype, DType::U32)
    })?;
    ensure(from[1] <= MAX_CHANNELS, OP, || {
        format!("{} columns, above the supported {MAX_CHANNELS}", from[1])
    })?;
    writes_each_place_once(OP, "the result", &desc.output)?;
    let matrix = |view: &crate::tensor::View| (view.offset as isize, [view.strides[0], view.strides[1]]);
    Ok(Arc::new(SegmentReduce {
        rows: from[0],
        columns: from[1],
        segments: to[0],
        input: matrix(&desc.rows.view),
        offsets: (desc.offsets.view.offset as isize, desc.offsets.view.strides[0]),
        output: matrix(&desc.output.view),
        kind: desc.kind,
        empty: desc.empty.get(),
        dtypes,
        required: [
            required_bytes(OP, "rows", &desc.rows)?,
            required_bytes(OP, "offsets", &desc.offsets)?,
            required_bytes(OP, "the result", &desc.output)?,
        ],
        ops,
    }))
}

impl SegmentReduce {
    /// An offset, cut to the number of rows.
    ///
    /// # Safety
    /// As [`Kernel::run`]; `at` is at most the number of segments.
    unsafe fn offset(&self, buffers: &[BufferRef], at: usize) -> usize {
        let (first, step) = self.offsets;
        // SAFETY: there are `segments + 1` offsets. Read once: what is compared is what is used.
        let offset = unsafe { buffers[1].at::<u32>(first + at as isize * step).read_volatile() };
        (offset as usize).min(self.rows)
    }

    /// First segment whose rows and results before it are at least `cost`, for offsets in order.
    ///
    /// # Safety
    /// As [`Kernel::run`].
    unsafe fn segment_at(&self, buffers: &[BufferRef], cost: usize) -> usize {
        let (mut low, mut high) = (0, self.segments);
        while low < high {
            let middle = low.midpoint(high);
            // SAFETY: `middle` is below the number of segments.
            if unsafe { self.offset(buffers, middle) } + middle < cost {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// # Safety
    /// As [`Kernel::run`]; the segments exist.
    unsafe fn reduce(
        &self,
        buffers: &[BufferRef],
        segments: Range<usize>,
        sums: &mut [f32],
        row: &mut [f32],
    ) {
        let ((in_first, in_steps), (out_first, out_steps)) = (self.input, self.output);
        for segment in segments {
            // SAFETY: the caller's contract; rows are below their number.
            unsafe {
                let begin = self.offset(buffers, segment);
                let end = self.offset(buffers, segment + 1);
                for index in begin..end {
                    let from = (in_first + index as isize * in_steps[0], in_steps[1]);
                    if index == begin {
                        load_run(self.ops, self.dtypes[0], buffers[0], from, sums);
                        continue;
                    }
                    load_run(self.ops, self.dtypes[0], buffers[0], from, row);
                    self.take(sums, row);
                }
                if begin >= end {
                    sums.fill(self.empty);
                } else if self.kind == SegmentOp::Mean {
                    let count = (end - begin) as f32;
                    sums.iter_mut().for_each(|sum| *sum /= count);
                }
                let to = (out_first + segment as isize * out_steps[0], out_steps[1]);
                store_run(self.ops, self.dtypes[1], buffers[2], to, sums);
            }
        }
    }

    fn take(&self, sums: &mut [f32], row: &[f32]) {
        let key = |x: f32| ordered(x.to_bits().cast_signed());
        let pairs = sums.iter_mut().zip(row);
        match self.kind {
            SegmentOp::Max => pairs.for_each(|(a, &b)| *a = if key(b) > key(*a) { b } else { *a }),
            SegmentOp::Min => pairs.for_each(|(a, &b)| *a = if key(b) < key(*a) { b } else { *a }),
            SegmentOp::Sum | SegmentOp::Mean => pairs.for_each(|(a, &b)| *a += b),
        }
    }
}

impl Kernel for SegmentReduce {
    fn scratch_bytes(&self) -> usize {
        2 * self.columns * size_of::<f32>()
    }

    fn required_bytes(&self) -> &[usize] {
        &self.required
    }

    unsafe fn run(&self, buffers: &[BufferRef], pool: &ComputePool) {
        let columns = self.columns;
        let work = columns.div_ceil(4);
        let halves = |scratch: &mut [u8], run: &mut dyn FnMut(&mut [f32], &mut [f32])| {
            let (sums, row) =
                bytemuck::cast_slice_mut::<u8, f32>(scratch)[..2 * columns].split_at_mut(columns);
            run(sums, row);
        };
        // SAFETY: the caller's contract.
        let offset = |at: usize| unsafe { self.offset(buffers, at) };
        if (0..self.segments).all(|segment| offset(segment) <= offset(segment + 1)) {
            share(pool, self.rows + self.segments, work, &|costs, scratch| {
                halves(scratch, &mut |sums, row| {
                    // SAFETY: the caller's contract; segments are found in order, so each is in one range.
                    unsafe {
                        let begin = self.segment_at(buffers, costs.start);
                        let end = self.segment_at(buffers, costs.end);
                        self.reduce(buffers, begin..end, sums, row);
                    }
                });
            });
        } else {
            share(pool, self.segments, work, &|segments, scratch| {
                halves(scratch, &mut |sums, row| {
                    // SAFETY: the caller's contract; different ranges write different rows.
                    unsafe { self.reduce(buffers, segments.clone(), sums, row) };
                });
            });
        }
    }
}

impl fmt::Debug for SegmentReduce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "SegmentReduce({:?}, {} to {}, {} segments of {} rows of {})",
            self.kind, self.dtypes[0], self.dtypes[1], self.segments, self.rows, self.columns
        )
    }
}
