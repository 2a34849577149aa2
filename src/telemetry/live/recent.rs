//! The latencies of the last frames: what a person who watches wants to know, where histograms tell of the whole run.

use serde::{Deserialize, Serialize};

use crate::telemetry::{FrameTimes, Stage};

/// Frames that are remembered of each stream and stage.
const KEPT: usize = 256;

/// A stream whose next frame is long overdue stands still after so long a time.
const STILL_NS: f64 = 5e9;
/// Frames that a stream's rate is taken from.
const KEPT_FOR_RATE: usize = 32;

/// The last `KEPT` values of something, in nanoseconds.
#[derive(Debug, Clone, Default)]
struct Last<const KEPT: usize> {
    values_ns: Vec<u64>,
    next: usize,
}

impl<const KEPT: usize> Last<KEPT> {
    fn push(&mut self, value_ns: u64) {
        if self.values_ns.len() < KEPT {
            self.values_ns.push(value_ns);
        } else {
            self.values_ns[self.next] = value_ns;
        }
        self.next = (self.next + 1) % KEPT;
    }

    fn quantiles(&self) -> Option<Quantiles> {
        let mut sorted = self.values_ns.clone();
        sorted.sort_unstable();
        let last = sorted.len().checked_sub(1)?;
        let at = |percent: usize| {
            sorted[(sorted.len() * percent).div_ceil(100).saturating_sub(1).min(last)] as f64 * 1e-6
        };
        Some(Quantiles {
            p50_ms: at(50),
            p99_ms: at(99),
            max_ms: sorted[last] as f64 * 1e-6,
        })
    }

    /// Oldest and newest value.
    fn ends(&self) -> Option<(u64, u64)> {
        let newest = *self.values_ns.get((self.next + KEPT - 1) % KEPT)?;
        let oldest = if self.values_ns.len() == KEPT {
            self.values_ns[self.next]
        } else {
            self.values_ns[0]
        };
        Some((oldest, newest))
    }
}

/// Percentiles of the last frames, in milliseconds: nearest ranks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// The median.
    pub p50_ms: f64,
    /// 99 %.
    pub p99_ms: f64,
    /// The largest.
    pub max_ms: f64,
}

/// One stage of the last frames.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct StageReading {
    /// The stage.
    pub stage: Stage,
    /// From the end of the stage before it to its start.
    pub wait: Quantiles,
    /// From its start to its end.
    pub service: Quantiles,
}

/// The last frames of each stream, and of all of them at each stage.
#[derive(Debug, Clone, Default)]
pub(super) struct Recent {
    streams: Vec<StreamLast>,
    stages: [(Last<KEPT>, Last<KEPT>); Stage::COUNT],
}

#[derive(Debug, Clone, Default)]
struct StreamLast {
    total: Last<KEPT>,
    published: Last<KEPT_FOR_RATE>,
}

impl Recent {
    pub(super) fn record(&mut self, stream: usize, times: &FrameTimes) {
        for (stage, span) in times.spans() {
            let (wait, service) = &mut self.stages[stage.index()];
            wait.push(span.wait_ns());
            service.push(span.service_ns());
        }
        let (Some(total_ns), Some(published_ns)) = (times.total_ns(), times.published_ns()) else {
            return;
        };
        if self.streams.len() <= stream {
            self.streams.resize_with(stream + 1, StreamLast::default);
        }
        self.streams[stream].total.push(total_ns);
        self.streams[stream].published.push(published_ns);
    }

    pub(super) fn stages(&self) -> Vec<StageReading> {
        let read = |stage: Stage| {
            let (wait, service) = &self.stages[stage.index()];
            Some(StageReading {
                stage,
                wait: wait.quantiles()?,
                service: service.quantiles()?,
            })
        };
        Stage::ALL.into_iter().filter_map(read).collect()
    }

    /// Latency of a stream's last frames.
    pub(super) fn total(&self, stream: usize) -> Option<Quantiles> {
        self.streams.get(stream)?.total.quantiles()
    }

    /// Results a second of a stream, from its last frames. One that has fallen silent is as fast as if the next frame came
    /// now, and stands still after a while.
    pub(super) fn rate_hz(&self, stream: usize, now_ns: u64) -> Option<f64> {
        let published = &self.streams.get(stream)?.published;
        let (oldest_ns, newest_ns) = published.ends()?;
        let intervals = published.values_ns.len().checked_sub(1).filter(|&n| n > 0)? as f64;
        let span_ns = newest_ns.saturating_sub(oldest_ns) as f64;
        let silent_ns = now_ns.saturating_sub(newest_ns) as f64;
        let mean_ns = span_ns / intervals;
        Some(match silent_ns / mean_ns {
            missed if missed > 10.0 && silent_ns > STILL_NS => 0.0,
            missed if missed > 2.0 => (intervals + 1.0) * 1e9 / (span_ns + silent_ns),
            _ => 1e9 / mean_ns,
        })
        .filter(|rate_hz| rate_hz.is_finite())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    const MS: u64 = 1_000_000;

    fn frame(released_ns: u64, total_ns: u64) -> FrameTimes {
        let mut times = FrameTimes::new(released_ns);
        times.begin(Stage::Publish, released_ns + total_ns / 4);
        times.end(Stage::Publish, released_ns + total_ns);
        times
    }

    #[test]
    fn percentiles_are_those_of_the_last_frames() {
        let mut recent = Recent::default();
        for i in 0..1_000_u64 {
            recent.record(1, &frame(i * 100 * MS, (i + 1) * MS));
        }
        // The last 256 take 745 to 1000 ms.
        let total = recent.total(1).unwrap();
        assert_eq!(
            (total.p50_ms, total.p99_ms, total.max_ms),
            (872.0, 998.0, 1_000.0)
        );
        assert_eq!(recent.total(0), None);
        let stages = recent.stages();
        assert_eq!(stages.len(), 1);
        assert_eq!(stages[0].stage, Stage::Publish);
        assert_eq!((stages[0].wait.max_ms, stages[0].service.max_ms), (250.0, 750.0));
    }

    #[test]
    fn the_rate_is_that_of_the_last_frames_and_falls_when_none_come() {
        let mut recent = Recent::default();
        assert_eq!(recent.rate_hz(0, 0), None);
        for i in 0..300_u64 {
            recent.record(0, &frame(i * 100 * MS, 10 * MS));
        }
        let last_ns = 299 * 100 * MS + 10 * MS;
        let near = |rate: Option<f64>, hz: f64| (rate.unwrap() - hz).abs() < 1e-6;
        assert!(near(recent.rate_hz(0, last_ns + 90 * MS), 10.0));
        let after_one_second = recent.rate_hz(0, last_ns + 1_000 * MS).unwrap();
        assert!((after_one_second - 32.0 / 4.1).abs() < 1e-6, "{after_one_second}");
        assert_eq!(recent.rate_hz(0, last_ns + 6_000 * MS), Some(0.0));
    }
}
