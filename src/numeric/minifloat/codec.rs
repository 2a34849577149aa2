//! Codes to values and back, for every layout of eight bits or fewer.

use std::num::FpCategory;

use super::format::{Fp8Fields, Fp8Format};
use super::policy::Fp8Policy;
use super::simd;
use crate::numeric::isa::Isa;
use crate::numeric::length::LengthError;

/// Bits of f32's infinity; larger magnitudes are NaN.
pub(super) const F32_INFINITY: u32 = 0x7f80_0000;
/// The quiet NaN that every NaN code decodes to, before the sign.
pub(super) const F32_NAN: u32 = 0x7fc0_0000;
const F32_MANTISSA_BITS: u32 = 23;
const F32_BIAS: u32 = 127;

/// Everything that converting from and to one format takes: a layout and what a policy makes of it.
///
/// Codes have their sign in bit 7 and their magnitude below it, whatever the width of the magnitude.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    pub(super) mantissa_bits: u32,
    bias: u32,
    /// Largest magnitude that encoding may produce.
    pub(super) largest: u8,
    /// Magnitude of what is beyond it.
    pub(super) overflow: u8,
    /// What NaN turns the code of its sign over to, by exclusive or.
    pub(super) nan: u8,
    /// Magnitude that decodes to infinity; 0x7f where there is none.
    pub(super) infinity: u8,
    /// Largest magnitude that does not decode to NaN.
    pub(super) largest_number: u8,
}

impl Plan {
    pub(super) const fn fp8(format: Fp8Format, policy: &Fp8Policy) -> Self {
        let mantissa_bits = format.mantissa_bits();
        let all_ones_exponent = 0x7f & (0x7f << mantissa_bits);
        let largest = policy.largest_code(format);
        let (infinity, largest_number, nan) = if policy.has_infinity(format) {
            let quiet = 1 << (mantissa_bits - 1);
            (all_ones_exponent, all_ones_exponent, all_ones_exponent | quiet)
        } else {
            (0x7f, 0x7e, 0x7f)
        };
        Self {
            mantissa_bits,
            bias: format.bias(),
            largest,
            // Without an infinity, 0x7f is NaN.
            overflow: if policy.knobs().ocp_sat { largest } else { infinity },
            nan,
            infinity,
            largest_number,
        }
    }

    /// E2M1: saturating, and a NaN becomes a zero of the other sign.
    pub(super) const FP4: Self = Self {
        mantissa_bits: 1,
        bias: 1,
        largest: 7,
        overflow: 7,
        nan: 0x80,
        infinity: 0x7f,
        largest_number: 0x7e,
    };

    /// Bits that rounding drops from an f32 mantissa.
    pub(super) const fn dropped_bits(&self) -> u32 {
        F32_MANTISSA_BITS - self.mantissa_bits
    }

    /// Bits of the f32 that is the smallest normal value.
    pub(super) const fn smallest_normal(&self) -> u32 {
        (F32_BIAS + 1 - self.bias) << F32_MANTISSA_BITS
    }

    /// What a code's magnitude lacks to be the exponent and upper mantissa of its f32.
    pub(super) const fn rebias(&self) -> u32 {
        (F32_BIAS - self.bias) << self.mantissa_bits
    }

    /// Distance of subnormal values.
    pub(super) const fn step(&self) -> f32 {
        f32::from_bits((F32_BIAS + 1 - self.bias - self.mantissa_bits) << F32_MANTISSA_BITS)
    }

    /// Bits of the f32 that has [`Self::step`] as its unit in the last place. The sum with any subnormal value
    /// is rounded to whole steps.
    pub(super) const fn rounder(&self) -> u32 {
        self.smallest_normal() + (self.dropped_bits() << F32_MANTISSA_BITS)
    }

    /// Bits of the f32 that would follow the largest value if its exponent had no end.
    pub(super) const fn beyond(&self) -> u32 {
        (self.largest as u32 + 1 + self.rebias()) << self.dropped_bits()
    }

    /// Nearest code, ties to the even one.
    #[inline]
    pub(super) const fn encode(&self, value: f32) -> u8 {
        let sign = (value.to_bits() >> 24) as u8 & 0x80;
        let magnitude = value.to_bits() & 0x7fff_ffff;
        let beyond = self.beyond();
        // Larger values, infinity and NaN among them, are beyond the range as well.
        let clamped = if magnitude < beyond { magnitude } else { beyond };
        // How far its exponent is above the smallest normal value's. The step grows with it, and so does the
        // number whose addition rounds to whole steps.
        let orders = (clamped & F32_INFINITY).saturating_sub(self.smallest_normal());
        let rounder = self.rounder() + orders;
        let steps = (f32::from_bits(clamped) + f32::from_bits(rounder)).to_bits() - rounder;
        // Steps count from 0; the code of each higher exponent starts at its own smallest value.
        let code = (steps + (orders >> self.dropped_bits())) as u8;
        let code = if code > self.largest { self.overflow } else { code };
        let code = if magnitude > F32_INFINITY { self.nan } else { code };
        sign ^ code
    }

    /// Value of a code, exact.
    pub(super) const fn decode(&self, code: u8) -> f32 {
        let sign = ((code & 0x80) as u32) << 24;
        let magnitude = code & 0x7f;
        let bits = if magnitude > self.largest_number {
            F32_NAN
        } else if magnitude == self.infinity {
            F32_INFINITY
        } else if magnitude >> self.mantissa_bits == 0 {
            (magnitude as f32 * self.step()).to_bits()
        } else {
            (magnitude as u32 + self.rebias()) << self.dropped_bits()
        };
        f32::from_bits(sign | bits)
    }

    /// Values of all codes.
    const fn table(&self) -> [f32; 256] {
        let mut values = [0.0; 256];
        let mut code = 0;
        while code < values.len() {
            values[code] = self.decode(code as u8);
            code += 1;
        }
        values
    }
}

/// [`fp8_decode`] of all codes.
pub(super) fn values_of_codes(format: Fp8Format, policy: &Fp8Policy) -> &'static [f32; 256] {
    &VALUES[format as usize][usize::from(policy.has_infinity(format))]
}

/// Values of all codes, by format, then without and with infinity.
static VALUES: [[[f32; 256]; 2]; 3] = {
    let mut values = [[[0.0; 256]; 2]; 3];
    let mut i = 0;
    while i < values.len() {
        let format = Fp8Format::ALL[i];
        values[i] = [
            Plan::fp8(format, &Fp8Policy::EXTENDED).table(),
            Plan::fp8(format, &Fp8Policy::IEEE).table(),
        ];
        i += 1;
    }
    values
};

/// The nearest code of a value, ties to the even one; what is beyond the range is the policy's affair.
#[must_use]
pub const fn fp8_encode(format: Fp8Format, policy: &Fp8Policy, value: f32) -> u8 {
    Plan::fp8(format, policy).encode(value)
}

/// Value of a code. Exact.
#[must_use]
pub const fn fp8_decode(format: Fp8Format, policy: &Fp8Policy, code: u8) -> f32 {
    Plan::fp8(format, policy).decode(code)
}

/// A code taken apart.
#[must_use]
pub fn fp8_fields(format: Fp8Format, policy: &Fp8Policy, code: u8) -> Fp8Fields {
    let value = fp8_decode(format, policy, code);
    let class = match value.classify() {
        FpCategory::Normal if format.exponent(code) == 0 => FpCategory::Subnormal,
        class => class,
    };
    Fp8Fields {
        sign: format.sign(code),
        exponent: format.exponent(code),
        mantissa: format.mantissa(code),
        class,
        value,
    }
}

/// [`fp8_encode`] for every value of a slice.
///
/// # Errors
/// [`LengthError`] unless both slices have the same length.
pub fn fp8_encode_into(
    format: Fp8Format,
    policy: &Fp8Policy,
    values: &[f32],
    codes: &mut [u8],
) -> Result<(), LengthError> {
    LengthError::check("FP8 encoding", values.len(), values.len(), codes.len())?;
    simd::encode(Isa::detect(), &Plan::fp8(format, policy), values, codes);
    Ok(())
}

/// [`fp8_decode`] for every code of a slice.
///
/// # Errors
/// [`LengthError`] unless both slices have the same length.
pub fn fp8_decode_into(
    format: Fp8Format,
    policy: &Fp8Policy,
    codes: &[u8],
    values: &mut [f32],
) -> Result<(), LengthError> {
    LengthError::check("FP8 decoding", values.len(), values.len(), codes.len())?;
    let table = values_of_codes(format, policy);
    simd::decode(Isa::detect(), &Plan::fp8(format, policy), table, codes, values);
    Ok(())
}
