//! What is told of a frame when it goes to the device, and what comes back.

use crate::device::EventId;
use crate::trace::{BankError, Freshness, Pending, Select, TraceError};

/// Which stream a frame belongs to, and when it was taken. Networks without states do not ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FrameKey<'a> {
    /// The stream.
    pub stream: &'a str,
    /// Sensor stamp in nanoseconds. A negative one is not compared with those of other frames.
    pub stamp_ns: i64,
    /// The stream starts afresh with this frame.
    pub reset: bool,
}

impl FrameKey<'_> {
    pub(super) fn select(&self) -> Select {
        Select {
            reset: self.reset,
            // Steps below 0.3 us are lost in today's times, which tells no frame from another.
            timestamp_s: (self.stamp_ns >= 0).then(|| self.stamp_ns as f64 / 1e9),
        }
    }
}

/// A frame that was given to the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Submitted {
    /// Completes when the slots of the inputs are free again.
    pub uploaded: EventId,
    /// The replay.
    pub pending: Pending,
    /// Whether the stream goes on or starts afresh; `None` for networks without states.
    pub freshness: Option<Freshness>,
}

/// Why a frame was not given to the device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// One stream too many. The device and the other streams are as they were.
    #[error(
        "stream {stream}: the model keeps the states of {limit} stream(s), and all are taken by {known:?}"
    )]
    StreamRejected {
        /// The stream.
        stream: String,
        /// Streams that are kept.
        limit: usize,
        /// Their names, most recent first.
        known: Vec<String>,
    },
    /// A key that the banks do not take.
    #[error(transparent)]
    Key(BankError),
    /// The trace runner or its device refused.
    #[error(transparent)]
    Trace(#[from] TraceError),
}

impl From<BankError> for SubmitError {
    fn from(error: BankError) -> Self {
        match error {
            BankError::Full { stream, limit, known } => Self::StreamRejected { stream, limit, known },
            BankError::Trace(error) => Self::Trace(error),
            BankError::Options(_) | BankError::Timestamp { .. } => Self::Key(error),
        }
    }
}

/// Whose states a network keeps.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct BankUse {
    /// Streams whose states are kept.
    pub used: usize,
    /// Most of them.
    pub max: usize,
    /// Their names, most recent first.
    pub streams: Vec<String>,
}
