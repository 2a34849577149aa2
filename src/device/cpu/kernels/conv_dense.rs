//! Dense and grouped convolution: tiles of output pixels times panels of output channels, reading the input
//! rows in place.
//!
//! A tile whose taps all lie inside the image (in columns; rows outside read zeros) is computed from the
//! input itself. A tile at a border, or of bf16 storage, first gathers the input columns it needs, widened
//! and with zeros around the image, and all its panels read that. Padding thus contributes products with
//! +0, everywhere alike.

use std::fmt;
use std::ops::Range;

use super::conv::{Problem, scratch_bytes};
use super::lanes::{prefetch, prefetch_rows};
use super::nest::share;
use super::ops::{Ops, PANEL_VECTORS};
use super::pack::{Panel, Panels};
use super::tile::{Finish, Tap};
use super::{BufferRef, Kernel};
use crate::device::DeviceError;
use crate::device::cpu::pool::ComputePool;
use crate::tensor::DType;

/// A prepared dense or grouped convolution.
pub(super) struct Dense {
    problem: Problem,
    panels: Vec<Panel>,
    required: Vec<usize>,
    ops: &'static Ops,
    tiles_in_row: usize,
    /// Columns that need no gathering.
    interior: Range<usize>,
    /// What taps outside the image read.
    zeros: Vec<f32>,
    scratch: usize,
}

/// One thread's scratch: the tap table, the sums of one tile, gathered input.
struct Areas {
    taps: *mut Tap,
    sums: *mut f32,
    gathered: *mut f32,
}

impl Dense {
    pub(super) fn new(
        problem: Problem,
        panels: Panels,
        required: Vec<usize>,
        ops: &'static Ops,
    ) -> Result<Self, DeviceError> {
        let tiles_in_row = problem.output.w.div_ceil(ops.tile_rows());
        let rows_per_tile = problem.output.w.div_ceil(tiles_in_row);
        let interior = match problem.dtype {
            DType::F32 => problem.window.interior(problem.input.w, problem.output.w),
            _ => 0..0,
        };
        let gathered = if interior == (0..problem.output.w) {
            Some(0)
        } else {
            problem.window.kernel[0]
                .checked_mul(problem.window.span(rows_per_tile))
                .and_then(|pixels| pixels.checked_mul(problem.input.c))
                .and_then(|values| values.checked_mul(size_of::<f32>()))
        };
        let scratch = scratch_bytes(&[Some(Self::head_bytes(&problem, ops)), gathered])?;
        Ok(Self {
            zeros: vec![0.0; problem.window.kernel[1] * problem.group_in],
            panels: panels.list,
            required,
            ops,
            tiles_in_row,
            interior,
            scratch,
            problem,
        })
    }

    fn taps_bytes(problem: &Problem) -> usize {
        (problem.window.taps() * size_of::<Tap>()).next_multiple_of(64)
    }

    /// Bytes before the gathered input.
    fn head_bytes(problem: &Problem, ops: &Ops) -> usize {
        let sums = ops.tile_rows() * PANEL_VECTORS * ops.lanes * size_of::<f32>();
        Self::taps_bytes(problem) + sums.next_multiple_of(64)
    }

    fn areas(&self, scratch: &mut [u8]) -> Areas {
        assert!(scratch.len() >= self.scratch);
        let begin = scratch.as_mut_ptr();
        Areas {
            taps: begin.cast(),
            sums: begin.wrapping_add(Self::taps_bytes(&self.problem)).cast(),
            gathered: begin
                .wrapping_add(Self::head_bytes(&self.problem, self.ops))
                .cast(),
        }
    }

    /// Columns of a tile: the row is divided evenly.
    const fn columns(&self, tile: usize) -> Range<usize> {
        let width = self.problem.output.w;
        width * tile / self.tiles_in_row..width * (tile + 1) / self.tiles_in_row
    }

    fn is_direct(&self, columns: &Range<usize>) -> bool {
        self.interior.start <= columns.start && columns.end <= self.interior.end
    }

    /// Copies the input columns of a tile to `[kernel row][column][channel]`, zeros outside the image.
    ///
    /// # Safety
    /// As [`Kernel::run`]; `to` has the room that [`Self::new`] computed.
    unsafe fn gather(&self, input: BufferRef, row: usize, columns: &Range<usize>, to: *mut f32) {
        let Problem {
            input: image,
            window,
            dtype,
            ..
        } = &self.problem;
        let widen = self.ops.of(*dtype).widen;
        let (n, y) = (row / self.problem.output.h, row % self.problem.output.h);
        let span = window.span(columns.len());
        let first = window.start(1, columns.start);
        // Gathered columns inside the image.
        let begin = (-first).clamp(0, span as isize) as usize;
        let end = (image.w as isize - first).clamp(begin as isize, span as isize) as usize;
        let size = dtype.size_bytes() as isize;
        for ky in 0..window.kernel[0] {
            let to = to.wrapping_add(ky * span * image.c);
            let Some(iy) = window.tap(0, y, ky, image.h) else {
                // SAFETY: `to` has room for the whole span.
                unsafe { to.write_bytes(0, span * image.c) };
                continue;
            };
            let from = image.row(n * image.h + iy) + (first + begin as isize) * image.pixel_step;
            let from = input.at::<u8>(from * size);
            // SAFETY: columns `begin..end` lie inside the image; the rest of the span is inside `to`.
            unsafe {
                to.write_bytes(0, begin * image.c);
                to.add(end * image.c).write_bytes(0, (span - end) * image.c);
                if image.pixel_step == image.c as isize {
                    widen(from, to.add(begin * image.c), (end - begin) * image.c);
                } else {
                    for column in begin..end {
                        let from = from.offset((column - begin) as isize * image.pixel_step * size);
                        widen(from, to.add(column * image.c), image.c);
                    }
                }
            }
        }
    }

    /// Whether the taps of one kernel row lie next to each other, channels included, so that they are one tap of
    /// all their channels: the sums are the same, in the same order, and the inner loop is longer.
    const fn merges(&self, direct: bool) -> bool {
        let Problem {
            input,
            window,
            groups,
            ..
        } = &self.problem;
        let packed = !direct || input.pixel_step == input.c as isize;
        window.kernel[1] > 1 && window.dilation[1] == 1 && *groups == 1 && packed
    }

    /// Asks for the input of a tile that is computed next: its rows are too many for the processor to foresee.
    fn prefetch(&self, input: BufferRef, row: usize, columns: &Range<usize>) {
        let Problem {
            input: image,
            window,
            dtype,
            ..
        } = &self.problem;
        let size = dtype.size_bytes() as isize;
        let (n, y) = (row / self.problem.output.h, row % self.problem.output.h);
        let pixels = window.span(columns.len()) as isize;
        let bytes = ((pixels - 1) * image.pixel_step + image.c as isize) * size;
        for ky in 0..window.kernel[0] {
            if let Some(iy) = window.tap(0, y, ky, image.h) {
                let first = image.row(n * image.h + iy) + window.start(1, columns.start) * image.pixel_step;
                prefetch(input.at(first * size), bytes);
            }
        }
    }

    /// Fills the tap table of one tile and group. Each tap has as many values as [`Self::merges`] says.
    ///
    /// # Safety
    /// `areas` is this thread's.
    unsafe fn place_taps<'a>(
        &'a self,
        input: BufferRef,
        row: usize,
        columns: &Range<usize>,
        group: usize,
        areas: &'a Areas,
    ) -> &'a [Tap] {
        let Problem {
            input: image, window, ..
        } = &self.problem;
        let direct = self.is_direct(columns);
        let across = if self.merges(direct) { 1 } else { window.kernel[1] };
        let (n, y) = (row / self.problem.output.h, row % self.problem.output.h);
        let channel = (group * self.problem.group_in) as isize;
        let span = window.span(columns.len());
        let outside = Tap {
            base: self.zeros.as_ptr(),
            step: 0,
        };
        let mut taps = areas.taps;
        for ky in 0..window.kernel[0] {
            let iy = window.tap(0, y, ky, image.h);
            for kx in 0..across {
                let dx = kx as isize * window.dilation[1];
                let tap = match iy {
                    None => outside,
                    Some(iy) if direct => {
                        let x = window.start(1, columns.start) + dx;
                        let pixel = image.row(n * image.h + iy) + x * image.pixel_step;
                        Tap {
                            base: input.at(pixel + channel),
                            step: window.stride[1] * image.pixel_step,
                        }
                    }
                    Some(_) => {
                        let pixel = ((ky * span) as isize + dx) * image.c as isize;
                        Tap {
                            base: areas.gathered.wrapping_offset(pixel + channel),
                            step: window.stride[1] * image.c as isize,
                        }
                    }
                };
                // SAFETY: the table has room for every tap of the window.
                unsafe {
                    taps.write(tap);
                    taps = taps.add(1);
                }
            }
        }
        // SAFETY: all entries were just written.
        unsafe { std::slice::from_raw_parts(areas.taps, window.kernel[0] * across) }
    }

    /// Computes one tile for some panels.
    ///
    /// # Safety
    /// As [`Kernel::run`]; `areas` is this thread's; a tile that is not direct has been gathered.
    unsafe fn tile(
        &self,
        buffers: &[BufferRef],
        row: usize,
        columns: &Range<usize>,
        panels: &[Panel],
        areas: &Areas,
    ) {
        let Problem {
            output,
            residual,
            out_dtype,
            ..
        } = &self.problem;
        let size = out_dtype.size_bytes() as isize;
        let depth = match self.merges(self.is_direct(columns)) {
            true => self.zeros.len(),
            false => self.problem.group_in,
        };
        let mut taps: &[Tap] = &[];
        let mut group = usize::MAX;
        for panel in panels {
            if panel.group != group {
                group = panel.group;
                // SAFETY: the same contract.
                taps = unsafe { self.place_taps(buffers[0], row, columns, group, areas) };
            }
            let place = |image: &super::check::Image| {
                image.row(row) + columns.start as isize * image.pixel_step + panel.channel as isize
            };
            let finish = Finish {
                sums: areas.sums,
                sum_step: panel.vectors * self.ops.lanes,
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
            let dense = self.ops.dense[panel.vectors - 1][columns.len() - 1];
            prefetch_rows(
                finish.out,
                finish.rows,
                output.pixel_step * size,
                panel.channels as isize * size,
            );
            // SAFETY: the taps cover the tile's pixels, the panel lies inside the checked weight buffer, the
            // sums have room for the largest tile, and the output views are inside their buffers.
            unsafe {
                dense(taps, depth, buffers[1].at(panel.offset as isize), areas.sums);
                (self.ops.of(*out_dtype).finish)(&finish);
            }
        }
    }
}

impl Kernel for Dense {
    fn scratch_bytes(&self) -> usize {
        self.scratch
    }

    fn required_bytes(&self) -> &[usize] {
        &self.required
    }

    unsafe fn run(&self, buffers: &[BufferRef], pool: &ComputePool) {
        let Problem { output, window, .. } = &self.problem;
        let tiles = output.n * output.h * self.tiles_in_row;
        // Few tiles are also divided by channels, so that late, small layers keep every thread busy.
        let wanted = match pool.threads() {
            1 => 1,
            threads => (8 * threads).div_ceil(tiles),
        };
        let parts = wanted.min(self.panels.len());
        let vectors = self.panels.iter().map(|p| p.vectors).sum::<usize>() / parts;
        let work = self.ops.tile_rows() * window.taps() * self.problem.group_in * vectors;
        share(pool, tiles * parts, work, &|units, scratch| {
            let areas = self.areas(scratch);
            let mut gathered = usize::MAX;
            for unit in units {
                let (tile, part) = (unit / parts, unit % parts);
                let (row, columns) = (tile / self.tiles_in_row, self.columns(tile % self.tiles_in_row));
                if gathered != tile && !self.is_direct(&columns) {
                    // SAFETY: the caller's contract.
                    unsafe { self.gather(buffers[0], row, &columns, areas.gathered) };
                    gathered = tile;
                }
                if tile + 1 < tiles {
                    let next = tile + 1;
                    self.prefetch(
                        buffers[0],
                        next / self.tiles_in_row,
                        &self.columns(next % self.tiles_in_row),
                    );
                }
                let count = self.panels.len();
                let panels = &self.panels[count * part / parts..count * (part + 1) / parts];
                // SAFETY: the caller's contract; different units write different pixels or channels.
                unsafe { self.tile(buffers, row, &columns, panels, &areas) };
            }
        });
    }
}

impl fmt::Debug for Dense {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Problem {
            input,
            output,
            window,
            groups,
            dtype,
            ..
        } = &self.problem;
        write!(
            f,
            "Conv2d({dtype}, {}x{}x{} to {}x{}x{}, kernel {:?}, {groups} groups, {} lanes)",
            input.h, input.w, input.c, output.h, output.w, output.c, window.kernel, self.ops.lanes
        )
    }
}
