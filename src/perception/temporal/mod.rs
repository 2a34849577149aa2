//! Reference models that remember: networks with states on the device, one set for every stream.
//!
//! **Their weights are random.** They are drawn from a seed, the same on every machine, and no network was ever trained
//! to them: what these models report is no perception. They are there to prove the runtime. All that a stream's results
//! depend on is its own frames since its last fresh start, to the bit, so that any state that reaches another stream
//! shows. They have the shapes and the data flow of the networks that they stand for:
//!
//! - [`BevRing`] and its graph: LiDAR sweeps become a map from above; the maps of the last frames are kept in a ring,
//!   brought to where the sensor is now, and fused (as in BEVDet4D and its kin);
//! - [`StreamQueries`] and its graph: object queries look at the tokens of an image and at a memory of the best queries
//!   of the last frames (as in StreamPETR).
//!
//! Where a frame was taken travels with it as a [`PLACE_LANES`]-wide row and is kept with what is remembered of the
//! frame, so that the movement between two frames is computed on the device, whichever frames came through.

mod bev_features;
mod bev_graph;
mod bev_ring;
mod decode;
mod image_input;
mod layers;
mod place;
mod query_decoder;
mod query_graph;
mod query_memory;
mod random;
mod scratch;
mod stream_queries;

use std::sync::Arc;

pub use bev_features::{BEV_CHANNELS, BEV_RANGE_M, BEV_SIDE, bev_features};
pub use bev_graph::{BEV_CELLS, BevRingGraph};
pub use bev_ring::{BevRing, LoadedBevRing};
pub use decode::{CLASSES, QUERY_COLUMNS};
pub use image_input::QUERY_IMAGE_PX;
pub use place::{PLACE_LANES, Place};
pub use query_graph::{PROPAGATED, QUERIES, QUERY_CHANNELS, StreamQueriesGraph};
pub use random::SeededWeights;
pub use stream_queries::{LoadedStreamQueries, StreamQueries};

use crate::tensor::DType;
use crate::trace::{BankOptions, OnFull};

/// Most frames that may be remembered.
pub const MAX_MEMORY_FRAMES: usize = 16;

/// Highest score that may be asked for; the decoders take 1 for no threshold.
pub const MAX_SCORE_THRESHOLD: f32 = 0.999;

/// What a reference model is made of.
#[derive(Debug, Clone, PartialEq)]
pub struct TemporalOptions {
    /// Name of the model.
    pub name: Arc<str>,
    /// Seed of the weights: two models with one seed have the same.
    pub seed: u64,
    /// Earlier frames that are remembered, 1 to [`MAX_MEMORY_FRAMES`].
    pub memory_frames: usize,
    /// Storage of weights, activations and remembered features: float32 or bfloat16.
    pub storage: DType,
    /// Lowest score reported, 0 to [`MAX_SCORE_THRESHOLD`].
    pub score_threshold: f32,
    /// Streams whose states are kept, and what happens beyond.
    pub streams: BankOptions,
}

impl TemporalOptions {
    /// Three frames remembered of each of eight streams, in float32.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            seed: 0,
            memory_frames: 3,
            storage: DType::F32,
            score_threshold: 0.3,
            streams: BankOptions {
                max_streams: 8,
                on_full: OnFull::Reject,
                max_gap_s: None,
            },
        }
    }

    fn check(&self) -> Result<(), TemporalError> {
        let reason = if !(1..=MAX_MEMORY_FRAMES).contains(&self.memory_frames) {
            format!(
                "{} frames cannot be remembered: expected 1 to {MAX_MEMORY_FRAMES}",
                self.memory_frames
            )
        } else if ![DType::F32, DType::Bf16].contains(&self.storage) {
            format!("storage in {}: expected float32 or bfloat16", self.storage)
        } else if !(0.0..=MAX_SCORE_THRESHOLD).contains(&self.score_threshold) {
            format!(
                "a score threshold of {}: expected 0 to {MAX_SCORE_THRESHOLD}",
                self.score_threshold
            )
        } else if self.streams.max_streams == 0 {
            "there must be room for a stream".to_owned()
        } else {
            return Ok(());
        };
        Err(TemporalError {
            model: Arc::clone(&self.name),
            reason,
        })
    }
}

/// A reference model that cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("model {model}: {reason}")]
pub struct TemporalError {
    /// The model.
    pub model: Arc<str>,
    /// Why.
    pub reason: String,
}

impl TemporalError {
    fn new(model: &Arc<str>, reason: impl std::fmt::Display) -> Self {
        Self {
            model: Arc::clone(model),
            reason: reason.to_string(),
        }
    }
}
