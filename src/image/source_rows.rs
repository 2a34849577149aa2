//! The rows of a frame as interleaved bytes, which is what every resize reads.

use super::{ImageError, ImageRef, PixelFormat};

/// Reads a frame row by row, only the rows that are asked for.
#[derive(Debug)]
pub(super) struct SourceRows<'a> {
    image: ImageRef<'a>,
}

impl<'a> SourceRows<'a> {
    /// Rows of `image`.
    pub(super) const fn new(image: ImageRef<'a>) -> Self {
        Self { image }
    }

    /// Width and height in pixels.
    pub(super) const fn size_px(&self) -> [usize; 2] {
        [self.image.width(), self.image.height()]
    }

    /// Refuses a frame of another size than `expected`.
    pub(super) fn check_size(&self, expected: [usize; 2]) -> Result<(), ImageError> {
        let found = self.size_px();
        if found == expected {
            Ok(())
        } else {
            Err(ImageError::SizeMismatch { expected, found })
        }
    }

    /// Format of the pixels that [`Self::row`] gives.
    pub(super) const fn format(&self) -> PixelFormat {
        self.image.format()
    }

    /// The pixels of one row, interleaved, without padding.
    ///
    /// # Panics
    /// If `y` is not below the height.
    pub(super) fn row(&mut self, y: usize) -> &[u8] {
        self.image.row(y)
    }
}

/// Interleaved bytes, row by row.
pub(super) trait ByteRows {
    /// Width and height in pixels.
    fn size_px(&self) -> [usize; 2];

    /// The pixels of one row, without padding.
    fn row(&mut self, y: usize) -> &[u8];
}

impl ByteRows for SourceRows<'_> {
    fn size_px(&self) -> [usize; 2] {
        SourceRows::size_px(self)
    }

    fn row(&mut self, y: usize) -> &[u8] {
        SourceRows::row(self, y)
    }
}
