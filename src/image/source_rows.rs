//! The rows of a frame as interleaved bytes, which is what every resize reads.

use super::convert::convert_row;
use super::{ImageError, ImageRef, Kernels, PixelFormat};

/// Reads a frame row by row, only the rows that are asked for. Rows of formats that are not interleaved are
/// converted on the way, into memory for one row: the whole frame is never converted for a small target.
#[derive(Debug)]
pub(super) struct SourceRows<'a> {
    image: ImageRef<'a>,
    kernels: Kernels,
    /// The row that was converted last.
    converted: &'a mut Vec<u8>,
    /// Its number.
    held: Option<usize>,
}

impl<'a> SourceRows<'a> {
    /// Rows of `image`; `converted` is memory that is used again from frame to frame.
    pub(super) const fn new(image: ImageRef<'a>, kernels: Kernels, converted: &'a mut Vec<u8>) -> Self {
        Self {
            image,
            kernels,
            converted,
            held: None,
        }
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

    /// Format of the pixels that [`Self::row`] gives, an interleaved one.
    pub(super) const fn format(&self) -> PixelFormat {
        self.image.format().interleaved()
    }

    /// The pixels of one row, interleaved, without padding.
    ///
    /// # Panics
    /// If `y` is not below the height.
    pub(super) fn row(&mut self, y: usize) -> &[u8] {
        if self.image.format().is_interleaved() {
            return self.image.row(y);
        }
        if self.held != Some(y) {
            self.converted
                .resize(self.format().row_bytes(self.image.width()), 0);
            convert_row(&self.image, y, self.kernels, self.converted);
            self.held = Some(y);
        }
        self.converted
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
