//! E2M1, the four-bit float of OCP's microscaling formats: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives.

use super::codec::Plan;
use super::simd;
use crate::numeric::isa::Isa;
use crate::numeric::length::LengthError;

/// Values of all codes.
pub(super) static VALUES: [f32; 16] = {
    let mut values = [0.0; 16];
    let mut code = 0;
    while code < values.len() {
        let sign = (code as u8 & 8) << 4;
        values[code] = Plan::FP4.decode(sign | (code as u8 & 7));
        code += 1;
    }
    values
};

/// The nearest of the 16 codes, ties to the even one, in the low four bits.
///
/// There is no infinity: whatever is beyond 6 becomes 6, sign kept. There is no NaN either: NaN becomes a zero
/// of the opposite sign, as in ml_dtypes 0.6; check for NaN first where it must not pass for a zero.
#[must_use]
pub const fn fp4_encode(value: f32) -> u8 {
    nibble(Plan::FP4.encode(value))
}

/// Value of a code; only its low four bits count. Exact.
#[must_use]
pub fn fp4_decode(code: u8) -> f32 {
    VALUES[usize::from(code & 15)]
}

/// Bytes that `values` packed codes take.
#[must_use]
pub const fn fp4_packed_bytes(values: usize) -> usize {
    values.div_ceil(2)
}

/// [`fp4_encode`] for every value of a slice, two codes to a byte, the first in the low four bits. After an odd
/// number of values the last high four bits are zero.
///
/// # Errors
/// [`LengthError`] unless `packed` has [`fp4_packed_bytes`] of the number of values.
pub fn fp4_encode_into(values: &[f32], packed: &mut [u8]) -> Result<(), LengthError> {
    LengthError::check(
        "FP4 encoding",
        values.len(),
        fp4_packed_bytes(values.len()),
        packed.len(),
    )?;
    simd::encode_fp4(Isa::detect(), values, packed);
    Ok(())
}

/// [`fp4_decode`] for as many packed codes as `values` has places.
///
/// # Errors
/// [`LengthError`] unless `packed` has [`fp4_packed_bytes`] of the number of values.
pub fn fp4_decode_into(packed: &[u8], values: &mut [f32]) -> Result<(), LengthError> {
    LengthError::check(
        "FP4 decoding",
        values.len(),
        fp4_packed_bytes(values.len()),
        packed.len(),
    )?;
    simd::decode_fp4(Isa::detect(), packed, values);
    Ok(())
}

/// A code of the plan, sign in bit 7, as four bits.
const fn nibble(code: u8) -> u8 {
    (code & 7) | ((code >> 4) & 8)
}

/// [`fp4_encode_into`] for one byte.
#[inline]
pub(super) fn encode_pair(values: &[f32; 2], packed: &mut [u8; 1]) {
    let [low, high] = values.map(|value| nibble(Plan::FP4.encode(value)));
    *packed = [low | (high << 4)];
}

/// [`fp4_decode_into`] for one byte.
#[inline]
pub(super) fn decode_pair(&[packed]: &[u8; 1], values: &mut [f32; 2]) {
    *values = [fp4_decode(packed), fp4_decode(packed >> 4)];
}
