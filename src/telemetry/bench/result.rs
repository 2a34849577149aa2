//! The result of a benchmark, as a program reads it.

use std::sync::LazyLock;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::statistics::RANK_CONFIDENCE;
use super::{
    Collected, Comparison, ConditionOutcome, Machine, ProcessUse, percentile, rank_interval, required_samples,
};
use crate::telemetry::{DeadlineSummary, DropCount, LatencyStats, StageSummary, StreamSummary};

/// A way of offering load. The first three and the search are MLPerf-style scenarios.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ScenarioKind {
    /// The next query when the last one is done: a closed loop, one query under way.
    SingleStream,
    /// One query a period, whatever the pipeline does: an open loop.
    ConstantStream,
    /// Several streams, each at a fixed rate, a part of the period apart: an open loop.
    MultiStream,
    /// A search for the highest rate at which fewer than one query in a thousand fails: an open loop.
    PeakRate,
    /// The timers of the pipeline itself: compute nodes without a source.
    Timers,
}

impl ScenarioKind {
    /// The word that the command uses.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SingleStream => "single-stream",
            Self::ConstantStream => "constant-stream",
            Self::MultiStream => "multi-stream",
            Self::PeakRate => "peak-rate",
            Self::Timers => "timers",
        }
    }

    /// How queries follow each other, in words.
    #[must_use]
    pub const fn loop_words(self) -> &'static str {
        match self {
            Self::SingleStream => "closed loop: the next query when the last one is done",
            Self::Timers => "open loop: timers of the pipeline",
            _ => "open loop: latency counts from the time at which a query was due",
        }
    }
}

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScenarioSummary {
    /// The way of offering load.
    pub name: ScenarioKind,
    /// How queries follow each other.
    pub r#loop: String,
    /// Always `MLPerf-style`: like the scenarios of that benchmark, and no submission to it.
    pub style: String,
    /// Streams offered.
    pub streams: u64,
    /// Queries a second of one stream; absent in a closed loop.
    pub rate_hz: Option<f64>,
    /// Seconds from the end of the warm-up to the last query.
    pub duration_s: f64,
    /// Seconds left out at the start.
    pub warm_up_s: f64,
    /// The percentile that was to be claimed, as a share of 1.
    pub percentile: f64,
    /// Whether the run was made short with `--quick`, which claims less.
    pub quick: bool,
    /// What was changed in the pipeline for the benchmark, in words.
    pub changes: Vec<String>,
}

/// What was held in memory to be offered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LoadSummary {
    /// Messages in memory, offered again and again.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Whether the source had more than the memory allows.
    pub cut_off: bool,
}

/// What became of the queries since the warm-up. A query is a message; it makes one frame for each detector.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct QuerySummary {
    /// Messages offered.
    pub offered: u64,
    /// Frames that they made.
    pub frames: u64,
    /// Frames that came out.
    pub completed: u64,
    /// Frames that did not come out.
    pub dropped: u64,
    /// Messages that got away more than a millisecond late, because the pipeline's first channel was full or the machine
    /// was busy. Their latency counts from their time all the same.
    pub released_late: u64,
    /// Of these, messages more than a period late: a sensor has nowhere to keep them, so they count as failed.
    pub overruns: u64,
    /// Longest delay of a release, in microseconds.
    pub max_release_delay_us: f64,
    /// Dropped frames and overruns over frames.
    pub failed_share: f64,
}

/// A percentile of latency with what is known of it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PercentileValue {
    /// The percentile, as a share of 1.
    pub p: f64,
    /// Latency in microseconds: nearest rank, exact.
    pub value_us: f64,
    /// Interval of 99 % confidence by order statistics, for independent latencies of any distribution, in microseconds;
    /// absent where there are too few.
    pub interval_us: Option<[f64; 2]>,
    /// Samples that it takes to claim this percentile.
    pub required: u64,
    /// Whether there are so many.
    pub claimed: bool,
}

/// Which percentile the samples allow to claim.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Claim {
    /// The percentile that was to be claimed, as a share of 1.
    pub asked: f64,
    /// Whether it is.
    pub met: bool,
    /// The highest percentile that is; absent where even the median is not.
    pub claimed: Option<f64>,
    /// In words.
    pub text: String,
}

/// One trial of a search for the highest rate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PeakPoint {
    /// Queries a second of each stream.
    pub rate_hz: f64,
    /// Whether this was the long trial that confirms a rate.
    pub confirms: bool,
    /// Messages offered since the warm-up.
    pub offered: u64,
    /// Dropped frames and overruns over frames.
    pub failed_share: f64,
    /// Median latency in microseconds; absent if no frame came out.
    pub p50_us: Option<f64>,
    /// 99th percentile of latency in microseconds; absent likewise.
    pub p99_us: Option<f64>,
    /// Whether fewer than the permitted share failed.
    pub kept_up: bool,
}

/// A search for the highest rate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PeakSummary {
    /// Highest rate that was confirmed, in queries a second of each stream; absent where none was.
    pub rate_hz: Option<f64>,
    /// Lowest rate that failed; absent where none did within the bounds of the search.
    pub fails_at_hz: Option<f64>,
    /// Share of failed queries at or above which a rate counts as too high.
    pub permitted_share: f64,
    /// The trials, in their order.
    pub points: Vec<PeakPoint>,
}

/// The keys of `ros2_benchmark`, so that its tools read them: durations in milliseconds, rates a second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[expect(
    missing_docs,
    reason = "the names are those of another project and each says what it is"
)]
pub struct Ros2BenchmarkKeys {
    #[serde(rename = "BasicPerformanceMetrics.RECEIVED_DURATION")]
    pub received_duration_ms: f64,
    #[serde(rename = "BasicPerformanceMetrics.MEAN_PLAYBACK_FRAME_RATE")]
    pub mean_playback_frame_rate: f64,
    #[serde(rename = "BasicPerformanceMetrics.MEAN_FRAME_RATE")]
    pub mean_frame_rate: f64,
    #[serde(rename = "BasicPerformanceMetrics.NUM_MISSED_FRAMES")]
    pub num_missed_frames: f64,
    #[serde(rename = "BasicPerformanceMetrics.NUM_FRAMES_SENT")]
    pub num_frames_sent: f64,
    #[serde(rename = "BasicPerformanceMetrics.FIRST_SENT_RECEIVED_LATENCY")]
    pub first_sent_received_latency_ms: f64,
    #[serde(rename = "BasicPerformanceMetrics.LAST_SENT_RECEIVED_LATENCY")]
    pub last_sent_received_latency_ms: f64,
    #[serde(rename = "BasicPerformanceMetrics.MAX_JITTER")]
    pub max_jitter_ms: f64,
    #[serde(rename = "BasicPerformanceMetrics.MIN_JITTER")]
    pub min_jitter_ms: f64,
    #[serde(rename = "BasicPerformanceMetrics.MEAN_JITTER")]
    pub mean_jitter_ms: f64,
    #[serde(rename = "BasicPerformanceMetrics.STD_DEV_JITTER")]
    pub std_dev_jitter_ms: f64,
}

impl Ros2BenchmarkKeys {
    /// From the frames that came out. Jitter is the difference of successive intervals between results, all streams
    /// together.
    #[must_use]
    pub fn of(collected: &Collected, frames_sent: u64, playback_rate_hz: f64) -> Self {
        let mut samples = collected.samples.clone();
        samples.sort_by_key(|sample| sample.published_ns);
        let ms = |ns: u64| ns as f64 / 1e6;
        let gaps = samples
            .windows(2)
            .map(|pair| ms(pair[1].published_ns - pair[0].published_ns));
        let gaps: Vec<f64> = gaps.collect();
        let jitter: Vec<f64> = gaps.windows(2).map(|pair| (pair[1] - pair[0]).abs()).collect();
        let mean = jitter.iter().sum::<f64>() / jitter.len().max(1) as f64;
        let variance = jitter.iter().map(|j| (j - mean).powi(2)).sum::<f64>() / jitter.len().max(1) as f64;
        let received_ms: f64 = gaps.iter().sum();
        let latency = |sample: Option<&super::Sample>| sample.map_or(0.0, |sample| ms(sample.latency_ns()));
        Self {
            received_duration_ms: received_ms,
            mean_playback_frame_rate: playback_rate_hz,
            mean_frame_rate: if received_ms > 0.0 {
                gaps.len() as f64 * 1e3 / received_ms
            } else {
                0.0
            },
            num_missed_frames: frames_sent.saturating_sub(samples.len() as u64) as f64,
            num_frames_sent: frames_sent as f64,
            first_sent_received_latency_ms: latency(samples.first()),
            last_sent_received_latency_ms: latency(samples.last()),
            max_jitter_ms: jitter.iter().copied().fold(0.0, f64::max),
            min_jitter_ms: jitter.iter().copied().reduce(f64::min).unwrap_or(0.0),
            mean_jitter_ms: mean,
            std_dev_jitter_ms: variance.sqrt(),
        }
    }
}

/// The result of a benchmark. Latency counts from the time at which a query was due; the warm-up is left out of
/// everything but `drops` and the frames of `streams`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BenchResult {
    /// Version of this form: 1.
    pub form: u32,
    /// Version of Sensorium.
    pub version: String,
    /// Whether it was built for speed; a result of another build says little.
    pub optimized: bool,
    /// Name of the pipeline.
    pub pipeline: String,
    /// Models with their files and numbers.
    pub model: String,
    /// The device in words.
    pub device: String,
    /// When the benchmark started.
    pub started_at: String,
    /// The pipeline as it was run: models, nodes and channels.
    pub settings: Value,
    /// The machine.
    pub machine: Machine,
    /// What the process took of the machine while queries were offered.
    pub process: ProcessUse,
    /// What was asked for.
    pub scenario: ScenarioSummary,
    /// What was held in memory.
    pub load: LoadSummary,
    /// What became of the queries.
    pub queries: QuerySummary,
    /// Results a second since the warm-up.
    pub throughput_hz: Option<f64>,
    /// Latency; absent if no frame came out. Its percentiles are those of a histogram with three digits.
    pub latency: Option<LatencyStats>,
    /// Percentiles of latency, exact, with intervals and whether they can be claimed.
    pub percentiles: Vec<PercentileValue>,
    /// Which percentile can be claimed.
    pub claim: Claim,
    /// The stages that frames passed.
    pub stages: Vec<StageSummary>,
    /// The streams.
    pub streams: Vec<StreamSummary>,
    /// Results after their deadline; absent without a deadline.
    pub deadline: Option<DeadlineSummary>,
    /// Drops by stream, place and reason, the warm-up included.
    pub drops: Vec<DropCount>,
    /// Why the results are not all that was asked for; empty for a complete run.
    pub incomplete: Vec<String>,
    /// The search for the highest rate; absent in other scenarios. The other numbers are those of the trial that confirms.
    pub peak: Option<PeakSummary>,
    /// What compute nodes came to; absent without any.
    pub graph: Option<crate::telemetry::graph::GraphKpis>,
    /// The same under the keys of `ros2_benchmark`.
    pub ros2_benchmark: Ros2BenchmarkKeys,
    /// Latency of each frame that came out in whole microseconds, in the order in which they were due.
    pub latencies_us: Vec<u64>,
    /// Results in each whole second since the warm-up.
    pub results_per_second: Vec<u64>,
    /// The comparison to an earlier result; absent without one.
    pub comparison: Option<Comparison>,
    /// Conditions under which the benchmark fails, and whether they hold.
    pub conditions: Vec<ConditionOutcome>,
}

impl BenchResult {
    /// Whether any condition holds under which the benchmark fails.
    #[must_use]
    pub fn fails(&self) -> bool {
        self.conditions.iter().any(|condition| condition.fails)
    }
}

/// Percentiles that results give.
const PERCENTILES: [f64; 5] = [0.5, 0.9, 0.95, 0.99, 0.999];

impl PercentileValue {
    /// The usual percentiles of latencies, and the one asked for.
    #[must_use]
    pub fn all(latencies_ns: &[u64], asked: f64) -> Vec<Self> {
        let mut sorted = latencies_ns.to_vec();
        sorted.sort_unstable();
        let mut shares = PERCENTILES.to_vec();
        if !shares.contains(&asked) {
            shares.push(asked);
            shares.sort_by(f64::total_cmp);
        }
        let us = |ns: u64| ns as f64 / 1e3;
        let value = |p: f64| {
            let required = required_samples(p);
            Some(Self {
                p,
                value_us: us(percentile(&sorted, p)?),
                interval_us: rank_interval(sorted.len(), p)
                    .map(|ranks| ranks.map(|rank| us(sorted[rank - 1]))),
                required,
                claimed: sorted.len() as u64 >= required,
            })
        };
        shares.into_iter().filter_map(value).collect()
    }
}

impl Claim {
    /// What `n` samples allow to claim.
    #[must_use]
    pub fn of(percentiles: &[PercentileValue], asked: f64, n: u64) -> Self {
        let claimed = percentiles
            .iter()
            .filter(|value| value.claimed)
            .map(|value| value.p);
        let claimed = claimed.reduce(f64::max);
        let met = n >= required_samples(asked);
        let text = match (met, claimed) {
            (true, _) => format!(
                "{}: n = {n}, {} needed ({} % confidence, a twentieth of the tail to either side)",
                p_name(asked),
                required_samples(asked),
                RANK_CONFIDENCE * 100.0
            ),
            (false, Some(claimed)) => format!(
                "not enough samples for {}: n = {n}, {} needed; claimed {} only",
                p_name(asked),
                required_samples(asked),
                p_name(claimed)
            ),
            (false, None) => format!(
                "not enough samples for {}: n = {n}, {} needed; no percentile is claimed",
                p_name(asked),
                required_samples(asked)
            ),
        };
        Self {
            asked,
            met,
            claimed,
            text,
        }
    }
}

/// `p99.9` for 0.999.
pub(in crate::telemetry) fn p_name(p: f64) -> String {
    // Decimal shares are not exact in binary.
    let percent = (p * 100.0 * 1e6).round() / 1e6;
    format!("p{percent}")
}

static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    SchemaSettings::draft2020_12()
        .into_generator()
        .into_root_schema_for::<BenchResult>()
        .to_value()
});

/// The JSON Schema (2020-12) of results.
#[must_use]
pub fn bench_schema() -> &'static Value {
    &SCHEMA
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

    use std::sync::Arc;

    use super::*;
    use crate::telemetry::bench::{Collector, Sample};

    #[test]
    fn a_claim_says_what_the_samples_allow() {
        let latencies: Vec<u64> = (0..30_000).map(|i| 1_000_000 + i).collect();
        let values = PercentileValue::all(&latencies, 0.99);
        let claim = Claim::of(&values, 0.99, 30_000);
        assert_eq!((claim.met, claim.claimed), (false, Some(0.9)));
        assert!(
            claim.text.contains("not enough samples for p99: n = 30000")
                && claim.text.contains("claimed p90 only"),
            "{}",
            claim.text
        );
        let p90 = values.iter().find(|value| value.p == 0.9).unwrap();
        assert!(p90.claimed && (p90.value_us - 1_026.999).abs() < 1e-9, "{p90:?}");
        let [low, high] = p90.interval_us.unwrap();
        assert!(low < p90.value_us && p90.value_us < high);
        assert!(Claim::of(&values, 0.9, 30_000).met);
        assert_eq!(p_name(0.999), "p99.9");
        assert_eq!(Claim::of(&[], 0.9, 0).claimed, None);
    }

    #[test]
    fn keys_of_ros2_benchmark_are_what_they_are_there() {
        let collected = Collected {
            samples: [(0, 5), (10, 17), (20, 24), (30, 40)]
                .map(|(due_ms, published_ms)| Sample {
                    stream: 0,
                    due_ns: due_ms * 1_000_000,
                    published_ns: published_ms * 1_000_000,
                })
                .to_vec(),
            streams: vec![Arc::from("/points")],
            ..Collector::new(None).take()
        };
        // Intervals of 12, 7 and 16 ms: jitters of 5 and 9 ms.
        let keys = Ros2BenchmarkKeys::of(&collected, 5, 100.0);
        assert_eq!((keys.num_frames_sent, keys.num_missed_frames), (5.0, 1.0));
        assert_eq!(
            (keys.min_jitter_ms, keys.max_jitter_ms, keys.mean_jitter_ms),
            (5.0, 9.0, 7.0)
        );
        assert_eq!(keys.std_dev_jitter_ms, 2.0);
        assert_eq!(keys.received_duration_ms, 35.0);
        assert!((keys.mean_frame_rate - 3.0 / 0.035).abs() < 1e-9);
        assert_eq!(
            (
                keys.first_sent_received_latency_ms,
                keys.last_sent_received_latency_ms
            ),
            (5.0, 10.0)
        );
        let json = serde_json::to_value(keys).unwrap();
        assert_eq!(json["BasicPerformanceMetrics.MAX_JITTER"], 9.0);
    }
}
