//! What can be said of a percentile, a mean or a share, and how surely.

/// Confidence of the intervals of percentiles.
pub(super) const RANK_CONFIDENCE: f64 = 0.99;
/// Two-sided confidence of the intervals of comparisons and shares.
pub(super) const COMPARE_CONFIDENCE: f64 = 0.95;

/// Quantile 0.995 of the normal distribution: the middle 99 %.
const Z_99: f64 = 2.575_829_303_548_901;
/// Quantile 0.975 of the normal distribution: the middle 95 %.
const Z_95: f64 = 1.959_963_984_540_054;
/// Required numbers of samples are whole multiples of this.
const SAMPLE_STEP: u64 = 1 << 13;

/// Resamples of a bootstrap, where the samples are few enough for so many.
const MOST_RESAMPLES: usize = 2_000;
/// Fewest resamples.
const FEWEST_RESAMPLES: usize = 200;
/// Values that all resamples together may walk over.
const MOST_STEPS: usize = 400_000_000;

/// Samples that it takes to claim a percentile (above 0 and below 1): the interval of 99 % confidence is then no wider than
/// a twentieth of the tail to either side, `z^2 p (1 - p) / ((1 - p) / 20)^2`, rounded up to a multiple of 8192.
///
/// 24,576 for p90, 57,344 for p95, 270,336 for p99.
#[must_use]
pub fn required_samples(p: f64) -> u64 {
    let margin = (1.0 - p) / 20.0;
    let samples = Z_99 * Z_99 * p * (1.0 - p) / (margin * margin);
    (samples.ceil() as u64)
        .div_ceil(SAMPLE_STEP)
        .saturating_mul(SAMPLE_STEP)
}

/// The value of nearest rank in sorted values: the smallest that at least the share `p` of them does not exceed.
#[must_use]
pub fn percentile(sorted: &[u64], p: f64) -> Option<u64> {
    sorted.get(rank(sorted.len(), p)?.checked_sub(1)?).copied()
}

/// Rank of a percentile, counted from 1.
fn rank(n: usize, p: f64) -> Option<usize> {
    if n == 0 {
        return None;
    }
    // The product of a decimal share and a whole number may come out a little above the whole number that it is.
    let exact = p * n as f64;
    let nearest = exact.round();
    let ceiling = if (exact - nearest).abs() < 1e-6 {
        nearest
    } else {
        exact.ceil()
    };
    Some((ceiling as usize).clamp(1, n))
}

/// Ranks (from 1) whose values enclose the percentile `p` of the distribution with 99 % confidence, whatever the
/// distribution, for `n` independent samples: the number of samples below it is binomial. `None` where so few samples
/// cannot enclose it.
#[must_use]
pub fn rank_interval(n: usize, p: f64) -> Option<[usize; 2]> {
    if n == 0 || !(0.0..1.0).contains(&p) || p == 0.0 {
        return None;
    }
    let alpha = (1.0 - RANK_CONFIDENCE) / 2.0;
    // Weights of the binomial distribution relative to its largest, as far as they matter.
    let odds = p / (1.0 - p);
    let mode = (((n + 1) as f64 * p).floor() as usize).min(n);
    let (mut low, mut weight) = (mode, 1.0);
    let mut below = Vec::new();
    while low > 0 && weight > 1e-20 {
        weight *= low as f64 / ((n - low + 1) as f64 * odds);
        low -= 1;
        below.push(weight);
    }
    let (mut high, mut weight) = (mode, 1.0);
    let mut above = vec![1.0];
    while high < n && weight > 1e-20 {
        weight *= (n - high) as f64 * odds / (high + 1) as f64;
        high += 1;
        above.push(weight);
    }
    below.reverse();
    let weights: Vec<f64> = below.into_iter().chain(above).collect();
    let total: f64 = weights.iter().sum();
    // Largest rank r with P(fewer than r samples below) <= alpha: the value at r lies below the percentile.
    let mut sum = 0.0;
    let mut lower = low;
    for (i, weight) in weights.iter().enumerate() {
        sum += weight / total;
        if sum > alpha {
            break;
        }
        lower = low + i + 1;
    }
    let mut sum = 0.0;
    let mut upper = high + 1;
    for (i, weight) in weights.iter().enumerate().rev() {
        sum += weight / total;
        if sum > alpha {
            break;
        }
        upper = low + i;
    }
    (lower >= 1 && upper <= n).then_some([lower, upper])
}

/// Interval of 95 % confidence for the share behind `hits` of `n` (Wilson's score interval).
#[must_use]
pub fn share_interval(hits: u64, n: u64) -> [f64; 2] {
    if n == 0 {
        return [0.0, 1.0];
    }
    let (n, share, z2) = (n as f64, hits as f64 / n as f64, Z_95 * Z_95);
    let middle = (share + z2 / (2.0 * n)) / (1.0 + z2 / n);
    let half = Z_95 / (1.0 + z2 / n) * (share * (1.0 - share) / n + z2 / (4.0 * n * n)).sqrt();
    [(middle - half).max(0.0), (middle + half).min(1.0)]
}

/// Percentiles and means of resampled series: blocks of successive values, drawn with replacement.
///
/// A block is as long as the square root of the number of values, so that what makes neighbours alike stays within
/// blocks. The same seed and the same series give the same resamples.
#[derive(Debug, Clone, PartialEq)]
pub struct Resampled {
    /// For each percentile asked for, one value a resample.
    pub percentiles: Vec<Vec<f64>>,
    /// The mean of each resample.
    pub means: Vec<f64>,
}

impl Resampled {
    /// Resamples a series, in the order in which its values were due. `None` for fewer than 16 values, which make no
    /// blocks.
    #[must_use]
    pub fn of(series: &[u64], percentiles: &[f64], seed: u64) -> Option<Self> {
        if series.len() < 16 {
            return None;
        }
        let block_len = (series.len() as f64).sqrt().ceil() as usize;
        let blocks = series.len().div_ceil(block_len);
        let mut sorted: Vec<(u64, u32)> = series
            .iter()
            .enumerate()
            .map(|(i, &value)| (value, (i / block_len) as u32))
            .collect();
        sorted.sort_unstable();
        let sums: Vec<(f64, usize)> = series
            .chunks(block_len)
            .map(|block| (block.iter().map(|&value| value as f64).sum(), block.len()))
            .collect();
        let resamples = (MOST_STEPS / series.len()).clamp(FEWEST_RESAMPLES, MOST_RESAMPLES);
        let mut order: Vec<usize> = (0..percentiles.len()).collect();
        order.sort_by(|&a, &b| percentiles[a].total_cmp(&percentiles[b]));
        let mut random = SplitMix(seed);
        let mut all = Self {
            percentiles: vec![Vec::with_capacity(resamples); percentiles.len()],
            means: Vec::with_capacity(resamples),
        };
        let mut drawn = vec![0_u32; blocks];
        for _ in 0..resamples {
            drawn.fill(0);
            for _ in 0..blocks {
                drawn[random.below(blocks)] += 1;
            }
            let (mut sum, mut count) = (0.0, 0);
            for (&times, &(block_sum, len)) in drawn.iter().zip(&sums) {
                sum += f64::from(times) * block_sum;
                count += times as usize * len;
            }
            all.means.push(sum / count as f64);
            let mut seen = 0;
            let mut wanted = order
                .iter()
                .filter_map(|&i| Some((i, rank(count, percentiles[i])?)))
                .peekable();
            for &(value, block) in &sorted {
                seen += drawn[block as usize] as usize;
                while let Some((i, _)) = wanted.next_if(|&(_, rank)| rank <= seen) {
                    all.percentiles[i].push(value as f64);
                }
                if wanted.peek().is_none() {
                    break;
                }
            }
        }
        Some(all)
    }
}

/// The middle 95 % of some values.
pub(super) fn middle(mut values: Vec<f64>) -> Option<[f64; 2]> {
    values.retain(|value| value.is_finite());
    values.sort_by(f64::total_cmp);
    let tail = (1.0 - COMPARE_CONFIDENCE) / 2.0;
    let at = |p: f64| values.get(rank(values.len(), p)? - 1).copied();
    Some([at(tail)?, at(1.0 - tail)?])
}

/// The generator SplitMix64: every seed gives a good sequence.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is at least 1.
    fn below(&mut self, bound: usize) -> usize {
        // The high half of a product: the bias is below bound / 2^64.
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

    use super::*;

    #[test]
    fn required_samples_are_those_of_the_published_table() {
        let table = [(0.90, 24_576), (0.95, 57_344), (0.97, 90_112), (0.99, 270_336)];
        for (p, n) in table {
            assert_eq!(required_samples(p), n, "{p}");
        }
    }

    #[test]
    fn percentiles_are_those_of_nearest_rank() {
        let sorted: Vec<u64> = (1..=1000).collect();
        for (p, value) in [(0.5, 500), (0.9, 900), (0.99, 990), (0.999, 999), (0.9991, 1000)] {
            assert_eq!(percentile(&sorted, p), Some(value), "{p}");
        }
        assert_eq!(percentile(&[], 0.5), None);
        assert_eq!(percentile(&[7], 0.999), Some(7));
    }

    /// P(B <= k) for B binomial, from the definition.
    fn binomial_cdf(n: usize, p: f64, k: usize) -> f64 {
        let mut sum = 0.0;
        for i in 0..=k {
            let mut term = 1.0;
            for j in 0..i {
                term *= (n - j) as f64 / (i - j) as f64 * p;
            }
            sum += term * (1.0 - p).powi((n - i) as i32);
        }
        sum
    }

    #[test]
    fn rank_intervals_cover_as_the_binomial_distribution_says_and_are_no_wider() {
        for (n, p) in [(100, 0.5), (300, 0.9), (900, 0.95), (60, 0.3)] {
            let [low, high] = rank_interval(n, p).unwrap();
            // P(value at `low` above the percentile) = P(B < low), and likewise above.
            assert!(binomial_cdf(n, p, low - 1) <= 0.005, "{n} {p}: {low}");
            assert!(
                binomial_cdf(n, p, low) > 0.005,
                "{n} {p}: {low} could be one more"
            );
            assert!(
                1.0 - binomial_cdf(n, p, high - 1) <= 0.005 + 1e-9,
                "{n} {p}: {high}"
            );
            assert!(
                1.0 - binomial_cdf(n, p, high - 2) > 0.005,
                "{n} {p}: {high} could be one less"
            );
        }
        // With 400 samples there is a chance of 1.8 % that none lies above p99.
        assert_eq!(rank_interval(400, 0.99), None);
        assert!(rank_interval(2_000_000, 0.999).is_some());
    }

    #[test]
    fn share_intervals_hold_for_none_and_for_all() {
        let [low, high] = share_interval(0, 1000);
        // Of none, the upper end is z^2 / (n + z^2).
        let z2 = Z_95 * Z_95;
        assert!(
            low.abs() < 1e-12 && (high - z2 / (1_000.0 + z2)).abs() < 1e-12,
            "{low} {high}"
        );
        assert!((share_interval(1000, 1000)[1] - 1.0).abs() < 1e-12);
        let [low, high] = share_interval(50, 1000);
        assert!(low < 0.05 && high > 0.05);
        assert_eq!(share_interval(0, 0), [0.0, 1.0]);
    }

    #[test]
    fn resampled_percentiles_spread_as_their_theory_says() {
        // Independent uniform values: the median of n has a standard deviation of 1 / (2 sqrt n).
        let mut random = SplitMix(5);
        let n = 10_000;
        let series: Vec<u64> = (0..n).map(|_| random.next() >> 32).collect();
        let resampled = Resampled::of(&series, &[0.9, 0.5], 1).unwrap();
        assert_eq!(resampled, Resampled::of(&series, &[0.9, 0.5], 1).unwrap());
        let [low, high] = middle(resampled.percentiles[1].clone()).unwrap();
        let width = (high - low) / f64::from(u32::MAX);
        let theory = 2.0 * Z_95 / (2.0 * (n as f64).sqrt());
        assert!((0.7..1.4).contains(&(width / theory)), "{width} against {theory}");
        let truth = 0.5 * f64::from(u32::MAX);
        assert!(low < truth && truth < high, "{low} {high}");
        let [low, high] = middle(resampled.means).unwrap();
        let theory = 2.0 * Z_95 * (1.0 / 12.0_f64).sqrt() / (n as f64).sqrt();
        let width = (high - low) / f64::from(u32::MAX);
        assert!((0.7..1.4).contains(&(width / theory)), "{width} against {theory}");
        assert_eq!(Resampled::of(&[1; 15], &[0.5], 1), None);
    }

    #[test]
    fn values_that_follow_each_other_widen_the_interval() {
        // Each value stands a hundred times in a row: a hundred independent values, not ten thousand.
        let mut random = SplitMix(9);
        let few: Vec<u64> = (0..100).map(|_| random.next() >> 40).collect();
        let held: Vec<u64> = few.iter().flat_map(|&value| [value; 100]).collect();
        let mut mixed = held.clone();
        for i in (1..mixed.len()).rev() {
            mixed.swap(i, random.below(i + 1));
        }
        let width = |series: &[u64]| {
            let [low, high] = middle(Resampled::of(series, &[], 3).unwrap().means).unwrap();
            high - low
        };
        assert!(
            width(&held) > 5.0 * width(&mixed),
            "{} {}",
            width(&held),
            width(&mixed)
        );
    }
}
