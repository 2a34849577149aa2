//! AVX-512 and AVX2 forms of the `INTER_AREA` kernels. Products and sums stay apart and in the order of the scalar
//! forms in `area.rs`, so the bits are the same; `tests/images/image_resize.rs` compares them.

use std::ops::Range;

use super::area;
use super::area::AreaTaps;
use super::columns::Sampler;
use super::simd::Kernels;
use super::source_rows::ByteRows;

impl Kernels {
    /// See [`area::area_columns`].
    pub(super) fn area_columns<const LANES: usize>(
        self,
        row: &[u8],
        sampler: &Sampler<LANES>,
        taps: &AreaTaps,
        out: &mut [f32],
    ) {
        #[cfg(target_arch = "x86_64")]
        if self.has_avx2()
            && let Some(four) = sampler.of_four()
        {
            let done = if self.has_avx512() {
                // SAFETY: the processor was found to have the features.
                unsafe { x86::area_columns_512(row, &four, taps, out) }
            } else {
                // SAFETY: as above.
                unsafe { x86::area_columns_256(row, &four, taps, out) }
            };
            return area::area_columns(row, sampler, taps, done, out);
        }
        area::area_columns(row, sampler, taps, 0, out);
    }

    /// See [`area::add_row`]: plain enough for the compiler to make vectors of.
    pub(super) fn area_add_row(self, columns: &[f32], share: f32, starts: bool, sums: &mut [f32]) {
        #[cfg(target_arch = "x86_64")]
        if self.has_avx512() {
            // SAFETY: the processor was found to have the features.
            return unsafe { x86::add_row_512(columns, share, starts, sums) };
        }
        area::add_row(columns, share, starts, sums);
    }

    /// The mean of `factor[0]` columns and the `factor[1]` source rows from `first` on, in a row of the result.
    pub(super) fn mean_of_blocks<const LANES: usize, const CHANNELS: usize>(
        self,
        source: &mut impl ByteRows,
        rows: Range<usize>,
        sampler: &Sampler<LANES>,
        factor: usize,
        [row_sums, block_sums]: [&mut [u32]; 2],
        out: &mut [u8],
    ) {
        row_sums.fill(0);
        let area = factor * rows.len();
        #[cfg(target_arch = "x86_64")]
        if self.has_avx2() {
            for y in rows {
                // SAFETY: the processor was found to have AVX2.
                unsafe { x86::add_bytes(source.row(y), row_sums) };
            }
            // SAFETY: as above.
            return unsafe {
                x86::mean_of_blocks::<LANES, CHANNELS>(row_sums, sampler, factor, block_sums, area, out);
            };
        }
        for y in rows {
            area::add_bytes(source.row(y), row_sums);
        }
        area::add_pixels(row_sums, sampler, factor, block_sums);
        area::mean_row::<LANES, CHANNELS>(block_sums, area, out);
    }

    /// See [`area::round_row`].
    pub(super) fn area_round_row<const LANES: usize, const CHANNELS: usize>(
        self,
        sums: &[f32],
        out: &mut [u8],
    ) {
        #[cfg(target_arch = "x86_64")]
        if self.has_avx2() && LANES == 4 && CHANNELS == 3 {
            // SAFETY: the processor was found to have AVX2.
            let done = unsafe { x86::round_row_4_to_3(sums, out) };
            return area::round_row::<LANES, CHANNELS>(sums, done, out);
        }
        area::round_row::<LANES, CHANNELS>(sums, 0, out);
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{AreaTaps, Sampler, area};

    /// Bytes read at once from a source pixel on.
    const LOAD_BYTES: usize = 4;

    /// Output pixels, at most, whose taps can all be read four bytes at a time.
    fn readable(row: &[u8], pixel_bytes: usize, taps: &AreaTaps) -> usize {
        let last_tap = taps.taps - 1;
        taps.first
            .partition_point(|&first| (first as usize + last_tap) * pixel_bytes + LOAD_BYTES <= row.len())
    }

    /// Bytes of four pixels into lanes: the shuffle that sorts the channels.
    fn pick(sampler: &Sampler<4>) -> [i8; 16] {
        std::array::from_fn(|i| (4 * (i / 4) + sampler.lane_byte[i % 4]) as i8)
    }

    /// Four pixels at a time; returns how many were done.
    ///
    /// # Safety
    /// The processor must have AVX-512F and AVX2.
    #[target_feature(enable = "avx512f,avx2")]
    pub(super) unsafe fn area_columns_512(
        row: &[u8],
        sampler: &Sampler<4>,
        taps: &AreaTaps,
        out: &mut [f32],
    ) -> usize {
        let bytes = sampler.pixel_bytes;
        let whole = readable(row, bytes, taps).min(out.len() / 4) / 4 * 4;
        let pick = pick(sampler);
        // SAFETY: `pick` is 16 bytes long.
        let pick = unsafe { _mm_loadu_si128(pick.as_ptr().cast()) };
        let spread = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
        for x in (0..whole).step_by(4) {
            let at: [usize; 4] = std::array::from_fn(|i| taps.first[x + i] as usize * bytes);
            let shares: [&[f32]; 4] =
                std::array::from_fn(|i| &taps.shares[(x + i) * taps.taps..][..taps.taps]);
            let mut sums = _mm512_setzero_ps();
            let [s0, s1, s2, s3] = shares;
            for (t, (((&s0, &s1), &s2), &s3)) in s0.iter().zip(s1).zip(s2).zip(s3).enumerate() {
                // SAFETY: `x + i < readable`, so four bytes from tap `t` of pixel `x + i` are within the row.
                let load =
                    |i: usize| unsafe { row.as_ptr().add(at[i] + t * bytes).cast::<i32>().read_unaligned() };
                let pixels = _mm_shuffle_epi8(_mm_setr_epi32(load(0), load(1), load(2), load(3)), pick);
                let values = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(pixels));
                let share = _mm_setr_ps(s0, s1, s2, s3);
                let share = _mm512_permutexvar_ps(spread, _mm512_castps128_ps512(share));
                sums = _mm512_add_ps(sums, _mm512_mul_ps(values, share));
            }
            // SAFETY: `4 * x + 16 <= 4 * whole <= out.len()`.
            unsafe { _mm512_storeu_ps(out.as_mut_ptr().add(4 * x), sums) };
        }
        whole
    }

    /// Two pixels at a time; returns how many were done.
    ///
    /// # Safety
    /// The processor must have AVX2.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn area_columns_256(
        row: &[u8],
        sampler: &Sampler<4>,
        taps: &AreaTaps,
        out: &mut [f32],
    ) -> usize {
        let bytes = sampler.pixel_bytes;
        let whole = readable(row, bytes, taps).min(out.len() / 4) / 2 * 2;
        let pick = pick(sampler);
        // SAFETY: `pick` is 16 bytes long.
        let pick = unsafe { _mm_loadu_si128(pick.as_ptr().cast()) };
        for x in (0..whole).step_by(2) {
            let at: [usize; 2] = std::array::from_fn(|i| taps.first[x + i] as usize * bytes);
            let shares: [&[f32]; 2] =
                std::array::from_fn(|i| &taps.shares[(x + i) * taps.taps..][..taps.taps]);
            let mut sums = _mm256_setzero_ps();
            let [s0, s1] = shares;
            for (t, (&s0, &s1)) in s0.iter().zip(s1).enumerate() {
                // SAFETY: `x + i < readable`, so four bytes from tap `t` of pixel `x + i` are within the row.
                let load =
                    |i: usize| unsafe { row.as_ptr().add(at[i] + t * bytes).cast::<i32>().read_unaligned() };
                let pixels = _mm_shuffle_epi8(_mm_setr_epi32(load(0), load(1), 0, 0), pick);
                let values = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(pixels));
                let share = _mm256_set_m128(_mm_set1_ps(s1), _mm_set1_ps(s0));
                sums = _mm256_add_ps(sums, _mm256_mul_ps(values, share));
            }
            // SAFETY: `4 * x + 8 <= 4 * whole <= out.len()`.
            unsafe { _mm256_storeu_ps(out.as_mut_ptr().add(4 * x), sums) };
        }
        whole
    }

    /// [`area::add_bytes`], compiled for AVX2.
    ///
    /// # Safety
    /// The processor must have AVX2.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn add_bytes(row: &[u8], sums: &mut [u32]) {
        area::add_bytes(row, sums);
    }

    /// [`area::add_pixels`] and [`area::mean_row`], compiled for AVX2.
    ///
    /// # Safety
    /// The processor must have AVX2.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn mean_of_blocks<const LANES: usize, const CHANNELS: usize>(
        row_sums: &[u32],
        sampler: &Sampler<LANES>,
        factor: usize,
        block_sums: &mut [u32],
        area: usize,
        out: &mut [u8],
    ) {
        area::add_pixels(row_sums, sampler, factor, block_sums);
        area::mean_row::<LANES, CHANNELS>(block_sums, area, out);
    }

    /// [`area::add_row`], compiled for wide vectors.
    ///
    /// # Safety
    /// The processor must have AVX-512F.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn add_row_512(columns: &[f32], share: f32, starts: bool, sums: &mut [f32]) {
        let whole = columns.len().min(sums.len()) / 16 * 16;
        let factor = _mm512_set1_ps(share);
        for at in (0..whole).step_by(16) {
            // SAFETY: `at + 16 <= whole`, which is within both.
            unsafe {
                let product = _mm512_mul_ps(factor, _mm512_loadu_ps(columns.as_ptr().add(at)));
                let to = sums.as_mut_ptr().add(at);
                let sum = if starts {
                    product
                } else {
                    _mm512_add_ps(_mm512_loadu_ps(to), product)
                };
                _mm512_storeu_ps(to, sum);
            }
        }
        area::add_row(&columns[whole..], share, starts, &mut sums[whole..]);
    }

    /// Four pixels at a time, 12 of 16 stored bytes kept; returns how many were done.
    ///
    /// # Safety
    /// The processor must have AVX2.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn round_row_4_to_3(sums: &[f32], out: &mut [u8]) -> usize {
        const STORED_BYTES: usize = 16;
        let pixels = sums.len() / 4 / 4 * 4;
        let drop_fourth = _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
        let mut x = 0;
        while x < pixels && 3 * x + STORED_BYTES <= out.len() {
            // SAFETY: `4 * x + 16` is within the sums, `3 * x + STORED_BYTES` within `out`; what the store writes
            // past its pixels the next round or the scalar form overwrites.
            unsafe {
                let low = _mm256_cvtps_epi32(_mm256_loadu_ps(sums.as_ptr().add(4 * x)));
                let high = _mm256_cvtps_epi32(_mm256_loadu_ps(sums.as_ptr().add(4 * x + 8)));
                // Per half: pixels 0 and 2, pixels 1 and 3.
                let words = _mm256_packs_epi32(low, high);
                let halves = _mm256_packus_epi16(words, words);
                let even = _mm256_castsi256_si128(halves);
                let odd = _mm256_extracti128_si256::<1>(halves);
                let packed = _mm_shuffle_epi8(_mm_unpacklo_epi32(even, odd), drop_fourth);
                _mm_storeu_si128(out.as_mut_ptr().add(3 * x).cast(), packed);
            }
            x += 4;
        }
        x
    }
}
