//! Reading and writing along one axis by an index that lies on the device.

use std::fmt;
use std::sync::Arc;

use super::check::{ensure, required_bytes, same_shape, storage, writes_each_place_once};
use super::copy::{RunFn, relocation};
use super::elementwise::{blocks, load_run, store_run};
use super::nest::{BLOCK, Nest, share};
use super::ops::Ops;
use super::{BufferRef, Kernel};
use crate::device::cpu::pool::ComputePool;
use crate::device::{BinaryKind, DeviceError, Operand};
use crate::tensor::{DType, View};

const GATHER: &str = "gather_elements";
const SCATTER: &str = "scatter_elements";

/// The axis that an index counts along, and how the index is stored.
#[derive(Debug, Clone, Copy)]
struct Axis {
    len: usize,
    step: isize,
    index: DType,
}

impl Axis {
    fn new(
        op: &'static str,
        name: &str,
        target: &Operand,
        index: &Operand,
        axis: usize,
    ) -> Result<Self, DeviceError> {
        ensure(axis < target.view.rank(), op, || {
            format!("axis {axis} of {name} of shape {}", target.view.shape)
        })?;
        ensure(
            matches!(index.dtype, DType::U32 | DType::I32 | DType::F32),
            op,
            || {
                format!(
                    "index holds {}, expected {}, {} or whole numbers in {}",
                    index.dtype,
                    DType::U32,
                    DType::I32,
                    DType::F32
                )
            },
        )?;
        Ok(Self {
            len: target.view.shape[axis],
            step: target.view.strides[axis],
            index: index.dtype,
        })
    }

    /// Elements from the axis's start to the place that an index names; `None` outside the axis.
    ///
    /// # Safety
    /// The index at `offset` is readable. It is read once: what is compared is what is used.
    unsafe fn place(&self, index: BufferRef, offset: isize) -> Option<isize> {
        // SAFETY: the caller's contract.
        let value = unsafe {
            match self.index {
                DType::U32 => i64::from(index.at::<u32>(offset).read_volatile()),
                DType::I32 => i64::from(index.at::<i32>(offset).read_volatile()),
                _ => whole(index.at::<f32>(offset).read_volatile()),
            }
        };
        let from_front = if value < 0 {
            value.saturating_add(self.len as i64)
        } else {
            value
        };
        let inside = usize::try_from(from_front).ok().filter(|&i| i < self.len)?;
        Some(inside as isize * self.step)
    }
}

/// A float as a whole number; NaN names no place.
fn whole(value: f32) -> i64 {
    if value.is_nan() { i64::MAX } else { value as i64 }
}

/// A view of `shape` over the other axes of `view`: the axis itself has no step.
fn without_axis(
    op: &'static str,
    (name, view): (&str, &View),
    (other, shape): (&str, &View),
    axis: usize,
) -> Result<View, DeviceError> {
    let fits =
        view.rank() == shape.rank() && (0..view.rank()).all(|a| a == axis || shape.shape[a] <= view.shape[a]);
    ensure(fits, op, || {
        format!(
            "{name} has shape {}, {other} {}: it may be longer along axis {axis} only",
            view.shape, shape.shape
        )
    })?;
    let mut base = *view;
    base.shape = shape.shape;
    base.strides[axis] = 0;
    Ok(base)
}

struct Gather {
    /// Source (without the axis), index, destination.
    nest: Nest<3>,
    axis: Axis,
    dtype: DType,
    run: RunFn,
    required: [usize; 3],
}

/// Prepares a gather.
pub(super) fn prepare_gather(
    src: &Operand,
    index: &Operand,
    dst: &Operand,
    axis: usize,
) -> Result<Arc<dyn Kernel>, DeviceError> {
    let along = Axis::new(GATHER, "source", src, index, axis)?;
    ensure(src.dtype == dst.dtype, GATHER, || {
        format!("source holds {}, destination {}", src.dtype, dst.dtype)
    })?;
    same_shape(GATHER, ("index", &index.view), ("destination", &dst.view))?;
    let base = without_axis(GATHER, ("source", &src.view), ("destination", &dst.view), axis)?;
    let required = [
        required_bytes(GATHER, "source", src)?,
        required_bytes(GATHER, "index", index)?,
        required_bytes(GATHER, "destination", dst)?,
    ];
    writes_each_place_once(GATHER, "destination", dst)?;
    Ok(Arc::new(Gather {
        nest: Nest::new([&base, &index.view, &dst.view]),
        axis: along,
        dtype: src.dtype,
        run: relocation(src.dtype),
        required,
    }))
}

/// What is read for an index outside the axis; aligned for every type.
static ZERO: u64 = 0;

impl Kernel for Gather {
    fn required_bytes(&self) -> &[usize] {
        &self.required
    }

    unsafe fn run(&self, buffers: &[BufferRef], pool: &ComputePool) {
        let [src_step, index_step, dst_step] = self.nest.steps();
        let size = self.dtype.size_bytes() as isize;
        let work = self.nest.unit_len().div_ceil(2);
        share(pool, self.nest.units(), work, &|units, _| {
            self.nest.visit(units, |[src, index, dst], count| {
                // One index for the whole run, or one for each element.
                let (runs, len) = if index_step == 0 { (1, count) } else { (count, 1) };
                for i in 0..runs as isize {
                    let to = buffers[2].at::<u8>((dst + i * dst_step) * size);
                    // SAFETY: the nest stays inside the checked views, and a place inside the source's axis.
                    unsafe {
                        match self.axis.place(buffers[1], index + i * index_step) {
                            Some(place) => {
                                let from = buffers[0].at::<u8>((src + i * src_step + place) * size);
                                (self.run)(from, src_step, to, dst_step, len);
                            }
                            None => (self.run)((&raw const ZERO).cast(), 0, to, dst_step, len),
                        }
                    }
                }
            });
        });
    }
}

impl fmt::Debug for Gather {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gather({}, of {}, {:?})", self.dtype, self.axis.len, self.nest)
    }
}

struct Scatter {
    /// Updates, index, destination, over all axes but the one of the index.
    nest: Nest<3>,
    /// Updates along the axis, and the steps of updates and index along it.
    along: (usize, [isize; 2]),
    axis: Axis,
    combine: Option<BinaryKind>,
    dtype: DType,
    run: RunFn,
    required: [usize; 3],
    ops: &'static Ops,
}

/// Prepares a scatter: updates, index, destination.
pub(super) fn prepare_scatter(
    [updates, index, dst]: [&Operand; 3],
    axis: usize,
    combine: Option<BinaryKind>,
    ops: &'static Ops,
) -> Result<Arc<dyn Kernel>, DeviceError> {
    let of_axis = Axis::new(SCATTER, "destination", dst, index, axis)?;
    ensure(updates.dtype == dst.dtype, SCATTER, || {
        format!("updates hold {}, destination {}", updates.dtype, dst.dtype)
    })?;
    if combine.is_some() {
        storage(SCATTER, &[("updates", updates), ("destination", dst)])?;
    }
    same_shape(SCATTER, ("index", &index.view), ("updates", &updates.view))?;
    let base = without_axis(
        SCATTER,
        ("destination", &dst.view),
        ("updates", &updates.view),
        axis,
    )?;
    let required = [
        required_bytes(SCATTER, "updates", updates)?,
        required_bytes(SCATTER, "index", index)?,
        required_bytes(SCATTER, "destination", dst)?,
    ];
    writes_each_place_once(SCATTER, "destination", dst)?;
    let others: Vec<usize> = (0..updates.view.rank()).filter(|&a| a != axis).collect();
    Ok(Arc::new(Scatter {
        nest: Nest::over(&others, [&updates.view, &index.view, &base]),
        along: (
            updates.view.shape[axis],
            [updates.view.strides[axis], index.view.strides[axis]],
        ),
        axis: of_axis,
        combine,
        dtype: dst.dtype,
        run: relocation(dst.dtype),
        required,
        ops,
    }))
}

impl Scatter {
    /// Moves or combines a run of updates.
    ///
    /// # Safety
    /// As [`Kernel::run`]; both runs of `len` elements lie inside their views.
    unsafe fn write(
        &self,
        [from, to]: [BufferRef; 2],
        (update, update_step): (isize, isize),
        (dst, dst_step): (isize, isize),
        len: usize,
        [there, new]: [&mut [f32]; 2],
    ) {
        let size = self.dtype.size_bytes() as isize;
        // SAFETY: the caller's contract; updates and destination are different buffers.
        unsafe {
            let Some(kind) = self.combine else {
                (self.run)(
                    from.at(update * size),
                    update_step,
                    to.at(dst * size),
                    dst_step,
                    len,
                );
                return;
            };
            let (there, new) = (&mut there[..len], &mut new[..len]);
            load_run(self.ops, self.dtype, to, (dst, dst_step), there);
            load_run(self.ops, self.dtype, from, (update, update_step), new);
            (self.ops.combine)(kind, there, new);
            store_run(self.ops, self.dtype, to, (dst, dst_step), there);
        }
    }
}

impl Kernel for Scatter {
    fn scratch_bytes(&self) -> usize {
        2 * BLOCK * size_of::<f32>()
    }

    fn required_bytes(&self) -> &[usize] {
        &self.required
    }

    unsafe fn run(&self, buffers: &[BufferRef], pool: &ComputePool) {
        let [update_step, index_step, dst_step] = self.nest.steps();
        let (updates, [along_updates, along_index]) = self.along;
        let work = self.nest.unit_len().saturating_mul(updates);
        // Different visits write different places; along the axis one thread goes in order.
        share(pool, self.nest.units(), work, &|units, scratch| {
            let [there, new] = blocks(scratch);
            self.nest.visit(units, |[update, index, dst], count| {
                let (runs, len) = if index_step == 0 { (1, count) } else { (count, 1) };
                for i in 0..updates as isize {
                    let (update, index) = (update + i * along_updates, index + i * along_index);
                    for j in 0..runs as isize {
                        // SAFETY: the nest stays inside the checked views, and a place inside the axis.
                        unsafe {
                            if let Some(place) = self.axis.place(buffers[1], index + j * index_step) {
                                self.write(
                                    [buffers[0], buffers[2]],
                                    (update + j * update_step, update_step),
                                    (dst + j * dst_step + place, dst_step),
                                    len,
                                    [&mut *there, &mut *new],
                                );
                            }
                        }
                    }
                }
            });
        });
    }
}

impl fmt::Debug for Scatter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Scatter({}, {} to {}, {:?})",
            self.dtype, self.along.0, self.axis.len, self.nest
        )
    }
}
