//! Compressed images to pixels: JPEG and PNG, told apart by their first bytes.

use std::io::Cursor;

use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

use super::frame::{MAX_SIDE_PX, check_size};
use super::jpeg_scan::check_complete;
use super::{Image, ImageError, PixelFormat};

/// Deflate cannot shrink by more than this, so a PNG claiming more pixels lies.
const MAX_DEFLATE_RATIO: usize = 1032;

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

/// Decodes a JPEG or a PNG.
///
/// - JPEG, baseline or progressive, grey or three components: [`PixelFormat::Mono8`] or
///   [`PixelFormat::Rgb8`]. The pixels are not those of libjpeg-turbo: its inverse transform and chroma
///   upsampling round otherwise. On 14 photos a channel differs from OpenCV 4.11 by 0.25 levels in the mean
///   of the worst photo (0.01 without chroma subsampling), and by 5 at most. An EXIF orientation is
///   ignored: camera calibrations refer to pixels as they lie in the file.
/// - PNG, any bit depth (16 bits are cut to the upper 8), grey, colour or palette: [`PixelFormat::Mono8`],
///   [`PixelFormat::Rgb8`] or, with transparency, [`PixelFormat::Rgba8`]; the alpha of a grey image is dropped.
///
/// A file that stops early is an error, never a half grey image; no memory is reserved for a size that the
/// bytes cannot hold. One gap remains: a JPEG whose coded data was shortened but which was then closed with a
/// proper end marker decodes, with wrong blocks from the cut on. OpenCV returns such an image too.
///
/// # Errors
/// [`DecodeError`].
pub fn decode_image(bytes: &[u8]) -> Result<Image, DecodeError> {
    match bytes {
        [0xFF, 0xD8, 0xFF, ..] => decode_jpeg(bytes),
        [0x89, b'P', b'N', b'G', ..] => decode_png(bytes),
        _ => Err(DecodeError::UnknownFormat {
            bytes: bytes.len(),
            first: bytes.iter().take(8).copied().collect(),
        }),
    }
}

fn decode_jpeg(bytes: &[u8]) -> Result<Image, DecodeError> {
    let frame = check_complete(bytes)?;
    check_size(frame.width, frame.height)?;
    let (color, format) = match frame.components {
        1 => (ColorSpace::Luma, PixelFormat::Mono8),
        3 => (ColorSpace::RGB, PixelFormat::Rgb8),
        n => {
            return Err(DecodeError::Jpeg {
                reason: format!("{n} colour components are not supported; 1 and 3 are"),
            });
        }
    };
    let failed = |e| DecodeError::Jpeg {
        reason: format!("{e:?}"),
    };
    let options = DecoderOptions::default()
        .set_strict_mode(true)
        .set_max_width(MAX_SIDE_PX)
        .set_max_height(MAX_SIDE_PX)
        .jpeg_set_out_colorspace(color);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    decoder.decode_headers().map_err(failed)?;
    let size = frame.width * frame.height * format.channels();
    if decoder.output_buffer_size() != Some(size) {
        return Err(DecodeError::Jpeg {
            reason: "the file has several frame headers that disagree".to_owned(),
        });
    }
    let mut pixels = vec![0; size];
    decoder.decode_into(&mut pixels).map_err(failed)?;
    Ok(Image::new(pixels, frame.width, frame.height, format)?)
}

fn decode_png(bytes: &[u8]) -> Result<Image, DecodeError> {
    let mut decoder = png::Decoder::new(Cursor::new(bytes));
    decoder.set_transformations(png::Transformations::normalize_to_color8());
    decoder.set_ignore_text_chunk(true);
    let header = decoder.read_header_info().map_err(|e| png_error(e, bytes))?;
    let (width, height) = (header.width as usize, header.height as usize);
    check_size(width, height)?;
    // At least one bit a pixel before compression.
    if width * height / 8 > bytes.len().saturating_mul(MAX_DEFLATE_RATIO) {
        return Err(DecodeError::ImplausibleSize {
            width,
            height,
            bytes: bytes.len(),
        });
    }
    let mut reader = decoder.read_info().map_err(|e| png_error(e, bytes))?;
    let (color, _) = reader.output_color_type();
    let mut pixels = vec![0; width * height * color.samples()];
    let frame = reader.next_frame(&mut pixels).map_err(|e| png_error(e, bytes))?;
    reader.finish().map_err(|e| png_error(e, bytes))?;
    let (expected, found) = ([width, height], [frame.width as usize, frame.height as usize]);
    if found != expected {
        return Err(DecodeError::PartialFrame { expected, found });
    }
    let format = match color {
        png::ColorType::Grayscale => PixelFormat::Mono8,
        png::ColorType::GrayscaleAlpha => {
            pixels = pixels.as_chunks().0.iter().map(|&[grey, _alpha]| grey).collect();
            PixelFormat::Mono8
        }
        // `normalize_to_color8` expands palettes to colour.
        png::ColorType::Rgb | png::ColorType::Indexed => PixelFormat::Rgb8,
        png::ColorType::Rgba => PixelFormat::Rgba8,
    };
    Ok(Image::new(pixels, width, height, format)?)
}

fn png_error(error: png::DecodingError, bytes: &[u8]) -> DecodeError {
    match error {
        png::DecodingError::IoError(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => {
            DecodeError::Truncated {
                format: "PNG",
                bytes: bytes.len(),
            }
        }
        other => DecodeError::Png(other),
    }
}
