//! AVX2 forms of the colour conversions, chosen at run time. Same integers as the scalar forms in `convert/`,
//! so the same bits; `tests/images/image_formats.rs` compares both at every width.

use super::Kernels;
use super::convert::bayer::{self, MosaicRow};
use super::convert::yuv::{self, ChromaOrder};

impl Kernels {
    /// See [`yuv::packed_row`].
    pub(super) fn packed_yuv_row<const LUMA_AT: usize>(self, row: &[u8], out: &mut [u8]) {
        #[cfg(target_arch = "x86_64")]
        if self.has_avx2() {
            // SAFETY: `avx2` is set only by `detect`, which found the feature.
            let done = unsafe { avx2::packed_yuv_row::<LUMA_AT>(row, out) };
            return yuv::packed_row::<LUMA_AT>(row, done, out);
        }
        yuv::packed_row::<LUMA_AT>(row, 0, out);
    }

    /// See [`yuv::planar_row`].
    pub(super) fn planar_yuv_row(self, luma: &[u8], chroma: &[u8], order: ChromaOrder, out: &mut [u8]) {
        #[cfg(target_arch = "x86_64")]
        if self.has_avx2() {
            // SAFETY: `avx2` is set only by `detect`, which found the feature.
            let done = unsafe { avx2::planar_yuv_row(luma, chroma, order, out) };
            return yuv::planar_row(luma, chroma, order, done, out);
        }
        yuv::planar_row(luma, chroma, order, 0, out);
    }

    /// All columns but the first and the last of a mosaic row; see [`bayer::interior`].
    pub(super) fn bayer_row(self, rows: [&[u8]; 3], row: MosaicRow, out: &mut [u8]) {
        let end = rows[1].len() - 1;
        #[cfg(target_arch = "x86_64")]
        if self.has_avx2() {
            // The vectors start at a pixel that is not green, so that those are their even bytes.
            let start = 2 - row.first;
            bayer::interior(rows, row, 1..start.min(end), out);
            // SAFETY: `avx2` is set only by `detect`, which found the feature.
            let done = unsafe { avx2::bayer_row(rows, row, start, out) };
            return bayer::interior(rows, row, done..end, out);
        }
        bayer::interior(rows, row, 1..end, out);
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use super::{ChromaOrder, MosaicRow, yuv};

    /// Pixels of a round of every loop here.
    const ROUND_PX: usize = 32;

    /// For each of the three 16-byte parts of 16 interleaved pixels and each channel: which byte of the
    /// channel goes where; -1 leaves a zero for the other channels.
    const SPREAD: [[[i8; 16]; 3]; 3] = {
        let mut spread = [[[-1; 16]; 3]; 3];
        let mut at = 0;
        while at < 48 {
            spread[at / 16][at % 3][at % 16] = (at / 3) as i8;
            at += 1;
        }
        spread
    };

    /// Writes 32 pixels, one vector a channel in the order of the bytes of a pixel.
    ///
    /// # Safety
    /// The processor must have AVX2, and `out` room for 96 bytes from `at` on.
    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn store_interleaved(channels: [__m256i; 3], out: &mut [u8], at: usize) {
        for (part, spread) in SPREAD.iter().enumerate() {
            let [a, b, c] = [0, 1, 2].map(|c| {
                // SAFETY: 16 bytes, and the load takes any alignment.
                let pick = unsafe { _mm_loadu_si128(spread[c].as_ptr().cast()) };
                _mm256_shuffle_epi8(channels[c], _mm256_broadcastsi128_si256(pick))
            });
            let bytes = _mm256_or_si256(_mm256_or_si256(a, b), c);
            // SAFETY: `part` is at most 2, so both stores end within 96 bytes from `at` on.
            unsafe {
                let to = out.as_mut_ptr().add(at + 16 * part);
                _mm_storeu_si128(to.cast(), _mm256_castsi256_si128(bytes));
                _mm_storeu_si128(to.add(48).cast(), _mm256_extracti128_si256::<1>(bytes));
            }
        }
    }

    /// A coefficient as two 16-bit factors, for `value` and `value << 7`: `_mm256_madd_epi16` of both is the
    /// exact product with a number of 22 bits, in one instruction where a 32-bit product takes two.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn factors(coefficient: i32) -> __m256i {
        let high = (coefficient + 64) >> 7;
        let low = coefficient - (high << 7);
        _mm256_set1_epi32((high << 16) | (low & 0xFFFF))
    }

    /// Blue, green and red of 16 pixels as 16-bit integers in order, not clamped.
    ///
    /// Each 32-bit lane of `luma` holds the two Y of a pair, each lane of `chroma` its U and V.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn bgr_16(luma: __m256i, chroma: __m256i) -> [__m256i; 3] {
        // (low half, low half << 7) and (high half, high half << 7) of every lane.
        let pairs = |lanes: __m256i| {
            let low = _mm256_blend_epi16::<0xAA>(lanes, _mm256_slli_epi32::<23>(lanes));
            let high =
                _mm256_blend_epi16::<0xAA>(_mm256_srli_epi32::<16>(lanes), _mm256_slli_epi16::<7>(lanes));
            [low, high]
        };
        let luma = _mm256_subs_epu16(luma, _mm256_set1_epi16(yuv::BLACK.into()));
        let chroma = _mm256_sub_epi16(chroma, _mm256_set1_epi16(yuv::GREY.into()));
        let [y0, y1] = pairs(luma).map(|y| _mm256_madd_epi16(y, factors(yuv::LUMA)));
        let [u, v] = pairs(chroma);
        let half = _mm256_set1_epi32(1 << (yuv::SHIFT - 1));
        let blue = _mm256_madd_epi16(u, factors(yuv::BLUE_OF_U));
        let green = _mm256_add_epi32(
            _mm256_madd_epi16(u, factors(yuv::GREEN_OF_U)),
            _mm256_madd_epi16(v, factors(yuv::GREEN_OF_V)),
        );
        let red = _mm256_madd_epi16(v, factors(yuv::RED_OF_V));
        [blue, green, red].map(|color| {
            let color = _mm256_add_epi32(color, half);
            let left = _mm256_srai_epi32::<{ yuv::SHIFT }>(_mm256_add_epi32(y0, color));
            // Four bits down, the integer part of the sum is the upper half of the lane.
            let right = _mm256_srai_epi32::<{ yuv::SHIFT - 16 }>(_mm256_add_epi32(y1, color));
            _mm256_blend_epi16::<0xAA>(left, right)
        })
    }

    /// Writes 32 pixels from two halves of [`bgr_16`].
    ///
    /// # Safety
    /// The processor must have AVX2, and `out` room for 96 bytes from `at` on.
    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn store_yuv(luma: [__m256i; 2], chroma: [__m256i; 2], out: &mut [u8], at: usize) {
        let (first, second) = (bgr_16(luma[0], chroma[0]), bgr_16(luma[1], chroma[1]));
        let channels = [0, 1, 2].map(|c| {
            let packed = _mm256_packus_epi16(first[c], second[c]);
            _mm256_permute4x64_epi64::<0b11_01_10_00>(packed)
        });
        // SAFETY: as the caller vouches.
        unsafe { store_interleaved(channels, out, at) };
    }

    /// [`yuv::packed_row`] for as many leading pairs as fill whole rounds; returns how many.
    ///
    /// # Safety
    /// The processor must have AVX2.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn packed_yuv_row<const LUMA_AT: usize>(row: &[u8], out: &mut [u8]) -> usize {
        let whole = (row.len() / 2).min(out.len() / 3) / ROUND_PX * ROUND_PX;
        for x in (0..whole).step_by(ROUND_PX) {
            let halves = [0, 32].map(|at| {
                // SAFETY: `2 * x + 64 <= 2 * whole <= row.len()`.
                unsafe { _mm256_loadu_si256(row.as_ptr().add(2 * x + at).cast()) }
            });
            let even = halves.map(|bytes| _mm256_and_si256(bytes, _mm256_set1_epi16(0xFF)));
            let odd = halves.map(|bytes| _mm256_srli_epi16::<8>(bytes));
            let (luma, chroma) = if LUMA_AT == 0 { (even, odd) } else { (odd, even) };
            // SAFETY: `3 * x + 96 <= 3 * whole <= out.len()`.
            unsafe { store_yuv(luma, chroma, out, 3 * x) };
        }
        whole / 2
    }

    /// [`yuv::planar_row`] for as many leading pairs as fill whole rounds; returns how many.
    ///
    /// # Safety
    /// The processor must have AVX2.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn planar_yuv_row(
        luma: &[u8],
        chroma: &[u8],
        order: ChromaOrder,
        out: &mut [u8],
    ) -> usize {
        let whole = luma.len().min(chroma.len()).min(out.len() / 3) / ROUND_PX * ROUND_PX;
        for x in (0..whole).step_by(ROUND_PX) {
            let widened = |plane: &[u8]| {
                [0, 16].map(|at| {
                    // SAFETY: `x + 32 <= whole`, and neither plane is shorter than that.
                    let bytes = unsafe { _mm_loadu_si128(plane.as_ptr().add(x + at).cast()) };
                    _mm256_cvtepu8_epi16(bytes)
                })
            };
            let chroma = match order {
                ChromaOrder::Uv => widened(chroma),
                ChromaOrder::Vu => widened(chroma).map(|lanes| {
                    _mm256_or_si256(_mm256_slli_epi32::<16>(lanes), _mm256_srli_epi32::<16>(lanes))
                }),
            };
            // SAFETY: `3 * x + 96 <= 3 * whole <= out.len()`.
            unsafe { store_yuv(widened(luma), chroma, out, 3 * x) };
        }
        whole / 2
    }

    /// [`super::bayer::interior`] from column `from` on, which must not be green, for as many columns as fill
    /// whole rounds; returns the first column that is left.
    ///
    /// # Safety
    /// The processor must have AVX2.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn bayer_row(rows: [&[u8]; 3], row: MosaicRow, from: usize, out: &mut [u8]) -> usize {
        let width = rows.map(<[u8]>::len).into_iter().fold(out.len() / 3, usize::min);
        let even = _mm256_set1_epi16(0xFF);
        let quarter = |values: [__m256i; 4]| {
            let [a, b, c, d] = values.map(|v| _mm256_and_si256(v, even));
            let sum = _mm256_add_epi16(_mm256_add_epi16(a, b), _mm256_add_epi16(c, d));
            _mm256_srli_epi16::<2>(_mm256_add_epi16(sum, _mm256_set1_epi16(2)))
        };
        let mut x = from;
        while x + ROUND_PX < width {
            let [up, here, down] = rows.map(|row| {
                // SAFETY: `x` is at least 1 and `x + 1 + 32 <= width <= row.len()`.
                [x - 1, x, x + 1].map(|at| unsafe { _mm256_loadu_si256(row.as_ptr().add(at).cast()) })
            });
            let beside = _mm256_avg_epu8(here[0], here[2]);
            let above = _mm256_avg_epu8(up[1], down[1]);
            let cross = quarter([here[0], here[2], up[1], down[1]]);
            let diagonal = quarter([up[0], up[2], down[0], down[2]]);
            let own = _mm256_blendv_epi8(beside, here[1], even);
            let green = _mm256_blendv_epi8(here[1], cross, even);
            let other = _mm256_blendv_epi8(above, diagonal, even);
            let channels = if row.red {
                [other, green, own]
            } else {
                [own, green, other]
            };
            // SAFETY: `3 * (x + 32) <= 3 * width <= out.len()`.
            unsafe { store_interleaved(channels, out, 3 * x) };
            x += ROUND_PX;
        }
        x
    }
}
