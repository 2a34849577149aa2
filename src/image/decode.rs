//! Compressed images to pixels: JPEG and PNG, told apart by their first bytes.

use super::decode_jpeg::decode_jpeg;
use super::decode_png::decode_png;
use super::frame::{MAX_SIDE_PX, check_size};
use super::{Image, ImageError, ImageRef, PixelFormat};

/// Why compressed bytes did not become an image.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// Neither JPEG nor PNG.
    #[error("{bytes} bytes that start with {first:02x?} are neither JPEG nor PNG")]
    UnknownFormat {
        /// Bytes given.
        bytes: usize,
        /// The first few of them.
        first: Vec<u8>,
    },
    /// The file stops before its end marker.
    #[error("{format} is cut off: no end marker in {bytes} bytes")]
    Truncated {
        /// JPEG or PNG.
        format: &'static str,
        /// Bytes given.
        bytes: usize,
    },
    /// The header claims more pixels than the bytes could hold.
    #[error("header claims {width} x {height} px, which {bytes} bytes cannot hold")]
    ImplausibleSize {
        /// Claimed width in pixels.
        width: usize,
        /// Claimed height in pixels.
        height: usize,
        /// Bytes given.
        bytes: usize,
    },
    /// A side of the image is longer than is taken.
    #[error("header claims {width} x {height} px, and at most {allowed} px a side are taken")]
    TooLarge {
        /// Claimed width in pixels.
        width: usize,
        /// Claimed height in pixels.
        height: usize,
        /// Longest side that is taken, in pixels.
        allowed: usize,
    },
    /// A damaged JPEG, or a kind that is not read.
    #[error("JPEG: {reason}")]
    Jpeg {
        /// What is wrong with it.
        reason: String,
    },
    /// A damaged PNG.
    #[error("PNG: {0}")]
    Png(#[from] png::DecodingError),
    /// An animation whose first frame is smaller than the picture.
    #[error(
        "PNG: the first frame of {} x {} px does not fill {} x {} px",
        found[0], found[1], expected[0], expected[1]
    )]
    PartialFrame {
        /// Width and height of the picture in pixels.
        expected: [usize; 2],
        /// Width and height of the frame in pixels.
        found: [usize; 2],
    },
    /// A size that is refused.
    #[error(transparent)]
    Image(#[from] ImageError),
}

/// What a decoder may do besides decoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DecodeOptions {
    /// Width and height that are enough, in pixels. A JPEG is then decoded at 1/8, 1/4 or 1/2 of its size, the
    /// smallest that is no smaller than this on either side, which takes a fraction of the time. The reduced
    /// inverse transform is **not bit-exact** with decoding in full and resizing, so it is off (`None`) by
    /// default. A PNG is always decoded in full.
    pub at_least_px: Option<[usize; 2]>,
}

/// A decoded image in memory that belongs to the caller.
#[derive(Debug, Clone, Copy)]
pub struct Decoded<'a> {
    /// The pixels.
    pub image: ImageRef<'a>,
    /// Width and height that the file has when it is decoded in full, in pixels.
    pub full_size_px: [usize; 2],
}

/// Size and format of the pixels that a decoder wrote.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    pub(super) size_px: [usize; 2],
    pub(super) full_size_px: [usize; 2],
    pub(super) format: PixelFormat,
}

/// Decodes a JPEG or a PNG.
///
/// - JPEG, baseline or progressive, grey or three components: [`PixelFormat::Mono8`] or
///   [`PixelFormat::Rgb8`], with the pixels of libjpeg-turbo's accurate integer transform and its smooth
///   chroma upsampling, bit for bit, which are what OpenCV and `image_transport` give. An EXIF orientation is
///   ignored: camera calibrations refer to pixels as they lie in the file.
/// - PNG, any bit depth (16 bits are cut to the upper 8), grey, colour or palette: [`PixelFormat::Mono8`],
///   [`PixelFormat::Rgb8`] or, with transparency, [`PixelFormat::Rgba8`]; the alpha of a grey image is dropped.
///
/// A file that stops early is an error, never a half grey image; no memory is reserved for a size that the
/// bytes cannot hold. One gap remains: a JPEG whose coded data was damaged or shortened but which still runs to
/// a proper end marker decodes, with wrong blocks from there on. OpenCV returns such an image too.
///
/// # Errors
/// [`DecodeError`].
pub fn decode_image(bytes: &[u8]) -> Result<Image, DecodeError> {
    decode_image_within(bytes, MAX_SIDE_PX)
}

/// [`decode_image`] of an image whose sides are at most so long; a longer one is refused by its header, before memory
/// for its pixels is taken.
///
/// # Errors
/// [`DecodeError`].
pub fn decode_image_within(bytes: &[u8], max_side_px: usize) -> Result<Image, DecodeError> {
    let mut pixels = Vec::new();
    let layout = decode(bytes, DecodeOptions::default(), max_side_px, &mut pixels)?;
    let [width, height] = layout.size_px;
    Ok(Image::new(pixels, width, height, layout.format)?)
}

/// [`decode_image`] into memory that is used again: `pixels` grows to the largest image and then stays.
///
/// ```
/// use sensorium::image::{DecodeOptions, Image, PixelFormat, decode_into, encode_jpeg};
///
/// let frame = Image::new(vec![90; 64 * 48], 64, 48, PixelFormat::Mono8)?;
/// let file = encode_jpeg(&frame.view(), 90)?;
/// let mut pixels = Vec::new();
/// let options = DecodeOptions { at_least_px: Some([30, 20]) };
/// let decoded = decode_into(&file, options, &mut pixels)?;
/// assert_eq!((decoded.image.width(), decoded.image.height()), (32, 24));
/// assert_eq!(decoded.full_size_px, [64, 48]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`DecodeError`]; what `pixels` then holds is of no use.
pub fn decode_into<'a>(
    bytes: &[u8],
    options: DecodeOptions,
    pixels: &'a mut Vec<u8>,
) -> Result<Decoded<'a>, DecodeError> {
    let layout = decode(bytes, options, MAX_SIDE_PX, pixels)?;
    let [width, height] = layout.size_px;
    let step = layout.format.row_bytes(width);
    Ok(Decoded {
        image: ImageRef::new(pixels, width, height, step, layout.format)?,
        full_size_px: layout.full_size_px,
    })
}

fn decode(
    bytes: &[u8],
    options: DecodeOptions,
    max_side_px: usize,
    pixels: &mut Vec<u8>,
) -> Result<Layout, DecodeError> {
    match bytes {
        [0xFF, 0xD8, 0xFF, ..] => decode_jpeg(bytes, options, max_side_px, pixels),
        [0x89, b'P', b'N', b'G', ..] => decode_png(bytes, max_side_px, pixels),
        _ => Err(DecodeError::UnknownFormat {
            bytes: bytes.len(),
            first: bytes.iter().take(8).copied().collect(),
        }),
    }
}

/// Whether a size that a header claims is one that is taken.
pub(super) fn check_claim(width: usize, height: usize, max_side_px: usize) -> Result<(), DecodeError> {
    check_size(width, height)?;
    if width.max(height) > max_side_px {
        return Err(DecodeError::TooLarge {
            width,
            height,
            allowed: max_side_px,
        });
    }
    Ok(())
}
