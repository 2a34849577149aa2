//! Sixteen lanes: AVX-512 F, BW, VL and DQ. Each step is one of `codec.rs`, with both sides of every branch
//! computed and one of them kept.

use std::arch::x86_64::*;

use super::codec::{F32_INFINITY, F32_NAN, Plan};
use super::fp4;
use crate::numeric::simd_chunks::in_chunks;

/// A [`Plan`] spread over the lanes, for encoding.
struct Encoder {
    beyond: __m512i,
    smallest_normal: __m512i,
    rounder: __m512i,
    dropped_bits: __m512i,
    largest: __m512i,
    overflow: __m512i,
    nan: __m512i,
}

impl Encoder {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
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
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
    fn encode(&self, values: &[f32; 16]) -> __m512i {
        // SAFETY: 16 values can be read; the load takes any alignment.
        let bits = unsafe { _mm512_loadu_si512(values.as_ptr().cast()) };
        let sign = _mm512_and_si512(_mm512_srli_epi32::<24>(bits), splat(0x80));
        let any_magnitude = _mm512_and_si512(bits, splat(0x7fff_ffff));

        let magnitude = _mm512_min_epu32(any_magnitude, self.beyond);
        // The lower 16 bits of both are 0, so that the upper ones saturate for the whole lane.
        let exponent = _mm512_and_si512(magnitude, splat(F32_INFINITY));
        let orders = _mm512_subs_epu16(exponent, self.smallest_normal);
        let rounder = _mm512_add_epi32(orders, self.rounder);
        let sum = _mm512_add_ps(_mm512_castsi512_ps(magnitude), _mm512_castsi512_ps(rounder));
        let steps = _mm512_sub_epi32(_mm512_castps_si512(sum), rounder);
        let code = _mm512_add_epi32(steps, _mm512_srlv_epi32(orders, self.dropped_bits));

        let beyond = _mm512_cmpgt_epi32_mask(code, self.largest);
        let code = _mm512_mask_mov_epi32(code, beyond, self.overflow);
        let nan = _mm512_cmpgt_epi32_mask(any_magnitude, splat(F32_INFINITY));
        _mm512_xor_si512(sign, _mm512_mask_mov_epi32(code, nan, self.nan))
    }

    /// The codes of 64 values, in order.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
    fn encode_64(&self, values: &[f32; 64]) -> __m512i {
        let (quarters, _) = values.as_chunks::<16>();
        let (a, b) = (self.encode(&quarters[0]), self.encode(&quarters[1]));
        let (c, d) = (self.encode(&quarters[2]), self.encode(&quarters[3]));
        // Packing works in quarters of a vector, so those come out interleaved: (a b c d) four times.
        let packed = _mm512_packus_epi16(_mm512_packus_epi32(a, b), _mm512_packus_epi32(c, d));
        let order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
        _mm512_permutexvar_epi32(order, packed)
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
fn splat(x: u32) -> __m512i {
    _mm512_set1_epi32(x as i32)
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
pub(super) fn encode(plan: &Plan, values: &[f32], codes: &mut [u8]) {
    let encoder = Encoder::new(plan);
    in_chunks(values, codes, |values: &[f32; 64], codes: &mut [u8; 64]| {
        // SAFETY: 64 bytes can be written; the store takes any alignment.
        unsafe { _mm512_storeu_si512(codes.as_mut_ptr().cast(), encoder.encode_64(values)) };
    });
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
pub(super) fn decode(plan: &Plan, codes: &[u8], values: &mut [f32]) {
    let dropped_bits = splat(plan.dropped_bits());
    let rebias = splat(plan.rebias());
    let step = _mm512_set1_ps(plan.step());
    let smallest_normal = splat(1 << plan.mantissa_bits);
    let infinity = splat(plan.infinity.into());
    let largest_number = splat(plan.largest_number.into());
    in_chunks(codes, values, |codes: &[u8; 16], values: &mut [f32; 16]| {
        // SAFETY: 16 bytes can be read; the load takes any alignment.
        let codes = unsafe { _mm_loadu_si128(codes.as_ptr().cast()) };
        let code = _mm512_cvtepu8_epi32(codes);
        let magnitude = _mm512_and_si512(code, splat(0x7f));
        let sign = _mm512_slli_epi32::<24>(_mm512_xor_si512(code, magnitude));

        let normal = _mm512_sllv_epi32(_mm512_add_epi32(magnitude, rebias), dropped_bits);
        let subnormal = _mm512_castps_si512(_mm512_mul_ps(_mm512_cvtepi32_ps(magnitude), step));
        let small = _mm512_cmplt_epi32_mask(magnitude, smallest_normal);
        let bits = _mm512_mask_mov_epi32(normal, small, subnormal);
        let infinite = _mm512_cmpeq_epi32_mask(magnitude, infinity);
        let bits = _mm512_mask_mov_epi32(bits, infinite, splat(F32_INFINITY));
        let nan = _mm512_cmpgt_epi32_mask(magnitude, largest_number);
        let bits = _mm512_or_si512(sign, _mm512_mask_mov_epi32(bits, nan, splat(F32_NAN)));
        // SAFETY: 16 values can be written; the store takes any alignment.
        unsafe { _mm512_storeu_si512(values.as_mut_ptr().cast(), bits) };
    });
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
pub(super) fn encode_fp4(values: &[f32], packed: &mut [u8]) {
    let encoder = Encoder::new(&Plan::FP4);
    let [seven, eight] = [7, 8].map(|x| _mm512_set1_epi8(x));
    // Each pair of bytes is added up with these weights.
    let places = _mm512_set1_epi16(0x1001);
    in_chunks(values, packed, |values: &[f32; 64], packed: &mut [u8; 32]| {
        let codes = encoder.encode_64(values);
        let sign = _mm512_and_si512(_mm512_srli_epi16::<4>(codes), eight);
        let nibbles = _mm512_or_si512(_mm512_and_si512(codes, seven), sign);
        let bytes = _mm512_cvtepi16_epi8(_mm512_maddubs_epi16(nibbles, places));
        // SAFETY: 32 bytes can be written; the store takes any alignment.
        unsafe { _mm256_storeu_si256(packed.as_mut_ptr().cast(), bytes) };
    });
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
pub(super) fn decode_fp4(packed: &[u8], values: &mut [f32]) {
    // SAFETY: there are 16 values; the load takes any alignment.
    let table = unsafe { _mm512_loadu_ps(fp4::VALUES.as_ptr()) };
    in_chunks(packed, values, |packed: &[u8; 8], values: &mut [f32; 16]| {
        // One byte in each pair of lanes; the lookup reads the low four bits of a lane.
        let bytes = _mm512_cvtepu8_epi64(_mm_cvtsi64_si128(i64::from_le_bytes(*packed)));
        let codes = _mm512_or_si512(bytes, _mm512_slli_epi64::<28>(bytes));
        let decoded = _mm512_permutexvar_ps(codes, table);
        // SAFETY: 16 values can be written; the store takes any alignment.
        unsafe { _mm512_storeu_ps(values.as_mut_ptr(), decoded) };
    });
}
