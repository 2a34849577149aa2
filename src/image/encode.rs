//! Pixels to files, for reports and recordings. Every pixel format is taken; what is not
//! interleaved is converted first.

use std::borrow::Cow;

use super::{ImageRef, PixelFormat};

/// Why an image could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// A JPEG quality outside 1 to 100.
    #[error("JPEG quality {quality} is outside 1..=100")]
    Quality {
        /// The refused quality.
        quality: u8,
    },
    /// The JPEG encoder gave up.
    #[error("JPEG: {0}")]
    Jpeg(#[from] jpeg_encoder::EncodingError),
    /// The PNG encoder gave up.
    #[error("PNG: {0}")]
    Png(#[from] png::EncodingError),
}

/// A baseline JPEG of `quality` 1 to 100. Alpha is left out; grey stays one component.
///
/// # Errors
/// [`EncodeError::Quality`] or [`EncodeError::Jpeg`].
pub fn encode_jpeg(image: &ImageRef<'_>, quality: u8) -> Result<Vec<u8>, EncodeError> {
    if !(1..=100).contains(&quality) {
        return Err(EncodeError::Quality { quality });
    }
    let color = match image.format().interleaved() {
        PixelFormat::Rgb8 => jpeg_encoder::ColorType::Rgb,
        PixelFormat::Rgba8 => jpeg_encoder::ColorType::Rgba,
        PixelFormat::Bgra8 => jpeg_encoder::ColorType::Bgra,
        PixelFormat::Mono8 => jpeg_encoder::ColorType::Luma,
        // `interleaved` leads to no other format.
        _ => jpeg_encoder::ColorType::Bgr,
    };
    let mut out = Vec::new();
    // A side is at most 16384 px, so it fits 16 bits.
    let (width, height) = (image.width() as u16, image.height() as u16);
    jpeg_encoder::Encoder::new(&mut out, quality).encode(&dense_rows(image), width, height, color)?;
    Ok(out)
}

/// A PNG with the pixels unchanged; blue-green-red orders are stored as red-green-blue.
///
/// # Errors
/// [`EncodeError::Png`].
pub fn encode_png(image: &ImageRef<'_>) -> Result<Vec<u8>, EncodeError> {
    let mut pixels = dense_rows(image);
    if matches!(
        image.format().interleaved(),
        PixelFormat::Bgr8 | PixelFormat::Bgra8
    ) {
        for pixel in pixels.to_mut().chunks_exact_mut(image.format().channels()) {
            pixel.swap(0, 2);
        }
    }
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(&mut out, image.width() as u32, image.height() as u32);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_color(match image.format().channels() {
        1 => png::ColorType::Grayscale,
        3 => png::ColorType::Rgb,
        _ => png::ColorType::Rgba,
    });
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&pixels)?;
    writer.finish()?;
    Ok(out)
}

/// The pixels interleaved, row after row; copied only where they are not.
fn dense_rows<'a>(image: &ImageRef<'a>) -> Cow<'a, [u8]> {
    match image.dense_data() {
        Some(data) => Cow::Borrowed(data),
        None => Cow::Owned(image.to_image().into_data()),
    }
}
