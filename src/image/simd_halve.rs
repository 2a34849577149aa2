//! AVX2 form of the exact halving in `rows.rs`.

use super::columns::Sampler;
use super::rows;
use super::simd::Kernels;

impl Kernels {
    /// See [`rows::halve_rows`].
    pub(super) fn halve_rows<const LANES: usize, const CHANNELS: usize>(
        self,
        sources: [&[u8]; 2],
        sampler: &Sampler<LANES>,
        out: &mut [u8],
    ) {
        #[cfg(target_arch = "x86_64")]
        if self.has_avx2()
            && CHANNELS == 3
            && (3..=4).contains(&sampler.pixel_bytes)
            && let Some(four) = sampler.of_four()
        {
            // SAFETY: the processor was found to have AVX2, and a pixel has at most four bytes.
            let done = unsafe { x86::halve_rows(sources, &four, out) };
            return rows::halve_rows::<LANES, CHANNELS>(sources, sampler, done, out);
        }
        rows::halve_rows::<LANES, CHANNELS>(sources, sampler, 0, out);
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::Sampler;

    /// Output pixels of a round.
    const PIXELS: usize = 4;
    /// Bytes stored in a round, of which the last four are overwritten by the next.
    const STORED_BYTES: usize = 16;

    /// Returns how many output pixels of three bytes were done.
    ///
    /// # Safety
    /// The processor must have AVX2.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn halve_rows(
        [upper, lower]: [&[u8]; 2],
        sampler: &Sampler<4>,
        out: &mut [u8],
    ) -> usize {
        let bytes = sampler.pixel_bytes;
        // A half round reads 16 bytes for two output pixels, which are four of the source.
        let half = 4 * bytes;
        let readable = upper.len().min(lower.len());
        // Each channel beside the same channel of the pixel's right neighbour.
        let pick: [i8; 16] = std::array::from_fn(|i| {
            let (pixel, lane, right) = (i / 8, i % 8 / 2, i % 2);
            ((2 * pixel + right) * bytes + sampler.lane_byte[lane]) as i8
        });
        // SAFETY: `pick` is 16 bytes long.
        let pick = _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(pick.as_ptr().cast()) });
        let drop_fourth = _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
        let ones = _mm256_set1_epi8(1);
        let mut x = 0;
        while 2 * x * bytes + half + 16 <= readable && 3 * x + STORED_BYTES <= out.len() {
            let at = 2 * x * bytes;
            let pairs = |row: &[u8]| {
                // SAFETY: `at + half + 16 <= readable`, which is within both rows.
                let (low, high) = unsafe {
                    (
                        _mm_loadu_si128(row.as_ptr().add(at).cast()),
                        _mm_loadu_si128(row.as_ptr().add(at + half).cast()),
                    )
                };
                _mm256_maddubs_epi16(_mm256_shuffle_epi8(_mm256_set_m128i(high, low), pick), ones)
            };
            let sums = _mm256_add_epi16(pairs(upper), pairs(lower));
            let means = _mm256_srli_epi16::<2>(_mm256_add_epi16(sums, _mm256_set1_epi16(2)));
            let packed = _mm256_packus_epi16(means, means);
            let pixels = _mm_unpacklo_epi64(
                _mm256_castsi256_si128(packed),
                _mm256_extracti128_si256::<1>(packed),
            );
            // SAFETY: `3 * x + STORED_BYTES <= out.len()`.
            unsafe {
                let to = out.as_mut_ptr().add(3 * x).cast();
                _mm_storeu_si128(to, _mm_shuffle_epi8(pixels, drop_fourth));
            }
            x += PIXELS;
        }
        x
    }
}
