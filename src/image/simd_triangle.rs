//! Vector forms of the triangle filter, chosen at run time: the same roundings as the scalar form in
//! `triangle/resize.rs`, so the same bits; `tests/image_kernels` compares them.

use super::columns::Sampler;
use super::triangle::{self, ColumnTaps, Share};
use super::{Contraction, Kernels};

/// A source row in the form that a kernel reads.
#[derive(Debug)]
pub(super) struct RowPixels<'a> {
    row: &'a [u8],
    sampler: &'a Sampler<4>,
    taps: &'a ColumnTaps,
    form: Form<'a>,
}

#[derive(Debug)]
enum Form<'a> {
    /// Plain Rust over the row as it is.
    Scalar,
    /// Pixels gathered from the row as it is, eight positions at once.
    #[cfg(target_arch = "x86_64")]
    Gathered,
    /// Channels apart, so that a block of positions lies within one register; sixteen positions at once.
    #[cfg(target_arch = "x86_64")]
    Planar(&'a [u8]),
    #[cfg(not(target_arch = "x86_64"))]
    Unused(std::marker::PhantomData<&'a ()>),
}

impl Kernels {
    /// Makes a source row ready to be accumulated; `planes` is memory for that.
    pub(super) fn prepare_row<'a>(
        self,
        row: &'a [u8],
        sampler: &'a Sampler<4>,
        taps: &'a ColumnTaps,
        planes: &'a mut Vec<u8>,
    ) -> RowPixels<'a> {
        #[cfg(target_arch = "x86_64")]
        let form = if self.has_avx512() && taps.block_span <= x86::WINDOW_BYTES {
            let len = x86::plane_len(row, sampler);
            if planes.len() < 3 * len {
                planes.resize(3 * len, 0);
            }
            let planes = &mut planes[..3 * len];
            let (first, rest) = planes.split_at_mut(len);
            let (second, third) = rest.split_at_mut(len);
            let [a, b, c, _] = sampler.lane_byte;
            let pixels = row.len() / sampler.pixel_bytes;
            let split = [first, second, third].map(|plane| &mut plane[..pixels]);
            self.split_bytes(row, sampler.pixel_bytes, [a, b, c], split);
            Form::Planar(planes)
        } else if self.has_avx2() && row.len() >= x86::PIXEL_LOAD_BYTES {
            Form::Gathered
        } else {
            Form::Scalar
        };
        #[cfg(not(target_arch = "x86_64"))]
        let form = Form::Scalar;
        RowPixels {
            row,
            sampler,
            taps,
            form,
        }
    }
}

impl RowPixels<'_> {
    /// See [`triangle::accumulate`].
    pub(super) fn accumulate<const ROWS: usize>(
        &self,
        contraction: Contraction,
        shares: [Share; ROWS],
        sums: &mut [f32],
    ) {
        match contraction {
            Contraction::Fused => self.accumulate_as::<true, ROWS>(shares, sums),
            Contraction::Separate => self.accumulate_as::<false, ROWS>(shares, sums),
        }
    }

    fn accumulate_as<const FUSED: bool, const ROWS: usize>(&self, shares: [Share; ROWS], sums: &mut [f32]) {
        let (row, sampler, taps) = (self.row, self.sampler, self.taps);
        match self.form {
            // SAFETY: only processors with the features get this form, and the row is long enough for it.
            #[cfg(target_arch = "x86_64")]
            Form::Gathered => unsafe {
                x86::accumulate_gathered::<FUSED, ROWS>(row, sampler, taps, shares, sums);
            },
            // SAFETY: only processors with the features get this form, and only narrow blocks.
            #[cfg(target_arch = "x86_64")]
            Form::Planar(planes) => unsafe {
                x86::accumulate_planar::<FUSED, ROWS>(planes, taps, shares, sums);
            },
            _ => triangle::accumulate::<FUSED, ROWS>(row, sampler, taps, shares, sums),
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{ColumnTaps, Sampler, Share};
    use crate::image::triangle::{BLOCK, SUMS};

    /// Bytes read at once from a source pixel on.
    pub(super) const PIXEL_LOAD_BYTES: usize = 4;
    /// Bytes of a plane that one register holds.
    pub(super) const WINDOW_BYTES: usize = 64;
    /// Channels that are summed up.
    const CHANNELS: usize = 3;

    /// Bytes of one plane: a whole register can be read from every column on.
    pub(super) fn plane_len(row: &[u8], sampler: &Sampler<4>) -> usize {
        row.len() / sampler.pixel_bytes + WINDOW_BYTES
    }

    /// [`crate::image::triangle::accumulate`] over channels that were taken apart.
    ///
    /// # Safety
    /// The processor must have AVX-512 F, BW, VL and VBMI; blocks of `taps` must span [`WINDOW_BYTES`] columns
    /// at most, and a register must be readable from every column of the planes on.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi")]
    pub(super) unsafe fn accumulate_planar<const FUSED: bool, const ROWS: usize>(
        planes: &[u8],
        taps: &ColumnTaps,
        shares: [Share; ROWS],
        sums: &mut [f32],
    ) {
        /// The lowest byte of every 32-bit lane; the others become zero.
        const LOWEST_BYTES: u64 = 0x1111_1111_1111_1111;
        let (stride, plane_len) = (taps.stride, planes.len() / CHANNELS);
        let sums_of = shares.map(|share| share.sums_at);
        assert!(sums_of.iter().all(|&at| at + SUMS * stride <= sums.len()));
        for x in (0..stride.min(taps.columns.len())).step_by(BLOCK) {
            let base = taps.columns[x] as usize;
            assert!(base + WINDOW_BYTES <= plane_len);
            let mut window = [_mm512_setzero_si512(); CHANNELS];
            for (c, window) in window.iter_mut().enumerate() {
                let from = planes[c * plane_len + base..].as_ptr();
                // SAFETY: the plane has `WINDOW_BYTES` from `base` on.
                *window = unsafe { _mm512_loadu_si512(from.cast()) };
            }
            let base = _mm512_set1_epi32(base as i32);
            let mut sum = [[_mm512_setzero_ps(); SUMS]; ROWS];
            for (at, sum) in sums_of.into_iter().zip(&mut sum) {
                for (i, sum) in sum.iter_mut().enumerate() {
                    // SAFETY: `x + BLOCK <= stride`, and every row has `SUMS * stride` sums.
                    *sum = unsafe { _mm512_loadu_ps(sums.as_ptr().add(at + i * stride + x)) };
                }
            }
            let tables = taps
                .columns
                .chunks_exact(stride)
                .zip(taps.weights.chunks_exact(stride));
            for (columns, weights) in tables {
                // SAFETY: both have `stride` values, and `x + BLOCK <= stride`.
                let (columns, weights) = unsafe {
                    (
                        _mm512_loadu_si512(columns.as_ptr().add(x).cast()),
                        _mm512_loadu_ps(weights.as_ptr().add(x)),
                    )
                };
                let index = _mm512_sub_epi32(columns, base);
                let mut pixels = [_mm512_setzero_ps(); CHANNELS];
                for (pixel, &window) in pixels.iter_mut().zip(&window) {
                    let bytes = _mm512_maskz_permutexvar_epi8(LOWEST_BYTES, index, window);
                    *pixel = _mm512_cvtepi32_ps(bytes);
                }
                for (share, sum) in shares.iter().zip(&mut sum) {
                    let weight = _mm512_mul_ps(weights, _mm512_set1_ps(share.weight));
                    for (sum, &pixel) in sum.iter_mut().zip(&pixels) {
                        *sum = if FUSED {
                            _mm512_fmadd_ps(pixel, weight, *sum)
                        } else {
                            _mm512_add_ps(_mm512_mul_ps(pixel, weight), *sum)
                        };
                    }
                    sum[CHANNELS] = _mm512_add_ps(sum[CHANNELS], weight);
                }
            }
            for (at, sum) in sums_of.into_iter().zip(sum) {
                for (i, sum) in sum.into_iter().enumerate() {
                    // SAFETY: as for the loads.
                    unsafe { _mm512_storeu_ps(sums.as_mut_ptr().add(at + i * stride + x), sum) };
                }
            }
        }
    }

    /// [`crate::image::triangle::accumulate`] over the row as it is.
    ///
    /// # Safety
    /// The processor must have AVX2 and FMA; `row` must have [`PIXEL_LOAD_BYTES`] bytes at least, and every
    /// column of `taps`.
    #[target_feature(enable = "avx2,fma")]
    pub(super) unsafe fn accumulate_gathered<const FUSED: bool, const ROWS: usize>(
        row: &[u8],
        sampler: &Sampler<4>,
        taps: &ColumnTaps,
        shares: [Share; ROWS],
        sums: &mut [f32],
    ) {
        const STEP: usize = 8;
        let stride = taps.stride;
        let pixel_bytes = _mm256_set1_epi32(sampler.pixel_bytes as i32);
        let last_load = _mm256_set1_epi32((row.len() - PIXEL_LOAD_BYTES) as i32);
        let first_bit = [0, 1, 2].map(|c| sampler.lane_byte[c] as i32 * 8);
        let byte = _mm256_set1_epi32(0xFF);
        let sums_of = shares.map(|share| share.sums_at);
        assert!(sums_of.iter().all(|&at| at + SUMS * stride <= sums.len()));
        for x in (0..stride.min(taps.columns.len())).step_by(STEP) {
            let mut sum = [[_mm256_setzero_ps(); SUMS]; ROWS];
            for (at, sum) in sums_of.into_iter().zip(&mut sum) {
                for (i, sum) in sum.iter_mut().enumerate() {
                    // SAFETY: `x + STEP <= stride`, and every row has `SUMS * stride` sums.
                    *sum = unsafe { _mm256_loadu_ps(sums.as_ptr().add(at + i * stride + x)) };
                }
            }
            let tables = taps
                .columns
                .chunks_exact(stride)
                .zip(taps.weights.chunks_exact(stride));
            for (columns, weights) in tables {
                // SAFETY: both have `stride` values, and `x + STEP <= stride`.
                let (columns, weights) = unsafe {
                    (
                        _mm256_loadu_si256(columns.as_ptr().add(x).cast()),
                        _mm256_loadu_ps(weights.as_ptr().add(x)),
                    )
                };
                let offset = _mm256_mullo_epi32(columns, pixel_bytes);
                // The last pixels are read from further left and moved down.
                let from = _mm256_min_epi32(offset, last_load);
                let down = _mm256_slli_epi32::<3>(_mm256_sub_epi32(offset, from));
                // SAFETY: no lane reads beyond `last_load + PIXEL_LOAD_BYTES`, the length of the row.
                let gathered = unsafe { _mm256_i32gather_epi32::<1>(row.as_ptr().cast(), from) };
                let mut pixels = [_mm256_setzero_ps(); CHANNELS];
                for (pixel, &bit) in pixels.iter_mut().zip(&first_bit) {
                    let shift = _mm256_add_epi32(down, _mm256_set1_epi32(bit));
                    let value = _mm256_srlv_epi32(gathered, shift);
                    *pixel = _mm256_cvtepi32_ps(_mm256_and_si256(value, byte));
                }
                for (share, sum) in shares.iter().zip(&mut sum) {
                    let weight = _mm256_mul_ps(weights, _mm256_set1_ps(share.weight));
                    for (sum, &pixel) in sum.iter_mut().zip(&pixels) {
                        *sum = if FUSED {
                            _mm256_fmadd_ps(pixel, weight, *sum)
                        } else {
                            _mm256_add_ps(_mm256_mul_ps(pixel, weight), *sum)
                        };
                    }
                    sum[CHANNELS] = _mm256_add_ps(sum[CHANNELS], weight);
                }
            }
            for (at, sum) in sums_of.into_iter().zip(sum) {
                for (i, sum) in sum.into_iter().enumerate() {
                    // SAFETY: as for the loads.
                    unsafe { _mm256_storeu_ps(sums.as_mut_ptr().add(at + i * stride + x), sum) };
                }
            }
        }
    }
}
