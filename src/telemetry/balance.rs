//! What a ledger tells: drops by reason and place, and whether the frames of every stream add up.

use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::StreamId;

/// Why a frame did not come out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DropReason {
    /// Oldest in a full channel that keeps the newest.
    ChannelFullOldest,
    /// Newest at a full channel that keeps the oldest.
    ChannelFullNewest,
    /// Size, step or data length do not fit each other.
    InvalidImage,
    /// The layout or the sizes of a point cloud do not fit each other.
    InvalidCloud,
    /// It is not known where the vehicle was, and earlier sweeps were to be added.
    NoPose,
    /// A message or a compressed image that cannot be decoded.
    DecodeFailed,
    /// A pixel or compression format that is not supported.
    UnsupportedEncoding,
    /// Its deadline passed while it waited for the device, and its detector gives such frames up.
    DeadlineMissed,
    /// Sent by the sensor and lost on the network, as the gap in its numbers tells.
    NotDelivered,
    /// Nobody subscribed to the results.
    NoSubscriber,
    /// The actor that held the frame panicked.
    Panicked,
    /// The device refused or failed.
    DeviceError,
    /// The model has no room for this stream.
    StreamRejected,
    /// A sink could not take the result.
    SinkFailed,
    /// Still under way when the run was stopped.
    ShuttingDown,
    /// Of a set that was released without it, or dropped for what it lacked.
    Unmatched,
    /// Another message of its sensor took its place in the set.
    Superseded,
    /// The clock of its sensor is not that of the other sensors of the set.
    Unsynchronised,
    /// The worker that held the frame stood still for too long.
    Stalled,
    /// The stream is paused.
    StreamPaused,
}

impl DropReason {
    /// Stable snake-case name, as in reports and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ChannelFullOldest => "channel_full_oldest",
            Self::ChannelFullNewest => "channel_full_newest",
            Self::InvalidImage => "invalid_image",
            Self::InvalidCloud => "invalid_cloud",
            Self::NoPose => "no_pose",
            Self::DecodeFailed => "decode_failed",
            Self::UnsupportedEncoding => "unsupported_encoding",
            Self::DeadlineMissed => "deadline_missed",
            Self::NotDelivered => "not_delivered",
            Self::NoSubscriber => "no_subscriber",
            Self::Panicked => "panicked",
            Self::DeviceError => "device_error",
            Self::StreamRejected => "stream_rejected",
            Self::SinkFailed => "sink_failed",
            Self::ShuttingDown => "shutting_down",
            Self::Unmatched => "unmatched",
            Self::Superseded => "superseded",
            Self::Unsynchronised => "unsynchronised",
            Self::Stalled => "stalled",
            Self::StreamPaused => "stream_paused",
        }
    }
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Drops of one stream at one place for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DropCount {
    /// Name of the stream.
    pub stream: String,
    /// Actor or channel.
    pub place: String,
    /// Why.
    pub reason: DropReason,
    /// How many.
    pub count: u64,
}

/// What became of the frames of one stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamAccount {
    /// The stream.
    pub stream: StreamId,
    /// Its name.
    pub name: Arc<str>,
    /// Frames that came in.
    pub frames_in: u64,
    /// Frames that came out.
    pub frames_out: u64,
    /// Drops by place and reason, in the order of their first occurrence.
    pub drops: Vec<DropCount>,
    /// Frames that came in and are not settled: under way during a run, lost after it.
    pub open: u64,
    /// Sequence numbers of the first open frames, at most 16.
    pub open_seqs: Vec<u64>,
    /// Reports about frames that were settled already or never came in.
    pub settled_twice: u64,
}

impl StreamAccount {
    /// Frames dropped for any reason.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.drops.iter().map(|d| d.count).sum()
    }

    /// Whether every frame was settled exactly once.
    #[must_use]
    pub fn is_balanced(&self) -> bool {
        self.open == 0 && self.settled_twice == 0 && self.frames_in == self.frames_out + self.dropped()
    }
}

/// A ledger in which frames in = frames out + frames dropped, for every stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Balance {
    /// The streams in the order of registration.
    pub streams: Vec<StreamAccount>,
}

/// One stream whose frames do not add up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imbalance {
    /// What was counted.
    pub account: StreamAccount,
}

impl fmt::Display for Imbalance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let account = &self.account;
        write!(
            f,
            "stream {:?}: {} in, {} out, {} dropped",
            account.name,
            account.frames_in,
            account.frames_out,
            account.dropped()
        )?;
        if account.open > 0 {
            write!(f, ", {} lost (", account.open)?;
            for (i, seq) in account.open_seqs.iter().enumerate() {
                write!(f, "{}#{seq}", if i == 0 { "" } else { ", " })?;
            }
            let unnamed = account.open > account.open_seqs.len() as u64;
            f.write_str(if unnamed { ", ...)" } else { ")" })?;
        }
        if account.settled_twice > 0 {
            write!(f, ", {} reported twice", account.settled_twice)?;
        }
        Ok(())
    }
}

/// Frames that came in and were neither put out nor dropped, or were reported more than once.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("frames do not add up: {}", self.to_text())]
pub struct BalanceError {
    /// The streams concerned, at least one.
    pub imbalances: Vec<Imbalance>,
}

impl BalanceError {
    fn to_text(&self) -> String {
        let lines: Vec<String> = self.imbalances.iter().map(Imbalance::to_string).collect();
        lines.join("; ")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn reason_names_in_text_and_in_json_are_the_same() {
        for reason in [
            DropReason::ChannelFullOldest,
            DropReason::ChannelFullNewest,
            DropReason::InvalidImage,
            DropReason::DecodeFailed,
            DropReason::UnsupportedEncoding,
            DropReason::Panicked,
            DropReason::DeviceError,
            DropReason::StreamRejected,
            DropReason::SinkFailed,
            DropReason::ShuttingDown,
            DropReason::Stalled,
            DropReason::StreamPaused,
        ] {
            assert_eq!(serde_json::to_string(&reason).unwrap(), format!("\"{reason}\""));
        }
    }
}
