//! Reductions over any axes, in the fixed order that [`ReduceDesc`] states.

use std::fmt;
use std::sync::Arc;

use super::check::{ensure, required_bytes, storage, writes_each_place_once};
use super::elementwise::{load_run, store_run};
use super::nest::{BLOCK, share};
use super::ops::Ops;
use super::rows::{Fold, PARTIALS, RowOps, finish_fold};
use super::{BufferRef, Kernel};
use crate::device::cpu::pool::ComputePool;
use crate::device::{DeviceError, Operand, ReduceDesc, ReduceKind};
use crate::tensor::DType;

const OP: &str = "reduce";

/// Results that are computed together where they lie next to each other.
const TOGETHER: usize = 64;

/// An axis: its length, and the steps of source and destination.
type Axis = (usize, [isize; 2]);

struct Reduce {
    /// Axes that stay but for [`Self::inner`], outermost first.
    kept: Vec<Axis>,
    /// The axis along which results are computed together; its length is 1 where they are not.
    inner: Axis,
    /// Axes that go, outermost first; `run` is the last of them.
    gone: Vec<(usize, isize)>,
    run: (usize, isize),
    offsets: [isize; 2],
    dtypes: [DType; 2],
    kind: ReduceKind,
    required: [usize; 2],
    ops: &'static Ops,
    rows: &'static RowOps,
}

/// Prepares a reduction.
pub(super) fn prepare(
    desc: &ReduceDesc,
    ops: &'static Ops,
    rows: &'static RowOps,
) -> Result<Arc<dyn Kernel>, DeviceError> {
    let (src, dst) = (&desc.src, &desc.dst);
    storage(OP, &[("source", src)])?;
    storage(OP, &[("destination", dst)])?;
    let (from, to) = (src.view.shape, dst.view.shape);
    let fits = from.rank() == to.rank()
        && from
            .iter()
            .zip(to.iter())
            .all(|(&from, &to)| to == from || to == 1);
    ensure(fits, OP, || {
        format!(
            "source {from} and destination {to} do not fit: expected the source's shape, with 1 in the reduced axes"
        )
    })?;
    writes_each_place_once(OP, "destination", dst)?;
    let required = [
        required_bytes(OP, "source", src)?,
        required_bytes(OP, "destination", dst)?,
    ];
    let axes = |operand: &Operand, axis: usize| operand.view.strides[axis];
    let mut kept: Vec<Axis> = Vec::new();
    let mut gone: Vec<(usize, isize)> = Vec::new();
    for axis in 0..from.rank() {
        let (dim, step) = (from[axis], axes(src, axis));
        if to[axis] != dim {
            gone.push((dim, step));
        } else if dim != 1 {
            kept.push((dim, [step, axes(dst, axis)]));
        }
    }
    // Reduced axes that run on into each other are one.
    let mut joined: Vec<(usize, isize)> = Vec::new();
    for (dim, step) in gone {
        match joined.last_mut() {
            Some((outer, outer_step)) if *outer_step == step.wrapping_mul(dim as isize) => {
                (*outer, *outer_step) = (*outer * dim, step);
            }
            _ => joined.push((dim, step)),
        }
    }
    let run = joined.pop().unwrap_or((1, 1));
    // Results next to each other are computed together where that is how the source lies.
    let neighbours = kept.iter().position(|&(dim, [step, _])| step == 1 && dim > 1);
    let inner = match neighbours {
        Some(place) if run.1 != 1 || run.0 == 1 => kept.remove(place),
        _ => (1, [1, 1]),
    };
    Ok(Arc::new(Reduce {
        kept,
        inner,
        gone: joined,
        run,
        offsets: [src, dst].map(|operand| operand.view.offset as isize),
        dtypes: [src.dtype, dst.dtype],
        kind: desc.kind,
        required,
        ops,
        rows,
    }))
}

/// Moves by the digits of `index`, the last axis being the fastest.
fn moves(axes: impl DoubleEndedIterator<Item = (usize, isize)>, index: usize) -> isize {
    let mut rest = index;
    let mut moved = 0;
    for (dim, step) in axes.rev() {
        moved += (rest % dim) as isize * step;
        rest /= dim;
    }
    moved
}

impl Reduce {
    /// Elements that one result is made of.
    fn count(&self) -> usize {
        self.run.0 * self.gone.iter().map(|&(dim, _)| dim).product::<usize>()
    }

    /// What follows the fold.
    fn end(&self, value: f32) -> f32 {
        match self.kind {
            ReduceKind::Mean => value / self.count() as f32,
            ReduceKind::L2 => value.sqrt(),
            _ => value,
        }
    }

    /// One result. Values are folded block by block; what a short run leaves of a block is filled by the next.
    ///
    /// # Safety
    /// As [`Kernel::run`]; the elements from `src` on lie inside the view.
    unsafe fn one(&self, buffer: BufferRef, src: isize, values: &mut [f32]) -> f32 {
        let fold = Fold::of(self.kind);
        let mut partials = [fold.start(); PARTIALS];
        let outer: usize = self.gone.iter().map(|&(dim, _)| dim).product();
        let (len, step) = self.run;
        let mut filled = 0;
        for line in 0..outer {
            let line = src + moves(self.gone.iter().copied(), line);
            let mut from = 0;
            while from < len {
                let count = (len - from).min(BLOCK - filled);
                let place = (line + from as isize * step, step);
                // SAFETY: the run lies inside the view; the caller's contract.
                unsafe {
                    load_run(
                        self.ops,
                        self.dtypes[0],
                        buffer,
                        place,
                        &mut values[filled..filled + count],
                    );
                    filled += count;
                    from += count;
                    if filled == BLOCK {
                        (self.rows.fold)(fold, &mut partials, values);
                        filled = 0;
                    }
                }
            }
        }
        // SAFETY: the processor has the instruction set.
        unsafe { (self.rows.fold)(fold, &mut partials, &values[..filled]) };
        self.end(finish_fold(fold, &mut partials))
    }

    /// Neighbouring results, from `src` on: each has its own partial results, and each row of elements goes to one of
    /// them. They come to lie in the first `count` values of `partials`.
    ///
    /// # Safety
    /// As [`Self::one`].
    unsafe fn together(
        &self,
        buffer: BufferRef,
        src: isize,
        count: usize,
        (values, partials): (&mut [f32], &mut [f32]),
    ) {
        let fold = Fold::of(self.kind);
        partials.fill(fold.start());
        let outer: usize = self.gone.iter().map(|&(dim, _)| dim).product();
        let (len, step) = self.run;
        let mut element = 0;
        for line in 0..outer {
            let line = src + moves(self.gone.iter().copied(), line);
            for i in 0..len as isize {
                let at = element % PARTIALS * TOGETHER;
                // SAFETY: the run lies inside the view; the caller's contract.
                unsafe {
                    load_run(
                        self.ops,
                        self.dtypes[0],
                        buffer,
                        (line + i * step, 1),
                        &mut values[..count],
                    );
                    (self.rows.fold_rows)(fold, &mut partials[at..at + count], &values[..count]);
                }
                element += 1;
            }
        }
        for result in 0..count {
            let mut of_one: [f32; PARTIALS] = std::array::from_fn(|i| partials[i * TOGETHER + result]);
            partials[result] = self.end(finish_fold(fold, &mut of_one));
        }
    }
}

impl Kernel for Reduce {
    fn scratch_bytes(&self) -> usize {
        (BLOCK + PARTIALS * TOGETHER) * size_of::<f32>()
    }

    fn required_bytes(&self) -> &[usize] {
        &self.required
    }

    unsafe fn run(&self, buffers: &[BufferRef], pool: &ComputePool) {
        let (width, [src_step, dst_step]) = self.inner;
        let blocks = width.div_ceil(TOGETHER);
        let outer: usize = self.kept.iter().map(|&(dim, _)| dim).product();
        let work = self.count() * width.min(TOGETHER) / 8 + 1;
        share(pool, outer * blocks, work, &|units, scratch| {
            let (values, partials) = bytemuck::cast_slice_mut::<u8, f32>(scratch).split_at_mut(BLOCK);
            let partials = &mut partials[..PARTIALS * TOGETHER];
            for unit in units {
                let (line, first) = (unit / blocks, unit % blocks * TOGETHER);
                let at = |which: usize, step: isize| {
                    let axes = self.kept.iter().map(|&(dim, steps)| (dim, steps[which]));
                    self.offsets[which] + moves(axes, line) + first as isize * step
                };
                let (src, dst) = (at(0, src_step), at(1, dst_step));
                let count = TOGETHER.min(width - first);
                // SAFETY: the axes stay inside the checked views; different units write different elements.
                unsafe {
                    if width == 1 {
                        partials[0] = self.one(buffers[0], src, values);
                    } else {
                        self.together(buffers[0], src, count, (values, partials));
                    }
                    store_run(
                        self.ops,
                        self.dtypes[1],
                        buffers[1],
                        (dst, dst_step),
                        &partials[..count],
                    );
                }
            }
        });
    }
}

impl fmt::Debug for Reduce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Reduce({:?}, {} to {}, {} elements each)",
            self.kind,
            self.dtypes[0],
            self.dtypes[1],
            self.count()
        )
    }
}
