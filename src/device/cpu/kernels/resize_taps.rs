//! Resizing by weighted sums of rows and columns.

use std::fmt;
use std::sync::Arc;

use super::check::{Image, MAX_SCRATCH, ensure, required_bytes, storage, writes_each_place_once};
use super::elementwise::{load_run, store_run};
use super::nest::share;
use super::ops::Ops;
use super::{BufferRef, Kernel};
use crate::device::cpu::pool::ComputePool;
use crate::device::{DeviceError, Operand, TapTable};
use crate::tensor::DType;

const OP: &str = "resize_taps";

/// `out[y, x] = sum_j columns[x][j] * (sum_i rows[y][i] * in[row i of y, column j of x])`, both sums in the order of
/// the taps, products and sums rounded to fp32 one by one.
struct ResizeTaps {
    src: Image,
    dst: Image,
    rows: Taps,
    columns: Taps,
    dtype: DType,
    required: [usize; 2],
    ops: &'static Ops,
}

/// A checked table.
struct Taps {
    count: usize,
    taps: Box<[(usize, f32)]>,
}

impl Taps {
    fn new(name: &str, table: &TapTable, [from, to]: [usize; 2]) -> Result<Self, DeviceError> {
        let entries = to.checked_mul(table.taps);
        let fits =
            table.taps > 0 && entries == Some(table.positions.len()) && entries == Some(table.weights.len());
        ensure(fits, OP, || {
            format!(
                "{name}: {} positions and {} weights for {to} outputs of {} taps",
                table.positions.len(),
                table.weights.len(),
                table.taps
            )
        })?;
        let outside = table.positions.iter().find(|&&p| p as usize >= from);
        ensure(outside.is_none(), OP, || {
            format!("{name}: a position {outside:?} of {from}")
        })?;
        let pairs = table.positions.iter().zip(table.weights.iter());
        Ok(Self {
            count: table.taps,
            taps: pairs.map(|(&p, w)| (p as usize, w.get())).collect(),
        })
    }

    fn of(&self, output: usize) -> &[(usize, f32)] {
        &self.taps[output * self.count..(output + 1) * self.count]
    }
}

/// Prepares a resize by tables of rows and columns.
pub(super) fn prepare(
    src: &Operand,
    dst: &Operand,
    [rows, columns]: [&TapTable; 2],
    ops: &'static Ops,
) -> Result<Arc<dyn Kernel>, DeviceError> {
    let dtype = storage(OP, &[("source", src), ("destination", dst)])?;
    let (from, to) = (
        Image::new(OP, "source", src)?,
        Image::new(OP, "destination", dst)?,
    );
    ensure((from.n, from.c) == (to.n, to.c), OP, || {
        format!(
            "source has shape {}, destination {}: images and channels differ",
            src.view.shape, dst.view.shape
        )
    })?;
    let required = [
        required_bytes(OP, "source", src)?,
        required_bytes(OP, "destination", dst)?,
    ];
    writes_each_place_once(OP, "destination", dst)?;
    let kernel = ResizeTaps {
        rows: Taps::new("rows", rows, [from.h, to.h])?,
        columns: Taps::new("columns", columns, [from.w, to.w])?,
        src: from,
        dst: to,
        dtype,
        required,
        ops,
    };
    ensure(kernel.scratch_bytes() <= MAX_SCRATCH, OP, || {
        format!("rows of {} x {} elements", from.w, from.c)
    })?;
    Ok(Arc::new(kernel))
}

/// `sum += weight * values`
fn add(sum: &mut [f32], weight: f32, values: &[f32]) {
    for (sum, value) in sum.iter_mut().zip(values) {
        *sum += weight * value;
    }
}

impl ResizeTaps {
    /// One output row.
    ///
    /// # Safety
    /// As [`Kernel::run`]; `row` lies inside the destination.
    unsafe fn row(&self, buffers: &[BufferRef], row: usize, scratch: &mut [f32]) {
        let (c, w) = (self.src.c, self.src.w);
        let (summed, rest) = scratch.split_at_mut(w * c);
        let (loaded, rest) = rest.split_at_mut(c);
        let out = &mut rest[..c];
        summed.fill(0.0);
        let image = row / self.dst.h;
        for &(source, weight) in self.rows.of(row % self.dst.h) {
            let start = self.src.row(image * self.src.h + source);
            for x in 0..w {
                // SAFETY: a table's rows lie inside the source; channels lie next to each other.
                unsafe {
                    let pixel = start + x as isize * self.src.pixel_step;
                    load_run(self.ops, self.dtype, buffers[0], (pixel, 1), loaded);
                }
                add(&mut summed[x * c..(x + 1) * c], weight, loaded);
            }
        }
        let start = self.dst.row(row);
        for x in 0..self.dst.w {
            out.fill(0.0);
            for &(column, weight) in self.columns.of(x) {
                add(out, weight, &summed[column * c..(column + 1) * c]);
            }
            // SAFETY: the pixel lies inside the destination.
            unsafe {
                let pixel = start + x as isize * self.dst.pixel_step;
                store_run(self.ops, self.dtype, buffers[1], (pixel, 1), out);
            }
        }
    }
}

impl Kernel for ResizeTaps {
    fn scratch_bytes(&self) -> usize {
        self.src
            .w
            .saturating_add(2)
            .saturating_mul(self.src.c)
            .saturating_mul(size_of::<f32>())
    }

    fn required_bytes(&self) -> &[usize] {
        &self.required
    }

    unsafe fn run(&self, buffers: &[BufferRef], pool: &ComputePool) {
        let taps = self.rows.count * self.src.w + self.columns.count * self.dst.w;
        let work = (taps * self.dst.c).div_ceil(4);
        share(pool, self.dst.n * self.dst.h, work, &|rows, scratch| {
            let scratch: &mut [f32] = bytemuck::cast_slice_mut(scratch);
            for row in rows {
                // SAFETY: the caller's contract; different rows are written by different tasks.
                unsafe { self.row(buffers, row, scratch) };
            }
        });
    }
}

impl fmt::Debug for ResizeTaps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "ResizeTaps({}, {} x {} taps, {:?} to {:?})",
            self.dtype, self.rows.count, self.columns.count, self.src, self.dst
        )
    }
}
