//! Nearest-neighbour resize, equal to OpenCV 4.x `resize(..., INTER_NEAREST)`.

use std::ops::Range;

use super::columns::Sampler;
use super::frame::check_size;
use super::sink::RowSink;
use super::source_rows::ByteRows;
use super::{ImageError, Raster};

/// A gather from one size to another: source column and row of every output column and row,
/// `min(floor(i * (1 / (target / source))), source - 1)` in double.
///
/// For pictures that must not be blended, such as a segmentation mask on its way back to the camera's size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NearestPlan {
    source_px: [usize; 2],
    columns: Vec<u32>,
    rows: Vec<u32>,
}

impl NearestPlan {
    /// A plan from `source_px` to `target_px`, each width and height in pixels.
    ///
    /// # Errors
    /// [`ImageError::BadSize`].
    pub fn new(source_px: [usize; 2], target_px: [usize; 2]) -> Result<Self, ImageError> {
        for [width, height] in [source_px, target_px] {
            check_size(width, height)?;
        }
        let table = |side: usize| {
            let (source, target) = (source_px[side], target_px[side]);
            let scale = super::area::scale(source, target);
            let index = |i: usize| ((i as f64 * scale).floor() as usize).min(source - 1) as u32;
            (0..target).map(index).collect()
        };
        Ok(Self {
            source_px,
            columns: table(0),
            rows: table(1),
        })
    }

    /// Width and height of the source in pixels.
    #[must_use]
    pub const fn source_px(&self) -> [usize; 2] {
        self.source_px
    }

    /// Width and height of the result in pixels.
    #[must_use]
    pub const fn target_px(&self) -> [usize; 2] {
        [self.columns.len(), self.rows.len()]
    }

    /// Source column of every output column.
    #[must_use]
    pub fn columns(&self) -> &[u32] {
        &self.columns
    }

    /// Source row of every output row.
    #[must_use]
    pub fn rows(&self) -> &[u32] {
        &self.rows
    }

    /// Resizes `raster` into `out`, `[height, width, channels]` without padding.
    ///
    /// # Errors
    /// [`ImageError::SizeMismatch`] or [`ImageError::OutputLength`].
    pub fn apply<T: Copy>(&self, raster: &Raster<'_, T>, out: &mut [T]) -> Result<(), ImageError> {
        let (expected, found) = (self.source_px, raster.size_px());
        if expected != found {
            return Err(ImageError::SizeMismatch { expected, found });
        }
        let channels = raster.channels();
        let row_len = self.columns.len() * channels;
        let (expected, found) = (row_len * self.rows.len(), out.len());
        if expected != found {
            return Err(ImageError::OutputLength { expected, found });
        }
        for (row, &y) in out.chunks_exact_mut(row_len).zip(&self.rows) {
            let source = raster.row(y as usize);
            for (pixel, &x) in row.chunks_exact_mut(channels).zip(&self.columns) {
                pixel.copy_from_slice(&source[x as usize * channels..][..channels]);
            }
        }
        Ok(())
    }

    /// Writes the rows `out_rows` of the result, the three channels that `sampler` picks.
    pub(super) fn write_rows(
        &self,
        source: &mut impl ByteRows,
        sampler: &Sampler<4>,
        out_rows: Range<usize>,
        sink: &mut impl RowSink<u8>,
    ) {
        let [a, b, c, _] = sampler.lane_byte;
        for y in out_rows {
            let row = source.row(self.rows[y] as usize);
            sink.row(y, |out| {
                if [a, b, c] == [0, 1, 2] && sampler.pixel_bytes == 3 {
                    return gather_pixels(row, &self.columns, out);
                }
                for (pixel, &x) in out.as_chunks_mut::<3>().0.iter_mut().zip(&self.columns) {
                    let sample = &row[x as usize * sampler.pixel_bytes..];
                    *pixel = [sample[a], sample[b], sample[c]];
                }
            });
        }
    }
}

/// Pixels of three bytes, in the order of `columns`. Four are moved at once where there are four; the next pixel overwrites
/// the last of them.
fn gather_pixels(row: &[u8], columns: &[u32], out: &mut [u8]) {
    for (i, &x) in columns.iter().enumerate() {
        let (from, to) = (3 * x as usize, 3 * i);
        match (row.get(from..from + 4), out.get_mut(to..to + 4)) {
            (Some(four), Some(place)) => place.copy_from_slice(four),
            _ => out[to..to + 3].copy_from_slice(&row[from..from + 3]),
        }
    }
}
