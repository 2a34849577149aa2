//! Models that keep states of every stream, as a pipeline file says them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::raw::default_max_streams;
use super::scheduling::BatchSettings;
use super::settings::{OnStreamsFull, Precision};

/// A reference model that remembers earlier frames of every stream: `bev_ring` for point clouds (the maps of the last
/// frames are brought to the present and fused), `stream_queries` for images (queries look at what was found in the last
/// frames). Its weights are random, drawn from a seed: it shows that states are kept apart, and perceives nothing.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "TemporalModel")]
pub(super) struct RawTemporal {
    /// Seed of the weights: two models with one seed are the same.
    #[serde(default)]
    #[schemars(range(min = 0, max = 4_294_967_295_u64))]
    pub(super) seed: u64,
    /// Earlier frames of a stream that are remembered.
    #[serde(default = "default_memory_frames")]
    #[schemars(range(min = 1, max = 16))]
    pub(super) memory_frames: u16,
    /// Storage of weights, activations and remembered features; sums are always fp32.
    #[serde(default)]
    pub(super) precision: Precision,
    /// Detections below this score are not reported.
    #[serde(default = "default_score_threshold")]
    #[schemars(range(min = 0.0, max = 0.999))]
    pub(super) score_threshold: f32,
    /// Frame in which the vehicle moves; what is remembered is brought to the present through it. Left out: the sensor is
    /// taken to stand still.
    #[schemars(length(min = 1))]
    pub(super) world_frame: Option<String>,
    /// A stream that was silent for longer starts without a past, in seconds. Left out: it never does for that.
    #[schemars(range(min = 0.0, max = 86_400.0))]
    pub(super) max_gap_s: Option<f64>,
    /// Most streams whose states are kept.
    #[serde(default = "default_max_streams")]
    #[schemars(range(min = 1, max = 1_024))]
    pub(super) max_streams: u16,
    /// What happens to a stream beyond `max_streams`.
    #[serde(default)]
    pub(super) on_full: OnStreamsFull,
    /// Frames that may be under way between preparation and result in each detector that runs the model, over all its
    /// streams. Left out: as many as there is memory for.
    #[schemars(range(min = 1, max = 1_024))]
    pub(super) max_in_flight: Option<u32>,
    /// Not for this model, which keeps states of each stream: refused.
    pub(super) batch: Option<BatchSettings>,
}

const fn default_memory_frames() -> u16 {
    3
}

const fn default_score_threshold() -> f32 {
    0.3
}

/// What is peculiar to models that keep states of every stream.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TemporalSettings {
    /// Seed of the weights.
    pub seed: u64,
    /// Earlier frames that are remembered, at least 1.
    pub memory_frames: u16,
    /// Lowest score reported, 0 to 0.999.
    pub score_threshold: f32,
    /// Frame in which the vehicle moves; `None`: the sensor is taken to stand still.
    pub world_frame: Option<String>,
    /// Longest silence after which a stream goes on, in seconds.
    pub max_gap_s: Option<f64>,
}

impl RawTemporal {
    pub(super) fn settings(&self) -> TemporalSettings {
        TemporalSettings {
            seed: self.seed,
            memory_frames: self.memory_frames,
            score_threshold: self.score_threshold,
            world_frame: self.world_frame.clone(),
            max_gap_s: self.max_gap_s,
        }
    }
}
