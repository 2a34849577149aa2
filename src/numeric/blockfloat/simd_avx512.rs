//! AVX-512: a block in one vector.

use std::arch::x86_64::*;

use super::BLOCK_VALUES;
use super::simd::magnitude_bits;
use super::simd_avx2::{load_codes, store_codes};

/// See `encode_block`.
#[target_feature(enable = "avx2,avx512f,avx512bw,avx512vl")]
pub(super) fn encode<const BYTES: usize>(
    values: &[[f32; BLOCK_VALUES]],
    exponents: &mut [u8],
    mantissas: &mut [[u8; BYTES]],
) {
    let magnitude_bits = magnitude_bits(BYTES);
    let dropped_bits = 24 - magnitude_bits;
    let field = _mm512_set1_epi32(0xff);
    let fraction = _mm512_set1_epi32(0x007f_ffff);
    let leading_one = _mm512_set1_epi32(0x0080_0000);
    let one = _mm512_set1_epi32(1);
    let below_tie = _mm512_set1_epi32((1 << (dropped_bits - 1)) - 1);
    let dropped = _mm512_set1_epi32(dropped_bits as i32);
    let largest = _mm512_set1_epi32((1 << magnitude_bits) - 1);
    let sign_bit = _mm512_set1_epi32(1 << magnitude_bits);
    let sign_distance = _mm512_set1_epi32(31 - magnitude_bits as i32);

    for ((values, exponent), packed) in values.iter().zip(exponents).zip(mantissas) {
        // SAFETY: a block is 64 bytes long and the load takes any alignment.
        let bits = unsafe { _mm512_loadu_si512(values.as_ptr().cast()) };
        let own = _mm512_and_si512(_mm512_srli_epi32::<23>(bits), field);
        let shared = _mm512_reduce_max_epu32(own);
        *exponent = shared as u8;

        // fraction of `bits` | leading one
        let significand = _mm512_ternarylogic_epi32::<0xea>(bits, fraction, leading_one);
        let distance = _mm512_sub_epi32(_mm512_set1_epi32(shared as i32), own);
        let aligned = _mm512_srlv_epi32(significand, distance);

        // Half a unit less one, and the rest from the lowest kept bit: carries exactly where it rounds up.
        let odd = _mm512_and_si512(_mm512_srlv_epi32(aligned, dropped), one);
        let carried = _mm512_add_epi32(_mm512_add_epi32(aligned, below_tie), odd);
        let magnitude = _mm512_min_epu32(_mm512_srlv_epi32(carried, dropped), largest);

        let normal = _mm512_test_epi32_mask(own, own);
        let stays = _mm512_mask_test_epi32_mask(normal, magnitude, magnitude);
        // magnitude | (sign & sign bit), zero elsewhere
        let sign = _mm512_srlv_epi32(bits, sign_distance);
        let codes = _mm512_maskz_ternarylogic_epi32::<0xf8>(stays, magnitude, sign, sign_bit);
        store_codes(_mm512_cvtepi32_epi8(codes), packed);
    }
}

/// See `decode_block`.
#[target_feature(enable = "avx2,avx512f,avx512bw,avx512vl")]
pub(super) fn decode<const BYTES: usize>(
    exponents: &[u8],
    mantissas: &[[u8; BYTES]],
    values: &mut [[f32; BLOCK_VALUES]],
) {
    let magnitude_bits = magnitude_bits(BYTES);
    let largest = _mm512_set1_epi32((1 << magnitude_bits) - 1);
    let sign_bit = _mm512_set1_epi32(i32::MIN);
    let sign_distance = _mm512_set1_epi32(31 - magnitude_bits as i32);
    let zero = _mm512_setzero_si512();
    // The conversion to fp32 normalises: it gives a magnitude of 1 the field 127.
    let field_of_one = 127 + magnitude_bits as i32 - 1;

    for ((&exponent, packed), values) in exponents.iter().zip(mantissas).zip(values) {
        let codes = _mm512_cvtepu8_epi32(load_codes(packed));
        let magnitude = _mm512_and_si512(codes, largest);
        let normalised = _mm512_castps_si512(_mm512_cvtepi32_ps(magnitude));
        let scale = (i32::from(exponent) - field_of_one) << 23;
        let bits = _mm512_add_epi32(normalised, _mm512_set1_epi32(scale));

        let not_zero = _mm512_test_epi32_mask(magnitude, magnitude);
        let stays = _mm512_mask_cmpge_epi32_mask(not_zero, bits, zero);
        // bits | (sign & sign bit), zero elsewhere
        let sign = _mm512_sllv_epi32(codes, sign_distance);
        let result = _mm512_maskz_ternarylogic_epi32::<0xf8>(stays, bits, sign, sign_bit);
        // SAFETY: a block is 64 bytes long and the store takes any alignment.
        unsafe { _mm512_storeu_si512(values.as_mut_ptr().cast(), result) };
    }
}
