//! The tables and scalar forms of OpenCV's `INTER_AREA` where both sides shrink: every output sample is the mean
//! of the source area that it covers.
//!
//! Learnt from the public `resize.cpp` of OpenCV 4.x: fractional factors weigh source samples in float, columns first,
//! then rows, each sum in the order of the table; whole factors add integers and scale once.

use super::columns::Sampler;

/// Shares of a sample that are smaller than this are left out.
const LEAST_SHARE: f64 = 1e-3;

/// Which source samples every output position covers, and the share of each.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct AreaTaps {
    /// First source sample of every output position; never falls from one to the next.
    pub(super) first: Vec<u32>,
    /// Shares, `taps` for every output position. Positions that cover fewer have zeros.
    pub(super) shares: Vec<f32>,
    /// Samples read for one output position.
    pub(super) taps: usize,
}

impl AreaTaps {
    /// Taps from `source` to `target` samples, `target <= source`, both at least 1.
    pub(super) fn new(source: usize, target: usize) -> Self {
        let scale = scale(source, target);
        let covered: Vec<(usize, Vec<f32>)> = (0..target).map(|i| shares(source, scale, i)).collect();
        let taps = covered.iter().map(|(_, shares)| shares.len()).max().unwrap_or(1);
        let mut table = Self {
            first: Vec::with_capacity(target),
            shares: Vec::with_capacity(target * taps),
            taps,
        };
        for (first, shares) in covered {
            // Near the end the window moves back, so that it stays inside; a share of zero adds nothing.
            let start = first.min(source - taps);
            let before = first - start;
            let after = taps - before - shares.len();
            table.first.push(start as u32);
            table.shares.extend(std::iter::repeat_n(0.0, before));
            table.shares.extend(shares);
            table.shares.extend(std::iter::repeat_n(0.0, after));
        }
        table
    }

    /// First source sample and shares of one output position.
    pub(super) fn at(&self, i: usize) -> (usize, &[f32]) {
        (self.first[i] as usize, &self.shares[i * self.taps..][..self.taps])
    }
}

/// Source samples per target sample, the inverse of an inverse as OpenCV computes it.
pub(super) fn scale(source: usize, target: usize) -> f64 {
    1.0 / (target as f64 / source as f64)
}

/// The factor, where OpenCV takes it for a whole number.
pub(super) fn whole_scale(source: usize, target: usize) -> Option<usize> {
    let scale = scale(source, target);
    let whole = scale.round_ties_even();
    ((scale - whole).abs() < f64::EPSILON).then_some(whole as usize)
}

/// First sample and shares of output position `i`.
fn shares(source: usize, scale: f64, i: usize) -> (usize, Vec<f32>) {
    let from = i as f64 * scale;
    let to = from + scale;
    let cell = scale.min(source as f64 - from);
    let last_whole = (to.floor() as usize).min(source - 1);
    let first_whole = (from.ceil() as usize).min(last_whole);
    let mut shares = Vec::with_capacity(last_whole - first_whole + 2);
    let before = first_whole as f64 - from;
    let mut first = first_whole;
    if before > LEAST_SHARE {
        first -= 1;
        shares.push((before / cell) as f32);
    }
    shares.extend(std::iter::repeat_n((1.0 / cell) as f32, last_whole - first_whole));
    let after = to - last_whole as f64;
    if after > LEAST_SHARE {
        shares.push((after.min(1.0).min(cell) / cell) as f32);
    }
    (first, shares)
}

/// Columns of one source row: `out[x][lane] = sum of sample * share`, from output pixel `done` on.
pub(super) fn area_columns<const LANES: usize>(
    row: &[u8],
    sampler: &Sampler<LANES>,
    taps: &AreaTaps,
    done: usize,
    out: &mut [f32],
) {
    for (x, pixel) in out.as_chunks_mut::<LANES>().0.iter_mut().enumerate().skip(done) {
        let (first, shares) = taps.at(x);
        let samples = row[first * sampler.pixel_bytes..].chunks_exact(sampler.pixel_bytes);
        *pixel = [0.0; LANES];
        for (sample, share) in samples.zip(shares) {
            for (sum, &byte) in pixel.iter_mut().zip(&sampler.lane_byte) {
                *sum += f32::from(sample[byte]) * share;
            }
        }
    }
}

/// Adds a row of columns to the sums of an output row, or starts them.
pub(super) fn add_row(columns: &[f32], share: f32, starts: bool, sums: &mut [f32]) {
    let pairs = sums.iter_mut().zip(columns);
    if starts {
        pairs.for_each(|(sum, &value)| *sum = share * value);
    } else {
        pairs.for_each(|(sum, &value)| *sum += share * value);
    }
}

/// Sums to bytes, halves to even, lanes beyond `CHANNELS` left out, from pixel `done` on.
pub(super) fn round_row<const LANES: usize, const CHANNELS: usize>(
    sums: &[f32],
    done: usize,
    out: &mut [u8],
) {
    let pixels = out.as_chunks_mut::<CHANNELS>().0.iter_mut();
    for (pixel, sums) in pixels.zip(sums.as_chunks::<LANES>().0).skip(done) {
        for (value, sum) in pixel.iter_mut().zip(sums) {
            *value = sum.round_ties_even() as u8;
        }
    }
}

/// Adds the bytes of a source row to the sums of the rows above it.
#[inline(always)]
pub(super) fn add_bytes(row: &[u8], sums: &mut [u32]) {
    for (sum, &byte) in sums.iter_mut().zip(row) {
        *sum += u32::from(byte);
    }
}

/// Sums of `factor` pixels beside each other, of the lanes that `sampler` picks.
#[inline(always)]
pub(super) fn add_pixels<const LANES: usize>(
    rows: &[u32],
    sampler: &Sampler<LANES>,
    factor: usize,
    sums: &mut [u32],
) {
    let blocks = rows.chunks_exact(factor * sampler.pixel_bytes);
    for (sums, block) in sums.as_chunks_mut::<LANES>().0.iter_mut().zip(blocks) {
        *sums = [0; LANES];
        for sample in block.chunks_exact(sampler.pixel_bytes) {
            for (sum, &channel) in sums.iter_mut().zip(&sampler.lane_byte) {
                *sum += sample[channel];
            }
        }
    }
}

/// Block sums to bytes: `sum * (1 / area)` in float, halves to even.
#[inline(always)]
pub(super) fn mean_row<const LANES: usize, const CHANNELS: usize>(sums: &[u32], area: usize, out: &mut [u8]) {
    let factor = 1.0 / area as f32;
    for (pixel, sums) in out
        .as_chunks_mut::<CHANNELS>()
        .0
        .iter_mut()
        .zip(sums.as_chunks::<LANES>().0)
    {
        for (value, &sum) in pixel.iter_mut().zip(sums) {
            *value = (sum as f32 * factor).round_ties_even() as u8;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_a_position_add_up_to_one() {
        for (source, target) in [(1080, 432), (7, 3), (1600, 768), (5, 5), (9, 1), (1_861, 432)] {
            let taps = AreaTaps::new(source, target);
            for i in 0..target {
                let (first, shares) = taps.at(i);
                let sum: f32 = shares.iter().sum();
                assert!((sum - 1.0).abs() < 1e-5, "{source} to {target} at {i}: {sum}");
                assert!(first + shares.len() <= source);
            }
        }
    }
}
