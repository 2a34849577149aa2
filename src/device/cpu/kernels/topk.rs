//! The first elements of an order along one axis.

use std::cmp::Reverse;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use half::bf16;

use super::check::{MAX_SCRATCH, ensure, invalid, required_bytes, writes_each_place_once};
use super::nest::share;
use super::{BufferRef, Kernel};
use crate::device::cpu::pool::ComputePool;
use crate::device::{DeviceError, Operand, TopKDesc, TopKOrder};
use crate::tensor::DType;

const OP: &str = "topk";

/// Elements that are compared with the threshold together.
const CHUNK: usize = 64;

/// Candidates that are at least collected before the best of them are sought.
const MIN_CANDIDATES: usize = 1024;

/// A number with its place in the order, larger for larger numbers.
trait Ranked: Copy + Send + Sync + 'static {
    fn key(self) -> u32;
}

impl Ranked for f32 {
    #[inline(always)]
    fn key(self) -> u32 {
        // The sum has one zero.
        let bits = (self + 0.0).to_bits();
        let ordered = bits ^ ((bits.cast_signed() >> 31).cast_unsigned() | 1 << 31);
        if self.is_nan() { u32::MAX } else { ordered }
    }
}

impl Ranked for bf16 {
    #[inline(always)]
    fn key(self) -> u32 {
        f32::from_bits(u32::from(self.to_bits()) << 16).key()
    }
}

impl Ranked for i32 {
    #[inline(always)]
    fn key(self) -> u32 {
        self.cast_unsigned() ^ 1 << 31
    }
}

impl Ranked for u32 {
    #[inline(always)]
    fn key(self) -> u32 {
        self
    }
}

/// One element of a line: the order's key above the complement of the position, so that the larger is the better one and
/// no two are equal.
const fn candidate(key: u32, index: usize) -> u64 {
    (key as u64) << 32 | !(index as u32) as u64
}

const fn position(candidate: u64) -> usize {
    !(candidate as u32) as usize
}

/// Where the lines of the source and of the results begin, and the steps along them.
#[derive(Debug)]
struct Lines {
    /// Lengths and steps of the other axes.
    axes: Vec<(usize, [isize; 3])>,
    offsets: [isize; 3],
    steps: [isize; 3],
}

impl Lines {
    fn new(operands: [&Operand; 3], axis: usize) -> Self {
        let views = operands.map(|operand| &operand.view);
        let others = (0..views[0].rank()).filter(|&a| a != axis);
        Self {
            axes: others
                .map(|a| (views[0].shape[a], views.map(|view| view.strides[a])))
                .collect(),
            offsets: views.map(|view| view.offset as isize),
            steps: views.map(|view| view.strides[axis]),
        }
    }

    fn count(&self) -> usize {
        self.axes.iter().map(|&(len, _)| len).product()
    }

    fn begin(&self, line: usize) -> [isize; 3] {
        let (mut rest, mut offsets) = (line, self.offsets);
        for &(len, steps) in self.axes.iter().rev() {
            let index = (rest % len) as isize;
            rest /= len;
            for (offset, step) in offsets.iter_mut().zip(steps) {
                *offset += index * step;
            }
        }
        offsets
    }
}

/// A prepared selection.
///
/// A line is read once. Elements above the threshold become candidates; when their room is full, the best `k` stay and
/// the last of them is the new threshold. Later elements that equal it come behind it, so they need not be looked at.
struct TopK<T> {
    lines: Lines,
    len: usize,
    k: usize,
    room: usize,
    order: TopKOrder,
    index_type: DType,
    required: [usize; 3],
    element: PhantomData<T>,
}

/// Prepares a selection.
pub(super) fn prepare(desc: &TopKDesc) -> Result<Arc<dyn Kernel>, DeviceError> {
    match desc.src.dtype {
        DType::F32 => Ok(Arc::new(TopK::<f32>::new(desc)?)),
        DType::Bf16 => Ok(Arc::new(TopK::<bf16>::new(desc)?)),
        DType::I32 => Ok(Arc::new(TopK::<i32>::new(desc)?)),
        DType::U32 => Ok(Arc::new(TopK::<u32>::new(desc)?)),
        other => Err(invalid(
            OP,
            format!("source holds {other}; only float32, bfloat16, int32 and uint32 are ordered"),
        )),
    }
}

impl<T: Ranked> TopK<T> {
    fn new(desc: &TopKDesc) -> Result<Self, DeviceError> {
        let (src, values, indices) = (&desc.src, &desc.values, &desc.indices);
        let (from, to) = (&src.view.shape, &values.view.shape);
        let axis = desc.axis;
        ensure(axis < from.rank(), OP, || format!("axis {axis} of shape {from}"))?;
        let fits = to.rank() == from.rank()
            && (0..from.rank()).all(|a| a == axis || from[a] == to[a])
            && indices.view.shape == *to;
        ensure(fits, OP, || {
            format!(
                "values {to} and indices {} do not fit source {from}: all but axis {axis} must be equal",
                indices.view.shape
            )
        })?;
        let (len, k) = (from[axis], to[axis]);
        ensure(k <= len, OP, || {
            format!("{k} elements of an axis of {len}: there must be as many as are selected")
        })?;
        ensure(values.dtype == src.dtype, OP, || {
            format!("source holds {}, values {}", src.dtype, values.dtype)
        })?;
        let most = match indices.dtype {
            DType::U32 | DType::I64 => u32::MAX as usize,
            DType::I32 => i32::MAX as usize,
            other => {
                return Err(invalid(
                    OP,
                    format!("indices of {other}; uint32, int32 and int64 can be positions"),
                ));
            }
        };
        ensure(len <= most, OP, || {
            format!("an axis of {len} elements, above the {most} that positions can tell apart")
        })?;
        writes_each_place_once(OP, "values", values)?;
        writes_each_place_once(OP, "indices", indices)?;
        let room = 2 * k.max(MIN_CANDIDATES);
        ensure(room <= MAX_SCRATCH / size_of::<u64>(), OP, || {
            format!("{k} elements are more than can be held while they are sorted")
        })?;
        Ok(Self {
            lines: Lines::new([src, values, indices], axis),
            len,
            k,
            room,
            order: desc.order,
            index_type: indices.dtype,
            required: [
                required_bytes(OP, "source", src)?,
                required_bytes(OP, "values", values)?,
                required_bytes(OP, "indices", indices)?,
            ],
            element: PhantomData,
        })
    }

    fn key(&self, value: T) -> u32 {
        match self.order {
            TopKOrder::Largest => value.key(),
            TopKOrder::Smallest => !value.key(),
        }
    }

    /// The best `k` of a line, in order, in front of `found`.
    ///
    /// # Safety
    /// The line is readable.
    unsafe fn select(&self, line: *const T, found: &mut [u64]) {
        let step = self.lines.steps[0];
        let mut count = 0;
        let mut threshold = None;
        for begin in (0..self.len).step_by(CHUNK) {
            let mut keys = [0; CHUNK];
            let keys = &mut keys[..CHUNK.min(self.len - begin)];
            // SAFETY: `begin + i` is below the line's length.
            unsafe {
                if step == 1 {
                    for (i, key) in keys.iter_mut().enumerate() {
                        *key = self.key(line.add(begin + i).read());
                    }
                } else {
                    for (i, key) in keys.iter_mut().enumerate() {
                        *key = self.key(line.offset((begin + i) as isize * step).read());
                    }
                }
            }
            if threshold.is_some_and(|t| keys.iter().fold(0, |top, &key| top.max(key)) <= t) {
                continue;
            }
            for (i, &key) in keys.iter().enumerate() {
                if threshold.is_some_and(|t| key <= t) {
                    continue;
                }
                found[count] = candidate(key, begin + i);
                count += 1;
                if count == found.len() {
                    let (_, last, _) = found.select_nth_unstable_by_key(self.k - 1, |&c| Reverse(c));
                    threshold = Some((*last >> 32) as u32);
                    count = self.k;
                }
            }
        }
        found[..count].sort_unstable_by_key(|&c| Reverse(c));
    }

    /// # Safety
    /// As [`Kernel::run`]; the lines exist.
    unsafe fn lines(&self, buffers: &[BufferRef], lines: Range<usize>, scratch: &mut [u8]) {
        let found: &mut [u64] = &mut bytemuck::cast_slice_mut(scratch)[..self.room];
        for line in lines {
            let [src, values, indices] = self.lines.begin(line);
            let src = buffers[0].at::<T>(src);
            // SAFETY: the caller's contract. Positions are below the line's length, places below `k`.
            unsafe {
                self.select(src, found);
                for (place, &candidate) in found[..self.k].iter().enumerate() {
                    let (place, from) = (place as isize, position(candidate));
                    let value = src.offset(from as isize * self.lines.steps[0]).read();
                    let to = buffers[1].at::<T>(values + place * self.lines.steps[1]);
                    to.write(value);
                    let to = indices + place * self.lines.steps[2];
                    match self.index_type {
                        DType::I64 => buffers[2].at::<i64>(to).write(from as i64),
                        // The bits of a position below 2^31 are those of an int32.
                        _ => buffers[2].at::<u32>(to).write(from as u32),
                    }
                }
            }
        }
    }
}

impl<T: Ranked> Kernel for TopK<T> {
    fn scratch_bytes(&self) -> usize {
        self.room * size_of::<u64>()
    }

    fn required_bytes(&self) -> &[usize] {
        &self.required
    }

    unsafe fn run(&self, buffers: &[BufferRef], pool: &ComputePool) {
        if self.k == 0 {
            return;
        }
        share(
            pool,
            self.lines.count(),
            self.len.div_ceil(2),
            &|lines, scratch| {
                // SAFETY: the caller's contract; different lines are written to different places.
                unsafe { self.lines(buffers, lines, scratch) };
            },
        );
    }
}

impl<T> fmt::Debug for TopK<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "TopK({:?} {} of {}, {} lines)",
            self.order,
            self.k,
            self.len,
            self.lines.count()
        )
    }
}
