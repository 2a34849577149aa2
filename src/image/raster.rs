//! Interleaved samples of any type and number of channels: what the OpenCV building blocks work on.

use super::ImageError;
use super::frame::check_size;
use super::source_rows::ByteRows;

/// Most channels of a raster.
pub const MAX_CHANNELS: usize = 4;

/// A borrowed array of samples `[height, width, channels]`, rows `step` samples apart.
#[derive(Debug, Clone, Copy)]
pub struct Raster<'a, T> {
    samples: &'a [T],
    size_px: [usize; 2],
    channels: usize,
    step: usize,
}

impl<'a, T> Raster<'a, T> {
    /// A raster of `size_px` (width, height), its rows one after another without padding.
    ///
    /// # Errors
    /// As [`Raster::with_step`].
    pub fn new(samples: &'a [T], size_px: [usize; 2], channels: usize) -> Result<Self, ImageError> {
        Self::with_step(samples, size_px, channels, size_px[0].saturating_mul(channels))
    }

    /// A raster with rows `step` samples apart; the padding of the last row may be missing.
    ///
    /// # Errors
    /// [`ImageError::BadSize`], [`ImageError::BadChannels`] or [`ImageError::WrongRasterLength`].
    pub fn with_step(
        samples: &'a [T],
        size_px: [usize; 2],
        channels: usize,
        step: usize,
    ) -> Result<Self, ImageError> {
        check_size(size_px[0], size_px[1])?;
        if !(1..=MAX_CHANNELS).contains(&channels) {
            return Err(ImageError::BadChannels { channels });
        }
        let row_len = size_px[0] * channels;
        let needed = step
            .checked_mul(size_px[1] - 1)
            .and_then(|above| above.checked_add(row_len));
        match needed {
            Some(needed) if step >= row_len && samples.len() >= needed => Ok(Self {
                samples,
                size_px,
                channels,
                step,
            }),
            _ => Err(ImageError::WrongRasterLength {
                found: samples.len(),
                size_px,
                channels,
                step,
            }),
        }
    }

    /// Width and height in pixels.
    #[must_use]
    pub const fn size_px(&self) -> [usize; 2] {
        self.size_px
    }

    /// Samples of a pixel.
    #[must_use]
    pub const fn channels(&self) -> usize {
        self.channels
    }

    /// The samples of one row.
    ///
    /// # Panics
    /// If `y` is not below the height.
    #[must_use]
    pub fn row(&self, y: usize) -> &'a [T] {
        &self.samples[y * self.step..][..self.size_px[0] * self.channels]
    }
}

impl ByteRows for Raster<'_, u8> {
    fn size_px(&self) -> [usize; 2] {
        self.size_px
    }

    fn row(&mut self, y: usize) -> &[u8] {
        Raster::row(self, y)
    }
}
