//! The thread of a source: a feed plays, one message ahead, and each is handed over when it is due.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::frame::Message;
use super::shutdown::Shutdown;
use super::supervision::ActorWatch;
use super::turns::{Release, Turns};
use crate::pipeline::Rate;
use crate::telemetry::{DropReason, Ledger, MonotonicClock};

/// Longest sleep between two looks at whether the run is over.
const NAP: Duration = Duration::from_millis(50);

/// Time between two looks at whether frames are settled.
const SETTLED_LOOK: Duration = Duration::from_micros(100);

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
    pub(super) order: Option<Place>,
    /// Where it is seen whether frames are settled.
    pub(super) ledger: Option<Arc<Ledger>>,
    /// Messages that were handed over at a time of their own, and those of them that have come in.
    pub(super) handed: AtomicU64,
    pub(super) handled: Arc<AtomicU64>,
}

/// Counts a message as come in when it is dropped, whatever became of it.
#[derive(Debug)]
pub(super) struct Handled(Arc<AtomicU64>);

impl Drop for Handled {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

/// The place of a source among those of a deterministic run.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// The order that they keep.
    pub turns: Arc<Turns>,
    /// Position of the source.
    pub source: usize,
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
        release: Option<Release>,
        /// Told of once the message is in the channels of all that take it.
        handled: Option<Handled>,
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
        let release = match &self.order {
            None => None,
            Some(Place { turns, source }) => match turns.wait(*source, message.log_time_ns) {
                None => return false,
                turn => turn,
            },
        };
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
        let message = Handover::Message {
            message,
            released_ns,
            release,
            handled: None,
        };
        self.hand_over.send(message).is_ok()
    }

    /// Hands a message over that came just now; `false` if nobody takes it any more.
    pub(crate) fn hand_over_live(&self, message: Message, arrived: Instant) -> bool {
        self.watch.worker_meets_frame();
        let released_ns = Some(self.clock.at_ns(arrived));
        self.hand_over
            .send(Handover::Message {
                message,
                released_ns,
                release: None,
                handled: None,
            })
            .is_ok()
    }

    /// Hands a message over at `due`, or as soon after it as the source takes it: how long after. `None` if nobody takes
    /// it any more.
    pub(crate) fn hand_over_at(&self, message: Message, due: Instant) -> Option<Duration> {
        if !sleep_until(due, &self.shutdown) {
            return None;
        }
        let released_ns = Some(self.clock.at_ns(due));
        let message = Handover::Message {
            message,
            released_ns,
            release: None,
            handled: Some(Handled(Arc::clone(&self.handled))),
        };
        self.handed.fetch_add(1, Ordering::AcqRel);
        self.hand_over.send(message).ok()?;
        Some(due.elapsed())
    }

    /// A time on the clock of the run.
    pub(crate) fn at_ns(&self, at: Instant) -> u64 {
        self.clock.at_ns(at)
    }

    /// Waits until every message of [`Self::hand_over_at`] has come in and no frame is under way any more, those aside that
    /// wait for others of their set; `false` if the run ended meanwhile.
    pub(crate) fn settled(&self) -> bool {
        let Some(ledger) = &self.ledger else { return false };
        loop {
            let came = self.handled.load(Ordering::Acquire) == self.handed.load(Ordering::Acquire);
            if came && ledger.frames_under_way() == 0 {
                return true;
            }
            if self.is_over() {
                return false;
            }
            std::thread::sleep(SETTLED_LOOK);
        }
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

impl Drop for Playback {
    fn drop(&mut self) {
        if let Some(Place { turns, source }) = &self.order {
            turns.over(*source);
        }
    }
}

/// The messages of a feed, as long as they take no more than `memory_bytes`, and whether there were more.
///
/// # Errors
/// What the first place is that cannot be read.
pub(super) fn collect(mut feed: Box<dyn Feed>, memory_bytes: u64) -> Result<(Vec<Message>, bool), String> {
    let (hand_over, messages) = flume::bounded(0);
    let playback = Playback {
        rate: Rate::Max,
        clock: MonotonicClock::start(),
        shutdown: Shutdown::default(),
        hand_over,
        schedule: Schedule::default(),
        watch: ActorWatch::none("load"),
        order: None,
        ledger: None,
        handed: AtomicU64::default(),
        handled: Arc::default(),
    };
    std::thread::scope(|scope| {
        scope.spawn(move || feed.play(&playback));
        let (mut kept, mut bytes) = (Vec::new(), 0_u64);
        // Dropped at the end of this block, which ends a feed that has more.
        let messages = messages;
        while let Ok(handed) = messages.recv() {
            match handed {
                Handover::Message { mut message, .. } => {
                    bytes = bytes.saturating_add(message.data.len() as u64);
                    if bytes > memory_bytes {
                        return Ok((kept, true));
                    }
                    message.beside = Vec::new();
                    kept.push(message);
                }
                Handover::Lost { .. } => {}
                Handover::Damaged(reason) => return Err(reason),
            }
        }
        Ok((kept, false))
    })
}

/// Sleeps until `due`; `false` if the run ended meanwhile.
pub(super) fn sleep_until(due: Instant, shutdown: &Shutdown) -> bool {
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
