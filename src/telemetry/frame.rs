//! When one frame passed each stage.

use super::Stage;

/// Not recorded. A real stamp would have to be 584 years after the start of the clock.
const UNSET: u64 = u64::MAX;

/// Monotonic stamps of one frame, all in nanoseconds of the run's [`super::MonotonicClock`]. Small and `Copy`: it
/// travels with the frame.
///
/// All latency counts from `released_ns`, the time at which the frame *should* have entered the pipeline: its
/// stamp on the replay's schedule, or its arrival on a live stream. A source that is held up by a full channel
/// releases late, and that delay is the frame's first wait, not a gap in the measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameTimes {
    released_ns: u64,
    started_ns: [u64; Stage::COUNT],
    finished_ns: [u64; Stage::COUNT],
}

/// One frame's time at one stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// End of the previous recorded stage, or the intended release for the first one.
    pub enqueued_ns: u64,
    /// Start of this stage.
    pub started_ns: u64,
    /// End of this stage.
    pub finished_ns: u64,
}

impl Span {
    /// Start minus end of the previous stage; 0 if the stage started early.
    #[must_use]
    pub const fn wait_ns(&self) -> u64 {
        self.started_ns.saturating_sub(self.enqueued_ns)
    }

    /// End minus start.
    #[must_use]
    pub const fn service_ns(&self) -> u64 {
        self.finished_ns.saturating_sub(self.started_ns)
    }
}

impl FrameTimes {
    /// A frame that should enter the pipeline at `released_ns`.
    #[must_use]
    pub const fn new(released_ns: u64) -> Self {
        Self {
            released_ns,
            started_ns: [UNSET; Stage::COUNT],
            finished_ns: [UNSET; Stage::COUNT],
        }
    }

    /// The intended release.
    #[must_use]
    pub const fn released_ns(&self) -> u64 {
        self.released_ns
    }

    /// Marks the start of a stage. A stage that starts again (a retry) is measured from its last start.
    pub const fn begin(&mut self, stage: Stage, now_ns: u64) {
        self.started_ns[stage.index()] = now_ns;
        self.finished_ns[stage.index()] = UNSET;
    }

    /// Marks the end of a stage.
    pub const fn end(&mut self, stage: Stage, now_ns: u64) {
        self.finished_ns[stage.index()] = now_ns;
    }

    /// Start of a stage, if it has one.
    #[must_use]
    pub const fn started_ns(&self, stage: Stage) -> Option<u64> {
        match self.started_ns[stage.index()] {
            UNSET => None,
            started_ns => Some(started_ns),
        }
    }

    /// The stages that have both a start and an end, in order.
    pub fn spans(&self) -> impl Iterator<Item = (Stage, Span)> + '_ {
        let mut enqueued_ns = self.released_ns;
        Stage::ALL.into_iter().filter_map(move |stage| {
            let started_ns = self.started_ns[stage.index()];
            let finished_ns = self.finished_ns[stage.index()];
            if started_ns == UNSET || finished_ns == UNSET {
                return None;
            }
            let span = Span {
                enqueued_ns,
                started_ns,
                finished_ns,
            };
            enqueued_ns = finished_ns;
            Some((stage, span))
        })
    }

    /// One stage, if it has a start and an end.
    #[must_use]
    pub fn span(&self, stage: Stage) -> Option<Span> {
        self.spans()
            .find_map(|(found, span)| (found == stage).then_some(span))
    }

    /// End of publishing, if the frame got there.
    #[must_use]
    pub const fn published_ns(&self) -> Option<u64> {
        match self.finished_ns[Stage::Publish.index()] {
            UNSET => None,
            published_ns => Some(published_ns),
        }
    }

    /// End of publishing minus intended release, if the frame got there.
    #[must_use]
    pub fn total_ns(&self) -> Option<u64> {
        self.published_ns()
            .map(|published_ns| published_ns.saturating_sub(self.released_ns))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

    use super::*;

    #[test]
    fn waits_and_services_add_up_to_the_total() {
        let mut times = FrameTimes::new(1_000);
        let mut now_ns = 1_000;
        for (i, stage) in Stage::ALL.into_iter().enumerate() {
            now_ns += 10 * (i as u64 + 1);
            times.begin(stage, now_ns);
            now_ns += 100;
            times.end(stage, now_ns);
        }
        let upload = times.span(Stage::Upload).unwrap();
        assert_eq!((upload.wait_ns(), upload.service_ns()), (30, 100));
        let sum: u64 = times.spans().map(|(_, s)| s.wait_ns() + s.service_ns()).sum();
        assert_eq!(times.total_ns(), Some(sum));
        assert_eq!(sum, 10 * 28 + 700);
    }

    #[test]
    fn a_skipped_stage_leaves_its_time_to_the_next_wait() {
        let mut times = FrameTimes::new(0);
        times.begin(Stage::Ingest, 5);
        times.end(Stage::Ingest, 10);
        times.begin(Stage::Prepare, 11);
        times.begin(Stage::Finish, 40);
        times.end(Stage::Finish, 41);
        assert_eq!(times.span(Stage::Prepare), None);
        assert_eq!(times.span(Stage::Finish).unwrap().wait_ns(), 30);
        assert_eq!(times.total_ns(), None);
    }

    #[test]
    fn a_stage_that_starts_again_counts_from_its_last_start() {
        let mut times = FrameTimes::new(0);
        times.begin(Stage::Replay, 10);
        times.end(Stage::Replay, 20);
        times.begin(Stage::Replay, 50);
        assert_eq!(times.span(Stage::Replay), None);
        times.end(Stage::Replay, 60);
        let replay = times.span(Stage::Replay).unwrap();
        assert_eq!((replay.wait_ns(), replay.service_ns()), (50, 10));
    }
}
