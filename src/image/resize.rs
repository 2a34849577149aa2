//! Bilinear resize, equal to OpenCV 4.x `resize(..., INTER_LINEAR)` on 8-bit images bit for bit.

use std::ops::Range;

use super::columns::Sampler;
use super::frame::check_size;
use super::rows::halve_rows;
use super::simd::Kernels;
use super::sink::{RowSink, RowsInMemory};
use super::source_rows::SourceRows;
use super::taps::{ColumnTaps, RowTap, row_taps};
use super::{ImageError, ImageRef, PixelFormat};

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
    /// Both sides shrink to exactly one half: OpenCV takes the mean of 2 x 2 pixels.
    Halve,
    /// Fixed-point bilinear blend, columns first.
    Blend { columns: ColumnTaps, rows: Vec<RowTap> },
}

/// Reusable memory of a resize: a few rows. Grows to what the largest plan needs and then
/// allocates no more.
#[derive(Debug, Clone, Default)]
pub struct Workspace {
    blended: [Vec<i16>; 2],
    /// Rows of bytes.
    pub(super) bytes: Vec<u8>,
    /// Rows of samples and sums.
    pub(super) floats: Vec<f32>,
    /// A row of bytes, one channel after another.
    pub(super) planes: Vec<u8>,
}

impl ResizePlan {
    /// A plan from `source_px` to `target_px`, each width and height in pixels.
    ///
    /// # Errors
    /// [`ImageError::BadSize`].
    pub fn new(source_px: [usize; 2], target_px: [usize; 2]) -> Result<Self, ImageError> {
        for [width, height] in [source_px, target_px] {
            check_size(width, height)?;
        }
        let method = if source_px == target_px.map(|side| 2 * side) {
            Method::Halve
        } else {
            Method::Blend {
                columns: ColumnTaps::new(source_px[0], target_px[0]),
                rows: row_taps(source_px[1], target_px[1]),
            }
        };
        Ok(Self {
            source_px,
            target_px,
            method,
            kernels: Kernels::detect(),
        })
    }

    /// The same plan on other kernels.
    #[must_use]
    pub fn with_kernels(mut self, kernels: Kernels) -> Self {
        self.kernels = kernels;
        self
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

    /// Resizes `image` into `out`, rows without padding, in the image's own pixel format.
    ///
    /// # Errors
    /// [`ImageError::SizeMismatch`] or [`ImageError::OutputLength`].
    pub fn apply(
        &self,
        image: &ImageRef<'_>,
        out: &mut [u8],
        workspace: &mut Workspace,
    ) -> Result<(), ImageError> {
        let channels = image.format().channels();
        let row_bytes = self.target_px[0] * channels;
        let expected = row_bytes * self.target_px[1];
        if out.len() != expected {
            return Err(ImageError::OutputLength {
                expected,
                found: out.len(),
            });
        }
        let mut source = SourceRows::new(*image);
        self.check_source(&source)?;
        let mut sink = RowsInMemory {
            values: out,
            step: row_bytes,
            row_len: row_bytes,
            first: 0,
        };
        let rows = 0..self.target_px[1];
        let format = source.format();
        match format {
            PixelFormat::Mono8 => {
                let sampler = Sampler::new(format, [0]);
                self.rows::<1, 1>(&mut source, &sampler, rows, workspace, &mut sink);
            }
            PixelFormat::Rgb8 | PixelFormat::Bgr8 => {
                let sampler = Sampler::new(format, [0, 1, 2, 2]);
                self.rows::<4, 3>(&mut source, &sampler, rows, workspace, &mut sink);
            }
            PixelFormat::Rgba8 | PixelFormat::Bgra8 => {
                let sampler = Sampler::new(format, [0, 1, 2, 3]);
                self.rows::<4, 4>(&mut source, &sampler, rows, workspace, &mut sink);
            }
        }
        Ok(())
    }

    /// Refuses a source of another size.
    pub(super) fn check_source(&self, source: &SourceRows<'_>) -> Result<(), ImageError> {
        source.check_size(self.source_px)
    }

    /// Writes the rows `out_rows` of the result, `CHANNELS` bytes a pixel, the lanes that `sampler` picks.
    pub(super) fn rows<const LANES: usize, const CHANNELS: usize>(
        &self,
        source: &mut SourceRows<'_>,
        sampler: &Sampler<LANES>,
        out_rows: Range<usize>,
        workspace: &mut Workspace,
        sink: &mut impl RowSink<u8>,
    ) {
        match &self.method {
            Method::Halve => {
                for y in out_rows {
                    let upper = &mut workspace.bytes;
                    upper.clear();
                    upper.extend_from_slice(source.row(2 * y));
                    let pair = [upper.as_slice(), source.row(2 * y + 1)];
                    sink.row(y, |row| halve_rows::<LANES, CHANNELS>(pair, sampler, row));
                }
            }
            Method::Blend { columns, rows } => {
                let mut cache = RowCache::new(workspace, self.target_px[0] * LANES);
                for y in out_rows {
                    let tap = rows[y];
                    let pair = cache.pair(tap.rows, |y, blended| {
                        self.kernels
                            .blend_columns(source.row(y), sampler, columns, blended);
                    });
                    sink.row(y, |row| {
                        self.kernels.blend_rows::<LANES, CHANNELS>(pair, tap.weights, row);
                    });
                }
            }
        }
    }
}

/// The two latest rows of blended columns: neighbouring output rows share source rows when enlarging.
struct RowCache<'a> {
    slots: [&'a mut [i16]; 2],
    held: [Option<usize>; 2],
}

impl<'a> RowCache<'a> {
    fn new(workspace: &'a mut Workspace, values: usize) -> Self {
        for slot in &mut workspace.blended {
            if slot.len() < values {
                slot.resize(values, 0);
            }
        }
        let [a, b] = &mut workspace.blended;
        Self {
            slots: [&mut a[..values], &mut b[..values]],
            held: [None; 2],
        }
    }

    /// Upper and lower row; `fill` makes the ones that are not at hand.
    fn pair(&mut self, [upper, lower]: [usize; 2], mut fill: impl FnMut(usize, &mut [i16])) -> [&[i16]; 2] {
        if self.held[0] != Some(upper) && self.held[1] == Some(upper) {
            self.slots.swap(0, 1);
            self.held.swap(0, 1);
        }
        if self.held[0] != Some(upper) {
            fill(upper, self.slots[0]);
            self.held[0] = Some(upper);
        }
        if lower == upper {
            return [&*self.slots[0], &*self.slots[0]];
        }
        if self.held[1] != Some(lower) {
            fill(lower, self.slots[1]);
            self.held[1] = Some(lower);
        }
        [&*self.slots[0], &*self.slots[1]]
    }
}
