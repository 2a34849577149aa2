//! AVX-512: sixteen lanes.

use std::arch::x86_64::*;

use half::bf16;

use super::lanes::{Lanes, MANTISSA, ONE, RECIPROCAL_MAGIC};
use super::ops::instantiate;
use super::rows::instantiate_rows;

/// Sixteen lanes.
#[derive(Clone, Copy)]
pub(super) struct Zmm(__m512);

/// Mask of the first `n` lanes.
const fn first(n: usize) -> __mmask16 {
    ((1_u32 << n) - 1) as __mmask16
}

/// bf16 bits in the low half of each lane, rounded to nearest even; a NaN keeps its upper bits, made quiet.
///
/// # Safety
/// The processor has AVX-512 F.
#[inline(always)]
unsafe fn narrow(v: __m512) -> __m256i {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        let bits = _mm512_castps_si512(v);
        let upper = _mm512_srli_epi32::<16>(bits);
        let odd = _mm512_and_si512(upper, _mm512_set1_epi32(1));
        let rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
        let rounded = _mm512_srli_epi32::<16>(rounded);
        let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(v, v);
        let quiet = _mm512_or_si512(upper, _mm512_set1_epi32(0x40));
        _mm512_cvtepi32_epi16(_mm512_mask_blend_epi32(nan, rounded, quiet))
    }
}

/// bf16 bits to fp32.
///
/// # Safety
/// The processor has AVX-512 F.
#[inline(always)]
unsafe fn widen(v: __m256i) -> Zmm {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        Zmm(_mm512_castsi512_ps(_mm512_slli_epi32::<16>(
            _mm512_cvtepu16_epi32(v),
        )))
    }
}

/// Methods that compute with existing values.
macro_rules! compute {
    ($($name:ident($self:ident $(, $arg:ident: $type:ty)*) $body:expr;)*) => {
        $(
            #[inline(always)]
            fn $name($self $(, $arg: $type)*) -> Self {
                // SAFETY: a `Zmm` exists only where AVX-512 does (see `Lanes`).
                unsafe { Self($body) }
            }
        )*
    };
}

impl Lanes for Zmm {
    const N: usize = 16;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        // SAFETY: the caller vouches for the instruction set.
        unsafe { Self(_mm512_set1_ps(x)) }
    }

    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self {
        // SAFETY: the caller vouches for the instruction set and 16 readable values.
        unsafe { Self(_mm512_loadu_ps(p)) }
    }

    #[inline(always)]
    unsafe fn load_first(p: *const f32, n: usize) -> Self {
        // SAFETY: as above; masked lanes are not read.
        unsafe { Self(_mm512_maskz_loadu_ps(first(n), p)) }
    }

    #[inline(always)]
    unsafe fn load_bf16(p: *const bf16) -> Self {
        // SAFETY: the caller vouches for the instruction set and 16 readable values.
        unsafe { widen(_mm256_loadu_si256(p.cast())) }
    }

    #[inline(always)]
    unsafe fn load_bf16_first(p: *const bf16, n: usize) -> Self {
        // SAFETY: as above; masked lanes are not read.
        unsafe { widen(_mm256_maskz_loadu_epi16(first(n), p.cast())) }
    }

    #[inline(always)]
    unsafe fn store(self, p: *mut f32) {
        // SAFETY: the caller promises 16 writable values.
        unsafe { _mm512_storeu_ps(p, self.0) }
    }

    #[inline(always)]
    unsafe fn store_first(self, p: *mut f32, n: usize) {
        // SAFETY: the caller promises `n` writable values; masked lanes are not written.
        unsafe { _mm512_mask_storeu_ps(p, first(n), self.0) }
    }

    #[inline(always)]
    unsafe fn store_bf16(self, p: *mut bf16) {
        // SAFETY: the caller promises 16 writable values.
        unsafe { _mm256_storeu_si256(p.cast(), narrow(self.0)) }
    }

    #[inline(always)]
    unsafe fn store_bf16_first(self, p: *mut bf16, n: usize) {
        // SAFETY: the caller promises `n` writable values; masked lanes are not written.
        unsafe { _mm256_mask_storeu_epi16(p.cast(), first(n), narrow(self.0)) }
    }

    compute! {
        like(self, x: f32) _mm512_set1_ps(x);
        add(self, y: Self) _mm512_add_ps(self.0, y.0);
        sub(self, y: Self) _mm512_sub_ps(self.0, y.0);
        mul(self, y: Self) _mm512_mul_ps(self.0, y.0);
        div(self, y: Self) _mm512_div_ps(self.0, y.0);
        fma(self, y: Self, z: Self) _mm512_fmadd_ps(self.0, y.0, z.0);
        neg_fma(self, y: Self, z: Self) _mm512_fnmadd_ps(self.0, y.0, z.0);
        larger(self, y: Self) _mm512_max_ps(self.0, y.0);
        smaller(self, y: Self) _mm512_min_ps(self.0, y.0);
        if_less(self, y: Self, yes: Self, no: Self)
            _mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(self.0, y.0), no.0, yes.0);
        if_nan(self, yes: Self, no: Self)
            _mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_UNORD_Q>(self.0, self.0), no.0, yes.0);
        abs(self) _mm512_abs_ps(self.0);
        with_sign_of(self, y: Self) {
            let sign = _mm512_set1_ps(-0.0);
            _mm512_or_ps(_mm512_andnot_ps(sign, self.0), _mm512_and_ps(sign, y.0))
        };
        scale(self, shift: Self) {
            let exponent = _mm512_slli_epi32::<23>(_mm512_castps_si512(shift.0));
            _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(self.0), exponent))
        };
        reciprocal_seed(self) {
            let magic = _mm512_set1_epi32(RECIPROCAL_MAGIC as i32);
            _mm512_castsi512_ps(_mm512_sub_epi32(magic, _mm512_castps_si512(self.0)))
        };
        sqrt(self) _mm512_sqrt_ps(self.0);
        floor(self) _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC }>(self.0);
        round_even(self) _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(self.0);
        exponent(self) {
            let biased = _mm512_srai_epi32::<23>(_mm512_castps_si512(self.0));
            _mm512_sub_ps(_mm512_cvtepi32_ps(biased), _mm512_set1_ps(127.0))
        };
        mantissa(self) {
            let bits = _mm512_and_si512(_mm512_castps_si512(self.0), _mm512_set1_epi32(MANTISSA as i32));
            _mm512_castsi512_ps(_mm512_or_si512(bits, _mm512_set1_epi32(ONE as i32)))
        };
    }
}

instantiate! {
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma")]
    Zmm, tile rows: [1 2 3 4 5 6 7 8 9 10 11 12 13 14]
}

instantiate_rows! {
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx2,fma")]
    Zmm
}
