//! AVX2 forms of the resize kernels, chosen at run time. Same integers as the scalar forms in `columns.rs`
//! and `rows.rs`, so the same bits; `tests/images/image.rs` compares both over random geometries.
//!
//! Pixels of three channels travel in four lanes, so one shuffle serves every input format: it pairs each
//! channel of a pixel with the same channel of its right neighbour and sorts the channels on the way.

use super::columns::{self, Sampler};
use super::rows;
use super::taps::ColumnTaps;

/// The kernels that pre-processing runs on. The choice changes its speed, never its result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kernels {
    level: Level,
}

/// Instruction sets, each with all that come before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Scalar,
    /// AVX2 and FMA.
    Avx2,
    /// AVX-512 with byte permutations: F, BW, VL and VBMI.
    Avx512,
}

impl Kernels {
    /// The fastest kernels that this processor can run.
    #[must_use]
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        let level = {
            use std::arch::is_x86_feature_detected as has;
            let avx2 = has!("avx2") && has!("fma");
            let avx512 = has!("avx512f") && has!("avx512bw") && has!("avx512vl") && has!("avx512vbmi");
            match (avx2, avx512) {
                (true, true) => Level::Avx512,
                (true, false) => Level::Avx2,
                (false, _) => Level::Scalar,
            }
        };
        #[cfg(not(target_arch = "x86_64"))]
        let level = Level::Scalar;
        Self { level }
    }

    /// Plain Rust, the reference that the others are held against.
    #[must_use]
    pub const fn scalar() -> Self {
        Self { level: Level::Scalar }
    }

    /// All that this processor can run, the plain ones first.
    pub fn available() -> impl Iterator<Item = Self> {
        let best = Self::detect().level;
        [Level::Scalar, Level::Avx2, Level::Avx512]
            .into_iter()
            .filter(move |&level| level <= best)
            .map(|level| Self { level })
    }

    /// Name for reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self.level {
            Level::Scalar => "scalar",
            Level::Avx2 => "avx2",
            Level::Avx512 => "avx512",
        }
    }

    /// Whether the processor was found to have AVX2 and FMA.
    pub(super) fn has_avx2(self) -> bool {
        self.level >= Level::Avx2
    }

    /// Whether the processor was found to have AVX-512 F, BW, VL and VBMI, besides AVX2 and FMA.
    pub(super) fn has_avx512(self) -> bool {
        self.level >= Level::Avx512
    }

    /// See [`columns::blend_columns`].
    pub(super) fn blend_columns<const LANES: usize>(
        self,
        row: &[u8],
        sampler: &Sampler<LANES>,
        taps: &ColumnTaps,
        out: &mut [i16],
    ) {
        #[cfg(target_arch = "x86_64")]
        if self.has_avx2()
            && let Some(four) = sampler.of_four()
        {
            // SAFETY: only `detect` raises the level, where it found the features.
            let done = unsafe { avx2::blend_columns(row, &four, taps, out) };
            return columns::blend_columns(row, sampler, taps, done, out);
        }
        columns::blend_columns(row, sampler, taps, 0, out);
    }

    /// See [`rows::blend_rows`].
    pub(super) fn blend_rows<const LANES: usize, const CHANNELS: usize>(
        self,
        sources: [&[i16]; 2],
        weights: [i16; 2],
        out: &mut [u8],
    ) {
        #[cfg(target_arch = "x86_64")]
        if self.has_avx2() {
            let done = match (LANES, CHANNELS) {
                // SAFETY: only `detect` raises the level, where it found the features.
                (4, 3) => unsafe { avx2::blend_rows_4_to_3(sources, weights, out) },
                // SAFETY: as above.
                (4, 4) | (1, 1) => unsafe { avx2::blend_rows_dense(sources, weights, out) / CHANNELS },
                _ => 0,
            };
            return rows::blend_rows::<LANES, CHANNELS>(sources, weights, done, out);
        }
        rows::blend_rows::<LANES, CHANNELS>(sources, weights, 0, out);
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use super::{ColumnTaps, Sampler};

    /// Bytes read at once from a source pixel on: the pixel and its right neighbour, four channels at most.
    const LOAD_BYTES: usize = 8;

    /// Four-lane [`super::columns::blend_columns`] for as many leading pixels as can be read and written in
    /// whole vectors; returns how many. The rest is the scalar form's.
    ///
    /// # Safety
    /// The processor must have AVX2.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn blend_columns(
        row: &[u8],
        sampler: &Sampler<4>,
        taps: &ColumnTaps,
        out: &mut [i16],
    ) -> usize {
        let pixel_bytes = sampler.pixel_bytes;
        let readable = taps
            .left
            .partition_point(|&left| left as usize * pixel_bytes + LOAD_BYTES <= row.len());
        let whole = readable.min(out.len() / 4).min(taps.weights.len()) / 4 * 4;

        // Bytes of (left, right) per lane, each widened with a zero byte to 16 bits.
        let mut pick = [-1_i8; 16];
        for (lane, &byte) in sampler.lane_byte.iter().enumerate() {
            pick[4 * lane] = byte as i8;
            pick[4 * lane + 2] = (byte + pixel_bytes) as i8;
        }
        // SAFETY: `pick` is 16 bytes long and the load takes any alignment.
        let pick = _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(pick.as_ptr().cast()) });
        let weights_02 = _mm256_setr_epi32(0, 0, 0, 0, 2, 2, 2, 2);
        let weights_13 = _mm256_setr_epi32(1, 1, 1, 1, 3, 3, 3, 3);

        for x in (0..whole).step_by(4) {
            let pixel_pair = |i: usize| {
                let at = taps.left[x + i] as usize * pixel_bytes;
                // SAFETY: `x + i < readable`; `left` never falls, so `at + LOAD_BYTES <= row.len()`.
                unsafe { _mm_loadl_epi64(row.as_ptr().add(at).cast()) }
            };
            let pixels_02 = _mm256_set_m128i(pixel_pair(2), pixel_pair(0));
            let pixels_13 = _mm256_set_m128i(pixel_pair(3), pixel_pair(1));
            // SAFETY: `x + 4 <= whole <= weights.len()`, four bytes each.
            let weights = unsafe { _mm_loadu_si128(taps.weights.as_ptr().add(x).cast()) };
            let weights = _mm256_broadcastsi128_si256(weights);
            let blend = |pixels, spread| {
                let pairs = _mm256_shuffle_epi8(pixels, pick);
                let sums = _mm256_madd_epi16(pairs, _mm256_permutevar8x32_epi32(weights, spread));
                _mm256_srai_epi32::<4>(sums)
            };
            let blended = _mm256_packs_epi32(blend(pixels_02, weights_02), blend(pixels_13, weights_13));
            // SAFETY: `4 * x + 16 <= 4 * whole <= out.len()`.
            unsafe { _mm256_storeu_si256(out.as_mut_ptr().add(4 * x).cast(), blended) };
        }
        whole
    }

    /// Sixteen blended values before they are packed to bytes.
    ///
    /// # Safety
    /// The processor must have AVX2, and both sources 16 values from `at` on.
    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn blend_16([upper, lower]: [&[i16]; 2], [w0, w1]: [__m256i; 2], at: usize) -> __m256i {
        // SAFETY: the caller vouches for 16 values from `at` on.
        let (u, l) = unsafe {
            (
                _mm256_loadu_si256(upper.as_ptr().add(at).cast()),
                _mm256_loadu_si256(lower.as_ptr().add(at).cast()),
            )
        };
        let sum = _mm256_add_epi16(_mm256_mulhi_epi16(u, w0), _mm256_mulhi_epi16(l, w1));
        _mm256_srai_epi16::<2>(_mm256_add_epi16(sum, _mm256_set1_epi16(2)))
    }

    /// Thirty-two blended bytes.
    ///
    /// # Safety
    /// The processor must have AVX2, and both sources 32 values from `at` on.
    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn blend_32(sources: [&[i16]; 2], weights: [__m256i; 2], at: usize) -> __m256i {
        // SAFETY: the caller vouches for 32 values from `at` on.
        let (low, high) = unsafe {
            (
                blend_16(sources, weights, at),
                blend_16(sources, weights, at + 16),
            )
        };
        _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packus_epi16(low, high))
    }

    /// [`super::rows::blend_rows`] where every lane is a channel; returns how many bytes were written.
    ///
    /// # Safety
    /// The processor must have AVX2.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn blend_rows_dense(sources: [&[i16]; 2], weights: [i16; 2], out: &mut [u8]) -> usize {
        let whole = out.len().min(sources[0].len()).min(sources[1].len()) / 32 * 32;
        let weights = weights.map(|w| _mm256_set1_epi16(w));
        for at in (0..whole).step_by(32) {
            // SAFETY: `at + 32 <= whole`, which is within both sources and `out`.
            unsafe {
                let bytes = blend_32(sources, weights, at);
                _mm256_storeu_si256(out.as_mut_ptr().add(at).cast(), bytes);
            }
        }
        whole
    }

    /// [`super::rows::blend_rows`] from four lanes to three channels; returns how many pixels were written.
    ///
    /// # Safety
    /// The processor must have AVX2.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn blend_rows_4_to_3(sources: [&[i16]; 2], weights: [i16; 2], out: &mut [u8]) -> usize {
        // Eight pixels are 24 bytes, but the second half is stored as 16 bytes from byte 12 on; what it
        // writes past its pixels the next round or the scalar form overwrites.
        const STORED_BYTES: usize = 28;
        let pixels = (sources[0].len().min(sources[1].len()) / 4) / 8 * 8;
        let weights = weights.map(|w| _mm256_set1_epi16(w));
        let drop_fourth = _mm256_broadcastsi128_si256(_mm_setr_epi8(
            0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1,
        ));
        let mut x = 0;
        while x < pixels && 3 * x + STORED_BYTES <= out.len() {
            // SAFETY: `4 * x + 32` is within both sources, and `3 * x + STORED_BYTES` within `out`.
            unsafe {
                let packed = _mm256_shuffle_epi8(blend_32(sources, weights, 4 * x), drop_fourth);
                let to = out.as_mut_ptr().add(3 * x);
                _mm_storeu_si128(to.cast(), _mm256_castsi256_si128(packed));
                _mm_storeu_si128(to.add(12).cast(), _mm256_extracti128_si256::<1>(packed));
            }
            x += 8;
        }
        x
    }
}
