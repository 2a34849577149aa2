//! Resizes of 8-bit images, equal to OpenCV 4.x `resize` with `INTER_LINEAR` and `INTER_AREA` bit for bit.

use std::ops::Range;

use super::area::{self, AreaTaps};
use super::columns::Sampler;
use super::frame::check_size;
use super::row_pair::RowPair;
use super::simd::Kernels;
use super::sink::{RowSink, RowsInMemory};
use super::source_rows::{ByteRows, SourceRows};
use super::taps::{Alignment, ColumnTaps, RowTap, row_taps};
use super::{ImageError, ImageRef, Raster, Workspace};

/// Most pixels of which a mean is taken: their sum has to fit a signed number of 32 bits, as it has in OpenCV.
const MOST_BLOCK_PIXELS: usize = i32::MAX as usize / 255;

/// A resize from one size to another: its tables, computed once.
#[derive(Debug, Clone)]
pub struct ResizePlan {
    source_px: [usize; 2],
    target_px: [usize; 2],
    method: Method,
    kernels: Kernels,
}

#[derive(Debug, Clone)]
enum Method {
    /// Fixed-point bilinear blend, columns first.
    Blend { columns: ColumnTaps, rows: Vec<RowTap> },
    /// Both sides shrink by whole factors: mean of a block.
    Mean { factor: [usize; 2] },
    /// Mean of the covered area.
    Area { columns: AreaTaps, rows: AreaTaps },
}

/// Memory of a resize: a few rows.
#[derive(Debug, Clone, Default)]
pub(super) struct ResizeScratch {
    blended: RowPair<Vec<i16>>,
    /// The upper row of two that are averaged.
    upper: Vec<u8>,
    /// Sums of one row of results.
    sums: Vec<f32>,
    columns: Vec<f32>,
    row_sums: Vec<u32>,
    block_sums: Vec<u32>,
}

impl ResizePlan {
    /// A plan of `INTER_LINEAR` from `source_px` to `target_px`, each width and height in pixels.
    ///
    /// # Errors
    /// [`ImageError::BadSize`].
    pub fn new(source_px: [usize; 2], target_px: [usize; 2]) -> Result<Self, ImageError> {
        let halves = source_px == target_px.map(|side| 2 * side);
        Self::of(source_px, target_px, || match halves {
            true => Method::Mean { factor: [2, 2] },
            false => Method::blend(source_px, target_px, Alignment::Centres),
        })
    }

    /// A plan of `INTER_AREA` from `source_px` to `target_px`, each width and height in pixels.
    ///
    /// Where a side grows, OpenCV blends two samples, with other weights than `INTER_LINEAR`.
    ///
    /// # Errors
    /// [`ImageError::BadSize`], [`ImageError::BlockTooLarge`].
    pub fn area(source_px: [usize; 2], target_px: [usize; 2]) -> Result<Self, ImageError> {
        let block = [0, 1].map(|side| source_px[side] / target_px[side].max(1));
        let pixels = block[0].saturating_mul(block[1]);
        if pixels > MOST_BLOCK_PIXELS {
            return Err(ImageError::BlockTooLarge {
                pixels,
                most: MOST_BLOCK_PIXELS,
            });
        }
        Self::of(source_px, target_px, || {
            let sides = [0, 1].map(|side| (source_px[side], target_px[side]));
            if sides
                .iter()
                .any(|&(source, target)| area::scale(source, target) < 1.0)
            {
                return Method::blend(source_px, target_px, Alignment::Cells);
            }
            match sides.map(|(source, target)| area::whole_scale(source, target)) {
                [Some(x), Some(y)] => Method::Mean { factor: [x, y] },
                _ => {
                    let [columns, rows] = sides.map(|(source, target)| AreaTaps::new(source, target));
                    Method::Area { columns, rows }
                }
            }
        })
    }

    fn of(
        source_px: [usize; 2],
        target_px: [usize; 2],
        method: impl FnOnce() -> Method,
    ) -> Result<Self, ImageError> {
        for [width, height] in [source_px, target_px] {
            check_size(width, height)?;
        }
        Ok(Self {
            source_px,
            target_px,
            method: method(),
            kernels: Kernels::detect(),
        })
    }

    /// The same plan on other kernels.
    #[must_use]
    pub fn with_kernels(mut self, kernels: Kernels) -> Self {
        self.kernels = kernels;
        self
    }

    /// The kernels that the plan runs on.
    pub(super) const fn kernels(&self) -> Kernels {
        self.kernels
    }

    /// Width and height of the source in pixels.
    #[must_use]
    pub const fn source_px(&self) -> [usize; 2] {
        self.source_px
    }

    /// Width and height of the result in pixels.
    #[must_use]
    pub const fn target_px(&self) -> [usize; 2] {
        self.target_px
    }

    /// Resizes `image` into `out`, rows without padding, in the image's own pixel format, or what that
    /// becomes ([`PixelFormat::interleaved`](super::PixelFormat::interleaved)).
    ///
    /// # Errors
    /// [`ImageError::SizeMismatch`] or [`ImageError::OutputLength`].
    pub fn apply(
        &self,
        image: &ImageRef<'_>,
        out: &mut [u8],
        workspace: &mut Workspace,
    ) -> Result<(), ImageError> {
        let Workspace {
            converted, resizers, ..
        } = workspace;
        let mut source = SourceRows::new(*image, self.kernels, converted);
        let channels = source.format().channels();
        self.write(&mut source, channels, out, &mut resizers.resize)
    }

    /// Resizes `raster` into `out`, `[height, width, channels]` without padding.
    ///
    /// # Errors
    /// [`ImageError::SizeMismatch`] or [`ImageError::OutputLength`].
    pub fn apply_raster(
        &self,
        mut raster: Raster<'_, u8>,
        out: &mut [u8],
        workspace: &mut Workspace,
    ) -> Result<(), ImageError> {
        let channels = raster.channels();
        self.write(&mut raster, channels, out, &mut workspace.resizers.resize)
    }

    fn write(
        &self,
        source: &mut impl ByteRows,
        channels: usize,
        out: &mut [u8],
        scratch: &mut ResizeScratch,
    ) -> Result<(), ImageError> {
        self.check_source(source.size_px())?;
        let row_bytes = self.target_px[0] * channels;
        let (expected, found) = (row_bytes * self.target_px[1], out.len());
        if expected != found {
            return Err(ImageError::OutputLength { expected, found });
        }
        let mut sink = RowsInMemory {
            values: out,
            step: row_bytes,
            row_len: row_bytes,
            first: 0,
        };
        let rows = 0..self.target_px[1];
        let four = |lane_byte| Sampler {
            pixel_bytes: channels,
            lane_byte,
        };
        match channels {
            1 => {
                let sampler = Sampler {
                    pixel_bytes: 1,
                    lane_byte: [0],
                };
                self.rows::<1, 1>(source, &sampler, rows, scratch, &mut sink);
            }
            2 => self.rows::<4, 2>(source, &four([0, 1, 1, 1]), rows, scratch, &mut sink),
            3 => self.rows::<4, 3>(source, &four([0, 1, 2, 2]), rows, scratch, &mut sink),
            _ => self.rows::<4, 4>(source, &four([0, 1, 2, 3]), rows, scratch, &mut sink),
        }
        Ok(())
    }

    /// Refuses a source of another size.
    pub(super) fn check_source(&self, found: [usize; 2]) -> Result<(), ImageError> {
        let expected = self.source_px;
        if found == expected {
            Ok(())
        } else {
            Err(ImageError::SizeMismatch { expected, found })
        }
    }

    /// Writes the rows `out_rows` of the result, `CHANNELS` bytes a pixel, the lanes that `sampler` picks.
    pub(super) fn rows<const LANES: usize, const CHANNELS: usize>(
        &self,
        source: &mut impl ByteRows,
        sampler: &Sampler<LANES>,
        out_rows: Range<usize>,
        scratch: &mut ResizeScratch,
        sink: &mut impl RowSink<u8>,
    ) {
        self.start::<LANES>(scratch);
        self.more_rows::<LANES, CHANNELS>(source, sampler, out_rows, scratch, sink);
    }

    /// Makes `scratch` ready for a frame.
    pub(super) fn start<const LANES: usize>(&self, scratch: &mut ResizeScratch) {
        let values = self.target_px[0] * LANES;
        scratch.blended.start(|row| row.resize(values, 0));
    }

    /// As [`Self::rows`], of the same frame as the call before.
    pub(super) fn more_rows<const LANES: usize, const CHANNELS: usize>(
        &self,
        source: &mut impl ByteRows,
        sampler: &Sampler<LANES>,
        out_rows: Range<usize>,
        scratch: &mut ResizeScratch,
        sink: &mut impl RowSink<u8>,
    ) {
        match &self.method {
            Method::Blend { columns, rows } => {
                for y in out_rows {
                    let tap = rows[y];
                    let pair = scratch.blended.get(tap.rows, |y, blended| {
                        self.kernels
                            .blend_columns(source.row(y), sampler, columns, blended);
                    });
                    let pair = pair.map(Vec::as_slice);
                    sink.row(y, |row| {
                        self.kernels.blend_rows::<LANES, CHANNELS>(pair, tap.weights, row);
                    });
                }
            }
            // OpenCV rounds the mean of four pixels of two channels in another way.
            Method::Mean { factor: [2, 2] } if CHANNELS != 2 => {
                self.halve::<LANES, CHANNELS>(source, sampler, out_rows, scratch, sink);
            }
            &Method::Mean { factor: [x, y] } => {
                let ResizeScratch {
                    row_sums, block_sums, ..
                } = scratch;
                block_sums.resize(self.target_px[0] * LANES, 0);
                row_sums.resize(self.source_px[0] * sampler.pixel_bytes, 0);
                for out_row in out_rows {
                    let rows = out_row * y..(out_row + 1) * y;
                    sink.row(out_row, |row| {
                        let sums = [&mut row_sums[..], &mut block_sums[..]];
                        self.kernels
                            .mean_of_blocks::<LANES, CHANNELS>(source, rows, sampler, x, sums, row);
                    });
                }
            }
            Method::Area { columns, rows } => {
                let ResizeScratch {
                    columns: row_columns,
                    sums,
                    ..
                } = scratch;
                for buffer in [&mut *row_columns, &mut *sums] {
                    buffer.clear();
                    buffer.resize(self.target_px[0] * LANES, 0.0);
                }
                // Neighbouring output rows share the source row between them.
                let mut held = None;
                for y in out_rows {
                    let (first, shares) = rows.at(y);
                    let covered = shares.iter().enumerate().filter(|&(_, &share)| share != 0.0);
                    for (n, (t, &share)) in covered.enumerate() {
                        let source_row = first + t;
                        if held != Some(source_row) {
                            self.kernels
                                .area_columns(source.row(source_row), sampler, columns, row_columns);
                            held = Some(source_row);
                        }
                        self.kernels.area_add_row(row_columns, share, n == 0, sums);
                    }
                    sink.row(y, |row| self.kernels.area_round_row::<LANES, CHANNELS>(sums, row));
                }
            }
        }
    }
}

impl ResizePlan {
    fn halve<const LANES: usize, const CHANNELS: usize>(
        &self,
        source: &mut impl ByteRows,
        sampler: &Sampler<LANES>,
        out_rows: Range<usize>,
        scratch: &mut ResizeScratch,
        sink: &mut impl RowSink<u8>,
    ) {
        for y in out_rows {
            let upper = &mut scratch.upper;
            upper.clear();
            upper.extend_from_slice(source.row(2 * y));
            let pair = [upper.as_slice(), source.row(2 * y + 1)];
            sink.row(y, |row| {
                self.kernels.halve_rows::<LANES, CHANNELS>(pair, sampler, row)
            });
        }
    }
}

impl Method {
    fn blend(source_px: [usize; 2], target_px: [usize; 2], alignment: Alignment) -> Self {
        Self::Blend {
            columns: ColumnTaps::new(source_px[0], target_px[0], alignment),
            rows: row_taps(source_px[1], target_px[1], alignment),
        }
    }
}
