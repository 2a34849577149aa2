//! What was offered, counted while it is.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A release this much after its time counts as late: more than a sleeping thread takes to wake up.
const LATE: Duration = Duration::from_millis(1);

/// What a load has come to, readable while it is offered.
#[derive(Debug)]
pub struct LoadTally {
    pub(super) started_ns: AtomicU64,
    pub(super) measured_from_ns: AtomicU64,
    pub(super) ended_ns: AtomicU64,
    pub(super) period_ns: AtomicU64,
    pub(super) lanes: AtomicU64,
    pub(super) warm_up_queries: AtomicU64,
    pub(super) queries: AtomicU64,
    pub(super) frames: AtomicU64,
    late: AtomicU64,
    overruns: AtomicU64,
    max_late_ns: AtomicU64,
    pub(super) gave_up: AtomicU64,
}

impl Default for LoadTally {
    fn default() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            started_ns: AtomicU64::new(u64::MAX),
            measured_from_ns: AtomicU64::new(u64::MAX),
            ended_ns: zero(),
            period_ns: zero(),
            lanes: zero(),
            warm_up_queries: zero(),
            queries: zero(),
            frames: zero(),
            late: zero(),
            overruns: zero(),
            max_late_ns: zero(),
            gave_up: zero(),
        }
    }
}

impl LoadTally {
    /// End of the warm-up on the clock of the run; `u64::MAX` before the first message.
    #[must_use]
    pub fn measured_from_ns(&self) -> u64 {
        self.measured_from_ns.load(Ordering::Acquire)
    }

    /// When the last message was due, or was released in a closed loop, on the clock of the run.
    #[must_use]
    pub fn ended_ns(&self) -> u64 {
        self.ended_ns.load(Ordering::Acquire)
    }

    /// Period of one stream in nanoseconds; 0 in a closed loop.
    #[must_use]
    pub fn period_ns(&self) -> u64 {
        self.period_ns.load(Ordering::Acquire)
    }

    /// Streams that were offered.
    #[must_use]
    pub fn streams(&self) -> u64 {
        self.lanes.load(Ordering::Acquire)
    }

    /// Messages offered during the warm-up.
    #[must_use]
    pub fn warm_up_queries(&self) -> u64 {
        self.warm_up_queries.load(Ordering::Acquire)
    }

    /// Messages offered since the warm-up.
    #[must_use]
    pub fn queries(&self) -> u64 {
        self.queries.load(Ordering::Acquire)
    }

    /// Results that come of those messages: one for each node that takes them, and one for a set.
    #[must_use]
    pub fn frames(&self) -> u64 {
        self.frames.load(Ordering::Acquire)
    }

    /// Messages since the warm-up that got away more than a millisecond after their time.
    #[must_use]
    pub fn late(&self) -> u64 {
        self.late.load(Ordering::Acquire)
    }

    /// Messages since the warm-up that got away more than a period of their stream after their time: a sensor would have
    /// had the next one ready, and nowhere to keep this one.
    #[must_use]
    pub fn overruns(&self) -> u64 {
        self.overruns.load(Ordering::Acquire)
    }

    /// Longest time from when a message was due until it got away, in nanoseconds.
    #[must_use]
    pub fn max_late_ns(&self) -> u64 {
        self.max_late_ns.load(Ordering::Acquire)
    }

    /// Whether the load was given up before its end.
    #[must_use]
    pub fn gave_up(&self) -> bool {
        self.gave_up.load(Ordering::Acquire) != 0
    }
}

impl LoadTally {
    /// Counts a message that got away so long after its time.
    pub(super) fn note_late(&self, late: Duration, period_ns: u64) {
        let late_ns = u64::try_from(late.as_nanos()).unwrap_or(u64::MAX);
        self.max_late_ns.fetch_max(late_ns, Ordering::AcqRel);
        if late > LATE {
            self.late.fetch_add(1, Ordering::AcqRel);
        }
        if late_ns > period_ns.max(LATE.as_nanos() as u64) {
            self.overruns.fetch_add(1, Ordering::AcqRel);
        }
    }
}
