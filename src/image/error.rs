//! What can be wrong with a frame or a resize.

use super::PixelFormat;
use super::format::ACCEPTED_ENCODINGS;
use super::frame::MAX_SIDE_PX;

/// A frame, a size or a preset that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// A pixel encoding that is not read.
    #[error("image encoding \"{encoding}\" is not supported; accepted: {ACCEPTED_ENCODINGS}")]
    UnsupportedEncoding {
        /// The encoding as it was given.
        encoding: String,
    },
    /// A side of zero pixels, or a longer one than [`MAX_SIDE_PX`].
    #[error("image size {width} x {height} px is outside 1..={MAX_SIDE_PX} px a side")]
    BadSize {
        /// Width in pixels.
        width: usize,
        /// Height in pixels.
        height: usize,
    },
    /// A size that the pixel format cannot have.
    #[error("a {format} image cannot have {width} x {height} px: {needs}")]
    SizeOfFormat {
        /// Pixel format.
        format: PixelFormat,
        /// Width in pixels.
        width: usize,
        /// Height in pixels.
        height: usize,
        /// What the format needs, and why.
        needs: &'static str,
    },
    /// A row stride that is shorter than a row of pixels.
    #[error("step of {step} bytes is shorter than a row of {width} {format} pixels ({row_bytes} bytes)")]
    StepTooShort {
        /// Bytes from one row to the next, as given.
        step: usize,
        /// Width in pixels.
        width: usize,
        /// Pixel format.
        format: PixelFormat,
        /// Bytes that one row of pixels takes.
        row_bytes: usize,
    },
    /// Fewer bytes than the size and the stride promise, or more than whole rows can explain.
    #[error("image data has {found} bytes, but {rows} rows of step {step} need {expected}")]
    WrongDataLength {
        /// Bytes given.
        found: usize,
        /// `step` times the rows of the data.
        expected: usize,
        /// Bytes from one row to the next.
        step: usize,
        /// Rows of the data: the height, and half of it again where the chroma lies below.
        rows: usize,
    },
    /// The frame is not of the size that the plan was made for.
    #[error(
        "plan is for {} x {} px, the image has {} x {} px",
        expected[0], expected[1], found[0], found[1]
    )]
    SizeMismatch {
        /// Width and height of the plan in pixels.
        expected: [usize; 2],
        /// Width and height of the frame in pixels.
        found: [usize; 2],
    },
    /// The target slice has another length than the target size.
    #[error("output slice has {found} bytes, the target needs {expected}")]
    OutputLength {
        /// Bytes that the target takes.
        expected: usize,
        /// Bytes given.
        found: usize,
    },
    /// The frame is so narrow or flat that nothing of it is left at the target size.
    #[error(
        "an image of {} x {} px shrinks to nothing in {} x {} px",
        source_px[0], source_px[1], target_px[0], target_px[1]
    )]
    ShrinksToNothing {
        /// Width and height of the source in pixels.
        source_px: [usize; 2],
        /// Width and height of the target in pixels.
        target_px: [usize; 2],
    },
    /// A pre-processing preset that does not exist.
    #[error("unknown pre-processing preset \"{name}\"; known: {known}")]
    UnknownPreset {
        /// The name as it was given.
        name: String,
        /// Every known name, separated by commas.
        known: String,
    },
}
