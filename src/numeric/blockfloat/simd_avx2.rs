//! AVX2: a block in two vectors.

use std::arch::x86_64::*;

use super::BLOCK_VALUES;
use super::simd::magnitude_bits;

/// See `encode_block`.
#[target_feature(enable = "avx2")]
pub(super) fn encode<const BYTES: usize>(
    values: &[[f32; BLOCK_VALUES]],
    exponents: &mut [u8],
    mantissas: &mut [[u8; BYTES]],
) {
    let magnitude_bits = magnitude_bits(BYTES);
    let dropped_bits = 24 - magnitude_bits;
    let field = _mm256_set1_epi32(0xff);
    let fraction = _mm256_set1_epi32(0x007f_ffff);
    let leading_one = _mm256_set1_epi32(0x0080_0000);
    let one = _mm256_set1_epi32(1);
    let below_tie = _mm256_set1_epi32((1 << (dropped_bits - 1)) - 1);
    let dropped = _mm256_set1_epi32(dropped_bits as i32);
    let largest = _mm256_set1_epi32((1 << magnitude_bits) - 1);
    let sign_bit = _mm256_set1_epi32(1 << magnitude_bits);
    let sign_distance = _mm256_set1_epi32(31 - magnitude_bits as i32);
    let zero = _mm256_setzero_si256();

    for ((values, exponent), packed) in values.iter().zip(exponents).zip(mantissas) {
        // SAFETY: a block is two times 32 bytes long and the loads take any alignment.
        let halves = unsafe {
            [
                _mm256_loadu_si256(values.as_ptr().cast()),
                _mm256_loadu_si256(values.as_ptr().add(8).cast()),
            ]
        };
        let own = halves.map(|bits| _mm256_and_si256(_mm256_srli_epi32::<23>(bits), field));
        let shared = largest_of(_mm256_max_epu32(own[0], own[1]));
        *exponent = _mm_cvtsi128_si32(shared) as u8;
        let shared = _mm256_broadcastd_epi32(shared);

        let code = |bits, own| {
            let significand = _mm256_or_si256(_mm256_and_si256(bits, fraction), leading_one);
            let aligned = _mm256_srlv_epi32(significand, _mm256_sub_epi32(shared, own));

            // Half a unit less one, and the rest from the lowest kept bit: carries exactly where it rounds up.
            let odd = _mm256_and_si256(_mm256_srlv_epi32(aligned, dropped), one);
            let carried = _mm256_add_epi32(_mm256_add_epi32(aligned, below_tie), odd);
            let magnitude = _mm256_min_epu32(_mm256_srlv_epi32(carried, dropped), largest);

            let gone = _mm256_or_si256(_mm256_cmpeq_epi32(own, zero), _mm256_cmpeq_epi32(magnitude, zero));
            let sign = _mm256_and_si256(_mm256_srlv_epi32(bits, sign_distance), sign_bit);
            _mm256_andnot_si256(gone, _mm256_or_si256(magnitude, sign))
        };
        let [low, high] = [code(halves[0], own[0]), code(halves[1], own[1])];
        // The packs work in 128-bit lanes; the permutation puts their quarters back in order.
        let words = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packus_epi32(low, high));
        let codes = _mm_packus_epi16(
            _mm256_castsi256_si128(words),
            _mm256_extracti128_si256::<1>(words),
        );
        store_codes(codes, packed);
    }
}

/// See `decode_block`.
#[target_feature(enable = "avx2")]
pub(super) fn decode<const BYTES: usize>(
    exponents: &[u8],
    mantissas: &[[u8; BYTES]],
    values: &mut [[f32; BLOCK_VALUES]],
) {
    let magnitude_bits = magnitude_bits(BYTES);
    let largest = _mm256_set1_epi32((1 << magnitude_bits) - 1);
    let sign_bit = _mm256_set1_epi32(i32::MIN);
    let sign_distance = _mm256_set1_epi32(31 - magnitude_bits as i32);
    let zero = _mm256_setzero_si256();
    let below_zero = _mm256_set1_epi32(-1);
    // The conversion to fp32 normalises: it gives a magnitude of 1 the field 127.
    let field_of_one = 127 + magnitude_bits as i32 - 1;

    for ((&exponent, packed), values) in exponents.iter().zip(mantissas).zip(values) {
        let scale = _mm256_set1_epi32((i32::from(exponent) - field_of_one) << 23);
        let value = |codes| {
            let magnitude = _mm256_and_si256(codes, largest);
            let normalised = _mm256_castps_si256(_mm256_cvtepi32_ps(magnitude));
            let bits = _mm256_add_epi32(normalised, scale);
            let stays = _mm256_and_si256(
                _mm256_cmpgt_epi32(magnitude, zero),
                _mm256_cmpgt_epi32(bits, below_zero),
            );
            let sign = _mm256_and_si256(_mm256_sllv_epi32(codes, sign_distance), sign_bit);
            _mm256_and_si256(stays, _mm256_or_si256(bits, sign))
        };
        let codes = load_codes(packed);
        let low = value(_mm256_cvtepu8_epi32(codes));
        let high = value(_mm256_cvtepu8_epi32(_mm_srli_si128::<8>(codes)));
        // SAFETY: a block is two times 32 bytes long and the stores take any alignment.
        unsafe {
            _mm256_storeu_si256(values.as_mut_ptr().cast(), low);
            _mm256_storeu_si256(values.as_mut_ptr().add(8).cast(), high);
        }
    }
}

/// The largest of eight numbers, in every lane.
#[inline]
#[target_feature(enable = "avx2")]
fn largest_of(x: __m256i) -> __m128i {
    let x = _mm_max_epu32(_mm256_castsi256_si128(x), _mm256_extracti128_si256::<1>(x));
    let x = _mm_max_epu32(x, _mm_shuffle_epi32::<0b01_00_11_10>(x));
    _mm_max_epu32(x, _mm_shuffle_epi32::<0b10_11_00_01>(x))
}

/// Stores one code a byte as `block::pack` does.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn store_codes<const BYTES: usize>(codes: __m128i, packed: &mut [u8; BYTES]) {
    const { assert!(BYTES == 8 || BYTES == 16, "a whole or a half byte for each value") };
    if BYTES == 16 {
        // SAFETY: `packed` is 16 bytes long and the store takes any alignment.
        unsafe { _mm_storeu_si128(packed.as_mut_ptr().cast(), codes) };
    } else {
        // First code * 1 + second code * 16, as 16-bit words that fit a byte.
        let pairs = _mm_maddubs_epi16(codes, _mm_set1_epi16(0x1001));
        // SAFETY: `packed` is 8 bytes long, which is what this stores, at any alignment.
        unsafe { _mm_storel_epi64(packed.as_mut_ptr().cast(), _mm_packus_epi16(pairs, pairs)) };
    }
}

/// Loads codes one a byte as `block::unpack` does.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn load_codes<const BYTES: usize>(packed: &[u8; BYTES]) -> __m128i {
    const { assert!(BYTES == 8 || BYTES == 16, "a whole or a half byte for each value") };
    if BYTES == 16 {
        // SAFETY: `packed` is 16 bytes long and the load takes any alignment.
        unsafe { _mm_loadu_si128(packed.as_ptr().cast()) }
    } else {
        // SAFETY: `packed` is 8 bytes long, which is what this loads, at any alignment.
        let pairs = unsafe { _mm_loadl_epi64(packed.as_ptr().cast()) };
        let low_half = _mm_set1_epi8(0xf);
        let first = _mm_and_si128(pairs, low_half);
        let second = _mm_and_si128(_mm_srli_epi16::<4>(pairs), low_half);
        _mm_unpacklo_epi8(first, second)
    }
}
