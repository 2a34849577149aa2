//! The frames that a timeline shows.

use std::sync::Arc;

use super::{FrameId, FrameTimes, Streams};

/// A frame and when it passed the stages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimelineFrame {
    /// The frame.
    pub frame: FrameId,
    /// Its stamps.
    pub times: FrameTimes,
}

/// Keeps the first frames of a run, and the slowest one; nothing grows after that.
#[derive(Debug, Clone)]
pub struct Timeline {
    streams: Streams,
    limit: usize,
    first: Vec<TimelineFrame>,
    worst: Option<TimelineFrame>,
}

impl Timeline {
    /// How many first frames a report shows unless told otherwise.
    pub const DEFAULT_FRAMES: usize = 60;

    /// Keeps the first `limit` frames.
    #[must_use]
    pub fn new(streams: Streams, limit: usize) -> Self {
        Self {
            streams,
            limit,
            first: Vec::with_capacity(limit),
            worst: None,
        }
    }

    /// Shows a frame that came out to the timeline, which keeps it if it is among the first ones or the slowest.
    pub fn offer(&mut self, frame: FrameId, times: &FrameTimes) {
        let candidate = TimelineFrame { frame, times: *times };
        if self.first.len() < self.limit {
            self.first.push(candidate);
        }
        let worst_ns = self.worst.and_then(|worst| worst.times.total_ns());
        if times.total_ns() > worst_ns {
            self.worst = Some(candidate);
        }
    }

    /// The first frames, in the order in which they came out.
    #[must_use]
    pub fn first(&self) -> &[TimelineFrame] {
        &self.first
    }

    /// The frame with the longest total latency.
    #[must_use]
    pub const fn worst(&self) -> Option<&TimelineFrame> {
        self.worst.as_ref()
    }

    /// Name of a frame's stream.
    #[must_use]
    pub fn stream_name(&self, frame: FrameId) -> Arc<str> {
        self.streams.name(frame.stream)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

    use super::*;
    use crate::telemetry::Stage;

    #[test]
    fn the_first_frames_and_the_slowest_are_kept() {
        let streams = Streams::default();
        let stream = streams.register("cam");
        let mut timeline = Timeline::new(streams, 3);
        for (seq, total_ns) in [(0, 10), (1, 12), (2, 11), (3, 90), (4, 90), (5, 13)] {
            let mut times = FrameTimes::new(seq * 100);
            times.begin(Stage::Publish, seq * 100);
            times.end(Stage::Publish, seq * 100 + total_ns);
            timeline.offer(FrameId { stream, seq }, &times);
        }
        let first: Vec<u64> = timeline.first().iter().map(|f| f.frame.seq).collect();
        assert_eq!(first, [0, 1, 2]);
        assert_eq!(timeline.worst().unwrap().frame.seq, 3);
    }
}
