//! Deadlines and the regularity of a stream's output.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::histogram::us;

/// Misses of a deadline in the order of a stream's frames.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct DeadlineStreak {
    pub(super) misses: u64,
    pub(super) longest_streak: u64,
    streak: u64,
}

impl DeadlineStreak {
    pub(super) fn record(&mut self, missed: bool) {
        self.streak = if missed { self.streak + 1 } else { 0 };
        self.misses += u64::from(missed);
        self.longest_streak = self.longest_streak.max(self.streak);
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.misses += other.misses;
        self.longest_streak = self.longest_streak.max(other.longest_streak);
    }
}

/// How evenly a stream's results come out, in microseconds.
///
/// The deviation of an output interval is `(published[i] - published[i-1]) - (stamp[i] - stamp[i-1]) / rate`: what
/// the pipeline added to the sensor's own rhythm. A dropped frame lengthens both intervals, so it is not
/// mistaken for jitter.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JitterStats {
    /// Number of intervals.
    pub n: u64,
    /// Mean of the absolute deviations.
    pub mean_abs_us: f64,
    /// Standard deviation of the deviations (of the population).
    pub std_us: f64,
    /// Largest absolute deviation.
    pub max_abs_us: f64,
    /// Mean time between two results.
    pub mean_interval_us: f64,
    /// Longest time without a result.
    pub max_interval_us: f64,
}

/// Running moments of the deviations (Welford's update, Chan's merge), so that hours of data need no list.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Jitter {
    last: Option<Output>,
    n: u64,
    mean_ns: f64,
    m2: f64,
    sum_abs_ns: f64,
    max_abs_ns: f64,
    sum_interval_ns: u128,
    max_interval_ns: u64,
}

#[derive(Debug, Clone, Copy)]
struct Output {
    published_ns: u64,
    stamp_ns: i64,
}

impl Jitter {
    /// `rate` is the replay's speed: sensor time over wall time.
    pub(super) fn record(&mut self, published_ns: u64, stamp_ns: i64, rate: f64) {
        let current = Output {
            published_ns,
            stamp_ns,
        };
        let Some(last) = self.last.replace(current) else {
            return;
        };
        let interval_ns = published_ns.saturating_sub(last.published_ns);
        let sensor_ns = i128::from(stamp_ns) - i128::from(last.stamp_ns);
        let deviation_ns = interval_ns as f64 - sensor_ns as f64 / rate;
        self.n += 1;
        let delta = deviation_ns - self.mean_ns;
        self.mean_ns += delta / self.n as f64;
        self.m2 += delta * (deviation_ns - self.mean_ns);
        self.sum_abs_ns += deviation_ns.abs();
        self.max_abs_ns = self.max_abs_ns.max(deviation_ns.abs());
        self.sum_interval_ns += u128::from(interval_ns);
        self.max_interval_ns = self.max_interval_ns.max(interval_ns);
    }

    pub(super) fn merge(&mut self, other: &Self) {
        if other.n == 0 {
            return;
        }
        let (n, m) = (self.n as f64, other.n as f64);
        let delta = other.mean_ns - self.mean_ns;
        self.mean_ns += delta * m / (n + m);
        self.m2 += other.m2 + delta * delta * n * m / (n + m);
        self.n += other.n;
        self.sum_abs_ns += other.sum_abs_ns;
        self.max_abs_ns = self.max_abs_ns.max(other.max_abs_ns);
        self.sum_interval_ns += other.sum_interval_ns;
        self.max_interval_ns = self.max_interval_ns.max(other.max_interval_ns);
    }

    pub(super) fn stats(&self) -> Option<JitterStats> {
        if self.n == 0 {
            return None;
        }
        let n = self.n as f64;
        let rounded_us = |ns: f64| ns.round() / 1000.0;
        Some(JitterStats {
            n: self.n,
            mean_abs_us: rounded_us(self.sum_abs_ns / n),
            std_us: rounded_us((self.m2 / n).sqrt()),
            max_abs_us: rounded_us(self.max_abs_ns),
            mean_interval_us: rounded_us(self.sum_interval_ns as f64 / n),
            max_interval_us: us(self.max_interval_ns),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn the_longest_streak_of_misses_is_found() {
        let mut deadline = DeadlineStreak::default();
        for missed in [true, true, false, true, true, true, false, false, true] {
            deadline.record(missed);
        }
        assert_eq!((deadline.misses, deadline.longest_streak), (6, 3));
        let mut other = DeadlineStreak::default();
        (0..5).for_each(|_| other.record(true));
        deadline.merge(&other);
        assert_eq!((deadline.misses, deadline.longest_streak), (11, 5));
    }

    #[test]
    fn jitter_equals_the_hand_computed_values() {
        // Stamps every 100 ms; results at 20, 125, 215, 320 ms: deviations +5, -10, +5 ms.
        let mut jitter = Jitter::default();
        for (published_ms, stamp_ms) in [(20, 0), (125, 100), (215, 200), (320, 300)] {
            jitter.record(published_ms * MS, stamp_ms * MS as i64, 1.0);
        }
        let stats = jitter.stats().unwrap();
        assert_eq!(stats.n, 3);
        assert_eq!(stats.mean_abs_us, 6_666.667);
        assert_eq!(stats.max_abs_us, 10_000.0);
        // Mean 0, so sigma = sqrt((25 + 100 + 25) / 3) ms = sqrt(50) ms.
        assert_eq!(stats.std_us, 7_071.068);
        assert_eq!(stats.mean_interval_us, 100_000.0);
        assert_eq!(stats.max_interval_us, 105_000.0);
    }

    #[test]
    fn neither_a_dropped_frame_nor_the_replay_speed_is_jitter() {
        let mut jitter = Jitter::default();
        for (published_ms, stamp_ms) in [(10, 0), (60, 100), (160, 300), (210, 400)] {
            jitter.record(published_ms * MS, stamp_ms * MS as i64, 2.0);
        }
        let stats = jitter.stats().unwrap();
        assert_eq!(
            (stats.mean_abs_us, stats.max_abs_us, stats.std_us),
            (0.0, 0.0, 0.0)
        );
        assert_eq!(stats.max_interval_us, 100_000.0);
    }

    #[test]
    fn one_result_has_no_jitter() {
        let mut jitter = Jitter::default();
        jitter.record(5, 5, 1.0);
        assert_eq!(jitter.stats(), None);
    }

    #[test]
    fn merged_jitter_is_that_of_all_intervals() {
        // Deviations of +5 and +7 ms in one part, -10, +1 and 0 ms in the other.
        let part = |published_ms: &[u64]| {
            let mut jitter = Jitter::default();
            for (i, ms) in (0..).zip(published_ms) {
                jitter.record(ms * MS, i * 100 * MS as i64, 1.0);
            }
            jitter
        };
        let mut merged = Jitter::default();
        merged.merge(&part(&[20, 125, 232]));
        merged.merge(&part(&[50, 140, 241, 341]));
        merged.merge(&Jitter::default());
        let stats = merged.stats().unwrap();
        let deviations = [5.0, 7.0, -10.0, 1.0, 0.0_f64];
        let mean = deviations.iter().sum::<f64>() / 5.0;
        let variance = deviations.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / 5.0;
        assert_eq!(stats.n, 5);
        assert!((stats.std_us - variance.sqrt() * 1e3).abs() <= 1e-3, "{stats:?}");
        assert_eq!((stats.mean_abs_us, stats.max_abs_us), (4_600.0, 10_000.0));
    }
}
