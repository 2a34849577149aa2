//! Coordinate frames: what `/tf` and `/tf_static` have said, and where one frame is in another at a time.
//!
//! A [`TfBuffer`] takes messages as they come and answers [`lookup`](TfBuffer::lookup)s by interpolation. It holds a
//! bounded time of a bounded number of frames, refuses what would make a frame its own ancestor or a rotation no
//! rotation, and starts over when time jumps back, as it does where a bag is played again.

mod buffer;
mod history;
mod transform;

use thiserror::Error;

pub use buffer::{TfBuffer, TfUpdate};
pub use transform::Transform;

/// How much a [`TfBuffer`] holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TfLimits {
    /// Transforms of a frame older than its newest by more than this are forgotten.
    pub history_ns: i64,
    /// Most transforms of one frame; the oldest are forgotten first.
    pub history_len: usize,
    /// Most frames; transforms of further ones are refused.
    pub frames: usize,
    /// A transform older than the newest of its frame by more than this is a jump back in time.
    pub jump_back_ns: i64,
}

impl Default for TfLimits {
    /// Ten seconds, as tf2 holds, at 1 kHz; a jump is half a second.
    fn default() -> Self {
        Self {
            history_ns: 10_000_000_000,
            history_len: 10_000,
            frames: 4096,
            jump_back_ns: 500_000_000,
        }
    }
}

/// Why a frame cannot be found in another.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TfError {
    /// No transform has named the frame.
    #[error("frame {frame} is unknown; known are: {known}")]
    UnknownFrame {
        /// The frame.
        frame: String,
        /// Some frames that are known.
        known: String,
    },
    /// No chain of transforms leads from one frame to the other.
    #[error(
        "no transform connects {source_frame} and {target}: their roots are {source_root} and {target_root}"
    )]
    Disconnected {
        /// The frame to transform to.
        target: String,
        /// The frame to transform from.
        source_frame: String,
        /// Root of the target's tree.
        target_root: String,
        /// Root of the source's tree.
        source_root: String,
    },
    /// The frame has moved since the buffer started over, and nothing has said where it is.
    #[error("no transform of frame {frame} is known since time jumped back")]
    NoData {
        /// The frame.
        frame: String,
    },
    /// The stamp is older than what is known.
    #[error(
        "frame {frame} is needed at {stamp}, but its transforms start at {oldest}: {ahead} s into the past",
        stamp = seconds(*stamp_ns), oldest = seconds(*oldest_ns), ahead = seconds(oldest_ns.saturating_sub(*stamp_ns))
    )]
    ExtrapolationPast {
        /// The frame without a transform at that time.
        frame: String,
        /// The time asked for.
        stamp_ns: i64,
        /// The oldest time known.
        oldest_ns: i64,
    },
    /// The stamp is newer than what is known.
    #[error(
        "frame {frame} is needed at {stamp}, but its transforms end at {newest}: {ahead} s into the future",
        stamp = seconds(*stamp_ns), newest = seconds(*newest_ns), ahead = seconds(stamp_ns.saturating_sub(*newest_ns))
    )]
    ExtrapolationFuture {
        /// The frame without a transform at that time.
        frame: String,
        /// The time asked for.
        stamp_ns: i64,
        /// The newest time known.
        newest_ns: i64,
    },
}

fn seconds(ns: i64) -> String {
    format!(
        "{}.{:09}",
        ns.div_euclid(1_000_000_000),
        ns.rem_euclid(1_000_000_000)
    )
}
