//! The stages that every frame passes.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A stage of the way from the source to the sink, in the order in which a frame passes them. A pipeline that
/// has no such step simply records nothing for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Read from the source and decoded from its message.
    Ingest,
    /// Pre-processed on the host.
    Prepare,
    /// Copied to the device.
    Upload,
    /// Trace replayed.
    Replay,
    /// Outputs copied to the host.
    Readback,
    /// Decoded into results.
    Finish,
    /// Handed to the sinks.
    Publish,
}

impl Stage {
    /// Number of stages.
    pub const COUNT: usize = 7;

    /// All stages in order.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Ingest,
        Self::Prepare,
        Self::Upload,
        Self::Replay,
        Self::Readback,
        Self::Finish,
        Self::Publish,
    ];

    /// Position in [`Stage::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Stable lower-case name, as in reports, JSON lines and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ingest => "ingest",
            Self::Prepare => "prepare",
            Self::Upload => "upload",
            Self::Replay => "replay",
            Self::Readback => "readback",
            Self::Finish => "finish",
            Self::Publish => "publish",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The two parts of a frame's time at a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Part {
    /// From the end of the previous stage to the start of this one.
    Wait,
    /// From the start to the end of this stage.
    Service,
}

impl Part {
    /// Stable lower-case name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Wait => "wait",
            Self::Service => "service",
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

    use super::*;

    #[test]
    fn names_in_text_and_in_json_are_the_same() {
        for (i, stage) in Stage::ALL.into_iter().enumerate() {
            assert_eq!(stage.index(), i);
            assert_eq!(serde_json::to_string(&stage).unwrap(), format!("\"{stage}\""));
        }
    }
}
