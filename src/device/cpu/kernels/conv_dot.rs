//! Dense convolution of bf16 storage with instructions that multiply bf16: strips of output pixels times panels of
//! output channels.
//!
//! Pixels are read in place where a strip's taps all lie inside the image (in columns; rows outside read zeros) and
//! their channels divide into chunks. Other strips first copy the input columns that they need, with zeros around the
//! image and behind the channels.

use std::fmt;
use std::ops::Range;

use super::check::Image;
use super::conv::{Problem, scratch_bytes};
use super::division::Division;
use super::dot::{Bf16Dot, DOT_LANES, DOT_ROWS, DotFn, DotOps, DotTile, Run};
use super::lanes::prefetch_rows;
use super::nest::share;
use super::ops::{Ops, PANEL_VECTORS};
use super::pack::{Panel, Panels};
use super::tile::Finish;
use super::{BufferRef, Kernel};
use crate::device::DeviceError;
use crate::device::cpu::pool::ComputePool;

/// Bytes of a bf16 value.
const SIZE: usize = 2;

/// Pairs of strips that one panel of weights is used for before the next one is.
const BLOCK: usize = 4;

/// A prepared convolution.
pub(super) struct Dot {
    problem: Problem,
    division: Division,
    panels: Vec<Panel>,
    required: Vec<usize>,
    ops: &'static Ops,
    dot: &'static DotOps,
    kind: Bf16Dot,
    tiles: [DotFn; PANEL_VECTORS],
    /// Pixels of every strip. The last strip of a row may begin before the one before it ends.
    rows: usize,
    strips_in_row: usize,
    /// Output columns that can be read in place.
    interior: Range<usize>,
    /// Bytes of an element of output and residual.
    out_size: isize,
    /// What runs outside the image read.
    zeros: Vec<u8>,
    /// Most pairs of strips at a time.
    block: usize,
    layout: Layout,
    scratch: usize,
}

/// What is known of a strip before its panels: found once, for divisions take long.
#[derive(Debug, Clone, Copy)]
struct Placed {
    /// Pixels at its beginning that the strip before it has computed.
    done: usize,
    /// First element that it writes in the output, and that it reads of the residual.
    output: isize,
    residual: isize,
}

/// Bytes of what is known of a pair of strips.
const PLACED: usize = (2 * size_of::<Placed>()).next_multiple_of(64);

/// Sizes in one thread's scratch, in bytes: sums, then for each pair of strips what is known of it with its runs, and
/// both strips' copies.
#[derive(Debug, Clone, Copy)]
struct Layout {
    sums: usize,
    runs: usize,
    copy: usize,
}

impl Layout {
    const fn pair(&self) -> usize {
        self.runs + 2 * self.copy
    }
}

impl Dot {
    pub(super) fn new(
        problem: Problem,
        panels: Panels,
        required: Vec<usize>,
        (ops, dot, kind): (&'static Ops, &'static DotOps, Bf16Dot),
    ) -> Result<Self, DeviceError> {
        let division = Division::new(&problem);
        let Problem {
            input,
            output,
            window,
            ..
        } = &problem;
        let strips_in_row = output.w.div_ceil(dot.most_rows);
        let rows = output.w.div_ceil(strips_in_row);
        let in_place =
            division.pixel == input.c && (!division.merged || input.pixel_step == input.c as isize);
        let interior = match in_place {
            true => window.interior(input.w, output.w),
            false => 0..0,
        };
        let copy = if interior == (0..output.w) {
            Some(0)
        } else {
            window.kernel[0]
                .checked_mul(window.span(rows))
                .and_then(|pixels| pixels.checked_mul(division.pixel * SIZE))
                .and_then(|bytes| bytes.checked_next_multiple_of(64))
        };
        let sums = 2 * DOT_ROWS * PANEL_VECTORS * DOT_LANES * size_of::<f32>();
        let runs = PLACED + (division.runs * size_of::<[Run; 2]>()).next_multiple_of(64);
        let scratch = |block: usize| {
            let copies = copy.and_then(|copy| copy.checked_mul(2 * block));
            scratch_bytes(&[Some(sums), runs.checked_mul(block), copies])
        };
        let block = (2..=BLOCK)
            .rev()
            .find(|&block| scratch(block).is_ok())
            .unwrap_or(1);
        Ok(Self {
            scratch: scratch(block)?,
            layout: Layout {
                sums,
                runs,
                copy: copy.unwrap_or(0),
            },
            zeros: vec![0; division.run() * SIZE],
            out_size: problem.out_dtype.size_bytes() as isize,
            tiles: [(dot.tile)(1, rows), (dot.tile)(2, rows)],
            panels: panels.list,
            required,
            ops,
            dot,
            kind,
            rows,
            strips_in_row,
            interior,
            block,
            division,
            problem,
        })
    }

    /// Output row and first column of a strip, and the pixels at its beginning that the strip before it has computed.
    const fn strip(&self, strip: usize) -> (usize, usize, usize) {
        let wanted = strip % self.strips_in_row * self.rows;
        let last = self.problem.output.w - self.rows;
        let column = if wanted < last { wanted } else { last };
        (strip / self.strips_in_row, column, wanted - column)
    }

    fn is_in_place(&self, column: usize) -> bool {
        self.interior.start <= column && column + self.rows <= self.interior.end
    }

    /// Input row, counted over all images, of a kernel row of a strip; `None` outside the image.
    fn input_row(&self, row: usize, ky: usize) -> Option<usize> {
        let Problem {
            input,
            output,
            window,
            ..
        } = &self.problem;
        let (n, y) = (row / output.h, row % output.h);
        window.tap(0, y, ky, input.h).map(|iy| n * input.h + iy)
    }

    /// Copies the input columns of a strip to `[kernel row][column][pixel]`, zeros outside the image and behind the
    /// channels.
    ///
    /// # Safety
    /// As [`Kernel::run`]; `to` has the room that [`Self::new`] computed.
    unsafe fn copy(&self, input: BufferRef, row: usize, column: usize, to: *mut u8) {
        let Problem {
            input: image, window, ..
        } = &self.problem;
        let span = window.span(self.rows);
        let first = window.start(1, column);
        // Columns inside the image.
        let begin = (-first).clamp(0, span as isize) as usize;
        let end = (image.w as isize - first).clamp(begin as isize, span as isize) as usize;
        let (pixel, channels) = (self.division.pixel * SIZE, image.c * SIZE);
        for ky in 0..window.kernel[0] {
            let to = to.wrapping_add(ky * span * pixel);
            // SAFETY: columns `begin..end` lie inside the image; the rest of the span is inside `to`.
            unsafe {
                let Some(iy) = self.input_row(row, ky) else {
                    to.write_bytes(0, span * pixel);
                    continue;
                };
                let from = image.row(iy) + (first + begin as isize) * image.pixel_step;
                let from: *const u8 = input.at(from * SIZE as isize);
                to.write_bytes(0, begin * pixel);
                to.add(end * pixel).write_bytes(0, (span - end) * pixel);
                if pixel == channels && image.pixel_step == image.c as isize {
                    from.copy_to_nonoverlapping(to.add(begin * pixel), (end - begin) * pixel);
                    continue;
                }
                for x in begin..end {
                    let from = from.offset((x - begin) as isize * image.pixel_step * SIZE as isize);
                    let to = to.add(x * pixel);
                    from.copy_to_nonoverlapping(to, channels);
                    to.add(channels).write_bytes(0, pixel - channels);
                }
            }
        }
    }

    /// Fills the runs of one strip, number `side` of its pair, after copying what cannot be read in place.
    ///
    /// # Safety
    /// As [`Kernel::run`]; `runs` and `copy` have the room that [`Self::new`] computed.
    unsafe fn place(&self, input: BufferRef, strip: usize, side: usize, runs: *mut [Run; 2], copy: *mut u8) {
        let Problem {
            input: image, window, ..
        } = &self.problem;
        let (row, column, _) = self.strip(strip);
        let in_place = self.is_in_place(column);
        if !in_place {
            // SAFETY: the same contract.
            unsafe { self.copy(input, row, column, copy) };
        }
        let across = if self.division.merged { 1 } else { window.kernel[1] };
        let span = window.span(self.rows) as isize;
        let pixel = if in_place {
            image.pixel_step
        } else {
            self.division.pixel as isize
        };
        let mut runs = runs;
        for ky in 0..window.kernel[0] {
            let first: Option<*const u8> = self.input_row(row, ky).map(|iy| {
                if in_place {
                    input.at((image.row(iy) + window.start(1, column) * pixel) * SIZE as isize)
                } else {
                    copy.wrapping_offset(ky as isize * span * pixel * SIZE as isize)
                        .cast_const()
                }
            });
            for kx in 0..across as isize {
                let run = match first {
                    None => Run {
                        base: self.zeros.as_ptr(),
                        step: 0,
                    },
                    Some(first) => Run {
                        base: first.wrapping_offset(kx * window.dilation[1] * pixel * SIZE as isize),
                        step: window.stride[1] * pixel * SIZE as isize,
                    },
                };
                // SAFETY: the table has room for every run of the window.
                unsafe {
                    (*runs)[side] = run;
                    runs = runs.add(1);
                }
            }
        }
    }

    /// Where a strip's sums of one panel go.
    fn finish(&self, buffers: &[BufferRef], strip: &Placed, panel: &Panel, sums: *const f32) -> Finish {
        let Problem {
            output,
            residual,
            activation,
            ..
        } = &self.problem;
        let size = self.out_size;
        let width = panel.vectors * DOT_LANES;
        let channel = panel.channel as isize;
        Finish {
            sums: sums.wrapping_add(strip.done * width),
            sum_step: width,
            rows: self.rows - strip.done,
            channels: panel.channels,
            activation: *activation,
            out: buffers[2].at((strip.output + channel) * size),
            out_step: output.pixel_step,
            residual: match residual {
                Some(_) => buffers[3].at((strip.residual + channel) * size),
                None => std::ptr::null_mut(),
            },
            residual_step: residual.as_ref().map_or(0, |image| image.pixel_step),
            order: self.problem.order,
        }
    }

    /// Computes some strips for some panels.
    ///
    /// # Safety
    /// As [`Kernel::run`]; `areas` is this thread's scratch, in which the strips have been placed.
    unsafe fn block(&self, buffers: &[BufferRef], strips: &Range<usize>, panels: &[Panel], areas: *mut u8) {
        let sums: *mut f32 = areas.cast();
        let size = self.out_size;
        let finish_rows = self.ops.of(self.problem.out_dtype).finish;
        for panel in panels {
            let side = DOT_ROWS * panel.vectors * DOT_LANES;
            for (pair, first) in strips.clone().step_by(2).enumerate() {
                let pair = areas.wrapping_add(self.layout.sums + pair * self.layout.pair());
                let runs = pair.wrapping_add(PLACED).cast::<[Run; 2]>();
                let count = (strips.end - first).min(2);
                let tile = DotTile {
                    runs,
                    end: runs.wrapping_add(self.division.runs),
                    panel: buffers[1].at(panel.offset as isize),
                    sums,
                    chunks: self.division.chunks,
                    chunk: self.division.chunk,
                    rows: self.rows,
                    strips: count,
                };
                // SAFETY: the runs cover the strips' pixels, the panel lies inside the checked weight buffer, the sums
                // have room for the largest tile, and the output views are inside their buffers.
                unsafe {
                    let placed = std::slice::from_raw_parts(pair.cast::<Placed>(), count);
                    for strip in placed {
                        let end = self.finish(buffers, strip, panel, sums);
                        prefetch_rows(
                            end.out,
                            end.rows,
                            end.out_step * size,
                            end.channels as isize * size,
                        );
                    }
                    self.tiles[panel.vectors - 1](&tile);
                    for (i, strip) in placed.iter().enumerate() {
                        finish_rows(&self.finish(buffers, strip, panel, sums.wrapping_add(i * side)));
                    }
                }
            }
        }
    }

    /// Places some strips.
    ///
    /// # Safety
    /// As [`Kernel::run`]; `areas` is this thread's scratch.
    unsafe fn place_all(&self, input: BufferRef, strips: &Range<usize>, areas: *mut u8) {
        let Problem { output, residual, .. } = &self.problem;
        for (at, strip) in strips.clone().enumerate() {
            let pair = areas.wrapping_add(self.layout.sums + at / 2 * self.layout.pair());
            let copy = pair.wrapping_add(self.layout.runs + at % 2 * self.layout.copy);
            let (row, column, done) = self.strip(strip);
            let first = |image: &Image| image.row(row) + (column + done) as isize * image.pixel_step;
            let placed = Placed {
                done,
                output: first(output),
                residual: residual.as_ref().map_or(0, first),
            };
            // SAFETY: the caller's contract; a block has at most `self.block` pairs.
            unsafe {
                pair.cast::<Placed>().add(at % 2).write(placed);
                self.place(input, strip, at % 2, pair.wrapping_add(PLACED).cast(), copy);
            }
        }
    }
}

impl Kernel for Dot {
    fn scratch_bytes(&self) -> usize {
        self.scratch
    }

    fn required_bytes(&self) -> &[usize] {
        &self.required
    }

    unsafe fn run(&self, buffers: &[BufferRef], pool: &ComputePool) {
        let Problem { output, .. } = &self.problem;
        let strips = output.n * output.h * self.strips_in_row;
        let threads = pool.threads();
        // Enough blocks to keep every thread busy; where there are few, they are also divided by channels.
        let block = match threads {
            1 => self.block,
            threads => (strips / (16 * threads)).clamp(1, self.block),
        } * 2;
        let blocks = strips.div_ceil(block);
        let wanted = match threads {
            1 => 1,
            threads => (4 * threads).div_ceil(blocks),
        };
        let (count, parts) = (self.panels.len(), wanted.min(self.panels.len()));
        let vectors = self.panels.iter().map(|panel| panel.vectors).sum::<usize>() / parts;
        // A tile of 16 pixels, 16 channels and 32 values takes about as long as 16 operations of fp32 vectors.
        let work = block * self.division.runs * self.division.chunks * vectors * 16;
        share(pool, blocks * parts, work, &|units, scratch| {
            assert!(scratch.len() >= self.scratch);
            let areas = scratch.as_mut_ptr();
            // SAFETY: `rows` and `chunk` are in range; the kernel set vouches for the instructions.
            unsafe { (self.dot.begin)(self.rows, self.division.chunk) };
            let mut placed = usize::MAX;
            for unit in units {
                let (at, part) = (unit / parts, unit % parts);
                let range = at * block..strips.min((at + 1) * block);
                // SAFETY: the caller's contract; different units write different pixels or channels.
                unsafe {
                    if placed != at {
                        self.place_all(buffers[0], &range, areas);
                        placed = at;
                    }
                    let panels = &self.panels[count * part / parts..count * (part + 1) / parts];
                    self.block(buffers, &range, panels, areas);
                }
            }
            // SAFETY: as for the beginning.
            unsafe { (self.dot.end)() };
        });
    }
}

impl fmt::Debug for Dot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Problem {
            input,
            output,
            window,
            ..
        } = &self.problem;
        write!(
            f,
            "Conv2d(bfloat16 {}, {}x{}x{} to {}x{}x{}, kernel {:?}, {} values at a time)",
            self.kind,
            input.h,
            input.w,
            input.c,
            output.h,
            output.w,
            output.c,
            window.kernel,
            self.division.chunk
        )
    }
}
