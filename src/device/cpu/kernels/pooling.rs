//! 2-D pooling.

use std::sync::Arc;

use super::check::{Image, ensure, required_bytes, storage, writes_each_place_once};
use super::geometry::Window;
use super::nest::share;
use super::ops::Ops;
use super::{BufferRef, Kernel};
use crate::device::cpu::pool::ComputePool;
use crate::device::{DeviceError, Pool2dDesc, PoolKind};
use crate::tensor::DType;

const OP: &str = "pool2d";

/// A prepared pooling: every output pixel reduces the addresses of its window that lie inside the image, in
/// the order of rows, then columns. A NaN in the window makes the maximum NaN.
struct Pooling {
    input: Image,
    output: Image,
    window: Window,
    kind: PoolKind,
    dtype: DType,
    required: [usize; 2],
    ops: &'static Ops,
}

/// Prepares a pooling.
pub(super) fn prepare(desc: &Pool2dDesc, ops: &'static Ops) -> Result<Arc<dyn Kernel>, DeviceError> {
    let input = Image::new(OP, "input", &desc.input)?;
    let output = Image::new(OP, "output", &desc.output)?;
    let dtype = storage(OP, &[("input", &desc.input), ("output", &desc.output)])?;
    writes_each_place_once(OP, "output", &desc.output)?;
    ensure(input.n == output.n && input.c == output.c, OP, || {
        format!(
            "input {} and output {} differ in images or channels",
            desc.input.view.shape, desc.output.view.shape
        )
    })?;
    let window = Window::new(OP, &desc.geometry, &input, &output)?;
    let sides = [(0, input.h, output.h), (1, input.w, output.w)];
    for (axis, size, out_size) in sides {
        let empty = (0..out_size)
            .find(|&out| (0..window.kernel[axis]).all(|k| window.tap(axis, out, k, size).is_none()));
        ensure(empty.is_none(), OP, || {
            format!(
                "the window of output index {} on axis {} holds padding only",
                empty.unwrap_or_default(),
                axis + 2
            )
        })?;
    }
    Ok(Arc::new(Pooling {
        required: [
            required_bytes(OP, "input", &desc.input)?,
            required_bytes(OP, "output", &desc.output)?,
        ],
        input,
        output,
        window,
        kind: desc.kind,
        dtype,
        ops,
    }))
}

impl Pooling {
    /// Computes one output row.
    ///
    /// # Safety
    /// As [`Kernel::run`]; `scratch` is this thread's.
    unsafe fn row(&self, buffers: &[BufferRef], row: usize, scratch: &mut [u8]) {
        let Self {
            input,
            output,
            window,
            ..
        } = self;
        debug_assert!(scratch.len() >= self.scratch_bytes());
        let table: *mut *const u8 = scratch.as_mut_ptr().cast();
        let size = self.dtype.size_bytes() as isize;
        let (n, y) = (row / output.h, row % output.h);
        for x in 0..output.w {
            let mut count = 0;
            for ky in 0..window.kernel[0] {
                let Some(iy) = window.tap(0, y, ky, input.h) else {
                    continue;
                };
                let line = input.row(n * input.h + iy);
                for kx in 0..window.kernel[1] {
                    if let Some(ix) = window.tap(1, x, kx, input.w) {
                        let pixel = (line + ix as isize * input.pixel_step) * size;
                        // SAFETY: the table has room for every tap of the window.
                        unsafe { table.add(count).write(buffers[0].at(pixel)) };
                        count += 1;
                    }
                }
            }
            let divisor = match self.kind {
                PoolKind::AverageIncludingPad => window.taps(),
                PoolKind::Max | PoolKind::AverageExcludingPad => count,
            };
            let out = (output.row(row) + x as isize * output.pixel_step) * size;
            // SAFETY: `count` entries were just written; the taps lie inside the input, `out` inside the
            // output view.
            unsafe {
                let taps = std::slice::from_raw_parts(table, count);
                (self.ops.of(self.dtype).pool)(taps, output.c, self.kind, divisor as f32, buffers[1].at(out));
            }
        }
    }
}

impl Kernel for Pooling {
    fn scratch_bytes(&self) -> usize {
        self.window.taps() * size_of::<*const u8>()
    }

    fn required_bytes(&self) -> &[usize] {
        &self.required
    }

    unsafe fn run(&self, buffers: &[BufferRef], pool: &ComputePool) {
        let Self { output, window, .. } = self;
        let work = output.w * output.c.div_ceil(self.ops.lanes) * window.taps();
        share(pool, output.n * output.h, work, &|rows, scratch| {
            for row in rows {
                // SAFETY: the caller's contract; different rows write different pixels.
                unsafe { self.row(buffers, row, scratch) };
            }
        });
    }
}

impl std::fmt::Debug for Pooling {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Pool2d({:?}, {}, {}x{}x{}, kernel {:?})",
            self.kind, self.dtype, self.output.h, self.output.w, self.output.c, self.window.kernel
        )
    }
}
