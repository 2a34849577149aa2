//! The crop that Autoware's `tensorrt_bevdet` node takes of a frame, bit for bit.
//!
//! Source: the `Preprocess` plugin of `bevdet_vendor` (`preprocess_plugin.cu`): the nearest pixel of a frame
//! resized by one factor for both axes, and the normalisation that the plugin does in the same breath. There
//! is no product in its arithmetic, so nothing that a compiler could fuse.

use std::ops::Range;

use super::columns::Sampler;
use super::frame::check_size;
use super::sink::{RowSink, RowsInMemory};
use super::source_rows::{ByteRows, SourceRows};
use super::{ImageError, ImageRef, Kernels, Workspace};

/// Channels of the result: blue, green, red.
const CHANNELS: usize = 3;
/// Means in the deployed configuration: those of red, green and blue, but taken off blue, green and red, as the
/// network was trained.
const MEAN: [f32; CHANNELS] = [123.675, 116.28, 103.53];
/// Standard deviations, mixed up in the same way.
const STD: [f32; CHANNELS] = [58.395, 57.12, 57.375];

/// Takes a crop of a resized frame by its nearest pixels; channels blue, green, red.
#[derive(Debug, Clone)]
pub struct NearestCropPlan {
    source_px: [usize; 2],
    columns: Vec<u32>,
    rows: Vec<u32>,
}

impl NearestCropPlan {
    /// A plan for frames of `source_px` and a result of `target_px`, each width and height in pixels;
    /// `crop_px` is the left and top of the result in the resized frame (deployed: 1600 x 900 to 704 x 256
    /// from 0, 140 on).
    ///
    /// The factor is `r = target_width / source_width`, and position `i` takes sample
    /// `round(i / r + crop / r)`, half away from zero, in single precision.
    ///
    /// # Errors
    /// [`ImageError::BadSize`]; [`ImageError::CropOutside`] if the result reaches over the border of the
    /// resized frame, where the plugin would leave old memory as it is.
    pub fn new(
        source_px: [usize; 2],
        target_px: [usize; 2],
        crop_px: [usize; 2],
    ) -> Result<Self, ImageError> {
        for [width, height] in [source_px, target_px] {
            check_size(width, height)?;
        }
        let factor = target_px[0] as f32 / source_px[0] as f32;
        let [columns, rows] = [0, 1].map(|axis| {
            let offset = crop_px[axis] as f32 / factor;
            (0..target_px[axis])
                .map(|i| (i as f32 / factor + offset).round() as u32)
                .collect::<Vec<_>>()
        });
        // Positions rise, so the last ones are the furthest.
        let last = [&columns, &rows].map(|axis| axis.last().map_or(0, |&i| i as usize));
        if last[0] >= source_px[0] || last[1] >= source_px[1] {
            return Err(ImageError::CropOutside { source_px, last });
        }
        Ok(Self {
            source_px,
            columns,
            rows,
        })
    }

    /// The source column of every column of the result.
    #[must_use]
    pub fn columns(&self) -> &[u32] {
        &self.columns
    }

    /// The source row of every row of the result.
    #[must_use]
    pub fn rows_taken(&self) -> &[u32] {
        &self.rows
    }

    /// `(value - mean) / std` of a byte of channel `channel`, blue first, in the deployed configuration.
    pub(super) fn normalised(channel: usize, byte: u8) -> f32 {
        (f32::from(byte) - MEAN[channel]) / STD[channel]
    }

    /// Writes the crop of `image`: bytes in height, width, channel order, channels blue, green, red.
    ///
    /// # Errors
    /// [`ImageError::SizeMismatch`] if the frame has another size than the plan, and
    /// [`ImageError::OutputLength`] if `out` is not `3 * target_height * target_width` long.
    pub fn apply(
        &self,
        image: &ImageRef<'_>,
        out: &mut [u8],
        workspace: &mut Workspace,
    ) -> Result<(), ImageError> {
        let row_len = CHANNELS * self.columns.len();
        let (expected, found) = (row_len * self.rows.len(), out.len());
        if expected != found {
            return Err(ImageError::OutputLength { expected, found });
        }
        let mut source = SourceRows::new(*image, Kernels::detect(), &mut workspace.converted);
        source.check_size(self.source_px)?;
        let sampler = Sampler::bgr(source.format());
        let mut sink = RowsInMemory {
            values: out,
            step: row_len,
            row_len,
            first: 0,
        };
        self.rows(&mut source, &sampler, 0..self.rows.len(), &mut sink);
        Ok(())
    }

    /// Writes the rows `out_rows` of the crop, the three channels that `sampler` picks.
    pub(super) fn rows(
        &self,
        source: &mut impl ByteRows,
        sampler: &Sampler<4>,
        out_rows: Range<usize>,
        sink: &mut impl RowSink<u8>,
    ) {
        let [a, b, c, _] = sampler.lane_byte;
        for y in out_rows {
            let from = source.row(self.rows[y] as usize);
            sink.row(y, |row| {
                for (pixel, &column) in row.as_chunks_mut::<CHANNELS>().0.iter_mut().zip(&self.columns) {
                    let at = column as usize * sampler.pixel_bytes;
                    *pixel = [a, b, c].map(|byte| from[at + byte]);
                }
            });
        }
    }
}
