//! JPEG to pixels, by the C code of libjpeg-turbo as `mozjpeg` carries it.
//!
//! The deployed camera nodes decode with libjpeg-turbo, and the decoders written in Rust round otherwise: on a
//! photo with subsampled chroma one value in seven to twenty differs, by up to 5. A detector's input is to be
//! the deployed one, so this one foreign decoder is taken.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use mozjpeg::{DctMethod, Decompress};

use super::decode::{Layout, check_claim};
use super::jpeg_scan::{JpegFrame, check_complete};
use super::{DecodeError, DecodeOptions, PixelFormat};

#[cfg(panic = "abort")]
compile_error!("libjpeg reports a damaged file by unwinding; build with panic = \"unwind\"");

/// Sizes that the inverse transform gives at once, in eighths, smallest first.
const EIGHTHS: [usize; 4] = [1, 2, 4, 8];

/// Writes the pixels of a JPEG into `pixels`; see [`super::decode_image`].
pub(super) fn decode_jpeg(
    bytes: &[u8],
    options: DecodeOptions,
    max_side_px: usize,
    pixels: &mut Vec<u8>,
) -> Result<Layout, DecodeError> {
    let frame = check_complete(bytes)?;
    check_claim(frame.width, frame.height, max_side_px)?;
    let format = match frame.components {
        1 => PixelFormat::Mono8,
        3 => PixelFormat::Rgb8,
        n => {
            return Err(failed(format!(
                "{n} colour components are not supported; 1 and 3 are"
            )));
        }
    };
    let full_size_px = [frame.width, frame.height];
    let eighths = options
        .at_least_px
        .map_or(8, |enough| eighths_for(full_size_px, enough));
    let size_px = scaled(full_size_px, eighths);
    pixels.resize(size_px[0] * size_px[1] * format.channels(), 0);
    // libjpeg leaves through its error handler, which unwinds; only the pixels are seen afterwards, and they
    // are of no use then.
    catch_unwind(AssertUnwindSafe(|| {
        decompress(bytes, frame, eighths, size_px, format, pixels)
    }))
    .unwrap_or_else(|panic| Err(failed(reason_of(&*panic))))?;
    Ok(Layout {
        size_px,
        full_size_px,
        format,
    })
}

fn decompress(
    bytes: &[u8],
    frame: JpegFrame,
    eighths: usize,
    size_px: [usize; 2],
    format: PixelFormat,
    pixels: &mut [u8],
) -> Result<(), DecodeError> {
    let of_io = |e: std::io::Error| failed(e.to_string());
    let mut decoder = Decompress::new_mem(bytes).map_err(of_io)?;
    if decoder.size() != (frame.width, frame.height) {
        return Err(failed(
            "the file has several frame headers that disagree".to_owned(),
        ));
    }
    decoder.dct_method(DctMethod::IntegerSlow);
    decoder.scale(eighths as u8);
    let mut rows = match format {
        PixelFormat::Mono8 => decoder.grayscale(),
        _ => decoder.rgb(),
    }
    .map_err(of_io)?;
    if [rows.width(), rows.height()] != size_px {
        return Err(failed(format!(
            "{} x {} px were decoded",
            rows.width(),
            rows.height()
        )));
    }
    rows.read_scanlines_into(pixels).map_err(of_io)?;
    rows.finish().map_err(of_io)
}

/// The smallest scale at which the image is no smaller than `enough_px`.
fn eighths_for(full_px: [usize; 2], enough_px: [usize; 2]) -> usize {
    let is_enough = |&eighths: &usize| {
        let [width, height] = scaled(full_px, eighths);
        width >= enough_px[0] && height >= enough_px[1]
    };
    EIGHTHS.into_iter().find(is_enough).unwrap_or(8)
}

/// Sides at a scale; libjpeg rounds up.
fn scaled(full_px: [usize; 2], eighths: usize) -> [usize; 2] {
    full_px.map(|side| (side * eighths).div_ceil(8))
}

const fn failed(reason: String) -> DecodeError {
    DecodeError::Jpeg { reason }
}

/// The message that the error handler threw.
fn reason_of(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<String>()
        .cloned()
        .unwrap_or_else(|| "the decoder gave up".to_owned())
}

#[cfg(test)]
mod tests {
    use super::{eighths_for, scaled};

    #[test]
    fn the_scale_is_the_smallest_that_is_no_smaller_than_the_target() {
        assert_eq!(eighths_for([1600, 900], [640, 384]), 4);
        assert_eq!(eighths_for([1600, 900], [400, 225]), 2);
        assert_eq!(eighths_for([1600, 900], [401, 225]), 4);
        assert_eq!(eighths_for([1600, 900], [1, 1]), 1);
        assert_eq!(eighths_for([1600, 900], [801, 1]), 8);
        assert_eq!(eighths_for([100, 100], [400, 400]), 8);
        // 33 px are five blocks, so an eighth of them is 5 px.
        assert_eq!(scaled([33, 8], 1), [5, 1]);
        assert_eq!(eighths_for([33, 8], [5, 1]), 1);
    }
}
