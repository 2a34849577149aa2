//! AVX-512 and AVX2 forms of the float blends in `linear_f32.rs`, with the same bits.

use super::Contraction;
use super::linear_f32::{self, LinearTaps};
use super::simd::Kernels;

impl Kernels {
    /// See [`linear_f32::blend_columns`]. Faster near the end of a row that has [`linear_f32::ROW_PADDING`] values after its
    /// last sample.
    pub(super) fn blend_columns_f32(
        self,
        row: &[f32],
        taps: &LinearTaps,
        contraction: Contraction,
        out: &mut [f32],
    ) {
        #[cfg(target_arch = "x86_64")]
        let done = if self.has_avx512() {
            // SAFETY: the processor was found to have the features.
            unsafe { x86::columns_512(row, taps, contraction, out) }
        } else if self.has_avx2() {
            // SAFETY: as above.
            unsafe { x86::columns_256(row, taps, contraction, out) }
        } else {
            0
        };
        #[cfg(not(target_arch = "x86_64"))]
        let done = 0;
        linear_f32::blend_columns(row, taps, contraction, done, out);
    }

    /// See [`linear_f32::blend_rows`].
    pub(super) fn blend_rows_f32(
        self,
        upper: &[f32],
        lower: &[f32],
        weight: f32,
        contraction: Contraction,
        out: &mut [f32],
    ) {
        #[cfg(target_arch = "x86_64")]
        let done = if self.has_avx512() {
            // SAFETY: the processor was found to have the features.
            unsafe { x86::rows_512(upper, lower, weight, contraction, out) }
        } else if self.has_avx2() {
            // SAFETY: as above.
            unsafe { x86::rows_256(upper, lower, weight, contraction, out) }
        } else {
            0
        };
        #[cfg(not(target_arch = "x86_64"))]
        let done = 0;
        linear_f32::blend_rows(upper, lower, weight, contraction, done, out);
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{Contraction, LinearTaps};

    /// # Safety
    /// The processor must have AVX-512F.
    #[target_feature(enable = "avx512f")]
    #[inline]
    unsafe fn blend_512(left: __m512, right: __m512, weight: __m512, contraction: Contraction) -> __m512 {
        match contraction {
            Contraction::Fused => _mm512_fmadd_ps(_mm512_sub_ps(right, left), weight, left),
            Contraction::Separate => {
                let rest = _mm512_sub_ps(_mm512_set1_ps(1.0), weight);
                _mm512_add_ps(_mm512_mul_ps(left, rest), _mm512_mul_ps(right, weight))
            }
        }
    }

    /// # Safety
    /// The processor must have AVX2 and FMA.
    #[target_feature(enable = "avx2,fma")]
    #[inline]
    unsafe fn blend_256(left: __m256, right: __m256, weight: __m256, contraction: Contraction) -> __m256 {
        match contraction {
            Contraction::Fused => _mm256_fmadd_ps(_mm256_sub_ps(right, left), weight, left),
            Contraction::Separate => {
                let rest = _mm256_sub_ps(_mm256_set1_ps(1.0), weight);
                _mm256_add_ps(_mm256_mul_ps(left, rest), _mm256_mul_ps(right, weight))
            }
        }
    }

    /// Sixteen columns at a time, from a window of 32 samples where they fit into one; returns how many were done.
    ///
    /// # Safety
    /// The processor must have AVX-512F.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn columns_512(
        row: &[f32],
        taps: &LinearTaps,
        contraction: Contraction,
        out: &mut [f32],
    ) -> usize {
        let whole = out.len().min(taps.left.len()) / 16 * 16;
        // The last is the largest, and `left` is never beyond `right`, so this bounds every index that is gathered.
        assert!(taps.right.last().is_none_or(|&last| (last as usize) < row.len()));
        for x in (0..whole).step_by(16) {
            // SAFETY: `x + 16 <= whole`, which is within all three tables.
            let (left, right, weight) = unsafe {
                (
                    _mm512_loadu_si512(taps.left.as_ptr().add(x).cast()),
                    _mm512_loadu_si512(taps.right.as_ptr().add(x).cast()),
                    _mm512_loadu_ps(taps.weight.as_ptr().add(x)),
                )
            };
            // The samples of a round begin in its first pixel and end in its last, at most three samples from these.
            let base = (taps.left[x] as usize).saturating_sub(3);
            let span = taps.right[x + 15] as usize + 3 - base;
            let (left, right) = if span < 32 && base + 32 <= row.len() {
                // SAFETY: 32 samples from `base` on are within the row.
                let (low, high) = unsafe {
                    (
                        _mm512_loadu_ps(row.as_ptr().add(base)),
                        _mm512_loadu_ps(row.as_ptr().add(base + 16)),
                    )
                };
                let from = _mm512_set1_epi32(base as i32);
                (
                    _mm512_permutex2var_ps(low, _mm512_sub_epi32(left, from), high),
                    _mm512_permutex2var_ps(low, _mm512_sub_epi32(right, from), high),
                )
            } else {
                // SAFETY: every index is within the row, as asserted above.
                unsafe {
                    (
                        _mm512_i32gather_ps::<4>(left, row.as_ptr()),
                        _mm512_i32gather_ps::<4>(right, row.as_ptr()),
                    )
                }
            };
            // SAFETY: `x + 16 <= out.len()`.
            unsafe {
                _mm512_storeu_ps(
                    out.as_mut_ptr().add(x),
                    blend_512(left, right, weight, contraction),
                );
            }
        }
        whole
    }

    /// Eight columns at a time; returns how many were done.
    ///
    /// # Safety
    /// The processor must have AVX2 and FMA.
    #[target_feature(enable = "avx2,fma")]
    pub(super) unsafe fn columns_256(
        row: &[f32],
        taps: &LinearTaps,
        contraction: Contraction,
        out: &mut [f32],
    ) -> usize {
        let whole = out.len().min(taps.left.len()) / 8 * 8;
        // As above.
        assert!(taps.right.last().is_none_or(|&last| (last as usize) < row.len()));
        for x in (0..whole).step_by(8) {
            // SAFETY: `x + 8 <= whole`, which is within the tables and `out`; every index is within the row.
            unsafe {
                let left = _mm256_loadu_si256(taps.left.as_ptr().add(x).cast());
                let right = _mm256_loadu_si256(taps.right.as_ptr().add(x).cast());
                let weight = _mm256_loadu_ps(taps.weight.as_ptr().add(x));
                let left = _mm256_i32gather_ps::<4>(row.as_ptr(), left);
                let right = _mm256_i32gather_ps::<4>(row.as_ptr(), right);
                _mm256_storeu_ps(
                    out.as_mut_ptr().add(x),
                    blend_256(left, right, weight, contraction),
                );
            }
        }
        whole
    }

    /// Sixteen columns at a time; returns how many were done.
    ///
    /// # Safety
    /// The processor must have AVX-512F.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn rows_512(
        upper: &[f32],
        lower: &[f32],
        weight: f32,
        contraction: Contraction,
        out: &mut [f32],
    ) -> usize {
        let whole = out.len().min(upper.len()).min(lower.len()) / 16 * 16;
        let weight = _mm512_set1_ps(weight);
        for x in (0..whole).step_by(16) {
            // SAFETY: `x + 16 <= whole`, which is within all three rows.
            unsafe {
                let upper = _mm512_loadu_ps(upper.as_ptr().add(x));
                let lower = _mm512_loadu_ps(lower.as_ptr().add(x));
                _mm512_storeu_ps(
                    out.as_mut_ptr().add(x),
                    blend_512(upper, lower, weight, contraction),
                );
            }
        }
        whole
    }

    /// Eight columns at a time; returns how many were done.
    ///
    /// # Safety
    /// The processor must have AVX2 and FMA.
    #[target_feature(enable = "avx2,fma")]
    pub(super) unsafe fn rows_256(
        upper: &[f32],
        lower: &[f32],
        weight: f32,
        contraction: Contraction,
        out: &mut [f32],
    ) -> usize {
        let whole = out.len().min(upper.len()).min(lower.len()) / 8 * 8;
        let weight = _mm256_set1_ps(weight);
        for x in (0..whole).step_by(8) {
            // SAFETY: `x + 8 <= whole`, which is within all three rows.
            unsafe {
                let upper = _mm256_loadu_ps(upper.as_ptr().add(x));
                let lower = _mm256_loadu_ps(lower.as_ptr().add(x));
                _mm256_storeu_ps(
                    out.as_mut_ptr().add(x),
                    blend_256(upper, lower, weight, contraction),
                );
            }
        }
        whole
    }
}
