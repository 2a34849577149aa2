//! How full a channel is, and how long what is in it has waited.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::telemetry::MonotonicClock;
use crate::telemetry::trace_file::{QueueTrack, TraceFile};

/// One bounded channel, as its two ends tell it: whoever sends and receives calls this, whoever watches reads it. Nothing
/// here is locked, and nothing is ever waited for.
///
/// Items are taken in the order in which they were put in, so the stamps of those that wait are kept in a ring.
#[derive(Debug)]
pub struct QueueGauge {
    from: Arc<str>,
    to: Arc<str>,
    capacity: usize,
    clock: MonotonicClock,
    sent: AtomicU64,
    /// Received, or taken out to make room.
    left: AtomicU64,
    dropped: AtomicU64,
    /// When each of the last items came, by their numbers.
    stamps: Box<[AtomicU64]>,
    /// When the item came that was taken last.
    last_came_ns: AtomicU64,
    last_age_ns: AtomicU64,
    track: Option<(Arc<TraceFile>, QueueTrack)>,
}

/// A queue at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QueueReading {
    /// Actor that sends.
    pub from: String,
    /// Actor that receives.
    pub to: String,
    /// Places.
    pub capacity: usize,
    /// Items that wait.
    pub len: usize,
    /// How long the oldest of them has waited, in seconds; 0 where nothing waits.
    pub oldest_age_s: f64,
    /// How long the item that was received last had waited, in seconds.
    pub taken_age_s: f64,
    /// Items that were put in so far.
    pub sent: u64,
    /// Items that were taken out to make room, or found none.
    pub dropped: u64,
}

impl QueueGauge {
    pub(super) fn new(
        from: &str,
        to: &str,
        capacity: usize,
        clock: MonotonicClock,
        trace: Option<Arc<TraceFile>>,
    ) -> Self {
        // A sender that is on its way may be counted a little later than its item is received.
        let places = capacity.max(1) + 8;
        Self {
            from: from.into(),
            to: to.into(),
            capacity: capacity.max(1),
            clock,
            sent: AtomicU64::new(0),
            left: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            stamps: std::iter::repeat_with(|| AtomicU64::new(0))
                .take(places)
                .collect(),
            last_came_ns: AtomicU64::new(0),
            last_age_ns: AtomicU64::new(0),
            track: trace.map(|trace| {
                let track = trace.queue(from, to);
                (trace, track)
            }),
        }
    }

    /// The present on the clock of the run, for [`QueueGauge::taken`].
    #[must_use]
    pub fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }

    /// An item that came at `came_ns` is in the channel.
    pub fn sent(&self, came_ns: u64) {
        let number = self.sent.fetch_add(1, Ordering::Relaxed);
        self.place(number).store(came_ns, Ordering::Relaxed);
        self.trace_length();
    }

    /// An item that came at `came_ns` was received.
    pub fn taken(&self, came_ns: u64) {
        self.last_came_ns.fetch_max(came_ns, Ordering::Relaxed);
        let age_ns = self.now_ns().saturating_sub(came_ns);
        self.last_age_ns.store(age_ns, Ordering::Relaxed);
        self.left.fetch_add(1, Ordering::Relaxed);
        self.trace_length();
    }

    /// An item was taken out to make room for a newer one.
    pub fn displaced(&self) {
        self.left.fetch_add(1, Ordering::Relaxed);
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// An item found no room.
    pub fn refused(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// Items that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        let left = self.left.load(Ordering::Relaxed);
        let waiting = self.sent.load(Ordering::Relaxed).saturating_sub(left);
        usize::try_from(waiting).unwrap_or(usize::MAX).min(self.capacity)
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The queue as it is now.
    #[must_use]
    pub fn read(&self) -> QueueReading {
        let len = self.len();
        let oldest_age_ns = match len {
            0 => 0,
            _ => {
                let number = self.left.load(Ordering::Relaxed);
                let came_ns = self.place(number).load(Ordering::Relaxed);
                // What waits came no earlier than what was taken before it, whatever a sender has not noted yet.
                let came_ns = came_ns.max(self.last_came_ns.load(Ordering::Relaxed));
                self.now_ns().saturating_sub(came_ns)
            }
        };
        QueueReading {
            from: self.from.to_string(),
            to: self.to.to_string(),
            capacity: self.capacity,
            len,
            oldest_age_s: oldest_age_ns as f64 * 1e-9,
            taken_age_s: self.last_age_ns.load(Ordering::Relaxed) as f64 * 1e-9,
            sent: self.sent.load(Ordering::Relaxed),
            dropped: self.dropped.load(Ordering::Relaxed),
        }
    }

    /// Whether it leads into this actor or out of it.
    pub(super) fn joins(&self, actor: &str) -> bool {
        *self.from == *actor || *self.to == *actor
    }

    fn place(&self, number: u64) -> &AtomicU64 {
        &self.stamps[(number % self.stamps.len() as u64) as usize]
    }

    fn trace_length(&self) {
        if let Some((trace, track)) = &self.track {
            trace.queue_length(*track, self.now_ns(), self.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gauge(capacity: usize) -> QueueGauge {
        QueueGauge::new(
            "camera",
            "detector/prepare",
            capacity,
            MonotonicClock::start(),
            None,
        )
    }

    #[test]
    fn the_oldest_of_those_that_wait_tells_the_age() {
        let gauge = gauge(3);
        assert_eq!((gauge.read().len, gauge.read().oldest_age_s), (0, 0.0));
        let first_ns = gauge.now_ns();
        gauge.sent(first_ns);
        let second_ns = gauge.now_ns();
        gauge.sent(second_ns);
        let before_ns = gauge.now_ns();
        let reading = gauge.read();
        let after_ns = gauge.now_ns();
        let age_ns = (reading.oldest_age_s * 1e9).round() as u64;
        assert!(
            (before_ns - first_ns..=after_ns - first_ns).contains(&age_ns),
            "{reading:?}"
        );
        assert_eq!((reading.len, reading.sent, reading.dropped), (2, 2, 0));

        gauge.taken(first_ns);
        let before_ns = gauge.now_ns();
        let reading = gauge.read();
        let after_ns = gauge.now_ns();
        let age_ns = (reading.oldest_age_s * 1e9).round() as u64;
        assert!(
            (before_ns - second_ns..=after_ns - second_ns).contains(&age_ns),
            "{reading:?}"
        );
        assert!(reading.taken_age_s > 0.0);
        gauge.taken(second_ns);
        assert_eq!((gauge.read().len, gauge.read().oldest_age_s), (0, 0.0));
    }

    #[test]
    fn what_makes_room_or_finds_none_is_counted() {
        let gauge = gauge(1);
        gauge.sent(gauge.now_ns());
        gauge.displaced();
        gauge.sent(gauge.now_ns());
        gauge.refused();
        let reading = gauge.read();
        assert_eq!((reading.len, reading.sent, reading.dropped), (1, 2, 2));
    }

    #[test]
    fn a_sender_that_is_counted_late_makes_no_length_and_no_age_up() {
        let gauge = gauge(2);
        for _ in 0..30 {
            let came_ns = gauge.now_ns();
            gauge.taken(came_ns);
            assert_eq!(gauge.len(), 0);
            gauge.sent(came_ns);
        }
        // The sender has counted an item, but not noted yet when it came.
        gauge.sent.fetch_add(1, Ordering::Relaxed);
        let since_s = (gauge.now_ns() - gauge.last_came_ns.load(Ordering::Relaxed)) as f64 * 1e-9;
        let reading = gauge.read();
        assert_eq!(reading.len, 1);
        assert!(reading.oldest_age_s >= 0.0 && reading.oldest_age_s < since_s + 60.0);
    }
}
