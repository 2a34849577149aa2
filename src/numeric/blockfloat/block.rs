//! One block, in plain integers: the definition that every other form is held against.

use super::{BLOCK_VALUES, BlockFormat};

/// Fraction bits of an fp32.
const FRACTION_BITS: u32 = 23;
/// The leading one of a normal fp32, in front of its fraction.
const LEADING_ONE: u32 = 1 << FRACTION_BITS;
/// Bits of an fp32 with its leading one.
const SIGNIFICAND_BITS: u32 = FRACTION_BITS + 1;

/// Sixteen encoded values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// The shared exponent, with the bias of fp32.
    pub exponent: u8,
    /// The codes, one a byte: magnitude in the low bits, the sign above it.
    pub codes: [u8; BLOCK_VALUES],
}

/// Sixteen values on the grid of their largest exponent.
///
/// The 24-bit significand of each value is aligned to the shared exponent by a shift that drops bits; what
/// is left is rounded to its top `M` bits, to nearest, ties to even, and held at `2^M - 1`. Bits that the
/// shift dropped break no tie. See the [module](super) for zeros, subnormals, infinities and NaN.
#[must_use]
pub fn encode_block(format: BlockFormat, values: &[f32; BLOCK_VALUES]) -> Block {
    let exponent = values.iter().map(|&v| exponent_field(v)).max().unwrap_or(0);
    Block {
        exponent: exponent as u8,
        codes: values.map(|value| encode_value(format, value, exponent)),
    }
}

/// The values of a block: `(-1)^sign * magnitude * 2^(exponent - 126 - M)`, exact wherever the result is a
/// normal fp32. See the [module](super) for the rest. Bits of a code above its sign are ignored.
#[must_use]
pub fn decode_block(format: BlockFormat, block: &Block) -> [f32; BLOCK_VALUES] {
    block
        .codes
        .map(|code| decode_value(format, code, u32::from(block.exponent)))
}

fn exponent_field(value: f32) -> u32 {
    value.to_bits() >> FRACTION_BITS & 0xff
}

/// `shared` is at least the value's own exponent field.
fn encode_value(format: BlockFormat, value: f32, shared: u32) -> u8 {
    let own = exponent_field(value);
    if own == 0 {
        return 0;
    }
    let significand = value.to_bits() & (LEADING_ONE - 1) | LEADING_ONE;
    let aligned = significand.checked_shr(shared - own).unwrap_or(0);

    let magnitude_bits = format.magnitude_bits();
    let dropped_bits = SIGNIFICAND_BITS - magnitude_bits;
    let kept = aligned >> dropped_bits;
    let rest = aligned & ((1 << dropped_bits) - 1);
    let tie = 1 << (dropped_bits - 1);
    let up = rest > tie || (rest == tie && kept % 2 == 1);
    let magnitude = (kept + u32::from(up)).min((1 << magnitude_bits) - 1);

    let sign = u32::from(value.is_sign_negative() && magnitude != 0);
    (sign << magnitude_bits | magnitude) as u8
}

fn decode_value(format: BlockFormat, code: u8, shared: u32) -> f32 {
    let top_bit = format.magnitude_bits() - 1;
    let magnitude = u32::from(code) & ((2 << top_bit) - 1);
    let Some(leading_bit) = magnitude.checked_ilog2() else {
        return 0.0;
    };
    let Some(field) = shared.checked_sub(top_bit - leading_bit) else {
        return 0.0;
    };
    let fraction = magnitude << (FRACTION_BITS - leading_bit) & (LEADING_ONE - 1);
    let sign = u32::from(code) >> (top_bit + 1) & 1;
    f32::from_bits(sign << 31 | field << FRACTION_BITS | fraction)
}

/// The codes as they are stored: a byte each, or two a byte with the first in the low half.
pub(super) fn pack<const BYTES: usize>(codes: &[u8; BLOCK_VALUES]) -> [u8; BYTES] {
    let each = BLOCK_VALUES / BYTES;
    std::array::from_fn(|byte| {
        codes[byte * each..][..each]
            .iter()
            .rev()
            .fold(0, |packed, &code| packed << 4 | code)
    })
}

/// The inverse of [`pack`].
pub(super) fn unpack<const BYTES: usize>(packed: &[u8; BYTES]) -> [u8; BLOCK_VALUES] {
    match BLOCK_VALUES / BYTES {
        1 => std::array::from_fn(|i| packed[i]),
        _ => std::array::from_fn(|i| packed[i / 2] >> (i % 2 * 4) & 0xf),
    }
}
