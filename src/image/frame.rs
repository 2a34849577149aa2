//! Frames: bytes with a size, a row stride and a pixel format that are known to fit together.

use super::convert::convert_row;
use super::{ImageError, Kernels, PixelFormat};

/// Longest side of an image that is accepted, in pixels.
pub const MAX_SIDE_PX: usize = 16384;

/// A borrowed frame. Whoever holds one may read `row(y)` for every row of its data.
#[derive(Clone, Copy)]
pub struct ImageRef<'a> {
    data: &'a [u8],
    width: usize,
    height: usize,
    step: usize,
    format: PixelFormat,
}

impl<'a> ImageRef<'a> {
    /// Checks that `data` holds `height` rows of `width` pixels, `step` bytes apart.
    ///
    /// `data` is `step * height` bytes long by the ROS definition, and half as much again for
    /// [`PixelFormat::Nv12`] and [`PixelFormat::Nv21`], whose `height` is that of the picture. Drivers that
    /// leave out the padding after the last row are tolerated; shorter and longer data is refused, because
    /// then one of the numbers lies.
    ///
    /// # Errors
    /// [`ImageError::BadSize`], [`ImageError::SizeOfFormat`], [`ImageError::StepTooShort`] or
    /// [`ImageError::WrongDataLength`].
    pub fn new(
        data: &'a [u8],
        width: usize,
        height: usize,
        step: usize,
        format: PixelFormat,
    ) -> Result<Self, ImageError> {
        check_size(width, height)?;
        format.check_size(width, height)?;
        let (row_bytes, rows) = (format.row_bytes(width), format.data_rows(height));
        if step < row_bytes {
            return Err(ImageError::StepTooShort {
                step,
                width,
                format,
                row_bytes,
            });
        }
        let wrong_length = |expected| ImageError::WrongDataLength {
            found: data.len(),
            expected,
            step,
            rows,
        };
        let expected = step.checked_mul(rows).ok_or_else(|| wrong_length(usize::MAX))?;
        if data.len() > expected || data.len() < expected - (step - row_bytes) {
            return Err(wrong_length(expected));
        }
        Ok(Self {
            data,
            width,
            height,
            step,
            format,
        })
    }

    /// Width in pixels.
    #[must_use]
    pub const fn width(&self) -> usize {
        self.width
    }

    /// Height in pixels.
    #[must_use]
    pub const fn height(&self) -> usize {
        self.height
    }

    /// Bytes from one row to the next.
    #[must_use]
    pub const fn step(&self) -> usize {
        self.step
    }

    /// Pixel format.
    #[must_use]
    pub const fn format(&self) -> PixelFormat {
        self.format
    }

    /// The same bytes, read as pixels of another format.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn read_as(self, format: PixelFormat) -> Result<Self, ImageError> {
        Self::new(self.data, self.width, self.height, self.step, format)
    }

    /// One row of the data as it came, without its padding. Rows from the height on, where the format has
    /// them, hold the chroma.
    ///
    /// # Panics
    /// If `y` is not below [`PixelFormat::data_rows`].
    #[must_use]
    pub fn row(&self, y: usize) -> &'a [u8] {
        &self.data[y * self.step..][..self.format.row_bytes(self.width)]
    }

    /// All pixels at once, where they are interleaved and no padding lies between the rows.
    pub(super) fn dense_data(&self) -> Option<&'a [u8]> {
        let row_bytes = self.format.row_bytes(self.width);
        (self.format.is_interleaved() && self.step == row_bytes)
            .then(|| &self.data[..row_bytes * self.height])
    }

    /// Writes all pixels into `out` in the format [`PixelFormat::interleaved`], rows without padding.
    ///
    /// # Errors
    /// [`ImageError::OutputLength`] if `out` is not `width * height * channels` bytes long.
    pub fn interleave_into(&self, out: &mut [u8], kernels: Kernels) -> Result<(), ImageError> {
        let (expected, found) = (self.interleaved_bytes(), out.len());
        if found != expected {
            return Err(ImageError::OutputLength { expected, found });
        }
        self.write_interleaved(out, kernels);
        Ok(())
    }

    /// A copy that owns its bytes, interleaved and without row padding.
    #[must_use]
    pub fn to_image(&self) -> Image {
        let mut data = vec![0; self.interleaved_bytes()];
        self.write_interleaved(&mut data, Kernels::detect());
        Image {
            data,
            width: self.width,
            height: self.height,
            format: self.format.interleaved(),
        }
    }

    const fn interleaved_bytes(&self) -> usize {
        self.width * self.format.channels() * self.height
    }

    fn write_interleaved(&self, out: &mut [u8], kernels: Kernels) {
        let row_bytes = self.width * self.format.channels();
        for (y, row) in out.chunks_exact_mut(row_bytes).enumerate() {
            convert_row(self, y, kernels, row);
        }
    }
}

impl std::fmt::Debug for ImageRef<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "ImageRef({} {}x{}, step {})",
            self.format, self.width, self.height, self.step
        )
    }
}

/// A frame that owns its bytes; rows lie one after another without padding.
#[derive(Clone, PartialEq, Eq)]
pub struct Image {
    data: Vec<u8>,
    width: usize,
    height: usize,
    format: PixelFormat,
}

impl Image {
    /// A frame from rows without padding: `width * height * channels` bytes of an interleaved format.
    ///
    /// # Errors
    /// [`ImageError::BadSize`], [`ImageError::SizeOfFormat`] or [`ImageError::WrongDataLength`].
    pub fn new(data: Vec<u8>, width: usize, height: usize, format: PixelFormat) -> Result<Self, ImageError> {
        ImageRef::new(&data, width, height, format.row_bytes(width), format)?;
        Ok(Self {
            data,
            width,
            height,
            format,
        })
    }

    /// The frame, borrowed.
    #[must_use]
    pub const fn view(&self) -> ImageRef<'_> {
        ImageRef {
            data: self.data.as_slice(),
            width: self.width,
            height: self.height,
            step: self.format.row_bytes(self.width),
            format: self.format,
        }
    }

    /// Width in pixels.
    #[must_use]
    pub const fn width(&self) -> usize {
        self.width
    }

    /// Height in pixels.
    #[must_use]
    pub const fn height(&self) -> usize {
        self.height
    }

    /// Pixel format.
    #[must_use]
    pub const fn format(&self) -> PixelFormat {
        self.format
    }

    /// The pixels, row by row.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// The pixels, row by row, given away.
    #[must_use]
    pub fn into_data(self) -> Vec<u8> {
        self.data
    }

    /// The pixels, row by row, to be drawn on.
    pub fn data_mut(&mut self) -> &mut [u8] {
        &mut self.data
    }
}

impl std::fmt::Debug for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Image({} {}x{})", self.format, self.width, self.height)
    }
}

/// Refuses empty and oversized images; products of accepted sides and channel counts cannot overflow.
pub(super) fn check_size(width: usize, height: usize) -> Result<(), ImageError> {
    let fits = |side| (1..=MAX_SIDE_PX).contains(&side);
    if fits(width) && fits(height) {
        Ok(())
    } else {
        Err(ImageError::BadSize { width, height })
    }
}
