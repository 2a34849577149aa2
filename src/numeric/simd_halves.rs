//! Slices of 16-bit floats, on the instruction set that is asked for. The vectors compute what the scalar
//! functions of `halves.rs` do, bit for bit; the tests at the end compare them.

use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};
use half::{bf16, f16};

use super::isa::Isa;

/// A function for every conversion: on the vectors of `isa` if the processor has them, else what `half` does.
macro_rules! conversions {
    ($($(#[$doc:meta])* $name:ident($from:ident: $from_type:ty, $to:ident: $to_type:ty) $otherwise:expr;)*) => {
        $(
            $(#[$doc])*
            pub(super) fn $name(isa: Isa, $from: &[$from_type], $to: &mut [$to_type]) {
                match isa {
                    #[cfg(target_arch = "x86_64")]
                    Isa::Avx512 if isa.is_available() => {
                        // SAFETY: the processor has the instructions; this was just asked.
                        unsafe { avx512::$name($from, $to) }
                    }
                    #[cfg(target_arch = "x86_64")]
                    Isa::Avx2 if isa.is_available() => {
                        // SAFETY: as above.
                        unsafe { avx2::$name($from, $to) }
                    }
                    _ => $otherwise,
                }
            }
        )*
    };
}

conversions! {
    /// f32 to bfloat16 bits.
    encode_bf16(values: f32, codes: u16) codes.reinterpret_cast_mut::<bf16>().convert_from_f32_slice(values);
    /// bfloat16 bits to f32.
    decode_bf16(codes: u16, values: f32) codes.reinterpret_cast::<bf16>().convert_to_f32_slice(values);
    /// f32 to half bits.
    encode_f16(values: f32, codes: u16) codes.reinterpret_cast_mut::<f16>().convert_from_f32_slice(values);
    /// Half bits to f32.
    decode_f16(codes: u16, values: f32) codes.reinterpret_cast::<f16>().convert_to_f32_slice(values);
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use std::arch::x86_64::*;

    use crate::numeric::simd_chunks::in_chunks;

    /// Rounds to nearest even; a NaN keeps its upper bits, made quiet.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
    pub(super) fn encode_bf16(values: &[f32], codes: &mut [u16]) {
        let one = _mm512_set1_epi32(1);
        let half = _mm512_set1_epi32(0x7fff);
        let quiet = _mm512_set1_epi32(0x40);
        in_chunks(values, codes, |values: &[f32; 16], codes: &mut [u16; 16]| {
            // SAFETY: 16 values can be read; the load takes any alignment.
            let value = unsafe { _mm512_loadu_ps(values.as_ptr()) };
            let bits = _mm512_castps_si512(value);
            let upper = _mm512_srli_epi32::<16>(bits);
            let odd = _mm512_and_si512(upper, one);
            let rounded = _mm512_srli_epi32::<16>(_mm512_add_epi32(bits, _mm512_add_epi32(odd, half)));
            let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(value, value);
            let code = _mm512_mask_or_epi32(rounded, nan, upper, quiet);
            // SAFETY: 16 codes can be written; the store takes any alignment.
            unsafe { _mm256_storeu_si256(codes.as_mut_ptr().cast(), _mm512_cvtepi32_epi16(code)) };
        });
    }

    /// A NaN is made quiet.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
    pub(super) fn decode_bf16(codes: &[u16], values: &mut [f32]) {
        let quiet = _mm512_set1_epi32(0x40_0000);
        in_chunks(codes, values, |codes: &[u16; 16], values: &mut [f32; 16]| {
            // SAFETY: 16 codes can be read; the load takes any alignment.
            let code = unsafe { _mm256_loadu_si256(codes.as_ptr().cast()) };
            let bits = _mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(code));
            let value = _mm512_castsi512_ps(bits);
            let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(value, value);
            let bits = _mm512_mask_or_epi32(bits, nan, bits, quiet);
            // SAFETY: 16 values can be written; the store takes any alignment.
            unsafe { _mm512_storeu_si512(values.as_mut_ptr().cast(), bits) };
        });
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
    pub(super) fn encode_f16(values: &[f32], codes: &mut [u16]) {
        in_chunks(values, codes, |values: &[f32; 16], codes: &mut [u16; 16]| {
            // SAFETY: 16 values can be read; the load takes any alignment.
            let value = unsafe { _mm512_loadu_ps(values.as_ptr()) };
            let code = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(value);
            // SAFETY: 16 codes can be written; the store takes any alignment.
            unsafe { _mm256_storeu_si256(codes.as_mut_ptr().cast(), code) };
        });
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
    pub(super) fn decode_f16(codes: &[u16], values: &mut [f32]) {
        in_chunks(codes, values, |codes: &[u16; 16], values: &mut [f32; 16]| {
            // SAFETY: 16 codes can be read; the load takes any alignment.
            let code = unsafe { _mm256_loadu_si256(codes.as_ptr().cast()) };
            // SAFETY: 16 values can be written; the store takes any alignment.
            unsafe { _mm512_storeu_ps(values.as_mut_ptr(), _mm512_cvtph_ps(code)) };
        });
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use crate::numeric::simd_chunks::in_chunks;

    /// bfloat16 bits in the low half of each lane: nearest, ties to even; a NaN keeps its upper bits, made
    /// quiet.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn narrow(values: &[f32; 8]) -> __m256i {
        // SAFETY: 8 values can be read; the load takes any alignment.
        let value = unsafe { _mm256_loadu_ps(values.as_ptr()) };
        let bits = _mm256_castps_si256(value);
        let upper = _mm256_srli_epi32::<16>(bits);
        let odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
        let sum = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
        let nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(value, value));
        let quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
        _mm256_blendv_epi8(_mm256_srli_epi32::<16>(sum), quiet, nan)
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn encode_bf16(values: &[f32], codes: &mut [u16]) {
        in_chunks(values, codes, |values: &[f32; 16], codes: &mut [u16; 16]| {
            let (halves, _) = values.as_chunks::<8>();
            // Packing works in halves of a vector, so the order is put right afterwards.
            let packed = _mm256_packus_epi32(narrow(&halves[0]), narrow(&halves[1]));
            let code = _mm256_permute4x64_epi64::<0b11_01_10_00>(packed);
            // SAFETY: 16 codes can be written; the store takes any alignment.
            unsafe { _mm256_storeu_si256(codes.as_mut_ptr().cast(), code) };
        });
    }

    /// A NaN is made quiet.
    #[target_feature(enable = "avx2")]
    pub(super) fn decode_bf16(codes: &[u16], values: &mut [f32]) {
        let quiet = _mm256_set1_ps(f32::from_bits(0x40_0000));
        in_chunks(codes, values, |codes: &[u16; 8], values: &mut [f32; 8]| {
            // SAFETY: 8 codes can be read; the load takes any alignment.
            let code = unsafe { _mm_loadu_si128(codes.as_ptr().cast()) };
            let value = _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(code)));
            let nan = _mm256_cmp_ps::<_CMP_UNORD_Q>(value, value);
            let value = _mm256_or_ps(value, _mm256_and_ps(nan, quiet));
            // SAFETY: 8 values can be written; the store takes any alignment.
            unsafe { _mm256_storeu_ps(values.as_mut_ptr(), value) };
        });
    }

    #[target_feature(enable = "avx2,f16c")]
    pub(super) fn encode_f16(values: &[f32], codes: &mut [u16]) {
        in_chunks(values, codes, |values: &[f32; 8], codes: &mut [u16; 8]| {
            // SAFETY: 8 values can be read; the load takes any alignment.
            let value = unsafe { _mm256_loadu_ps(values.as_ptr()) };
            let code = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(value);
            // SAFETY: 8 codes can be written; the store takes any alignment.
            unsafe { _mm_storeu_si128(codes.as_mut_ptr().cast(), code) };
        });
    }

    #[target_feature(enable = "avx2,f16c")]
    pub(super) fn decode_f16(codes: &[u16], values: &mut [f32]) {
        in_chunks(codes, values, |codes: &[u16; 8], values: &mut [f32; 8]| {
            // SAFETY: 8 codes can be read; the load takes any alignment.
            let code = unsafe { _mm_loadu_si128(codes.as_ptr().cast()) };
            // SAFETY: 8 values can be written; the store takes any alignment.
            unsafe { _mm256_storeu_ps(values.as_mut_ptr(), _mm256_cvtph_ps(code)) };
        });
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use super::*;
    use crate::numeric::{bf16_to_f32, f16_to_f32, round_to_bf16, round_to_f16};

    /// Compares a conversion of slices of every length from 0 to 100, at changing offsets, and of all of
    /// `from`, with one that takes one number.
    fn compare<A, B>(from: &[A], convert: fn(Isa, &[A], &mut [B]), alone: impl Fn(A) -> B)
    where
        A: Copy,
        B: Copy + Default + Debug + PartialEq,
    {
        let parts = (0..=100).map(|len| &from[len * 317 % (from.len() - 100)..][..len]);
        for part in parts.chain([from]) {
            let converted: Vec<B> = part.iter().map(|&a| alone(a)).collect();
            for isa in [Isa::Scalar, Isa::Avx2, Isa::Avx512] {
                // One element off and guarded on both sides.
                let mut to = vec![B::default(); part.len() + 2];
                convert(isa, part, &mut to[1..=part.len()]);
                assert!(to[1..=part.len()] == converted, "{isa} {} elements", part.len());
                assert_eq!([to[0], to[part.len() + 1]], [B::default(); 2]);
            }
        }
    }

    #[test]
    fn slices_are_decoded_like_one_code() {
        let codes: Vec<u16> = (0..=u16::MAX).collect();
        compare(
            &codes,
            |isa, codes, bits| decode_bf16(isa, codes, bytemuck::cast_slice_mut::<u32, f32>(bits)),
            |code| bf16_to_f32(code).to_bits(),
        );
        compare(
            &codes,
            |isa, codes, bits| decode_f16(isa, codes, bytemuck::cast_slice_mut::<u32, f32>(bits)),
            |code| f16_to_f32(code).to_bits(),
        );
    }

    #[test]
    fn slices_are_encoded_like_one_value() {
        // All upper halves, with lower halves that round down, tie and round up in either format.
        let low = [
            0, 0x8000, 0x7fff, 0x8001, 0x1000, 0xfff, 0x1001, 0x3000, 1, 0xffff, 0x4321,
        ];
        let values: Vec<f32> = (0..=0xffff_u32)
            .map(|high| f32::from_bits((high << 16) | low[high as usize % 11]))
            .collect();
        compare(&values, encode_bf16, |value| {
            (round_to_bf16(value).to_bits() >> 16) as u16
        });
        compare(&values, encode_f16, |value| {
            f16::from_f32(round_to_f16(value)).to_bits()
        });
    }
}
