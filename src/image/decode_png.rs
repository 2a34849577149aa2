//! PNG to pixels.

use std::io::Cursor;

use super::decode::{Layout, check_claim};
use super::{DecodeError, PixelFormat};

/// Deflate cannot shrink by more than this, so a PNG claiming more pixels lies.
const MAX_DEFLATE_RATIO: usize = 1032;

/// Writes the pixels of a PNG into `pixels`; see [`super::decode_image`].
pub(super) fn decode_png(
    bytes: &[u8],
    max_side_px: usize,
    pixels: &mut Vec<u8>,
) -> Result<Layout, DecodeError> {
    let mut decoder = png::Decoder::new(Cursor::new(bytes));
    decoder.set_transformations(png::Transformations::normalize_to_color8());
    decoder.set_ignore_text_chunk(true);
    let header = decoder.read_header_info().map_err(|e| png_error(e, bytes))?;
    let (width, height) = (header.width as usize, header.height as usize);
    check_claim(width, height, max_side_px)?;
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
    pixels.resize(width * height * color.samples(), 0);
    let frame = reader.next_frame(pixels).map_err(|e| png_error(e, bytes))?;
    reader.finish().map_err(|e| png_error(e, bytes))?;
    let (expected, found) = ([width, height], [frame.width as usize, frame.height as usize]);
    if found != expected {
        return Err(DecodeError::PartialFrame { expected, found });
    }
    let format = match color {
        png::ColorType::Grayscale => PixelFormat::Mono8,
        png::ColorType::GrayscaleAlpha => {
            for at in 0..width * height {
                pixels[at] = pixels[2 * at];
            }
            pixels.truncate(width * height);
            PixelFormat::Mono8
        }
        // `normalize_to_color8` expands palettes to colour.
        png::ColorType::Rgb | png::ColorType::Indexed => PixelFormat::Rgb8,
        png::ColorType::Rgba => PixelFormat::Rgba8,
    };
    Ok(Layout {
        size_px: expected,
        full_size_px: expected,
        format,
    })
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
