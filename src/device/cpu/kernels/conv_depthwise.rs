//! Depth-wise convolution: vectors of channels times runs of output pixels.
//!
//! fp32 rows are read in place: columns whose window leaves the image are computed one pixel at a time with
//! the taps outside pointing at zeros. bf16 rows are first gathered and widened, zeros around the image.

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
        let gathered = match problem.dtype {
            DType::F32 => Some(0),
            _ => window.kernel[0]
                .checked_mul(window.span(ops.tile_rows().min(problem.output.w)))
                .and_then(|pixels| pixels.checked_mul(problem.input.c))
                .and_then(|values| values.checked_mul(size_of::<f32>())),
        };
        let head = Self::head_bytes(&problem, ops);
        Ok(Self {
            scratch: scratch_bytes(&[Some(head), gathered])?,
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

    /// Bytes of tap table and sums.
    fn head_bytes(problem: &Problem, ops: &Ops) -> usize {
        Self::taps_bytes(problem) + (ops.tile_rows() * ops.lanes * size_of::<f32>()).next_multiple_of(64)
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

    /// Gathers the input of the columns `columns` as fp32 `[kernel row][column][channel]`, zeros outside the
    /// image, and places the taps on it for the first column.
    ///
    /// # Safety
    /// As [`Kernel::run`]; `taps` and `to` have the room that [`Self::new`] computed.
    unsafe fn gather(
        &self,
        input: BufferRef,
        row: usize,
        columns: &Range<usize>,
        taps: *mut Tap,
        to: *mut f32,
    ) {
        let Problem {
            input: image,
            window,
            dtype,
            ..
        } = &self.problem;
        let (n, y) = (row / self.problem.output.h, row % self.problem.output.h);
        let span = window.span(columns.len());
        let first = window.start(1, columns.start);
        for ky in 0..window.kernel[0] {
            let iy = window.tap(0, y, ky, image.h);
            for column in 0..span {
                let to = to.wrapping_add((ky * span + column) * image.c);
                let x = first + column as isize;
                // SAFETY: a pixel inside the image is readable, and `to` has room for the span.
                unsafe {
                    match iy {
                        Some(iy) if (0..image.w as isize).contains(&x) => {
                            let from = image.row(n * image.h + iy) + x * image.pixel_step;
                            let from = input.at::<u8>(from * dtype.size_bytes() as isize);
                            (self.ops.of(*dtype).widen)(from, to, image.c);
                        }
                        _ => to.write_bytes(0, image.c),
                    }
                }
            }
            for kx in 0..window.kernel[1] {
                let pixel = (ky * span) as isize + kx as isize * window.dilation[1];
                // SAFETY: the caller promises the room.
                unsafe {
                    taps.add(ky * window.kernel[1] + kx).write(Tap {
                        base: to.wrapping_offset(pixel * image.c as isize),
                        step: window.stride[1] * image.c as isize,
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
        for panel in &self.panels {
            let place = |image: &Image| {
                image.row(row) + columns.start as isize * image.pixel_step + panel.channel as isize
            };
            let finish = Finish {
                sums,
                sum_step: lanes,
                rows: columns.len(),
                channels: panel.channels,
                activation: self.problem.activation,
                out: buffers[2].at(place(output) * size),
                out_step: output.pixel_step,
                residual: residual
                    .as_ref()
                    .map_or(std::ptr::null_mut(), |image| buffers[3].at(place(image) * size)),
                residual_step: residual.as_ref().map_or(0, |image| image.pixel_step),
            };
            let part = usize::from(panel.channels < lanes);
            let depthwise = self.ops.depthwise[part][columns.len() - 1];
            // SAFETY: the caller's contract; panels lie inside the checked weight buffer and the output views
            // inside their buffers.
            unsafe {
                let weights = buffers[1].at(panel.offset as isize);
                depthwise(taps, x0, panel.channel, panel.channels, weights, sums);
                (self.ops.of(*out_dtype).finish)(&finish);
            }
        }
    }

    /// Computes one output row.
    ///
    /// # Safety
    /// As [`Kernel::run`]; `scratch` is this thread's.
    unsafe fn row(&self, buffers: &[BufferRef], row: usize, scratch: &mut [u8]) {
        assert!(scratch.len() >= self.scratch);
        let begin = scratch.as_mut_ptr();
        let table: *mut Tap = begin.cast();
        let sums: *mut f32 = begin.wrapping_add(Self::taps_bytes(&self.problem)).cast();
        let gathered: *mut f32 = begin
            .wrapping_add(Self::head_bytes(&self.problem, self.ops))
            .cast();
        // SAFETY: the table is filled before each use and refilled only after it; everything else is the
        // caller's contract.
        unsafe {
            let taps = || std::slice::from_raw_parts(table, self.problem.window.taps());
            if self.problem.dtype != DType::F32 {
                for columns in tiles(&(0..self.problem.output.w), self.ops.tile_rows()) {
                    self.gather(buffers[0], row, &columns, table, gathered);
                    self.tile(buffers, row, &columns, (taps(), 0), sums);
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
