//! The streams of a run: which flow, which are held back, and when something last came on them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use serde::Serialize;

use crate::telemetry::StreamId;

/// Nothing has come yet.
const NEVER: u64 = u64::MAX;

/// Difference between the steps of a stream's stamps and of its arrivals from which on the stamps count as jumped.
const JUMP_NS: i128 = 1_000_000_000;

/// Steps without a jump after which stamps count as regular again.
const REGULAR_STEPS: u32 = 10;

/// Whether a stream's frames are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StreamFlow {
    /// They are.
    Flowing,
    /// They are dropped and counted until the stream is resumed.
    Paused,
    /// They are dropped and counted, and those under way come out.
    Draining,
    /// They are not looked at any more.
    Removed,
}

/// One stream of one detector.
#[derive(Debug)]
pub(crate) struct StreamSwitch {
    /// The stream's account.
    pub id: StreamId,
    /// Name of the account.
    pub name: Arc<str>,
    /// The node that the stream comes from.
    pub source: Arc<str>,
    /// The detector that it goes to.
    pub detector: Arc<str>,
    /// Its topic.
    pub topic: Arc<str>,
    /// Whether messages come at times of their own, so that silence means something.
    pub timed: bool,
    flow: AtomicU8,
    rejected: AtomicBool,
    last_arrival_ns: AtomicU64,
    stamps: Mutex<Stamps>,
}

impl StreamSwitch {
    /// A stream that flows.
    pub(crate) fn new(
        (id, name): (StreamId, Arc<str>),
        [source, detector, topic]: [Arc<str>; 3],
        timed: bool,
    ) -> Self {
        Self {
            id,
            name,
            source,
            detector,
            topic,
            timed,
            flow: AtomicU8::new(0),
            rejected: AtomicBool::new(false),
            last_arrival_ns: AtomicU64::new(NEVER),
            stamps: Mutex::default(),
        }
    }

    /// Whether its frames are taken.
    pub(crate) fn flow(&self) -> StreamFlow {
        match self.flow.load(Ordering::Acquire) {
            0 => StreamFlow::Flowing,
            1 => StreamFlow::Paused,
            2 => StreamFlow::Draining,
            _ => StreamFlow::Removed,
        }
    }

    /// Decides whether its frames are taken.
    pub(crate) fn set_flow(&self, flow: StreamFlow) {
        let number = match flow {
            StreamFlow::Flowing => 0,
            StreamFlow::Paused => 1,
            StreamFlow::Draining => 2,
            StreamFlow::Removed => 3,
        };
        self.flow.store(number, Ordering::Release);
    }

    /// Notes whether the model has no room for it. Whether that is new.
    pub(crate) fn set_rejected(&self, rejected: bool) -> bool {
        self.rejected.swap(rejected, Ordering::AcqRel) != rejected
    }

    /// Whether the model has no room for it.
    pub(crate) fn is_rejected(&self) -> bool {
        self.rejected.load(Ordering::Acquire)
    }

    /// Something came.
    pub(crate) fn arrived(&self, now_ns: u64) {
        self.last_arrival_ns.store(now_ns, Ordering::Release);
    }

    /// When something last came; `None` before the first time.
    pub(crate) fn last_arrival_ns(&self) -> Option<u64> {
        Some(self.last_arrival_ns.load(Ordering::Acquire)).filter(|&at_ns| at_ns != NEVER)
    }

    /// Notes a stamp and when its message was received, both in nanoseconds.
    pub(crate) fn stamped(&self, stamp_ns: i64, received_ns: u64) -> Option<StampEvent> {
        let mut stamps = self.stamps.lock().unwrap_or_else(PoisonError::into_inner);
        stamps.step(stamp_ns, received_ns)
    }
}

/// What a stamp shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StampEvent {
    /// The sensor's clock jumped.
    Jumped {
        /// Stamp before.
        from_ns: i64,
        /// Stamp after.
        to_ns: i64,
    },
    /// It has been regular for a while since.
    Regular,
}

/// The stamps of a stream against the times at which its messages came.
#[derive(Debug, Default)]
struct Stamps {
    last: Option<(i64, u64)>,
    /// Steps since a jump; `None` where there was none, or long ago.
    since_jump: Option<u32>,
}

impl Stamps {
    fn step(&mut self, stamp_ns: i64, received_ns: u64) -> Option<StampEvent> {
        let (from_ns, before_ns) = self.last.replace((stamp_ns, received_ns))?;
        let stamped = i128::from(stamp_ns) - i128::from(from_ns);
        let received = i128::from(received_ns) - i128::from(before_ns);
        if (stamped - received).abs() > JUMP_NS {
            // A clock that jumps at every message is told once.
            let first = self.since_jump.replace(0).is_none();
            return first.then_some(StampEvent::Jumped {
                from_ns,
                to_ns: stamp_ns,
            });
        }
        let steps = self.since_jump.as_mut()?;
        *steps += 1;
        if *steps < REGULAR_STEPS {
            return None;
        }
        self.since_jump = None;
        Some(StampEvent::Regular)
    }
}

/// The streams of one receiver of a source, by topic. May be added to while frames flow.
#[derive(Debug, Default)]
pub(crate) struct OutletStreams(RwLock<HashMap<Arc<str>, Arc<StreamSwitch>>>);

impl OutletStreams {
    /// The stream of a topic, unless it was removed.
    pub(crate) fn of(&self, topic: &str) -> Option<Arc<StreamSwitch>> {
        let streams = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let stream = streams.get(topic)?;
        (stream.flow() != StreamFlow::Removed).then(|| Arc::clone(stream))
    }

    /// Adds a stream.
    pub(crate) fn add(&self, stream: Arc<StreamSwitch>) {
        let mut streams = self.0.write().unwrap_or_else(PoisonError::into_inner);
        streams.insert(Arc::clone(&stream.topic), stream);
    }
}

/// The places of a model that serves so many streams. A stream that finds none is rejected until one is free.
#[derive(Debug)]
pub(crate) struct Places {
    limit: usize,
    taken: Mutex<Vec<StreamId>>,
}

impl Places {
    /// So many free places.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            taken: Mutex::default(),
        }
    }

    /// Whether a stream has a place, or can have one now.
    pub(crate) fn take(&self, stream: StreamId) -> bool {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.contains(&stream) {
            return true;
        }
        let room = taken.len() < self.limit;
        if room {
            taken.push(stream);
        }
        room
    }

    /// Gives a stream's place back.
    pub(crate) fn leave(&self, stream: StreamId) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.retain(|known| *known != stream);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::Streams;

    const S: i64 = 1_000_000_000;

    #[test]
    fn a_clock_that_jumps_either_way_is_told_once_and_is_regular_after_ten_steps() {
        for jump_ns in [-3_600 * S, 3_600 * S, i64::MAX] {
            let mut stamps = Stamps::default();
            let mut told = Vec::new();
            for number in 0..40_i64 {
                let jumped = if number >= 20 { jump_ns } else { 0 };
                let stamp_ns = (number * S / 10).saturating_add(jumped);
                let event = stamps.step(stamp_ns, 7 + (number * S / 10) as u64);
                told.extend(event.map(|event| (number, event)));
            }
            let to_ns = (2 * S).saturating_add(jump_ns);
            let from_ns = 19 * S / 10;
            assert_eq!(told[0], (20, StampEvent::Jumped { from_ns, to_ns }));
            if jump_ns != i64::MAX {
                assert_eq!(told[1..], [(30, StampEvent::Regular)]);
            }
        }
    }

    #[test]
    fn a_pause_of_the_sensor_is_no_jump() {
        let mut stamps = Stamps::default();
        assert_eq!(stamps.step(0, 5), None);
        assert_eq!(stamps.step(60 * S, 5 + 60 * S as u64), None);
    }

    #[test]
    fn a_stream_without_a_place_gets_one_when_another_leaves() {
        let streams = Streams::default();
        let ids: Vec<StreamId> = ["a", "b", "c"]
            .iter()
            .map(|name| streams.register(name))
            .collect();
        let places = Places::new(2);
        let taken: Vec<bool> = ids.iter().map(|&id| places.take(id)).collect();
        assert_eq!(taken, [true, true, false]);
        assert!(places.take(ids[0]), "it keeps its place");
        places.leave(ids[0]);
        assert!(places.take(ids[2]));
        assert!(!places.take(ids[0]));
    }
}
