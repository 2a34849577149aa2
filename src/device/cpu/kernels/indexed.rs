//! Moves through index tables: gather and nearest-neighbour resize.

use std::cmp::Reverse;
use std::fmt;
use std::sync::Arc;

use super::check::{Image, ensure, required_bytes, writes_each_place_once};
use super::copy::relocation;
use super::nest::share;
use super::{BufferRef, Kernel};
use crate::device::cpu::pool::ComputePool;
use crate::device::{DeviceError, Operand};
use crate::tensor::{DType, View};

/// Where an axis leads in the source.
#[derive(Debug)]
enum Way {
    /// `index * step`
    Step(isize),
    /// `table[index]`
    Table(Box<[isize]>),
}

#[derive(Debug)]
struct Axis {
    len: usize,
    dst_step: isize,
    src: Way,
}

impl Axis {
    fn src(&self, index: usize) -> isize {
        match &self.src {
            Way::Step(step) => index as isize * step,
            Way::Table(table) => table[index],
        }
    }
}

/// `dst[i, j, ...] = src[way0(i) + way1(j) + ...]`
struct Indexed {
    op: &'static str,
    /// Outermost first by the destination's steps; at least two.
    axes: Vec<Axis>,
    offsets: [isize; 2],
    dtype: DType,
    required: [usize; 2],
}

/// Source positions of a table, checked against the axis.
fn table(
    op: &'static str,
    name: &str,
    indices: &[u32],
    (len, step): (usize, isize),
) -> Result<Way, DeviceError> {
    if let Some(bad) = indices.iter().find(|&&i| i as usize >= len) {
        return Err(super::check::invalid(
            op,
            format!("{name} holds {bad}, the source axis has {len} elements"),
        ));
    }
    Ok(Way::Table(indices.iter().map(|&i| i as isize * step).collect()))
}

fn build(
    op: &'static str,
    src: &Operand,
    dst: &Operand,
    tables: Vec<(usize, &str, &[u32])>,
) -> Result<Arc<dyn Kernel>, DeviceError> {
    let (from, to): (&View, &View) = (&src.view, &dst.view);
    ensure(src.dtype == dst.dtype, op, || {
        format!("source holds {}, destination {}", src.dtype, dst.dtype)
    })?;
    ensure(from.rank() == to.rank(), op, || {
        format!("source has shape {}, destination {}", from.shape, to.shape)
    })?;
    let required = [
        required_bytes(op, "source", src)?,
        required_bytes(op, "destination", dst)?,
    ];
    writes_each_place_once(op, "destination", dst)?;
    let mut axes = Vec::with_capacity(to.rank() + 2);
    for axis in 0..to.rank() {
        let len = to.shape[axis];
        let way = match tables.iter().find(|(a, ..)| *a == axis) {
            Some(&(_, name, indices)) => {
                ensure(indices.len() == len, op, || {
                    format!("{name} has {} entries, the destination axis {len}", indices.len())
                })?;
                table(op, name, indices, (from.shape[axis], from.strides[axis]))?
            }
            None => {
                ensure(from.shape[axis] == len, op, || {
                    format!(
                        "source has shape {}, destination {}: axis {axis} differs",
                        from.shape, to.shape
                    )
                })?;
                Way::Step(from.strides[axis])
            }
        };
        axes.push(Axis {
            len,
            dst_step: to.strides[axis],
            src: way,
        });
    }
    axes.sort_by_key(|axis| Reverse((axis.len == 1, axis.dst_step.unsigned_abs())));
    while axes.len() < 2 {
        axes.insert(
            0,
            Axis {
                len: 1,
                dst_step: 0,
                src: Way::Step(0),
            },
        );
    }
    Ok(Arc::new(Indexed {
        op,
        axes,
        offsets: [from.offset as isize, to.offset as isize],
        dtype: src.dtype,
        required,
    }))
}

/// Prepares a gather.
pub(super) fn prepare_gather(
    src: &Operand,
    dst: &Operand,
    axis: usize,
    indices: &[u32],
) -> Result<Arc<dyn Kernel>, DeviceError> {
    const OP: &str = "gather";
    ensure(axis < src.view.rank(), OP, || {
        format!("axis {axis} of shape {}", src.view.shape)
    })?;
    build(OP, src, dst, vec![(axis, "indices", indices)])
}

/// Prepares a nearest-neighbour resize.
pub(super) fn prepare_resize(
    src: &Operand,
    dst: &Operand,
    rows: &[u32],
    columns: &[u32],
) -> Result<Arc<dyn Kernel>, DeviceError> {
    const OP: &str = "resize_nearest";
    Image::new(OP, "source", src)?;
    Image::new(OP, "destination", dst)?;
    build(OP, src, dst, vec![(2, "rows", rows), (3, "columns", columns)])
}

impl Indexed {
    fn split(&self) -> (&[Axis], &Axis, &Axis) {
        let (outer, last) = self.axes.split_at(self.axes.len() - 2);
        (outer, &last[0], &last[1])
    }
}

impl Kernel for Indexed {
    fn required_bytes(&self) -> &[usize] {
        &self.required
    }

    unsafe fn run(&self, buffers: &[BufferRef], pool: &ComputePool) {
        let (outer, middle, inner) = self.split();
        let units = outer.iter().map(|axis| axis.len).product();
        let size = self.dtype.size_bytes() as isize;
        let run = relocation(self.dtype);
        let work = (middle.len * inner.len).div_ceil(4);
        share(pool, units, work, &|units, _| {
            for unit in units {
                let [mut src, mut dst] = self.offsets;
                let mut rest = unit;
                for axis in outer.iter().rev() {
                    let index = rest % axis.len;
                    rest /= axis.len;
                    src += axis.src(index);
                    dst += index as isize * axis.dst_step;
                }
                for i in 0..middle.len {
                    let (src, dst) = (src + middle.src(i), dst + i as isize * middle.dst_step);
                    let place = |element: isize| buffers[0].at::<u8>(element * size);
                    let to = buffers[1].at::<u8>(dst * size);
                    // SAFETY: tables were checked against the source, so all offsets lie inside the views.
                    unsafe {
                        match &inner.src {
                            Way::Step(step) => run(place(src), *step, to, inner.dst_step, inner.len),
                            Way::Table(table) => {
                                for (j, way) in table.iter().enumerate() {
                                    let to = to.offset(j as isize * inner.dst_step * size);
                                    run(place(src + way), 1, to, 1, 1);
                                }
                            }
                        }
                    }
                }
            }
        });
    }
}

impl fmt::Debug for Indexed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lens: Vec<usize> = self.axes.iter().map(|axis| axis.len).collect();
        write!(f, "Indexed({}, {}, {lens:?})", self.op, self.dtype)
    }
}
