//! AVX2 with FMA: eight lanes.

use std::arch::x86_64::*;

use half::bf16;

use super::lanes::{Lanes, MANTISSA, ONE, RECIPROCAL_MAGIC};
use super::ops::instantiate;
use super::rows::instantiate_rows;

/// Eight lanes.
#[derive(Clone, Copy)]
pub(super) struct Ymm(__m256);

/// Mask of the first `n` lanes.
///
/// # Safety
/// The processor has AVX2.
#[inline(always)]
unsafe fn first(n: usize) -> __m256i {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        _mm256_cmpgt_epi32(
            _mm256_set1_epi32(n as i32),
            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7),
        )
    }
}

/// bf16 bits of eight lanes, rounded to nearest even; a NaN keeps its upper bits, made quiet.
///
/// # Safety
/// The processor has AVX2.
#[inline(always)]
unsafe fn narrow(v: __m256) -> __m128i {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let bits = _mm256_castps_si256(v);
        let upper = _mm256_srli_epi32::<16>(bits);
        let odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
        let rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
        let rounded = _mm256_srli_epi32::<16>(rounded);
        let nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(v, v));
        let quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
        let lanes = _mm256_blendv_epi8(rounded, quiet, nan);
        let packed = _mm256_packus_epi32(lanes, lanes);
        _mm256_castsi256_si128(_mm256_permute4x64_epi64::<0b1000>(packed))
    }
}

/// bf16 bits to fp32.
///
/// # Safety
/// The processor has AVX2.
#[inline(always)]
unsafe fn widen(v: __m128i) -> Ymm {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        Ymm(_mm256_castsi256_ps(_mm256_slli_epi32::<16>(
            _mm256_cvtepu16_epi32(v),
        )))
    }
}

/// Methods that compute with existing values.
macro_rules! compute {
    ($($name:ident($self:ident $(, $arg:ident: $type:ty)*) $body:expr;)*) => {
        $(
            #[inline(always)]
            fn $name($self $(, $arg: $type)*) -> Self {
                // SAFETY: a `Ymm` exists only where AVX2 and FMA do (see `Lanes`).
                unsafe { Self($body) }
            }
        )*
    };
}

impl Lanes for Ymm {
    const N: usize = 8;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        // SAFETY: the caller vouches for the instruction set.
        unsafe { Self(_mm256_set1_ps(x)) }
    }

    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self {
        // SAFETY: the caller vouches for the instruction set and 8 readable values.
        unsafe { Self(_mm256_loadu_ps(p)) }
    }

    #[inline(always)]
    unsafe fn load_first(p: *const f32, n: usize) -> Self {
        // SAFETY: as above; masked lanes are not read.
        unsafe { Self(_mm256_maskload_ps(p, first(n))) }
    }

    #[inline(always)]
    unsafe fn load_bf16(p: *const bf16) -> Self {
        // SAFETY: the caller vouches for the instruction set and 8 readable values.
        unsafe { widen(_mm_loadu_si128(p.cast())) }
    }

    #[inline(always)]
    unsafe fn load_bf16_first(p: *const bf16, n: usize) -> Self {
        let mut all = [bf16::ZERO; 8];
        // SAFETY: the caller promises `n <= 8` readable values.
        unsafe {
            std::ptr::copy_nonoverlapping(p, all.as_mut_ptr(), n);
            Self::load_bf16(all.as_ptr())
        }
    }

    #[inline(always)]
    unsafe fn store(self, p: *mut f32) {
        // SAFETY: the caller promises 8 writable values.
        unsafe { _mm256_storeu_ps(p, self.0) }
    }

    #[inline(always)]
    unsafe fn store_first(self, p: *mut f32, n: usize) {
        // SAFETY: the caller promises `n` writable values; masked lanes are not written.
        unsafe { _mm256_maskstore_ps(p, first(n), self.0) }
    }

    #[inline(always)]
    unsafe fn store_bf16(self, p: *mut bf16) {
        // SAFETY: the caller promises 8 writable values.
        unsafe { _mm_storeu_si128(p.cast(), narrow(self.0)) }
    }

    #[inline(always)]
    unsafe fn store_bf16_first(self, p: *mut bf16, n: usize) {
        let mut all = [bf16::ZERO; 8];
        // SAFETY: the caller promises `n <= 8` writable values.
        unsafe {
            self.store_bf16(all.as_mut_ptr());
            std::ptr::copy_nonoverlapping(all.as_ptr(), p, n);
        }
    }

    compute! {
        like(self, x: f32) _mm256_set1_ps(x);
        add(self, y: Self) _mm256_add_ps(self.0, y.0);
        sub(self, y: Self) _mm256_sub_ps(self.0, y.0);
        mul(self, y: Self) _mm256_mul_ps(self.0, y.0);
        div(self, y: Self) _mm256_div_ps(self.0, y.0);
        fma(self, y: Self, z: Self) _mm256_fmadd_ps(self.0, y.0, z.0);
        neg_fma(self, y: Self, z: Self) _mm256_fnmadd_ps(self.0, y.0, z.0);
        larger(self, y: Self) _mm256_max_ps(self.0, y.0);
        smaller(self, y: Self) _mm256_min_ps(self.0, y.0);
        if_less(self, y: Self, yes: Self, no: Self)
            _mm256_blendv_ps(no.0, yes.0, _mm256_cmp_ps::<_CMP_LT_OQ>(self.0, y.0));
        if_nan(self, yes: Self, no: Self)
            _mm256_blendv_ps(no.0, yes.0, _mm256_cmp_ps::<_CMP_UNORD_Q>(self.0, self.0));
        abs(self) _mm256_andnot_ps(_mm256_set1_ps(-0.0), self.0);
        with_sign_of(self, y: Self) {
            let sign = _mm256_set1_ps(-0.0);
            _mm256_or_ps(_mm256_andnot_ps(sign, self.0), _mm256_and_ps(sign, y.0))
        };
        scale(self, shift: Self) {
            let exponent = _mm256_slli_epi32::<23>(_mm256_castps_si256(shift.0));
            _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(self.0), exponent))
        };
        reciprocal_seed(self) {
            let magic = _mm256_set1_epi32(RECIPROCAL_MAGIC as i32);
            _mm256_castsi256_ps(_mm256_sub_epi32(magic, _mm256_castps_si256(self.0)))
        };
        sqrt(self) _mm256_sqrt_ps(self.0);
        floor(self) _mm256_floor_ps(self.0);
        round_even(self) _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(self.0);
        exponent(self) {
            let biased = _mm256_srai_epi32::<23>(_mm256_castps_si256(self.0));
            _mm256_sub_ps(_mm256_cvtepi32_ps(biased), _mm256_set1_ps(127.0))
        };
        mantissa(self) {
            let bits = _mm256_and_si256(_mm256_castps_si256(self.0), _mm256_set1_epi32(MANTISSA as i32));
            _mm256_castsi256_ps(_mm256_or_si256(bits, _mm256_set1_epi32(ONE as i32)))
        };
    }
}

instantiate! {
    #[target_feature(enable = "avx2,fma")]
    Ymm, tile rows: [1 2 3 4 5 6]
}

instantiate_rows! {
    #[target_feature(enable = "avx2,fma")]
    Ymm
}
