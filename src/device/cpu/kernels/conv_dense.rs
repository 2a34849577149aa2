//! Dense and grouped convolution: tiles of output pixels times panels of output channels, reading the input
//! rows in place.
//!
//! A thread takes a few neighbouring tiles at a time and uses a panel for all of them before the next one, so that
//! weights come from the far caches once for several tiles.
//!
//! A tile whose taps all lie inside the image (in columns; rows outside read zeros) is computed from the
//! input itself. A tile at a border, or of bf16 storage, first gathers the input columns it needs, widened
//! and with zeros around the image, and all its panels read that. Padding thus contributes products with
//! +0, everywhere alike.

use std::fmt;
use std::ops::Range;

use super::check::Image;
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
    /// Most tiles at a time.
    block: usize,
    layout: Layout,
    scratch: usize,
}

/// Most tiles that one panel is used for before the next one is.
const BLOCK: usize = 16;

/// Weights of more bytes come from behind the second-level cache, so that it pays to use each panel for as many tiles
/// as have their input, at most [`MOST_INPUT`] bytes, in that cache. Fewer stay there by themselves, and what pays is
/// to keep a tile's input in the first-level cache.
const NEAR_WEIGHTS: usize = 3 << 19;
const MOST_INPUT: usize = 768 << 10;

/// Sizes in one thread's scratch, in bytes: sums of one tile, then for each tile what is known of it with its tap table, and
/// gathered input.
#[derive(Debug, Clone, Copy)]
struct Layout {
    sums: usize,
    taps: usize,
    gathered: usize,
}

/// One tile's part of a thread's scratch.
#[derive(Debug, Clone, Copy)]
struct Areas {
    sums: *mut f32,
    tile: *mut Tile,
    taps: *mut Tap,
    gathered: *mut f32,
}

/// What is known of a tile before its panels: found once, for divisions take long.
#[derive(Debug, Clone, Copy)]
struct Tile {
    row: usize,
    first_column: usize,
    columns: usize,
    /// First element in the output and in the residual.
    output: isize,
    residual: isize,
    taps: usize,
    /// Values of a tap.
    depth: usize,
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
        let gathered = gathered.and_then(|bytes| bytes.checked_next_multiple_of(64));
        let sums = ops.tile_rows() * PANEL_VECTORS * ops.lanes * size_of::<f32>();
        let layout = Layout {
            sums: sums.next_multiple_of(64),
            taps: (size_of::<Tile>() + problem.window.taps() * size_of::<Tap>()).next_multiple_of(64),
            gathered: gathered.unwrap_or(0),
        };
        let tile_bytes = problem.window.kernel[0]
            .saturating_mul(problem.window.span(rows_per_tile))
            .saturating_mul(problem.input.c * size_of::<f32>());
        let block = match panels.bytes() > NEAR_WEIGHTS {
            true => (MOST_INPUT / tile_bytes).clamp(1, BLOCK),
            false => 1,
        };
        let scratch = scratch_bytes(&[
            Some(layout.sums),
            layout.taps.checked_mul(block),
            gathered.and_then(|bytes| bytes.checked_mul(block)),
        ])?;
        let values = problem.window.kernel[1].checked_mul(problem.group_in);
        let zeros = scratch_bytes(&[values.and_then(|values| values.checked_mul(size_of::<f32>()))])?;
        Ok(Self {
            zeros: vec![0.0; zeros / size_of::<f32>()],
            panels: panels.list,
            required,
            ops,
            tiles_in_row,
            interior,
            block,
            layout,
            scratch,
            problem,
        })
    }

    /// The part of a block's `at`-th tile.
    fn areas(&self, scratch: *mut u8, at: usize) -> Areas {
        let Layout { sums, taps, gathered } = self.layout;
        let tile = scratch.wrapping_add(sums + at * (taps + gathered));
        Areas {
            sums: scratch.cast(),
            tile: tile.cast(),
            taps: tile.wrapping_add(size_of::<Tile>()).cast(),
            gathered: tile.wrapping_add(taps).cast(),
        }
    }

    const fn tiles(&self) -> usize {
        self.problem.output.n * self.problem.output.h * self.tiles_in_row
    }

    /// Finds what is known of a tile and gathers its input unless it is direct.
    ///
    /// # Safety
    /// As [`Kernel::run`]; `areas` is this thread's.
    unsafe fn place_tile(&self, input: BufferRef, tile: usize, areas: &Areas) {
        let (row, columns) = self.place(tile);
        let direct = self.is_direct(&columns);
        let window = &self.problem.window;
        let (taps, depth) = match self.merges(direct) {
            true => (window.kernel[0], window.kernel[1] * self.problem.group_in),
            false => (window.taps(), self.problem.group_in),
        };
        let first = |image: &Image| image.row(row) + columns.start as isize * image.pixel_step;
        // SAFETY: the part begins with room for it, and gathered input has the room that `new` computed.
        unsafe {
            areas.tile.write(Tile {
                row,
                first_column: columns.start,
                columns: columns.len(),
                output: first(&self.problem.output),
                residual: self.problem.residual.as_ref().map_or(0, first),
                taps,
                depth,
            });
            if !direct {
                self.gather(input, row, &columns, areas.gathered);
            }
        }
    }

    /// Output row and columns of a tile.
    const fn place(&self, tile: usize) -> (usize, Range<usize>) {
        (tile / self.tiles_in_row, self.columns(tile % self.tiles_in_row))
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
    fn prefetch(&self, input: BufferRef, tile: usize) {
        let (row, columns) = self.place(tile);
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
    /// `areas` is this thread's, with the tile placed.
    unsafe fn place_taps(&self, input: BufferRef, group: usize, areas: &Areas) {
        let Problem {
            input: image, window, ..
        } = &self.problem;
        // SAFETY: the caller has placed it.
        let Tile {
            row,
            first_column,
            columns,
            ..
        } = unsafe { *areas.tile };
        let columns = &(first_column..first_column + columns);
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
    }

    /// Computes some tiles for some panels.
    ///
    /// # Safety
    /// As [`Kernel::run`]; `scratch` is this thread's; tiles that are not direct have been gathered there.
    unsafe fn block(&self, buffers: &[BufferRef], tiles: &Range<usize>, panels: &[Panel], scratch: *mut u8) {
        let mut group = usize::MAX;
        for (number, panel) in panels.iter().enumerate() {
            for at in 0..tiles.len() {
                let areas = self.areas(scratch, at);
                // SAFETY: the same contract.
                unsafe {
                    if panel.group != group {
                        self.place_taps(buffers[0], panel.group, &areas);
                    }
                    self.tile(buffers, panel, &areas);
                }
                let next = tiles.start + at + tiles.len();
                if number + 1 == panels.len() && next < self.tiles() {
                    self.prefetch(buffers[0], next);
                }
            }
            group = panel.group;
        }
    }

    /// Computes one tile for one panel.
    ///
    /// # Safety
    /// As [`Kernel::run`]; `areas` is this thread's, with the tile and its taps placed.
    unsafe fn tile(&self, buffers: &[BufferRef], panel: &Panel, areas: &Areas) {
        let Problem {
            output,
            residual,
            out_dtype,
            ..
        } = &self.problem;
        // SAFETY: the caller has placed it.
        let tile = unsafe { *areas.tile };
        let size = out_dtype.size_bytes() as isize;
        let channel = panel.channel as isize;
        let finish = Finish {
            sums: areas.sums,
            sum_step: panel.vectors * self.ops.lanes,
            rows: tile.columns,
            channels: panel.channels,
            activation: self.problem.activation,
            out: buffers[2].at((tile.output + channel) * size),
            out_step: output.pixel_step,
            residual: match residual {
                Some(_) => buffers[3].at((tile.residual + channel) * size),
                None => std::ptr::null_mut(),
            },
            residual_step: residual.as_ref().map_or(0, |image| image.pixel_step),
            order: self.problem.order,
        };
        let dense = self.ops.dense[panel.vectors - 1][tile.columns - 1];
        prefetch_rows(
            finish.out,
            finish.rows,
            output.pixel_step * size,
            panel.channels as isize * size,
        );
        // SAFETY: the taps cover the tile's pixels, the panel lies inside the checked weight buffer, the sums have
        // room for the largest tile, and the output views are inside their buffers.
        unsafe {
            let taps = std::slice::from_raw_parts(areas.taps, tile.taps);
            dense(taps, tile.depth, buffers[1].at(panel.offset as isize), areas.sums);
            (self.ops.of(*out_dtype).finish)(&finish);
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
        let Problem { window, group_in, .. } = &self.problem;
        let tiles = self.tiles();
        let threads = pool.threads();
        // Enough blocks to keep every thread busy; where there are few, in late, small layers, they are also divided by
        // channels.
        let block = match threads {
            1 => self.block,
            threads => (tiles / (8 * threads)).clamp(1, self.block),
        };
        let blocks = tiles.div_ceil(block);
        let wanted = match threads {
            1 => 1,
            threads => (8 * threads).div_ceil(blocks),
        };
        let (count, parts) = (self.panels.len(), wanted.min(self.panels.len()));
        let vectors = self.panels.iter().map(|p| p.vectors).sum::<usize>() / parts;
        let work = block * self.ops.tile_rows() * window.taps() * group_in * vectors;
        share(pool, blocks * parts, work, &|units, scratch| {
            assert!(scratch.len() >= self.scratch);
            let scratch = scratch.as_mut_ptr();
            let mut placed = usize::MAX;
            for unit in units {
                let (index, part) = (unit / parts, unit % parts);
                let range = index * block..tiles.min((index + 1) * block);
                // SAFETY: the caller's contract; different units write different pixels or channels.
                unsafe {
                    if placed != index {
                        for (at, tile) in range.clone().enumerate() {
                            self.place_tile(buffers[0], tile, &self.areas(scratch, at));
                        }
                        placed = index;
                    }
                    let panels = &self.panels[count * part / parts..count * (part + 1) / parts];
                    self.block(buffers, &range, panels, scratch);
                }
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
