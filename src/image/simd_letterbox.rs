//! Vector forms of the Autoware letterbox kernels, chosen at run time: the same single roundings as the scalar
//! forms in `autoware_letterbox.rs`, so the same bits; `tests/image_kernels` compares them.

use super::Kernels;
use super::autoware_letterbox::{self, LANES, PairTaps};
use super::columns::Sampler;

impl Kernels {
    /// See [`autoware_letterbox::blend_pairs_across`].
    pub(super) fn blend_pairs_across(
        self,
        row: &[u8],
        sampler: &Sampler<LANES>,
        taps: &PairTaps,
        out: &mut [f32],
    ) {
        #[cfg(target_arch = "x86_64")]
        let done = if self.has_avx512() {
            // SAFETY: the processor was found to have the features.
            unsafe { x86::across_avx512(row, sampler, taps, out) }
        } else if self.has_avx2() {
            // SAFETY: as above.
            unsafe { x86::across_avx2(row, sampler, taps, out) }
        } else {
            0
        };
        #[cfg(not(target_arch = "x86_64"))]
        let done = 0;
        autoware_letterbox::blend_pairs_across(row, sampler, taps, done, out);
    }

    /// See [`autoware_letterbox::blend_pairs_down`].
    pub(super) fn blend_pairs_down(self, rows: [&[f32]; 2], weight: f32, out: &mut [u8]) {
        #[cfg(target_arch = "x86_64")]
        let done = if self.has_avx512() {
            // SAFETY: the processor was found to have the features.
            unsafe { x86::down_avx512(rows, weight, out) }
        } else if self.has_avx2() {
            // SAFETY: as above.
            unsafe { x86::down_avx2(rows, weight, out) }
        } else {
            0
        };
        #[cfg(not(target_arch = "x86_64"))]
        let done = 0;
        autoware_letterbox::blend_pairs_down(rows, weight, done, out);
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{LANES, PairTaps, Sampler};

    /// Bytes read at once from a source pixel on: the pixel and its right neighbour, four channels at most.
    const LOAD_BYTES: usize = 8;
    /// The largest float below one half. Added to a positive float and cut, it rounds half away from zero;
    /// one half itself would lift 0.49999997 to one.
    const BELOW_HALF: f32 = 0.499_999_97;

    /// How many leading pixels can be read in whole loads and computed `step` at a time.
    fn whole_pixels(
        row: &[u8],
        sampler: &Sampler<LANES>,
        taps: &PairTaps,
        out: &[f32],
        step: usize,
    ) -> usize {
        let readable = taps
            .first
            .partition_point(|&first| first as usize * sampler.pixel_bytes + LOAD_BYTES <= row.len());
        readable.min(taps.weight.len()).min(out.len() / LANES) / step * step
    }

    /// Returns how many pixels were computed.
    ///
    /// # Safety
    /// The processor must have AVX2 and FMA.
    #[target_feature(enable = "avx2,fma")]
    pub(super) unsafe fn across_avx2(
        row: &[u8],
        sampler: &Sampler<LANES>,
        taps: &PairTaps,
        out: &mut [f32],
    ) -> usize {
        let whole = whole_pixels(row, sampler, taps, out, 2);
        // Both pixels of a pair lie in eight bytes; picks the lanes of the left ones, then of the right ones.
        let mut pick = [-1_i8; 16];
        for pair in 0..2 {
            for (lane, &byte) in sampler.lane_byte.iter().enumerate() {
                pick[4 * pair + lane] = (8 * pair + byte) as i8;
                pick[8 + 4 * pair + lane] = (8 * pair + sampler.pixel_bytes + byte) as i8;
            }
        }
        // SAFETY: `pick` is 16 bytes long and the load takes any alignment.
        let pick = unsafe { _mm_loadu_si128(pick.as_ptr().cast()) };
        let to_float = |bytes| _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes));
        for x in (0..whole).step_by(2) {
            let pair = |i: usize| {
                let at = taps.first[x + i] as usize * sampler.pixel_bytes;
                // SAFETY: `x + i < whole`; `first` never falls, so `at + LOAD_BYTES <= row.len()`.
                unsafe { _mm_loadl_epi64(row.as_ptr().add(at).cast()) }
            };
            let picked = _mm_shuffle_epi8(_mm_unpacklo_epi64(pair(0), pair(1)), pick);
            let (a, b) = (to_float(picked), to_float(_mm_unpackhi_epi64(picked, picked)));
            let weight = _mm256_set_m128(_mm_set1_ps(taps.weight[x + 1]), _mm_set1_ps(taps.weight[x]));
            let blend = _mm256_fmadd_ps(weight, b, _mm256_fnmadd_ps(weight, a, a));
            let cut = _mm256_round_ps::<{ _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC }>(blend);
            // SAFETY: `x + 2 <= whole <= out.len() / 4`.
            unsafe { _mm256_storeu_ps(out.as_mut_ptr().add(LANES * x), cut) };
        }
        whole
    }

    /// Returns how many pixels were computed.
    ///
    /// # Safety
    /// The processor must have AVX-512 F, BW, VL and VBMI.
    #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vbmi")]
    pub(super) unsafe fn across_avx512(
        row: &[u8],
        sampler: &Sampler<LANES>,
        taps: &PairTaps,
        out: &mut [f32],
    ) -> usize {
        if row.len() < LOAD_BYTES {
            return 0;
        }
        let readable = whole_pixels(row, sampler, taps, out, 4);
        let pixels = taps.weight.len().min(out.len() / LANES) / 4 * 4;
        // One 32-bit lane per channel and pixel, whose lowest byte is picked; masks clear the others.
        const LOWEST_BYTES: u64 = 0x1111_1111_1111_1111;
        let mut pick = [0_u8; 64];
        for pixel in 0..4 {
            for (lane, &byte) in sampler.lane_byte.iter().enumerate() {
                pick[4 * (4 * pixel + lane)] = (LOAD_BYTES * pixel + byte) as u8;
            }
        }
        // SAFETY: `pick` is 64 bytes long and the load takes any alignment.
        let left = unsafe { _mm512_loadu_si512(pick.as_ptr().cast()) };
        let right = _mm512_add_epi8(left, _mm512_set1_epi8(sampler.pixel_bytes as i8));
        let spread = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
        let to_float =
            |pick, bytes| _mm512_cvtepi32_ps(_mm512_maskz_permutexvar_epi8(LOWEST_BYTES, pick, bytes));
        let mut blend_four = |x: usize, low: __m128i, high: __m128i| {
            let bytes = _mm512_castsi256_si512(_mm256_set_m128i(high, low));
            let (a, b) = (to_float(left, bytes), to_float(right, bytes));
            // SAFETY: `x + 4 <= pixels <= weight.len()`.
            let weight = unsafe { _mm_loadu_ps(taps.weight.as_ptr().add(x)) };
            let weight = _mm512_permutexvar_ps(spread, _mm512_castps128_ps512(weight));
            let blend = _mm512_fmadd_ps(weight, b, _mm512_fnmadd_ps(weight, a, a));
            let cut = _mm512_roundscale_ps::<{ _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC }>(blend);
            // SAFETY: `x + 4 <= pixels <= out.len() / 4`.
            unsafe { _mm512_storeu_ps(out.as_mut_ptr().add(LANES * x), cut) };
        };
        for x in (0..readable).step_by(4) {
            let pair = |i: usize| {
                let at = taps.first[x + i] as usize * sampler.pixel_bytes;
                // SAFETY: `x + i < readable`; `first` never falls, so `at + LOAD_BYTES <= row.len()`.
                unsafe { _mm_loadl_epi64(row.as_ptr().add(at).cast()) }
            };
            blend_four(
                x,
                _mm_unpacklo_epi64(pair(0), pair(1)),
                _mm_unpacklo_epi64(pair(2), pair(3)),
            );
        }
        // The last pixels are read from further left and moved down.
        let last_load = row.len() - LOAD_BYTES;
        for x in (readable..pixels).step_by(4) {
            let pair = |i: usize| {
                let at = taps.first[x + i] as usize * sampler.pixel_bytes;
                let from = at.min(last_load);
                // SAFETY: `from + LOAD_BYTES <= row.len()`.
                let bytes = unsafe { row.as_ptr().add(from).cast::<u64>().read_unaligned() };
                u64::from_le(bytes) >> (8 * (at - from))
            };
            blend_four(
                x,
                _mm_set_epi64x(pair(1) as i64, pair(0) as i64),
                _mm_set_epi64x(pair(3) as i64, pair(2) as i64),
            );
        }
        pixels
    }

    /// Returns how many pixels were computed.
    ///
    /// # Safety
    /// The processor must have AVX2 and FMA.
    #[target_feature(enable = "avx2,fma")]
    pub(super) unsafe fn down_avx2([upper, lower]: [&[f32]; 2], weight: f32, out: &mut [u8]) -> usize {
        // Eight pixels are 24 bytes, but the second half is stored as 16 bytes from byte 12 on; what it
        // writes past its pixels the next round or the scalar form overwrites.
        const STORED_BYTES: usize = 28;
        let pixels = upper.len().min(lower.len()) / LANES / 8 * 8;
        let (weight, below_half) = (_mm256_set1_ps(weight), _mm256_set1_ps(BELOW_HALF));
        let drop_fourth = _mm256_broadcastsi128_si256(_mm_setr_epi8(
            0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1,
        ));
        // The packs below work within halves; this puts pixels 0 1 2 3 | 4 5 6 7 in order again.
        let in_order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
        let mut x = 0;
        while x < pixels && 3 * x + STORED_BYTES <= out.len() {
            let rounded = |i: usize| {
                let at = LANES * x + 8 * i;
                // SAFETY: `x + 8 <= pixels`, so both rows have 8 values from `at` on.
                let (a, b) = unsafe {
                    (
                        _mm256_loadu_ps(upper.as_ptr().add(at)),
                        _mm256_loadu_ps(lower.as_ptr().add(at)),
                    )
                };
                let blend = _mm256_fmadd_ps(weight, b, _mm256_fnmadd_ps(weight, a, a));
                _mm256_cvttps_epi32(_mm256_add_ps(blend, below_half))
            };
            let low = _mm256_packus_epi32(rounded(0), rounded(1));
            let high = _mm256_packus_epi32(rounded(2), rounded(3));
            let bytes = _mm256_permutevar8x32_epi32(_mm256_packus_epi16(low, high), in_order);
            let packed = _mm256_shuffle_epi8(bytes, drop_fourth);
            // SAFETY: `3 * x + STORED_BYTES <= out.len()`.
            unsafe {
                let to = out.as_mut_ptr().add(3 * x);
                _mm_storeu_si128(to.cast(), _mm256_castsi256_si128(packed));
                _mm_storeu_si128(to.add(12).cast(), _mm256_extracti128_si256::<1>(packed));
            }
            x += 8;
        }
        x
    }

    /// Returns how many pixels were computed.
    ///
    /// # Safety
    /// The processor must have AVX-512 F, BW, VL and VBMI.
    #[target_feature(enable = "avx2,fma,avx512f,avx512bw,avx512vl,avx512vbmi")]
    pub(super) unsafe fn down_avx512([upper, lower]: [&[f32]; 2], weight: f32, out: &mut [u8]) -> usize {
        /// Sixteen pixels at a time.
        const STEP: usize = 16;
        const STORED: u64 = (1 << (3 * STEP)) - 1;
        let pixels = (upper.len().min(lower.len()) / LANES).min(out.len() / 3) / STEP * STEP;
        let (weight, below_half) = (_mm512_set1_ps(weight), _mm512_set1_ps(BELOW_HALF));
        // The packs below work within quarters: byte `4 * (4 * quarter + source)` starts a pixel of `source`.
        let mut pick = [0_u8; 64];
        for (i, pick) in pick.iter_mut().take(3 * STEP).enumerate() {
            let (pixel, channel) = (i / 3, i % 3);
            let (source, quarter) = (pixel / 4, pixel % 4);
            *pick = (4 * (4 * quarter + source) + channel) as u8;
        }
        // SAFETY: `pick` is 64 bytes long and the load takes any alignment.
        let pick = unsafe { _mm512_loadu_si512(pick.as_ptr().cast()) };
        for x in (0..pixels).step_by(STEP) {
            let rounded = |i: usize| {
                let at = LANES * x + 16 * i;
                // SAFETY: `x + 16 <= pixels`, so both rows have 16 values from `at` on.
                let (a, b) = unsafe {
                    (
                        _mm512_loadu_ps(upper.as_ptr().add(at)),
                        _mm512_loadu_ps(lower.as_ptr().add(at)),
                    )
                };
                let blend = _mm512_fmadd_ps(weight, b, _mm512_fnmadd_ps(weight, a, a));
                _mm512_cvttps_epi32(_mm512_add_ps(blend, below_half))
            };
            let low = _mm512_packus_epi32(rounded(0), rounded(1));
            let high = _mm512_packus_epi32(rounded(2), rounded(3));
            let bytes = _mm512_permutexvar_epi8(pick, _mm512_packus_epi16(low, high));
            // SAFETY: `3 * (x + 16) <= out.len()`, and the mask stores that many bytes.
            unsafe { _mm512_mask_storeu_epi8(out.as_mut_ptr().add(3 * x).cast(), STORED, bytes) };
        }
        pixels
    }
}
