//! Latency histograms and the percentiles read from them.

use hdrhistogram::Histogram;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Largest value that has a bucket of its own: 60 s.
const RANGE_NS: u64 = 60_000_000_000;
/// Significant decimal digits of a bucket.
const DIGITS: u8 = 3;
/// Most points of a [`LatencyHistogram::curve`].
const CURVE_POINTS: usize = 120;

/// A percentile that reports give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Percentile {
    /// The median.
    P50,
    /// 90 %.
    P90,
    /// 99 %.
    P99,
    /// 99.9 %.
    P999,
}

impl Percentile {
    /// Values at or below the percentile, in thousandths.
    #[must_use]
    pub const fn permille(self) -> u64 {
        match self {
            Self::P50 => 500,
            Self::P90 => 900,
            Self::P99 => 990,
            Self::P999 => 999,
        }
    }

    /// Fewest samples of which at least one lies above the percentile: `1 / (1 - p)`. With fewer, the
    /// percentile is the maximum under another name.
    #[must_use]
    pub const fn min_samples(self) -> u64 {
        1000 / (1000 - self.permille())
    }
}

/// Durations from 1 ns to 60 s in buckets of three significant digits (relative width below 0.1 %). Longer ones
/// are counted, never left out; the largest and the smallest value are exact.
#[derive(Debug, Clone)]
pub struct LatencyHistogram {
    buckets: Histogram<u64>,
    min_ns: u64,
    max_ns: u64,
    sum_ns: u128,
    over_range: u64,
}

impl LatencyHistogram {
    /// An empty histogram; the only allocation it ever makes (about 200 KiB).
    #[must_use]
    pub fn new() -> Self {
        #[expect(
            clippy::expect_used,
            reason = "the bounds are constants: 1 <= low, 2 * low <= high, digits <= 5"
        )]
        let buckets = Histogram::new_with_bounds(1, RANGE_NS, DIGITS).expect("constant bounds are valid");
        Self {
            buckets,
            min_ns: u64::MAX,
            max_ns: 0,
            sum_ns: 0,
            over_range: 0,
        }
    }

    /// Counts one duration.
    pub fn record(&mut self, value_ns: u64) {
        self.buckets.saturating_record(value_ns.min(RANGE_NS));
        self.min_ns = self.min_ns.min(value_ns);
        self.max_ns = self.max_ns.max(value_ns);
        self.sum_ns += u128::from(value_ns);
        self.over_range += u64::from(value_ns > RANGE_NS);
    }

    /// Adds the counts of another histogram.
    pub fn merge(&mut self, other: &Self) {
        #[expect(
            clippy::expect_used,
            reason = "adding fails only for other bounds; all have the same"
        )]
        self.buckets
            .add(&other.buckets)
            .expect("all histograms have the same bounds");
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        self.sum_ns += other.sum_ns;
        self.over_range += other.over_range;
    }

    /// The buckets; values above the range are in the last one.
    pub(super) const fn buckets(&self) -> &Histogram<u64> {
        &self.buckets
    }

    /// Number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.len()
    }

    /// The value of nearest rank: the smallest one that at least this share of all values does not exceed, to
    /// 0.1 %. `None` if there are no values. A rank among those above 60 s is answered with the maximum, which
    /// may overstate but never understates.
    #[must_use]
    pub fn percentile_ns(&self, percentile: Percentile) -> Option<u64> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        let rank = (u128::from(count) * u128::from(percentile.permille()))
            .div_ceil(1000)
            .max(1) as u64;
        if rank > count - self.over_range {
            return Some(self.max_ns);
        }
        // Half a rank below the target, so that rounding in the product cannot reach the next rank.
        let quantile = (rank as f64 - 0.5) / count as f64;
        Some(
            self.buckets
                .value_at_quantile(quantile)
                .clamp(self.min_ns, self.max_ns),
        )
    }

    /// Count, extremes, mean and percentiles; `None` if there are no values.
    #[must_use]
    pub fn stats(&self) -> Option<LatencyStats> {
        let at_us = |percentile| self.percentile_ns(percentile).map(us);
        Some(LatencyStats {
            n: self.count(),
            min_us: us(self.min_ns),
            p50_us: at_us(Percentile::P50)?,
            p90_us: at_us(Percentile::P90)?,
            p99_us: at_us(Percentile::P99)?,
            p999_us: at_us(Percentile::P999)?,
            max_us: us(self.max_ns),
            mean_us: (self.sum_ns as f64 / self.count() as f64).round() / 1000.0,
        })
    }

    /// The cumulative distribution, at most 120 points, denser towards the tail; the last one is the maximum.
    #[must_use]
    pub fn curve(&self) -> Vec<CurvePoint> {
        let count = self.count();
        let mut points = Vec::new();
        let mut seen = 0_u64;
        let mut next_position = 0.0;
        // Positions are in decades of the share that is still to come, so every decade of the tail gets as
        // many points as the one before.
        let step = (count.max(1) as f64).log10().max(1.0) / (CURVE_POINTS - 1) as f64;
        for bucket in self.buckets.iter_recorded() {
            seen += bucket.count_since_last_iteration();
            let position = tail_decades(seen, count);
            if seen < count && position >= next_position {
                next_position = position + step;
                points.push(CurvePoint {
                    latency_us: us(bucket.value_iterated_to().clamp(self.min_ns, self.max_ns)),
                    fraction: (seen as f64 / count as f64 * 1e9).round() / 1e9,
                });
            }
        }
        if count > 0 {
            points.push(CurvePoint {
                latency_us: us(self.max_ns),
                fraction: 1.0,
            });
        }
        points
    }
}

impl Default for LatencyHistogram {
    fn default() -> Self {
        Self::new()
    }
}

/// `log10` of one over the share of values that are still to come.
fn tail_decades(seen: u64, count: u64) -> f64 {
    -((count - seen) as f64 / count as f64).log10()
}

/// Nanoseconds as microseconds.
pub(super) fn us(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

/// What is told of one latency, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LatencyStats {
    /// Number of values.
    pub n: u64,
    /// Smallest value, exact.
    pub min_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 90th percentile.
    pub p90_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// Largest value, exact.
    pub max_us: f64,
    /// Arithmetic mean.
    pub mean_us: f64,
}

impl LatencyStats {
    /// A percentile, and whether there are enough values for it ([`Percentile::min_samples`]).
    #[must_use]
    pub const fn percentile_us(&self, percentile: Percentile) -> (f64, bool) {
        let value_us = match percentile {
            Percentile::P50 => self.p50_us,
            Percentile::P90 => self.p90_us,
            Percentile::P99 => self.p99_us,
            Percentile::P999 => self.p999_us,
        };
        (value_us, self.n >= percentile.min_samples())
    }
}

/// A point of a cumulative distribution.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CurvePoint {
    /// Latency in microseconds.
    pub latency_us: f64,
    /// Share of values that are at most this long, above 0 and at most 1, to nine decimals.
    pub fraction: f64,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

    use proptest::prelude::*;

    use super::*;

    /// Nearest rank in a sorted list, in integers.
    fn exact(sorted: &[u64], permille: usize) -> u64 {
        sorted[(sorted.len() * permille).div_ceil(1000).max(1) - 1]
    }

    fn assert_matches_sorting(values: &mut [u64]) {
        let mut histogram = LatencyHistogram::new();
        values.iter().for_each(|&v| histogram.record(v));
        values.sort_unstable();
        for percentile in [
            Percentile::P50,
            Percentile::P90,
            Percentile::P99,
            Percentile::P999,
        ] {
            let expected = exact(values, percentile.permille() as usize) as f64;
            let found = histogram.percentile_ns(percentile).unwrap() as f64;
            assert!(
                (found - expected).abs() <= expected * 1e-3,
                "{percentile:?} of {}: {found} is not {expected}",
                values.len()
            );
        }
        let stats = histogram.stats().unwrap();
        assert_eq!(stats.n, values.len() as u64);
        assert_eq!(stats.min_us, values[0] as f64 / 1e3);
        assert_eq!(stats.max_us, values[values.len() - 1] as f64 / 1e3);
    }

    proptest! {
        #[test]
        fn percentiles_equal_those_of_a_sorted_list(
            exponents in prop::collection::vec(0.0_f64..10.7, 1..3000)
        ) {
            let mut values: Vec<u64> = exponents.iter().map(|e| 10_f64.powf(*e) as u64).collect();
            assert_matches_sorting(&mut values);
        }
    }

    #[test]
    fn ranks_are_exact_at_every_round_count() {
        // One slow value among n: p99.9 must miss it from n = 1000 on and hit it before.
        for n in [10_u64, 100, 999, 1000, 1001, 3000, 7000, 10_000] {
            let mut values: Vec<u64> = (0..n)
                .map(|i| if i == 0 { 40_000_000 } else { 1_000_000 })
                .collect();
            assert_matches_sorting(&mut values);
        }
    }

    #[test]
    fn values_above_the_range_are_kept_and_never_understated() {
        let mut histogram = LatencyHistogram::new();
        for _ in 0..98 {
            histogram.record(1_000_000);
        }
        histogram.record(90_000_000_000);
        histogram.record(200_000_000_000);
        let stats = histogram.stats().unwrap();
        assert_eq!(stats.n, 100);
        assert_eq!(stats.max_us, 200e6);
        assert!(stats.p99_us >= 90e6);
        assert!((stats.p90_us - 1000.0).abs() <= 1.0);
        assert_eq!(stats.mean_us, (98.0 * 1e6 + 290e9) / 100.0 / 1e3);
    }

    #[test]
    fn merging_equals_recording_everything_in_one() {
        let values: Vec<u64> = (1..=2000_u64).map(|i| i * i * 37).collect();
        let mut whole = LatencyHistogram::new();
        let (mut even, mut odd) = (LatencyHistogram::new(), LatencyHistogram::new());
        for &v in &values {
            whole.record(v);
            if v % 2 == 0 { &mut even } else { &mut odd }.record(v);
        }
        even.merge(&odd);
        assert_eq!(even.stats(), whole.stats());
        assert_eq!(even.curve(), whole.curve());
        even.merge(&LatencyHistogram::new());
        assert_eq!(even.stats(), whole.stats());
    }

    #[test]
    fn no_values_have_no_percentiles() {
        let empty = LatencyHistogram::new();
        assert_eq!(empty.percentile_ns(Percentile::P50), None);
        assert_eq!(empty.stats(), None);
        assert!(empty.curve().is_empty());
    }

    #[test]
    fn the_curve_rises_to_the_maximum_and_stays_short() {
        let mut histogram = LatencyHistogram::new();
        (1..=50_000_u64).for_each(|i| histogram.record(i * 997));
        let curve = histogram.curve();
        assert!(curve.len() > 60 && curve.len() <= CURVE_POINTS, "{}", curve.len());
        for pair in curve.windows(2) {
            assert!(pair[0].fraction < pair[1].fraction && pair[0].latency_us <= pair[1].latency_us);
        }
        // Uniform values: the latency at a fraction is that fraction of the maximum.
        for point in &curve {
            let expected = point.fraction * 50_000.0 * 0.997;
            assert!((point.latency_us - expected).abs() <= 2e-3 * expected + 1.0);
        }
        assert_eq!(curve.last().unwrap().fraction, 1.0);
    }
}
