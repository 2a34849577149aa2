//! How frames of several streams share the device: what a pipeline file says about it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::words::words;

/// Largest batch that can be asked for.
pub(super) const MAX_BATCH: u16 = 64;

/// Longest time that a frame may wait for others to join it, in microseconds.
const MAX_TIMEOUT_US: u32 = 1_000_000;

/// Frames of several streams in one go. A batch has at most one frame of a stream. It starts when it is full, when every
/// stream that lives has a frame in it, or at the timeout; a stream with two frames waiting waits for nobody. Results are
/// the same bits as without batches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Batch")]
pub struct BatchSettings {
    /// Numbers of frames for which the network is captured beside the single one, ascending. Fewer frames run in the
    /// smallest that holds them.
    #[schemars(length(min = 1), inner(range(min = 2, max = MAX_BATCH)))]
    pub sizes: Vec<u16>,
    /// Longest time that a frame waits for others to join it, in microseconds.
    #[serde(default = "default_timeout_us")]
    #[schemars(range(min = 0, max = MAX_TIMEOUT_US))]
    pub timeout_us: u32,
}

const fn default_timeout_us() -> u32 {
    2_000
}

impl BatchSettings {
    /// Frames of the largest batch.
    #[must_use]
    pub fn largest(&self) -> u16 {
        self.sizes.iter().copied().max().unwrap_or(1)
    }
}

words! {
    /// What happens to a frame that waits for the device when its deadline passes.
    #[derive(Default)]
    OnLate {
        /// It is run all the same, and counts as late.
        #[default]
        Run = "run",
        /// It is dropped and counted, and the frames behind it have the device to themselves.
        Drop = "drop",
    }
}
