//! A walk over the marker segments of a JPEG file, before any of it is decoded.
//!
//! The decoder fills what a cut file does not hold with grey and may call that a success. On a vehicle half
//! a frame is not a frame, so a file has to reach its end-of-image marker before decoding starts. The
//! size that the header claims is also held against the bytes that are there, before memory is reserved.

use super::DecodeError;

/// The fewest bits an 8 x 8 block can take is one (a progressive file with nothing but one-bit DC codes), so
/// no file can hold more pixels than this per byte.
const MAX_PIXELS_PER_BYTE: usize = 8 * 64;

/// What the frame header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct JpegFrame {
    /// Width in pixels.
    pub(super) width: usize,
    /// Height in pixels.
    pub(super) height: usize,
    /// Colour components: 1 is grey, 3 is colour.
    pub(super) components: u8,
}

/// Checks that the file runs from start to end of image and could hold the pixels it claims.
///
/// Bytes after the end-of-image marker are ignored: cameras pad their buffers.
pub(super) fn check_complete(bytes: &[u8]) -> Result<JpegFrame, DecodeError> {
    let truncated = || DecodeError::Truncated {
        format: "JPEG",
        bytes: bytes.len(),
    };
    let mut frame = None;
    let mut at = 2;
    loop {
        let marker = next_marker(bytes, &mut at).ok_or_else(truncated)?;
        match marker {
            0xD9 => break,
            // Restarts, a second start of image and TEM carry no length.
            0xD0..=0xD8 | 0x01 => continue,
            _ => {}
        }
        let length = bytes.get(at..at + 2).ok_or_else(truncated)?;
        let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
        let segment = bytes.get(at + 2..at + length.max(2)).ok_or_else(truncated)?;
        // Start of frame: all of 0xC0..=0xCF but DHT, JPG and DAC.
        if matches!(marker, 0xC0..=0xCF) && !matches!(marker, 0xC4 | 0xC8 | 0xCC) {
            frame = Some(read_frame(segment).ok_or_else(|| DecodeError::Jpeg {
                reason: format!("frame header of {} bytes is too short", segment.len()),
            })?);
        }
        at += length.max(2);
    }
    let frame = frame.ok_or_else(|| DecodeError::Jpeg {
        reason: "the file has no frame header".to_owned(),
    })?;
    if frame.width * frame.height > bytes.len().saturating_mul(MAX_PIXELS_PER_BYTE) {
        return Err(DecodeError::ImplausibleSize {
            width: frame.width,
            height: frame.height,
            bytes: bytes.len(),
        });
    }
    Ok(frame)
}

/// Moves `at` behind the next marker and returns it. Skips entropy-coded data, in which 0xFF is followed by
/// a zero byte, and fill bytes.
fn next_marker(bytes: &[u8], at: &mut usize) -> Option<u8> {
    loop {
        *at += bytes.get(*at..)?.iter().position(|&b| b == 0xFF)? + 1;
        while *bytes.get(*at)? == 0xFF {
            *at += 1;
        }
        let code = *bytes.get(*at)?;
        *at += 1;
        if code != 0 {
            return Some(code);
        }
    }
}

/// Precision (1 byte), height (2), width (2), components (1).
fn read_frame(segment: &[u8]) -> Option<JpegFrame> {
    let &[_, h1, h0, w1, w0, components] = segment.first_chunk::<6>()?;
    Some(JpegFrame {
        width: usize::from(u16::from_be_bytes([w1, w0])),
        height: usize::from(u16::from_be_bytes([h1, h0])),
        components,
    })
}
