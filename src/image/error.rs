//! What can be wrong with a frame or a resize.

use super::PixelFormat;
use super::format::ACCEPTED_ENCODINGS;
use super::frame::MAX_SIDE_PX;

/// An option of a preset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PresetOption {
    /// Width and height of the input.
    Target,
    /// Type of the values.
    Samples,
    /// How sums are rounded.
    Contraction,
    /// Pixels of the resized frame for each of the frame.
    Scale,
}

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
    /// A raster with no channel, or with more than four.
    #[error("{channels} channels are not supported; 1 to 4 are")]
    BadChannels {
        /// Channels given.
        channels: usize,
    },
    /// Fewer samples than the size and the stride promise.
    #[error(
        "{found} samples do not hold {} x {} px of {channels} channels, rows {step} samples apart",
        size_px[0], size_px[1]
    )]
    WrongRasterLength {
        /// Samples given.
        found: usize,
        /// Width and height in pixels.
        size_px: [usize; 2],
        /// Samples of a pixel.
        channels: usize,
        /// Samples from one row to the next.
        step: usize,
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
    /// A float resize whose result in OpenCV is not known to the bit.
    #[error(
        "a float resize of {} x {} px to {} x {} px is not verified to equal OpenCV's bit for bit, so it is refused",
        source_px[0], source_px[1], target_px[0], target_px[1]
    )]
    UnverifiedScale {
        /// Width and height of the source in pixels.
        source_px: [usize; 2],
        /// Width and height of the target in pixels.
        target_px: [usize; 2],
    },
    /// The target slice has another length than the target size.
    #[error("output slice has {found} values, the target needs {expected}")]
    OutputLength {
        /// Values that the target takes.
        expected: usize,
        /// Values given.
        found: usize,
    },
    /// Blocks of so many pixels that their sum does not fit.
    #[error("every output pixel is the mean of {pixels} pixels, at most {most} are supported")]
    BlockTooLarge {
        /// Pixels of a block.
        pixels: usize,
        /// Most pixels of a block.
        most: usize,
    },
    /// A scale that is no positive number, or too large.
    #[error("a scale of {} x {} is not above 0 and at most {most}", scale[0], scale[1])]
    BadScale {
        /// The scale along x and y, as text.
        scale: [String; 2],
        /// The largest scale.
        most: u32,
    },
    /// The target slice begins where its floats cannot.
    #[error("output slice is not aligned to {alignment} bytes")]
    Misaligned {
        /// Bytes of a value.
        alignment: usize,
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
    /// An option that a preset does not have, or that it needs.
    #[error("pre-processing preset {preset}: {reason}")]
    PresetOption {
        /// Name of the preset.
        preset: &'static str,
        /// The option.
        option: PresetOption,
        /// What is wrong, and what would be right.
        reason: String,
    },
    /// A preset makes another size than the network takes.
    #[error(
        "pre-processing preset {preset} makes {} x {} px, the network takes {} x {} px",
        found[0], found[1], expected[0], expected[1]
    )]
    PresetSize {
        /// Name of the preset.
        preset: &'static str,
        /// Width and height of the network's input in pixels.
        expected: [usize; 2],
        /// Width and height of what the preset makes.
        found: [usize; 2],
    },
    /// A side of the frame has fewer samples than the method blends.
    #[error(
        "an image of {} x {} px is too small, the method takes {} x {} px or more",
        source_px[0], source_px[1], least_px[0], least_px[1]
    )]
    SourceTooSmall {
        /// Width and height of the source in pixels.
        source_px: [usize; 2],
        /// Least width and height in pixels.
        least_px: [usize; 2],
    },
    /// A crop that reaches over the border of the frame.
    #[error(
        "row {} or column {} of an image of {} x {} px is asked for: the crop reaches over its border",
        last[1], last[0], source_px[0], source_px[1]
    )]
    CropOutside {
        /// Width and height of the source in pixels.
        source_px: [usize; 2],
        /// The furthest column and row that are asked for.
        last: [usize; 2],
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
