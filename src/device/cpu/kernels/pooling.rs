//! 2-D pooling.

use std::sync::Arc;

use super::check::{Image, MAX_SCRATCH, ensure, invalid, required_bytes, storage, writes_each_place_once};
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
    scratch: usize,
    /// Bytes of the tap table, in front of the scratch.
    table_bytes: usize,
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
    let row_bytes = match desc.kind {
        PoolKind::Max => (input.w * input.c)
            .checked_mul(dtype.size_bytes())
            .filter(|&bytes| bytes <= MAX_SCRATCH)
            .ok_or_else(|| invalid(OP, "a row of the input is too large to hold"))?,
        _ => 0,
    };
    let table_bytes = (window.taps() * size_of::<*const u8>()).next_multiple_of(64);
    Ok(Arc::new(Pooling {
        scratch: table_bytes + row_bytes,
        table_bytes,
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
    /// Reduces the pixels listed in the first `count` entries of the table.
    ///
    /// # Safety
    /// The entries and `out` are valid for a pixel.
    unsafe fn reduce(&self, table: *const *const u8, count: usize, out: *mut u8) {
        let divisor = match self.kind {
            PoolKind::AverageIncludingPad => self.window.taps(),
            PoolKind::Max | PoolKind::AverageExcludingPad => count,
            PoolKind::Sum => 1,
        };
        // SAFETY: the caller's contract.
        unsafe {
            let taps = std::slice::from_raw_parts(table, count);
            (self.ops.of(self.dtype).pool)(taps, self.output.c, self.kind, divisor as f32, out);
        }
    }

    /// Computes one output row.
    ///
    /// A maximum does not depend on the order, so it is taken over the rows of each input column first and
    /// over columns then: the sum of the window's sides instead of their product.
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
        assert!(scratch.len() >= self.scratch);
        let table: *mut *const u8 = scratch.as_mut_ptr().cast();
        let column_maxima = scratch.as_mut_ptr().wrapping_add(self.table_bytes);
        let size = self.dtype.size_bytes();
        let (n, y) = (row / output.h, row % output.h);
        let rows = || (0..window.kernel[0]).filter_map(|ky| window.tap(0, y, ky, input.h));
        let source = |iy: usize, ix: usize| {
            let pixel = input.row(n * input.h + iy) + ix as isize * input.pixel_step;
            buffers[0].at::<u8>(pixel * size as isize)
        };
        let maximum_of = |ix: usize| column_maxima.wrapping_add(ix * input.c * size);
        let list = |count: &mut usize, pixel: *const u8| {
            // SAFETY: the table has room for every tap of the window.
            unsafe { table.add(*count).write(pixel) };
            *count += 1;
        };
        if self.kind == PoolKind::Max {
            for ix in 0..input.w {
                let mut count = 0;
                rows().for_each(|iy| list(&mut count, source(iy, ix)));
                // SAFETY: the listed pixels lie inside the input; there is scratch for a row of pixels.
                unsafe { self.reduce(table, count, maximum_of(ix)) };
            }
        }
        for x in 0..output.w {
            let columns = || (0..window.kernel[1]).filter_map(|kx| window.tap(1, x, kx, input.w));
            let mut count = 0;
            if self.kind == PoolKind::Max {
                columns().for_each(|ix| list(&mut count, maximum_of(ix)));
            } else {
                rows().for_each(|iy| columns().for_each(|ix| list(&mut count, source(iy, ix))));
            }
            let out = output.row(row) + x as isize * output.pixel_step;
            // SAFETY: the listed pixels are readable and `out` lies inside the output view.
            unsafe { self.reduce(table, count, buffers[1].at(out * size as isize)) };
        }
    }
}

impl Kernel for Pooling {
    fn scratch_bytes(&self) -> usize {
        self.scratch
    }

    fn required_bytes(&self) -> &[usize] {
        &self.required
    }

    unsafe fn run(&self, buffers: &[BufferRef], pool: &ComputePool) {
        let Self { output, window, .. } = self;
        let taps = match self.kind {
            PoolKind::Max => window.kernel[0] + window.kernel[1],
            _ => window.taps(),
        };
        let work = output.w * output.c.div_ceil(self.ops.lanes) * taps;
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
