//! The two 16-bit floating-point formats.

use half::{bf16, f16};

use super::isa::Isa;
use super::length::LengthError;
use super::simd_halves;

/// Value of a bfloat16 (1 sign, 8 exponent, 7 fraction bits). Exact.
#[must_use]
pub fn bf16_to_f32(bits: u16) -> f32 {
    bf16::from_bits(bits).to_f32()
}

/// Value of an IEEE half (1 sign, 5 exponent, 10 fraction bits). Exact.
#[must_use]
pub fn f16_to_f32(bits: u16) -> f32 {
    f16::from_bits(bits).to_f32()
}

/// The nearest bfloat16, ties to the even one, as f32. Values beyond the range become infinite, NaN stays NaN.
#[must_use]
pub fn round_to_bf16(value: f32) -> f32 {
    bf16::from_f32(value).to_f32()
}

/// The nearest half, ties to the even one, as f32. Values beyond the range become infinite, NaN stays NaN.
#[must_use]
pub fn round_to_f16(value: f32) -> f32 {
    f16::from_f32(value).to_f32()
}

/// The nearest bfloat16 of every value, ties to the even one. Values beyond the range become infinite, NaN stays
/// NaN: quiet, with its sign and upper bits.
///
/// # Errors
/// [`LengthError`] unless both slices have the same length.
pub fn bf16_encode_into(values: &[f32], codes: &mut [u16]) -> Result<(), LengthError> {
    LengthError::check("bf16 encoding", values.len(), values.len(), codes.len())?;
    simd_halves::encode_bf16(Isa::detect(), values, codes);
    Ok(())
}

/// Value of every bfloat16. Exact; NaN is made quiet.
///
/// # Errors
/// [`LengthError`] unless both slices have the same length.
pub fn bf16_decode_into(codes: &[u16], values: &mut [f32]) -> Result<(), LengthError> {
    LengthError::check("bf16 decoding", values.len(), values.len(), codes.len())?;
    simd_halves::decode_bf16(Isa::detect(), codes, values);
    Ok(())
}

/// The nearest half of every value, ties to the even one. Values beyond the range become infinite, NaN stays
/// NaN: quiet, with its sign and upper bits.
///
/// # Errors
/// [`LengthError`] unless both slices have the same length.
pub fn f16_encode_into(values: &[f32], codes: &mut [u16]) -> Result<(), LengthError> {
    LengthError::check("f16 encoding", values.len(), values.len(), codes.len())?;
    simd_halves::encode_f16(Isa::detect(), values, codes);
    Ok(())
}

/// Value of every half. Exact; NaN is made quiet.
///
/// # Errors
/// [`LengthError`] unless both slices have the same length.
pub fn f16_decode_into(codes: &[u16], values: &mut [f32]) -> Result<(), LengthError> {
    LengthError::check("f16 decoding", values.len(), values.len(), codes.len())?;
    simd_halves::decode_f16(Isa::detect(), codes, values);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Value by definition, in f64: `(-1)^s * 2^(e - bias) * (1 + f / 2^bits)`, subnormals without the 1.
    fn by_definition(bits: u16, exponent_bits: u32, fraction_bits: u32) -> f64 {
        let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
        let exponent = i32::from((bits >> fraction_bits) & ((1 << exponent_bits) - 1));
        let fraction = f64::from(bits & ((1 << fraction_bits) - 1)) / f64::from(1 << fraction_bits);
        let bias = (1 << (exponent_bits - 1)) - 1;
        match exponent {
            0 => sign * fraction * 2_f64.powi(1 - bias),
            e if e == (1 << exponent_bits) - 1 && fraction == 0.0 => sign * f64::INFINITY,
            e if e == (1 << exponent_bits) - 1 => f64::NAN,
            e => sign * (1.0 + fraction) * 2_f64.powi(e - bias),
        }
    }

    #[test]
    fn every_code_has_the_value_of_its_definition_and_rounds_to_itself() {
        for bits in 0..=u16::MAX {
            for (value, expected, rounded) in [
                (
                    bf16_to_f32(bits),
                    by_definition(bits, 8, 7),
                    round_to_bf16(bf16_to_f32(bits)),
                ),
                (
                    f16_to_f32(bits),
                    by_definition(bits, 5, 10),
                    round_to_f16(f16_to_f32(bits)),
                ),
            ] {
                if expected.is_nan() {
                    assert!(value.is_nan() && rounded.is_nan());
                } else {
                    assert_eq!(f64::from(value).to_bits(), expected.to_bits(), "{bits:#06x}");
                    assert_eq!(rounded.to_bits(), value.to_bits());
                }
            }
        }
    }

    #[test]
    fn halfway_values_go_to_the_even_neighbour() {
        for low in (0..0x7f7f_u16).step_by(7) {
            for (widen, round) in [
                (bf16_to_f32 as fn(u16) -> f32, round_to_bf16 as fn(f32) -> f32),
                (f16_to_f32, round_to_f16),
            ] {
                let (below, above) = (widen(low), widen(low + 1));
                if !above.is_finite() {
                    continue;
                }
                let middle = ((f64::from(below) + f64::from(above)) / 2.0) as f32;
                assert_eq!(
                    round(middle),
                    if low % 2 == 0 { below } else { above },
                    "{low:#06x}"
                );
                assert_eq!(round(f32::from_bits(middle.to_bits() - 1)), below);
                assert_eq!(round(f32::from_bits(middle.to_bits() + 1)), above);
            }
        }
        assert_eq!(round_to_f16(65520.0), f32::INFINITY);
        assert_eq!(round_to_bf16(f32::MAX), f32::INFINITY);
    }
}
