//! What a run amounted to: the body of `report.json` and of the table at the end of a run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    CurvePoint, DropCount, Imbalance, JitterStats, LatencyRecorder, LatencyStats, Ledger, Part, Percentile,
    Stage, StreamAccount, table,
};

/// Which clock paces a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClockKind {
    /// Live streams.
    Wall,
    /// A recording, paced by its stamps.
    Bag,
    /// A recording in a fixed order, without drops.
    Deterministic,
}

impl ClockKind {
    /// Stable lower-case name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Wall => "wall",
            Self::Bag => "bag",
            Self::Deterministic => "deterministic",
        }
    }
}

/// What was run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunInfo {
    /// Name of the pipeline.
    pub pipeline: String,
    /// Name of the model file or models.
    pub model: String,
    /// Description of the device.
    pub device: String,
    /// The device in numbers, once its traces were captured: what was asked for and used, queues, memory,
    /// programs. Sizes are bytes.
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    pub device_details: serde_json::Value,
    /// The clock that paced the run.
    pub clock: ClockKind,
    /// Sensor time over wall time; absent if the run went as fast as it could.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// Wall time of the start, as text; absent where outputs must not depend on when they were made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    /// Duration of the whole run in seconds, start-up included; absent as above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wall_s: Option<f64>,
}

/// Frames of a run or a stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FrameCounts {
    /// Came in.
    #[serde(rename = "in")]
    pub frames_in: u64,
    /// Came out.
    #[serde(rename = "out")]
    pub frames_out: u64,
    /// Dropped with a reason.
    pub dropped: u64,
    /// Came in and were never heard of again: a fault of the program.
    pub lost: u64,
}

impl FrameCounts {
    fn of(account: &StreamAccount) -> Self {
        Self {
            frames_in: account.frames_in,
            frames_out: account.frames_out,
            dropped: account.dropped(),
            lost: account.open,
        }
    }

    fn add(&mut self, other: &Self) {
        self.frames_in += other.frames_in;
        self.frames_out += other.frames_out;
        self.dropped += other.dropped;
        self.lost += other.lost;
    }
}

/// Latency of one stage. Wait and service have the same number of values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StageSummary {
    /// The stage.
    pub stage: Stage,
    /// From the end of the previous stage to the start of this one.
    pub wait: LatencyStats,
    /// From the start to the end of this stage.
    pub service: LatencyStats,
}

/// Frames that took longer than permitted.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DeadlineSummary {
    /// Longest permitted total latency in microseconds.
    pub deadline_us: f64,
    /// Frames above it.
    pub misses: u64,
    /// Most misses in a row on one stream.
    pub longest_streak: u64,
}

/// One stream of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StreamSummary {
    /// Name of the stream.
    pub name: String,
    /// Its frames.
    pub frames: FrameCounts,
    /// Intended release to end of publishing; absent if no frame came out.
    pub total: Option<LatencyStats>,
    /// Regularity of its output; absent with fewer than two results or in a run without a rhythm.
    pub jitter: Option<JitterStats>,
    /// Deadline misses; absent without a deadline.
    pub deadline: Option<DeadlineSummary>,
}

/// A run in numbers. All latencies are in microseconds and count from the intended release of a frame.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunSummary {
    /// What was run.
    pub run: RunInfo,
    /// Why the results are not all that was asked for; empty for a complete run.
    pub incomplete: Vec<String>,
    /// How often the device was lost and opened again; what was on it is dropped as `device_error`.
    #[serde(default)]
    pub device_restarts: u64,
    /// Frames of all streams.
    pub frames: FrameCounts,
    /// Frames per second from the first intended release to the last publishing.
    pub throughput_fps: Option<f64>,
    /// Intended release to end of publishing; absent if no frame came out.
    pub total: Option<LatencyStats>,
    /// Distribution of the total.
    pub total_curve: Vec<CurvePoint>,
    /// Sensor stamp to publishing, on live streams.
    pub age: Option<LatencyStats>,
    /// Frames without an age because their stamp lay in the future.
    pub stamped_in_future: u64,
    /// The stages that frames passed, in order.
    pub stages: Vec<StageSummary>,
    /// Deadline misses of all streams; absent without a deadline.
    pub deadline: Option<DeadlineSummary>,
    /// The streams in the order of registration.
    pub streams: Vec<StreamSummary>,
    /// Every kind of drop.
    pub drops: Vec<DropCount>,
}

impl RunSummary {
    /// Sums up a run that has ended. Frames that are still open in the ledger count as lost and make the run
    /// incomplete.
    #[must_use]
    pub fn new(run: RunInfo, ledger: &Ledger, latency: &LatencyRecorder) -> Self {
        let accounts = ledger.accounts();
        let mut frames = FrameCounts::default();
        for account in &accounts {
            frames.add(&FrameCounts::of(account));
        }
        let deadline_us = latency.options().deadline_ns.map(super::histogram::us);
        let streams: Vec<StreamSummary> = accounts
            .iter()
            .map(|account| StreamSummary {
                name: account.name.to_string(),
                frames: FrameCounts::of(account),
                total: latency.stream_total(account.stream),
                jitter: latency.stream_jitter(account.stream),
                deadline: deadline_us.map(|deadline_us| {
                    let (misses, longest_streak) = latency.stream_misses(account.stream);
                    DeadlineSummary {
                        deadline_us,
                        misses,
                        longest_streak,
                    }
                }),
            })
            .collect();
        Self {
            incomplete: faults(&accounts, latency),
            device_restarts: ledger.device_restarts(),
            frames,
            throughput_fps: latency.throughput_fps(),
            total: latency.total(),
            total_curve: latency.total_curve(),
            age: latency.age(),
            stamped_in_future: latency.stamped_in_future(),
            stages: Stage::ALL
                .into_iter()
                .filter_map(|stage| {
                    Some(StageSummary {
                        stage,
                        wait: latency.stage(stage, Part::Wait)?,
                        service: latency.stage(stage, Part::Service)?,
                    })
                })
                .collect(),
            deadline: deadline_us.map(|deadline_us| DeadlineSummary {
                deadline_us,
                misses: streams.iter().flat_map(|s| s.deadline).map(|d| d.misses).sum(),
                longest_streak: streams
                    .iter()
                    .flat_map(|s| s.deadline)
                    .map(|d| d.longest_streak)
                    .max()
                    .unwrap_or(0),
            }),
            drops: accounts.into_iter().flat_map(|account| account.drops).collect(),
            streams,
            run,
        }
    }

    /// Declares that the results are not all that was asked for.
    pub fn mark_incomplete(&mut self, reason: impl Into<String>) {
        self.incomplete.push(reason.into());
    }

    /// The table that is printed at the end of a run; plain text, lines of about 100 columns.
    #[must_use]
    pub fn table(&self) -> String {
        table::render(self)
    }

    /// That the device was lost, in words, if it was.
    pub(super) fn restarts_text(&self) -> Option<String> {
        let times = match self.device_restarts {
            0 => return None,
            1 => "once".to_owned(),
            count => format!("{count} times"),
        };
        Some(format!("the device was lost and opened again {times}"))
    }

    /// Whether the tables show a percentile of fewer values than it takes to tell it from the maximum.
    pub(super) fn has_thin_percentile(&self) -> bool {
        let parts = self.stages.iter().flat_map(|s| [&s.wait, &s.service]);
        let streams = self.streams.iter().flat_map(|s| &s.total);
        parts
            .chain(&self.total)
            .chain(&self.age)
            .chain(streams)
            .any(|stats| !stats.percentile_us(Percentile::P999).1)
    }
}

/// What the counts themselves say went wrong.
fn faults(accounts: &[StreamAccount], latency: &LatencyRecorder) -> Vec<String> {
    let mut faults = Vec::new();
    let lost: u64 = accounts.iter().map(|a| a.open).sum();
    if lost > 0 {
        faults.push(format!("{lost} {} lost", plural(lost)));
    }
    for account in accounts.iter().filter(|a| !a.is_balanced()) {
        let imbalance = Imbalance {
            account: account.clone(),
        };
        faults.push(imbalance.to_string());
    }
    let unpublished = latency.unpublished();
    if unpublished > 0 {
        faults.push(format!(
            "{unpublished} {} came out without an end of publishing",
            plural(unpublished)
        ));
    }
    faults
}

fn plural(count: u64) -> &'static str {
    if count == 1 { "frame" } else { "frames" }
}
