//! Vector forms of the triangle filter, chosen at run time: the same roundings as the scalar forms in
//! `triangle/resize.rs`, so the same bits; `tests/image_kernels` compares them.

use super::Contraction;
use super::Kernels;
use super::columns::Sampler;
use super::triangle;

impl Kernels {
    /// See [`triangle::spread_row`].
    pub(super) fn spread_row(
        self,
        row: &[u8],
        sampler: &Sampler<4>,
        columns: &[u32],
        stride: usize,
        out: &mut [f32],
    ) {
        #[cfg(target_arch = "x86_64")]
        if row.len() >= x86::PIXEL_LOAD_BYTES {
            if self.has_avx512() {
                // SAFETY: the processor was found to have the features, and a pixel can be read.
                return unsafe { x86::spread_row_avx512(row, sampler, columns, stride, out) };
            }
            if self.has_avx2() {
                // SAFETY: as above.
                return unsafe { x86::spread_row_avx2(row, sampler, columns, stride, out) };
            }
        }
        triangle::spread_row(row, sampler, columns, stride, out);
    }

    /// See [`triangle::accumulate`].
    pub(super) fn accumulate(
        self,
        contraction: Contraction,
        spread: &[f32],
        column_weights: &[f32],
        row_weight: f32,
        sums: &mut [f32],
    ) {
        let fused = contraction == Contraction::Fused;
        #[cfg(target_arch = "x86_64")]
        if self.has_avx2() {
            // SAFETY: the processor was found to have the features.
            return unsafe {
                match (self.has_avx512(), fused) {
                    (true, true) => x86::accumulate_avx512::<true>(spread, column_weights, row_weight, sums),
                    (true, false) => {
                        x86::accumulate_avx512::<false>(spread, column_weights, row_weight, sums)
                    }
                    (false, true) => x86::accumulate_avx2::<true>(spread, column_weights, row_weight, sums),
                    (false, false) => x86::accumulate_avx2::<false>(spread, column_weights, row_weight, sums),
                }
            };
        }
        if fused {
            triangle::accumulate::<true>(spread, column_weights, row_weight, sums);
        } else {
            triangle::accumulate::<false>(spread, column_weights, row_weight, sums);
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{Sampler, triangle};
    use triangle::BLOCK;

    /// Bytes read at once from a source pixel on.
    pub(super) const PIXEL_LOAD_BYTES: usize = 4;

    /// [`triangle::accumulate`], compiled for AVX2 and FMA.
    ///
    /// # Safety
    /// The processor must have AVX2 and FMA.
    #[target_feature(enable = "avx2,fma")]
    pub(super) unsafe fn accumulate_avx2<const FUSED: bool>(
        spread: &[f32],
        column_weights: &[f32],
        row_weight: f32,
        sums: &mut [f32],
    ) {
        triangle::accumulate::<FUSED>(spread, column_weights, row_weight, sums);
    }

    /// [`triangle::accumulate`], a whole block in every register.
    ///
    /// # Safety
    /// The processor must have AVX-512 F.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn accumulate_avx512<const FUSED: bool>(
        spread: &[f32],
        column_weights: &[f32],
        row_weight: f32,
        sums: &mut [f32],
    ) {
        let spread = spread.as_chunks::<BLOCK>().0;
        let column_weights = column_weights.as_chunks::<BLOCK>().0;
        let sums = sums.as_chunks_mut::<BLOCK>().0;
        let blocks = sums.len() / 4;
        let row_weight = _mm512_set1_ps(row_weight);
        // SAFETY: a block is as long as a register, and the load takes any alignment.
        let load = |block: &[f32; BLOCK]| unsafe { _mm512_loadu_ps(block.as_ptr()) };
        for block in 0..blocks {
            let mut sum = [0, 1, 2, 3].map(|i| load(&sums[i * blocks + block]));
            let taps = column_weights.iter().skip(block).step_by(blocks);
            for (weights, pixels) in taps.zip(spread.chunks_exact(3 * blocks)) {
                let weight = _mm512_mul_ps(load(weights), row_weight);
                for channel in 0..3 {
                    let pixel = load(&pixels[channel * blocks + block]);
                    sum[channel] = if FUSED {
                        _mm512_fmadd_ps(pixel, weight, sum[channel])
                    } else {
                        _mm512_add_ps(_mm512_mul_ps(pixel, weight), sum[channel])
                    };
                }
                sum[3] = _mm512_add_ps(sum[3], weight);
            }
            for (i, sum) in sum.into_iter().enumerate() {
                // SAFETY: a block is as long as a register, and the store takes any alignment.
                unsafe { _mm512_storeu_ps(sums[i * blocks + block].as_mut_ptr(), sum) };
            }
        }
    }

    /// [`triangle::spread_row`].
    ///
    /// # Safety
    /// The processor must have AVX2, and `row` at least [`PIXEL_LOAD_BYTES`] bytes and every column.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn spread_row_avx2(
        row: &[u8],
        sampler: &Sampler<4>,
        columns: &[u32],
        stride: usize,
        out: &mut [f32],
    ) {
        const STEP: usize = 8;
        let pixel_bytes = _mm256_set1_epi32(sampler.pixel_bytes as i32);
        let last_load = _mm256_set1_epi32((row.len() - PIXEL_LOAD_BYTES) as i32);
        let pick = [0, 1, 2].map(|c| _mm256_set1_epi32(sampler.lane_byte[c] as i32 * 8));
        let byte = _mm256_set1_epi32(0xFF);
        let taps = columns.chunks_exact(stride).zip(out.chunks_exact_mut(3 * stride));
        for (columns, out) in taps {
            for (i, columns) in columns.as_chunks::<STEP>().0.iter().enumerate() {
                // SAFETY: the array is as long as a register, and the load takes any alignment.
                let columns = unsafe { _mm256_loadu_si256(columns.as_ptr().cast()) };
                let offset = _mm256_mullo_epi32(columns, pixel_bytes);
                // The last pixels are read from further left and moved down.
                let from = _mm256_min_epi32(offset, last_load);
                let down = _mm256_slli_epi32::<3>(_mm256_sub_epi32(offset, from));
                // SAFETY: no lane reads beyond `last_load + PIXEL_LOAD_BYTES`, the length of the row.
                let pixels = unsafe { _mm256_i32gather_epi32::<1>(row.as_ptr().cast(), from) };
                for (c, &pick) in pick.iter().enumerate() {
                    let value = _mm256_srlv_epi32(pixels, _mm256_add_epi32(down, pick));
                    let value = _mm256_cvtepi32_ps(_mm256_and_si256(value, byte));
                    let to = &mut out[c * stride + i * STEP..][..STEP];
                    // SAFETY: `to` is as long as a register, and the store takes any alignment.
                    unsafe { _mm256_storeu_ps(to.as_mut_ptr(), value) };
                }
            }
        }
    }

    /// [`triangle::spread_row`].
    ///
    /// # Safety
    /// The processor must have AVX-512 F, and `row` at least [`PIXEL_LOAD_BYTES`] bytes and every column.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn spread_row_avx512(
        row: &[u8],
        sampler: &Sampler<4>,
        columns: &[u32],
        stride: usize,
        out: &mut [f32],
    ) {
        let pixel_bytes = _mm512_set1_epi32(sampler.pixel_bytes as i32);
        let last_load = _mm512_set1_epi32((row.len() - PIXEL_LOAD_BYTES) as i32);
        let pick = [0, 1, 2].map(|c| _mm512_set1_epi32(sampler.lane_byte[c] as i32 * 8));
        let byte = _mm512_set1_epi32(0xFF);
        let taps = columns.chunks_exact(stride).zip(out.chunks_exact_mut(3 * stride));
        for (columns, out) in taps {
            for (i, columns) in columns.as_chunks::<BLOCK>().0.iter().enumerate() {
                // SAFETY: the array is as long as a register, and the load takes any alignment.
                let columns = unsafe { _mm512_loadu_si512(columns.as_ptr().cast()) };
                let offset = _mm512_mullo_epi32(columns, pixel_bytes);
                // The last pixels are read from further left and moved down.
                let from = _mm512_min_epi32(offset, last_load);
                let down = _mm512_slli_epi32::<3>(_mm512_sub_epi32(offset, from));
                // SAFETY: no lane reads beyond `last_load + PIXEL_LOAD_BYTES`, the length of the row.
                let pixels = unsafe { _mm512_i32gather_epi32::<1>(from, row.as_ptr().cast()) };
                for (c, &pick) in pick.iter().enumerate() {
                    let value = _mm512_srlv_epi32(pixels, _mm512_add_epi32(down, pick));
                    let value = _mm512_cvtepi32_ps(_mm512_and_si512(value, byte));
                    let to = &mut out[c * stride + i * BLOCK..][..BLOCK];
                    // SAFETY: `to` is as long as a register, and the store takes any alignment.
                    unsafe { _mm512_storeu_ps(to.as_mut_ptr(), value) };
                }
            }
        }
    }
}
