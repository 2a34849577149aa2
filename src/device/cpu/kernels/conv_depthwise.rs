//! Depth-wise convolution: vectors of channels times runs of output pixels.
//!
//! fp32 rows are read in place: columns whose window leaves the image are computed one pixel at a time with
//! the taps outside pointing at zeros. bf16 rows are first widened, with zeros around the image, and stay for the output
//! rows below.

use std::fmt;
use std::ops::Range;

use super::check::Image;
use super::conv::{Problem, scratch_bytes};
use super::nest::share;
use super::ops::Ops;
use super::pack::{Panel, Panels};
use super::tile::{Finish, Tap};
use super::{BufferRef, Kernel};
use crate::device::DeviceError;
use crate::device::cpu::pool::ComputePool;
use crate::tensor::DType;

/// A prepared depth-wise convolution.
pub(super) struct Depthwise {
    problem: Problem,
    panels: Vec<Panel>,
    required: Vec<usize>,
    ops: &'static Ops,
    /// Columns that read no padding; computed many at a time.
    interior: Range<usize>,
    /// What taps outside the image read.
    zeros: Vec<f32>,
    scratch: usize,
}

impl Depthwise {
    pub(super) fn new(
        problem: Problem,
        panels: Panels,
        required: Vec<usize>,
        ops: &'static Ops,
    ) -> Result<Self, DeviceError> {
        let window = &problem.window;
        let widened = match problem.dtype {
            DType::F32 => Some(0),
            _ => window.kernel[0]
                .checked_mul(window.span(problem.output.w))
                .and_then(|pixels| pixels.checked_mul(problem.input.c))
                .and_then(|values| values.checked_mul(size_of::<f32>())),
        };
        let head = Self::head_bytes(&problem, ops);
        Ok(Self {
            scratch: scratch_bytes(&[Some(head), widened])?,
            interior: window.interior(problem.input.w, problem.output.w),
            zeros: vec![0.0; problem.input.c],
            panels: panels.list,
            required,
            ops,
            problem,
        })
    }

    fn taps_bytes(problem: &Problem) -> usize {
        (problem.window.taps() * size_of::<Tap>()).next_multiple_of(64)
    }

    /// Bytes of tap table and the numbers of the rows that are widened.
    fn tables_bytes(problem: &Problem) -> usize {
        Self::taps_bytes(problem) + (problem.window.kernel[0] * size_of::<usize>()).next_multiple_of(64)
    }

    /// Bytes before the widened rows: the tables and the sums.
    fn head_bytes(problem: &Problem, ops: &Ops) -> usize {
        Self::tables_bytes(problem) + (ops.tile_rows() * ops.lanes * size_of::<f32>()).next_multiple_of(64)
    }

    /// Fills the table for output row `row`. `column` is an output column whose taps outside the image read
    /// zeros, or `None` for the interior: then taps are placed for column 0 and may be moved along the row.
    ///
    /// # Safety
    /// `taps` has room for every tap of the window.
    unsafe fn place_taps(&self, input: BufferRef, row: usize, column: Option<usize>, taps: *mut Tap) {
        let Problem {
            input: image, window, ..
        } = &self.problem;
        let (n, y) = (row / self.problem.output.h, row % self.problem.output.h);
        let mut tap = taps;
        for ky in 0..window.kernel[0] {
            let iy = window.tap(0, y, ky, image.h);
            for kx in 0..window.kernel[1] {
                let dx = kx as isize * window.dilation[1];
                let x = match column {
                    None => Some(window.start(1, 0) + dx),
                    Some(column) => window.tap(1, column, kx, image.w).map(|x| x as isize),
                };
                let place = match (iy, x) {
                    (Some(iy), Some(x)) => Tap {
                        base: input.at(image.row(n * image.h + iy) + x * image.pixel_step),
                        step: window.stride[1] * image.pixel_step,
                    },
                    _ => Tap {
                        base: self.zeros.as_ptr(),
                        step: 0,
                    },
                };
                // SAFETY: the caller promises the room.
                unsafe {
                    tap.write(place);
                    tap = tap.add(1);
                }
            }
        }
    }

    /// Widens input row `row`, counted over all images, to `[column][channel]` fp32, from the first column that the
    /// first output column reads to the last that the last one does, zeros outside the image.
    ///
    /// # Safety
    /// As [`Kernel::run`]; `to` has room for a row.
    unsafe fn widen_row(&self, input: BufferRef, row: usize, to: *mut f32) {
        let Problem {
            input: image,
            output,
            window,
            dtype,
            ..
        } = &self.problem;
        let widen = self.ops.of(*dtype).widen;
        let size = dtype.size_bytes() as isize;
        let (span, first) = (window.span(output.w), window.start(1, 0));
        // Columns inside the image.
        let begin = (-first).clamp(0, span as isize) as usize;
        let end = (image.w as isize - first).clamp(begin as isize, span as isize) as usize;
        let from = image.row(row) + (first + begin as isize) * image.pixel_step;
        let from = input.at::<u8>(from * size);
        // SAFETY: columns `begin..end` lie inside the image; the rest of the span is inside `to`.
        unsafe {
            to.write_bytes(0, begin * image.c);
            to.add(end * image.c).write_bytes(0, (span - end) * image.c);
            if image.pixel_step == image.c as isize {
                widen(from, to.add(begin * image.c), (end - begin) * image.c);
                return;
            }
            for column in begin..end {
                let from = from.offset((column - begin) as isize * image.pixel_step * size);
                widen(from, to.add(column * image.c), image.c);
            }
        }
    }

    /// Widens the input of output row `row` unless it is there already, and places the taps on it for column 0.
    ///
    /// # Safety
    /// As [`Kernel::run`]; `taps`, `there` (a number for each kernel row) and `rows` have the room that [`Self::new`]
    /// computed; `there` tells what `rows` hold.
    unsafe fn place_widened(
        &self,
        input: BufferRef,
        row: usize,
        taps: *mut Tap,
        there: *mut usize,
        rows: *mut f32,
    ) {
        let Problem {
            input: image,
            output,
            window,
            ..
        } = &self.problem;
        let (n, y) = (row / output.h, row % output.h);
        let height = window.kernel[0];
        for ky in 0..height {
            let mut base = self.zeros.as_ptr();
            let mut step = 0;
            if let Some(iy) = window.tap(0, y, ky, image.h) {
                // Neighbouring rows of an image have places of their own.
                let place = if window.dilation[0] == 1 { iy % height } else { ky };
                let to = rows.wrapping_add(place * window.span(output.w) * image.c);
                // SAFETY: `place` is below the number of kernel rows; `to` has room for a row.
                unsafe {
                    let known = there.add(place);
                    if known.read() != n * image.h + iy {
                        self.widen_row(input, n * image.h + iy, to);
                        known.write(n * image.h + iy);
                    }
                }
                (base, step) = (to.cast_const(), image.c as isize);
            }
            for kx in 0..window.kernel[1] {
                let column = kx as isize * window.dilation[1];
                // SAFETY: the caller promises the room.
                unsafe {
                    taps.add(ky * window.kernel[1] + kx).write(Tap {
                        base: base.wrapping_offset(column * step),
                        step: window.stride[1] * step,
                    });
                }
            }
        }
    }

    /// Computes output columns whose taps are placed; `x0` counts from the column they are placed for.
    ///
    /// # Safety
    /// As [`Kernel::run`]; the taps are readable for these columns; `sums` has room for a tile.
    unsafe fn tile(
        &self,
        buffers: &[BufferRef],
        row: usize,
        columns: &Range<usize>,
        (taps, x0): (&[Tap], usize),
        sums: *mut f32,
    ) {
        let Problem {
            output,
            residual,
            out_dtype,
            ..
        } = &self.problem;
        let size = out_dtype.size_bytes() as isize;
        let lanes = self.ops.lanes;
        let first = |image: &Image| image.row(row) + columns.start as isize * image.pixel_step;
        let out: *mut u8 = buffers[2].at(first(output) * size);
        let added: Option<*mut u8> = residual.as_ref().map(|image| buffers[3].at(first(image) * size));
        let residual_step = residual.as_ref().map_or(0, |image| image.pixel_step);
        let finish_rows = self.ops.of(*out_dtype).finish;
        for panel in &self.panels {
            let channel = panel.channel as isize * size;
            let finish = Finish {
                sums,
                sum_step: lanes,
                rows: columns.len(),
                channels: panel.channels,
                activation: self.problem.activation,
                out: out.wrapping_offset(channel),
                out_step: output.pixel_step,
                residual: added.map_or(std::ptr::null_mut(), |added| added.wrapping_offset(channel)),
                residual_step,
                order: self.problem.order,
            };
            let part = usize::from(panel.channels < lanes);
            let depthwise = self.ops.depthwise[part][columns.len() - 1];
            // SAFETY: the caller's contract; panels lie inside the checked weight buffer and the output views
            // inside their buffers.
            unsafe {
                let weights = buffers[1].at(panel.offset as isize);
                depthwise(taps, x0, panel.channel, panel.channels, weights, sums);
                finish_rows(&finish);
            }
        }
    }

    /// Forgets what rows are widened.
    ///
    /// # Safety
    /// `scratch` is this thread's.
    unsafe fn forget_rows(&self, scratch: &mut [u8]) {
        assert!(scratch.len() >= self.scratch);
        let there = scratch.as_mut_ptr().wrapping_add(Self::taps_bytes(&self.problem));
        let there = there.cast::<usize>();
        for place in 0..self.problem.window.kernel[0] {
            // SAFETY: the table has room for every kernel row.
            unsafe { there.add(place).write(usize::MAX) };
        }
    }

    /// Computes one output row.
    ///
    /// # Safety
    /// As [`Kernel::run`]; `scratch` is this thread's, with [`Self::forget_rows`] before the first row.
    unsafe fn row(&self, buffers: &[BufferRef], row: usize, scratch: &mut [u8]) {
        assert!(scratch.len() >= self.scratch);
        let begin = scratch.as_mut_ptr();
        let table: *mut Tap = begin.cast();
        let there: *mut usize = begin.wrapping_add(Self::taps_bytes(&self.problem)).cast();
        let sums: *mut f32 = begin.wrapping_add(Self::tables_bytes(&self.problem)).cast();
        let widened: *mut f32 = begin
            .wrapping_add(Self::head_bytes(&self.problem, self.ops))
            .cast();
        // SAFETY: the table is filled before each use and refilled only after it; everything else is the
        // caller's contract.
        unsafe {
            let taps = || std::slice::from_raw_parts(table, self.problem.window.taps());
            if self.problem.dtype != DType::F32 {
                self.place_widened(buffers[0], row, table, there, widened);
                for columns in tiles(&(0..self.problem.output.w), self.ops.tile_rows()) {
                    self.tile(buffers, row, &columns, (taps(), columns.start), sums);
                }
                return;
            }
            let borders = (0..self.interior.start).chain(self.interior.end..self.problem.output.w);
            for column in borders {
                self.place_taps(buffers[0], row, Some(column), table);
                self.tile(buffers, row, &(column..column + 1), (taps(), 0), sums);
            }
            self.place_taps(buffers[0], row, None, table);
            for columns in tiles(&self.interior, self.ops.tile_rows()) {
                self.tile(buffers, row, &columns, (taps(), columns.start), sums);
            }
        }
    }
}

/// Divides columns evenly into tiles of at most `most`.
fn tiles(columns: &Range<usize>, most: usize) -> impl Iterator<Item = Range<usize>> + use<> {
    let (begin, len) = (columns.start, columns.len());
    let count = len.div_ceil(most);
    (0..count).map(move |i| begin + len * i / count..begin + len * (i + 1) / count)
}

impl Kernel for Depthwise {
    fn scratch_bytes(&self) -> usize {
        self.scratch
    }

    fn required_bytes(&self) -> &[usize] {
        &self.required
    }

    unsafe fn run(&self, buffers: &[BufferRef], pool: &ComputePool) {
        let Problem { output, window, .. } = &self.problem;
        let work = output.w * self.panels.len() * (window.taps() + 8);
        share(pool, output.n * output.h, work, &|rows, scratch| {
            // SAFETY: the scratch is this thread's.
            unsafe { self.forget_rows(scratch) };
            for row in rows {
                // SAFETY: the caller's contract; different rows write different pixels.
                unsafe { self.row(buffers, row, scratch) };
            }
        });
    }
}

impl fmt::Debug for Depthwise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Problem {
            input,
            output,
            window,
            dtype,
            ..
        } = &self.problem;
        write!(
            f,
            "DepthwiseConv2d({dtype}, {}x{}x{} to {}x{}, kernel {:?}, {} lanes)",
            input.h, input.w, input.c, output.h, output.w, window.kernel, self.ops.lanes
        )
    }
}
