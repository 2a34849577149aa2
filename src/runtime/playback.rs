//! The thread of a source: a feed plays, one message ahead, and each is handed over when it is due.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::frame::Message;
use super::shutdown::Shutdown;
use super::supervision::ActorWatch;
use crate::pipeline::Rate;
use crate::telemetry::{DropReason, MonotonicClock};

/// Longest sleep between two looks at whether the run is over.
const NAP: Duration = Duration::from_millis(50);

/// What a source plays.
pub(crate) trait Feed: Send {
    /// Hands over every message in its turn, until there is none left or nobody takes them any more. Called again after
    /// a panic, it goes on with what was not handed over.
    fn play(&mut self, stage: &Playback);
}

/// Where a feed hands over, and when.
pub(crate) struct Playback {
    pub(super) rate: Rate,
    pub(super) clock: MonotonicClock,
    pub(super) shutdown: Shutdown,
    pub(super) hand_over: flume::Sender<Handover>,
    pub(super) schedule: Schedule,
    pub(super) watch: ActorWatch,
}

/// When the playing began, and the time of the first message in nanoseconds. It outlives a thread that panics.
pub(super) type Schedule = Arc<Mutex<Option<(Instant, u64)>>>;

/// What the feed's thread hands over.
#[derive(Debug)]
pub(super) enum Handover {
    /// A message and the time at which it should enter the pipeline.
    Message {
        message: Message,
        released_ns: Option<u64>,
    },
    /// Messages that never got here.
    Lost {
        topic: Arc<str>,
        count: u64,
        reason: DropReason,
    },
    /// The bag is damaged from here on.
    Damaged(String),
}

impl Playback {
    /// Hands a message over when it is due; `false` if nobody takes it any more.
    pub(crate) fn hand_over(&self, message: Message) -> bool {
        self.watch.worker_meets_frame();
        let released_ns = match self.rate {
            Rate::Max => None,
            Rate::Times(speed) => {
                let mut schedule = self.schedule.lock().unwrap_or_else(PoisonError::into_inner);
                let (start, first_ns) = *schedule.get_or_insert((Instant::now(), message.log_time_ns));
                drop(schedule);
                let offset_ns = message.log_time_ns.saturating_sub(first_ns) as f64 / speed;
                let due = start + Duration::from_nanos(offset_ns as u64);
                if !sleep_until(due, &self.shutdown) {
                    return false;
                }
                Some(self.clock.at_ns(due))
            }
        };
        let message = Handover::Message { message, released_ns };
        self.hand_over.send(message).is_ok()
    }

    /// Hands a message over that came just now; `false` if nobody takes it any more.
    pub(crate) fn hand_over_live(&self, message: Message, arrived: Instant) -> bool {
        self.watch.worker_meets_frame();
        let released_ns = Some(self.clock.at_ns(arrived));
        self.hand_over
            .send(Handover::Message { message, released_ns })
            .is_ok()
    }

    /// Tells of messages that never got here; `false` if nobody counts them any more.
    pub(crate) fn lost(&self, topic: &Arc<str>, count: u64, reason: DropReason) -> bool {
        let topic = Arc::clone(topic);
        count == 0
            || self
                .hand_over
                .send(Handover::Lost { topic, count, reason })
                .is_ok()
    }

    /// Whether the run is over.
    pub(crate) fn is_over(&self) -> bool {
        self.shutdown.is_draining() || self.hand_over.is_disconnected()
    }

    /// Tells that something cannot be read.
    pub(crate) fn damaged(&self, reason: String) {
        // The receiver is gone only if the run is over.
        let _ = self.hand_over.send(Handover::Damaged(reason));
    }
}

/// Sleeps until `due`; `false` if the run ended meanwhile.
fn sleep_until(due: Instant, shutdown: &Shutdown) -> bool {
    loop {
        if shutdown.is_draining() {
            return false;
        }
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        std::thread::sleep(left.min(NAP));
    }
}
