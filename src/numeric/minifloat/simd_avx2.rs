//! Eight lanes: AVX2. The steps of `simd_avx512.rs`, with blends where that has masks.

use std::arch::x86_64::*;

use super::codec::{F32_INFINITY, Plan};
use super::fp4;
use crate::numeric::simd_chunks::in_chunks;

/// A [`Plan`] spread over the lanes, for encoding.
struct Encoder {
    beyond: __m256i,
    smallest_normal: __m256i,
    rounder: __m256i,
    dropped_bits: __m256i,
    largest: __m256i,
    overflow: __m256i,
    nan: __m256i,
}

impl Encoder {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn new(plan: &Plan) -> Self {
        Self {
            beyond: splat(plan.beyond()),
            smallest_normal: splat(plan.smallest_normal()),
            rounder: splat(plan.rounder()),
            dropped_bits: splat(plan.dropped_bits()),
            largest: splat(plan.largest.into()),
            overflow: splat(plan.overflow.into()),
            nan: splat(plan.nan.into()),
        }
    }

    /// [`Plan::encode`] in every lane.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn encode(&self, values: &[f32; 8]) -> __m256i {
        // SAFETY: 8 values can be read; the load takes any alignment.
        let bits = unsafe { _mm256_loadu_si256(values.as_ptr().cast()) };
        let sign = _mm256_and_si256(_mm256_srli_epi32::<24>(bits), splat(0x80));
        let any_magnitude = _mm256_and_si256(bits, splat(0x7fff_ffff));

        let magnitude = _mm256_min_epu32(any_magnitude, self.beyond);
        // The lower 16 bits of both are 0, so that the upper ones saturate for the whole lane.
        let exponent = _mm256_and_si256(magnitude, splat(F32_INFINITY));
        let orders = _mm256_subs_epu16(exponent, self.smallest_normal);
        let rounder = _mm256_add_epi32(orders, self.rounder);
        let sum = _mm256_add_ps(_mm256_castsi256_ps(magnitude), _mm256_castsi256_ps(rounder));
        let steps = _mm256_sub_epi32(_mm256_castps_si256(sum), rounder);
        let code = _mm256_add_epi32(steps, _mm256_srlv_epi32(orders, self.dropped_bits));

        let beyond = _mm256_cmpgt_epi32(code, self.largest);
        let code = _mm256_blendv_epi8(code, self.overflow, beyond);
        let nan = _mm256_cmpgt_epi32(any_magnitude, splat(F32_INFINITY));
        _mm256_xor_si256(sign, _mm256_blendv_epi8(code, self.nan, nan))
    }

    /// The codes of 32 values, in order.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn encode_32(&self, values: &[f32; 32]) -> __m256i {
        let (quarters, _) = values.as_chunks::<8>();
        let (a, b) = (self.encode(&quarters[0]), self.encode(&quarters[1]));
        let (c, d) = (self.encode(&quarters[2]), self.encode(&quarters[3]));
        // Packing works in halves of a vector, so the quarters come out interleaved: (a b c d) (a b c d).
        let packed = _mm256_packus_epi16(_mm256_packus_epi32(a, b), _mm256_packus_epi32(c, d));
        _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7))
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn splat(x: u32) -> __m256i {
    _mm256_set1_epi32(x as i32)
}

#[target_feature(enable = "avx2")]
pub(super) fn encode(plan: &Plan, values: &[f32], codes: &mut [u8]) {
    let encoder = Encoder::new(plan);
    in_chunks(values, codes, |values: &[f32; 32], codes: &mut [u8; 32]| {
        let encoded = encoder.encode_32(values);
        // SAFETY: 32 bytes can be written; the store takes any alignment.
        unsafe { _mm256_storeu_si256(codes.as_mut_ptr().cast(), encoded) };
    });
}

#[target_feature(enable = "avx2")]
pub(super) fn encode_fp4(values: &[f32], packed: &mut [u8]) {
    let encoder = Encoder::new(&Plan::FP4);
    let [seven, eight] = [7, 8].map(|x| _mm256_set1_epi8(x));
    // Each pair of bytes is added up with these weights.
    let places = _mm256_set1_epi16(0x1001);
    in_chunks(values, packed, |values: &[f32; 32], packed: &mut [u8; 16]| {
        let codes = encoder.encode_32(values);
        let sign = _mm256_and_si256(_mm256_srli_epi16::<4>(codes), eight);
        let nibbles = _mm256_or_si256(_mm256_and_si256(codes, seven), sign);
        let pairs = _mm256_maddubs_epi16(nibbles, places);
        let bytes = _mm_packus_epi16(
            _mm256_castsi256_si128(pairs),
            _mm256_extracti128_si256::<1>(pairs),
        );
        // SAFETY: 16 bytes can be written; the store takes any alignment.
        unsafe { _mm_storeu_si128(packed.as_mut_ptr().cast(), bytes) };
    });
}

#[target_feature(enable = "avx2")]
pub(super) fn decode_fp4(packed: &[u8], values: &mut [f32]) {
    // SAFETY: there are 16 values; the load takes any alignment.
    let magnitudes = unsafe { _mm256_loadu_ps(fp4::VALUES.as_ptr()) };
    let sign_bit = _mm256_set1_epi32(i32::MIN);
    in_chunks(packed, values, |packed: &[u8; 4], values: &mut [f32; 8]| {
        // One byte in each pair of lanes; the lookup reads the low three bits of a lane, the sign is the fourth.
        let bytes = _mm256_cvtepu8_epi64(_mm_cvtsi32_si128(i32::from_le_bytes(*packed)));
        let codes = _mm256_or_si256(bytes, _mm256_slli_epi64::<28>(bytes));
        let sign = _mm256_and_si256(_mm256_slli_epi32::<28>(codes), sign_bit);
        let decoded = _mm256_permutevar8x32_ps(magnitudes, codes);
        let decoded = _mm256_or_ps(decoded, _mm256_castsi256_ps(sign));
        // SAFETY: 8 values can be written; the store takes any alignment.
        unsafe { _mm256_storeu_ps(values.as_mut_ptr(), decoded) };
    });
}
