//! What a run tells of itself while it lasts.

use serde::Serialize;
use serde_json::{Map, Value};

use super::streams::StreamFlow;
use crate::runtime::health::HealthReport;

/// A pipeline as it is now.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PipelineStatus {
    /// Name of the pipeline; empty before the run has begun.
    pub pipeline: String,
    /// The state, the reasons, and how it came to them.
    #[serde(flatten)]
    pub health: HealthReport,
    /// Whether the run goes on or ends.
    pub phase: RunPhase,
    /// Nanoseconds since the run began.
    pub uptime_ns: u64,
    /// Every stream of every detector.
    pub streams: Vec<StreamStatus>,
    /// Every actor.
    pub stages: Vec<StageStatus>,
    /// Every channel between actors that is still open.
    pub queues: Vec<QueueStatus>,
    /// The device; `None` until it is open.
    pub device: Option<DeviceStatus>,
    /// Parameters that were set while the run lasts, by detector.
    pub parameters: Map<String, Value>,
}

/// Whether a run goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RunPhase {
    /// It has not begun.
    Waiting,
    /// It goes on.
    Running,
    /// Sources have stopped, and what is under way comes out.
    Draining,
    /// What is under way is dropped.
    Aborting,
    /// It is over.
    Over,
}

/// One stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StreamStatus {
    /// Its name, as in reports.
    pub name: String,
    /// The source that it comes from.
    pub source: String,
    /// The detector that it goes to.
    pub detector: String,
    /// Its topic.
    pub topic: String,
    /// Whether its frames are taken.
    pub flow: StreamFlow,
    /// Whether the model has no room for it.
    pub rejected: bool,
    /// Frames that came.
    pub frames_in: u64,
    /// Frames that came out.
    pub frames_out: u64,
    /// Frames that were dropped.
    pub dropped: u64,
    /// Frames that are under way.
    pub under_way: u64,
    /// Nanoseconds since something last came; `None` before the first time.
    pub silent_ns: Option<u64>,
}

/// One actor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StageStatus {
    /// Its name, as in the plan.
    pub actor: String,
    /// Frames that got through.
    pub done: u64,
    /// For how long it has been at the frame that it has held longest, in nanoseconds; `None` where it holds none.
    pub holding_ns: Option<u64>,
    /// How often it was started again.
    pub restarts: u64,
    /// How often one of its workers panicked.
    pub worker_panics: u64,
}

/// One channel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct QueueStatus {
    /// The actor that sends.
    pub from: String,
    /// The actor that receives.
    pub to: String,
    /// Samples that wait in it.
    pub len: usize,
    /// Samples that it holds.
    pub capacity: usize,
}

/// The device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeviceStatus {
    /// Backend and description.
    pub name: String,
    /// How often it was opened again after a loss.
    pub restarts: u64,
}
