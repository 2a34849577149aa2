//! Frames: bytes with a size, a row stride and a pixel format that are known to fit together.

use super::{ImageError, PixelFormat};

/// Longest side of an image that is accepted, in pixels.
pub const MAX_SIDE_PX: usize = 16384;

/// A borrowed frame. Whoever holds one may read `row(y)` for every `y < height()`.
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
    /// `data` is `step * height` bytes long by the ROS definition. Drivers that leave out the padding after
    /// the last row are tolerated; shorter and longer data is refused, because then one of the numbers lies.
    ///
    /// # Errors
    /// [`ImageError::BadSize`], [`ImageError::StepTooShort`] or [`ImageError::WrongDataLength`].
    pub fn new(
        data: &'a [u8],
        width: usize,
        height: usize,
        step: usize,
        format: PixelFormat,
    ) -> Result<Self, ImageError> {
        check_size(width, height)?;
        let row_bytes = width * format.channels();
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
            height,
        };
        let expected = step.checked_mul(height).ok_or_else(|| wrong_length(usize::MAX))?;
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

    /// The pixels of one row, without its padding.
    ///
    /// # Panics
    /// If `y` is not below the height.
    #[must_use]
    pub fn row(&self, y: usize) -> &'a [u8] {
        &self.data[y * self.step..][..self.width * self.format.channels()]
    }

    /// All pixels at once, where no padding lies between the rows.
    pub(super) fn dense_data(&self) -> Option<&'a [u8]> {
        let row_bytes = self.width * self.format.channels();
        (self.step == row_bytes).then(|| &self.data[..row_bytes * self.height])
    }

    /// A copy that owns its bytes, without row padding.
    #[must_use]
    pub fn to_image(&self) -> Image {
        let mut data = Vec::with_capacity(self.width * self.height * self.format.channels());
        for y in 0..self.height {
            data.extend_from_slice(self.row(y));
        }
        Image {
            data,
            width: self.width,
            height: self.height,
            format: self.format,
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
    /// A frame from `width * height * channels` bytes.
    ///
    /// # Errors
    /// [`ImageError::BadSize`] or [`ImageError::WrongDataLength`].
    pub fn new(data: Vec<u8>, width: usize, height: usize, format: PixelFormat) -> Result<Self, ImageError> {
        ImageRef::new(
            &data,
            width,
            height,
            width.saturating_mul(format.channels()),
            format,
        )?;
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
            step: self.width * self.format.channels(),
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
