//! The stages of a frame on a device, measured one by one.

use std::time::{Duration, Instant};

use serde::Serialize;

use crate::telemetry::{LatencyHistogram, LatencyStats};

/// A stage of a frame, or of many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BenchStage {
    /// The host brings the inputs into memory that the device reads.
    HostIn,
    /// The inputs move to the device.
    H2d,
    /// The trace runs.
    Trace,
    /// The outputs move to the host.
    D2h,
    /// The host makes results of them.
    Post,
    /// All of these, one after another.
    EndToEnd,
    /// A replay in a row of replays that are enqueued without waiting.
    BackToBack,
}

impl BenchStage {
    /// Every stage, in the order in which they are told.
    pub const ALL: [Self; 7] = [
        Self::HostIn,
        Self::H2d,
        Self::Trace,
        Self::D2h,
        Self::Post,
        Self::EndToEnd,
        Self::BackToBack,
    ];

    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::HostIn => "host_in",
            Self::H2d => "h2d",
            Self::Trace => "trace",
            Self::D2h => "d2h",
            Self::Post => "post",
            Self::EndToEnd => "end_to_end",
            Self::BackToBack => "back_to_back",
        }
    }
}

/// Times of stages, each in a histogram.
#[derive(Debug, Clone, Default)]
pub struct StageBench {
    stages: [Option<Box<LatencyHistogram>>; BenchStage::ALL.len()],
}

/// A stage that was measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct StageRow {
    /// The stage.
    pub stage: BenchStage,
    /// Its times.
    #[serde(flatten)]
    pub stats: LatencyStats,
}

impl StageBench {
    /// Counts one time of a stage.
    pub fn add(&mut self, stage: BenchStage, time: Duration) {
        let histogram = self.stages[stage as usize].get_or_insert_default();
        histogram.record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Runs a stage and counts its time, also where it fails.
    pub fn stage<T>(&mut self, stage: BenchStage, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let result = work();
        self.add(stage, start.elapsed());
        result
    }

    /// The stages that were measured, in order.
    #[must_use]
    pub fn rows(&self) -> Vec<StageRow> {
        let measured = BenchStage::ALL.into_iter().filter_map(|stage| {
            let stats = self.stages[stage as usize].as_ref()?.stats()?;
            Some(StageRow { stage, stats })
        });
        measured.collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn stages_are_told_in_order_with_their_own_times() {
        let mut bench = StageBench::default();
        for ms in 1..=100 {
            bench.add(BenchStage::Trace, Duration::from_millis(ms));
        }
        bench.add(BenchStage::HostIn, Duration::from_micros(7));
        assert_eq!(bench.stage(BenchStage::Post, || 5), 5);
        let rows = bench.rows();
        let stages: Vec<_> = rows.iter().map(|row| row.stage.name()).collect();
        assert_eq!(stages, ["host_in", "trace", "post"]);
        let trace = rows[1].stats;
        assert_eq!(
            (trace.n, trace.min_us, trace.max_us, trace.mean_us),
            (100, 1e3, 1e5, 50_500.0)
        );
        assert!((trace.p50_us - 5e4).abs() <= 50.0 && (trace.p99_us - 9.9e4).abs() <= 99.0);
        for (place, stage) in BenchStage::ALL.into_iter().enumerate() {
            assert_eq!(stage as usize, place);
        }
    }
}
