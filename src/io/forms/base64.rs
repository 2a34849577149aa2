//! Bytes in text.

use ::base64::Engine;
use ::base64::engine::general_purpose::STANDARD;

use super::{InputError, InputFault};

/// Decodes base64 (standard alphabet, with padding); line breaks are passed over. More than `max_bytes` are refused before
/// anything is decoded.
///
/// # Errors
/// [`InputError`] of `field`.
pub fn decode_base64(text: &str, field: &str, max_bytes: usize) -> Result<Vec<u8>, InputError> {
    let space = |b: u8| b.is_ascii_whitespace();
    let padding = text.bytes().rev().take_while(|&b| b == b'=').count().min(2);
    let symbols = text.bytes().filter(|&b| !space(b)).count();
    let found = (symbols / 4).saturating_mul(3).saturating_sub(padding);
    if found > max_bytes {
        let allowed = max_bytes;
        return Err(InputError::new(
            field,
            InputFault::TooManyBytes { found, allowed },
        ));
    }
    let decoded = match text.bytes().any(space) {
        false => STANDARD.decode(text),
        true => STANDARD.decode(text.bytes().filter(|&b| !space(b)).collect::<Vec<u8>>()),
    };
    decoded.map_err(|error| InputError::new(field, InputFault::Base64(error)))
}
