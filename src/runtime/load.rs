//! Offered load: messages held in memory and released on a schedule that the pipeline cannot slow down.
//!
//! Messages are taken once from what the source would play, and offered again and again; stamps go on where the last
//! message left off, so that a stream never jumps back. Latency counts from the time at which a message was due. One
//! that gets away late is counted, and later ones keep their times.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::RuntimeError;
use super::frame::Message;
use super::source::{Feed, Playback, collect};
use super::topics::PlayedTopic;
use crate::io::cdr::CdrError;
use crate::io::messages::{TF_TYPE, TfMsg};
use crate::perception::Sensor;

/// A release this much after its time counts as late: more than a sleeping thread takes to wake up.
const LATE: Duration = Duration::from_millis(1);

/// When messages are offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrivals {
    /// The next one as soon as everything of the one before is settled: a closed loop, one message under way.
    AfterLast,
    /// Each stream at a fixed period in nanoseconds, whatever the pipeline does; the streams are equal parts of the
    /// period apart.
    Every {
        /// From one message of a stream to its next.
        period_ns: u64,
    },
    /// As [`Self::Every`], at the mean rate of the first stream as it was recorded.
    AsRecorded,
}

/// When there is enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// So many messages were offered since the warm-up.
    Queries(u64),
    /// So much time has passed since the warm-up.
    For(Duration),
}

/// What is offered to a pipeline in place of what its source would play.
#[derive(Debug, Clone)]
pub struct Load {
    /// When messages are offered.
    pub arrivals: Arrivals,
    /// Streams that each topic is offered as, at least 1.
    pub copies: u32,
    /// Time before what counts begins.
    pub warm_up: Duration,
    /// When there is enough.
    pub until: Until,
    /// Most messages in all, the warm-up included.
    pub most_queries: u64,
    /// Gives up once so many messages got away more than a period late; `None` never.
    pub give_up_after: Option<u64>,
    /// Memory for messages in bytes; what the source has beyond it is not offered.
    pub memory_bytes: u64,
    /// The messages, once they were loaded: runs with one cell load them once.
    pub messages: Arc<OnceLock<Loaded>>,
    /// What was offered.
    pub tally: Arc<LoadTally>,
}

/// Messages in memory.
#[derive(Clone)]
pub struct Loaded {
    played: Arc<[Message]>,
    /// Topics of the messages that are offered, in the order of the source.
    topics: Arc<[PlayedTopic]>,
    /// Bytes of the messages.
    pub bytes: u64,
    /// Whether the source had more than the memory allows.
    pub cut_off: bool,
}

impl Loaded {
    /// Messages that are offered, transforms not counted.
    #[must_use]
    pub fn messages(&self) -> usize {
        self.played
            .iter()
            .filter(|message| !is_transform(message))
            .count()
    }
}

impl fmt::Debug for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loaded")
            .field("messages", &self.played.len())
            .field("bytes", &self.bytes)
            .field("cut_off", &self.cut_off)
            .finish_non_exhaustive()
    }
}

/// What a load has come to, readable while it is offered.
#[derive(Debug)]
pub struct LoadTally {
    started_ns: AtomicU64,
    measured_from_ns: AtomicU64,
    ended_ns: AtomicU64,
    period_ns: AtomicU64,
    lanes: AtomicU64,
    warm_up_queries: AtomicU64,
    queries: AtomicU64,
    frames: AtomicU64,
    late: AtomicU64,
    overruns: AtomicU64,
    max_late_ns: AtomicU64,
    gave_up: AtomicU64,
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

    /// Frames that those messages made: one for each node that takes them.
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

impl Load {
    /// Takes the messages of `feed` into memory, unless that was done before, and makes the feed and the topics that
    /// take its place. `receivers` tells how many nodes take messages of a sensor.
    ///
    /// # Errors
    /// [`RuntimeError::Source`] for a feed without messages, and for stamps that cannot be read.
    pub(super) fn over(
        &self,
        node: &str,
        feed: Box<dyn Feed>,
        topics: &[PlayedTopic],
        receivers: impl Fn(Sensor) -> u64,
    ) -> Result<(LoadFeed, Vec<PlayedTopic>), RuntimeError> {
        let refuse = |reason: String| RuntimeError::Source {
            node: node.to_owned(),
            reason,
        };
        let loaded = match self.messages.get() {
            Some(loaded) => loaded.clone(),
            None => {
                let (played, cut_off) = collect(feed, self.memory_bytes).map_err(refuse)?;
                let loaded = Loaded {
                    bytes: played.iter().map(|message| message.data.len() as u64).sum(),
                    played: played.into(),
                    topics: topics.into(),
                    cut_off,
                };
                self.messages.get_or_init(|| loaded).clone()
            }
        };
        let mut tracks = Vec::new();
        for topic in &*loaded.topics {
            let places: Vec<usize> = (0..loaded.played.len())
                .filter(|&i| loaded.played[i].topic == topic.name && !is_transform(&loaded.played[i]))
                .collect();
            if let (Some(&first), Some(&last)) = (places.first(), places.last()) {
                let times = [first, last].map(|place| loaded.played[place].log_time_ns);
                let span_ns = times[1].saturating_sub(times[0]);
                let period_ns = span_ns / (places.len() as u64 - 1).max(1);
                tracks.push(Track {
                    topic: topic.clone(),
                    places,
                    // A single message is offered at a tenth of a second, as most sensors have it.
                    period_ns: if period_ns == 0 { 100_000_000 } else { period_ns },
                    span_ns,
                });
            }
        }
        if tracks.is_empty() {
            return Err(refuse(format!(
                "there is no message to offer within {} bytes of memory",
                self.memory_bytes
            )));
        }
        let transforms = (0..loaded.played.len()).filter(|&i| is_transform(&loaded.played[i]));
        let mut lanes = Vec::new();
        for copy in 0..self.copies.max(1) {
            for (track, of) in tracks.iter().enumerate() {
                lanes.push(Lane {
                    track,
                    name: copy_name(&of.topic.name, copy),
                    receivers: receivers(of.topic.sensor),
                });
            }
        }
        let offered = lanes.iter().map(|lane| PlayedTopic {
            name: Arc::clone(&lane.name),
            sensor: tracks[lane.track].topic.sensor,
        });
        let offered = offered.collect();
        let feed = LoadFeed {
            transforms: transforms.collect(),
            played: loaded.played,
            tracks,
            lanes,
            load: self.clone(),
        };
        Ok((feed, offered))
    }
}

fn is_transform(message: &Message) -> bool {
    &*message.type_name == TF_TYPE
}

/// Name of a stream that repeats a topic; the first one has the topic's own name.
fn copy_name(topic: &Arc<str>, copy: u32) -> Arc<str> {
    match copy {
        0 => Arc::clone(topic),
        _ => format!("{topic}/copy_{}", copy + 1).into(),
    }
}

/// The messages of one topic.
#[derive(Debug)]
struct Track {
    topic: PlayedTopic,
    /// Their places among all messages.
    places: Vec<usize>,
    /// Mean time between two of them.
    period_ns: u64,
    /// From the first to the last.
    span_ns: u64,
}

impl Track {
    /// Message of the `turn`-th query, and what its stamps are behind those of the recording.
    fn at(&self, turn: u64) -> (usize, u64) {
        let count = self.places.len() as u64;
        let shift_ns = (turn / count).saturating_mul(self.span_ns + self.period_ns);
        (self.places[(turn % count) as usize], shift_ns)
    }
}

/// One stream that is offered.
#[derive(Debug)]
struct Lane {
    track: usize,
    name: Arc<str>,
    /// Nodes that take its messages.
    receivers: u64,
}

/// Offers messages from memory.
pub(super) struct LoadFeed {
    played: Arc<[Message]>,
    transforms: Vec<usize>,
    tracks: Vec<Track>,
    lanes: Vec<Lane>,
    load: Load,
}

impl LoadFeed {
    /// Messages that will be offered, if that is known.
    pub(super) fn queries(&self) -> u64 {
        match (self.load.until, self.period_ns()) {
            (Until::Queries(queries), _) => queries.min(self.load.most_queries),
            (Until::For(time), Some(period_ns)) => {
                let all_ns = (self.load.warm_up + time).as_nanos();
                let lanes = self.lanes.len() as u128;
                u64::try_from((all_ns * lanes).div_ceil(u128::from(period_ns)))
                    .unwrap_or(u64::MAX)
                    .min(self.load.most_queries)
            }
            (Until::For(_), None) => 0,
        }
    }

    /// From one message of a stream to its next; `None` in a closed loop.
    fn period_ns(&self) -> Option<u64> {
        match self.load.arrivals {
            Arrivals::AfterLast => None,
            Arrivals::Every { period_ns } => Some(period_ns.max(1)),
            Arrivals::AsRecorded => Some(self.tracks[0].period_ns),
        }
    }

    /// The transforms that belong before a LiDAR message, each once, in the order of the recording.
    fn transforms_before(&self, progress: &mut TransformsSent, turn: u64) -> Vec<Result<Message, CdrError>> {
        let Some(track) = self
            .tracks
            .iter()
            .find(|track| track.topic.sensor == Sensor::Lidar)
        else {
            return Vec::new();
        };
        let mut due = Vec::new();
        let (place, shift_ns) = track.at(turn);
        let passed_ns = self.played[place].log_time_ns;
        let round = turn / track.places.len() as u64;
        loop {
            let Some(&next) = self.transforms.get(progress.next) else {
                // What the recording has after its last message belongs to the next round.
                if progress.round >= round || self.transforms.is_empty() {
                    return due;
                }
                *progress = TransformsSent {
                    round: progress.round + 1,
                    next: 0,
                };
                continue;
            };
            let message = &self.played[next];
            let behind = progress.round < round;
            if !behind && message.log_time_ns > passed_ns {
                return due;
            }
            let shift_ns = if behind {
                (progress.round).saturating_mul(track.span_ns + track.period_ns)
            } else {
                shift_ns
            };
            due.push(shifted_transforms(message, shift_ns));
            progress.next += 1;
        }
    }
}

/// How far the transforms of a recording were sent.
#[derive(Debug, Default)]
struct TransformsSent {
    round: u64,
    next: usize,
}

impl Feed for LoadFeed {
    fn play(self: Box<Self>, stage: &Playback) {
        let (load, tally) = (&self.load, &*self.load.tally);
        let lanes = self.lanes.len() as u64;
        let period_ns = self.period_ns();
        let start = Instant::now();
        let start_ns = stage.at_ns(start);
        let warm_up_ns = u64::try_from(load.warm_up.as_nanos()).unwrap_or(u64::MAX);
        let measured_from_ns = start_ns.saturating_add(warm_up_ns);
        tally.lanes.store(lanes, Ordering::Release);
        tally.period_ns.store(period_ns.unwrap_or(0), Ordering::Release);
        tally.started_ns.store(start_ns, Ordering::Release);
        tally.measured_from_ns.store(measured_from_ns, Ordering::Release);
        let end_ns = match load.until {
            Until::For(time) => {
                measured_from_ns.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
            }
            Until::Queries(_) => u64::MAX,
        };
        let enough = match load.until {
            Until::Queries(queries) => queries,
            Until::For(_) => u64::MAX,
        };
        let mut sent = TransformsSent::default();
        let mut frames_before = stage.frames_in();
        let mut measured = 0;
        for query in 0..load.most_queries {
            let (turn, lane) = (query / lanes, &self.lanes[(query % lanes) as usize]);
            let (place, shift_ns) = self.tracks[lane.track].at(turn);
            for transforms in self.transforms_before(&mut sent, turn) {
                let handed = match transforms {
                    Ok(transforms) => stage.hand_over_at(transforms, Instant::now()).is_some(),
                    Err(error) => {
                        stage.damaged(format!("a transform cannot be read: {error}"));
                        true
                    }
                };
                if !handed {
                    return;
                }
            }
            let message = match shifted(&self.played[place], &lane.name, shift_ns) {
                Ok(message) => message,
                Err(error) => {
                    return stage.damaged(format!("a message of {} cannot be read: {error}", lane.name));
                }
            };
            let due = match period_ns {
                // The streams are equal parts of the period apart.
                Some(period_ns) => {
                    let after_ns = u128::from(period_ns) * u128::from(query) / u128::from(lanes);
                    start + Duration::from_nanos(u64::try_from(after_ns).unwrap_or(u64::MAX))
                }
                None => Instant::now(),
            };
            let due_ns = stage.at_ns(due);
            if due_ns >= end_ns || measured >= enough {
                break;
            }
            let Some(late) = stage.hand_over_at(message, due) else {
                return;
            };
            tally.ended_ns.store(due_ns, Ordering::Release);
            if due_ns >= measured_from_ns {
                measured += 1;
                tally.queries.store(measured, Ordering::Release);
                tally.frames.fetch_add(lane.receivers, Ordering::AcqRel);
                if let Some(period_ns) = period_ns {
                    tally.note_late(late, period_ns);
                }
            } else {
                tally.warm_up_queries.fetch_add(1, Ordering::AcqRel);
            }
            if load.give_up_after.is_some_and(|limit| tally.overruns() > limit) {
                tally.gave_up.store(1, Ordering::Release);
                break;
            }
            if period_ns.is_none() {
                frames_before += lane.receivers;
                if !stage.settled(frames_before) {
                    return;
                }
            }
        }
    }
}

impl LoadTally {
    fn note_late(&self, late: Duration, period_ns: u64) {
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

/// A message under another name, its stamp later by `shift_ns`.
fn shifted(message: &Message, topic: &Arc<str>, shift_ns: u64) -> Result<Message, CdrError> {
    let mut data = message.data.clone();
    if shift_ns > 0 {
        shift_stamp(&mut data, shift_ns)?;
    }
    Ok(Message {
        topic: Arc::clone(topic),
        type_name: Arc::clone(&message.type_name),
        log_time_ns: message.log_time_ns.saturating_add(shift_ns),
        data,
        beside: Vec::new(),
    })
}

/// Moves the stamp of a message that begins with a header: after the four bytes of encapsulation come its seconds
/// (int32) and nanoseconds (uint32) in the byte order that the encapsulation names.
fn shift_stamp(data: &mut [u8], shift_ns: u64) -> Result<(), CdrError> {
    let stamp_ns = {
        let mut reader = crate::io::cdr::CdrReader::new(data)?;
        i64::from(reader.i32()?) * 1_000_000_000 + i64::from(reader.u32()?)
    };
    let moved_ns = stamp_ns.saturating_add(i64::try_from(shift_ns).unwrap_or(i64::MAX));
    // Beyond 2038 the seconds of ROS 2 end, and the stamp stays at the end.
    let sec = i32::try_from(moved_ns.div_euclid(1_000_000_000)).unwrap_or(i32::MAX);
    let nanosec = moved_ns.rem_euclid(1_000_000_000) as u32;
    let little = data[1] & 1 == 1;
    let bytes = |value: u32| {
        if little {
            value.to_le_bytes()
        } else {
            value.to_be_bytes()
        }
    };
    data[4..8].copy_from_slice(&bytes(sec.cast_unsigned()));
    data[8..12].copy_from_slice(&bytes(nanosec));
    Ok(())
}

/// Transforms whose stamps are all later by `shift_ns`.
fn shifted_transforms(message: &Message, shift_ns: u64) -> Result<Message, CdrError> {
    let mut moved = message.clone();
    if shift_ns > 0 {
        let mut transforms = TfMsg::decode(&message.data)?;
        for transform in &mut transforms.transforms {
            let header = &mut transform.header;
            let stamp_ns = header
                .stamp_ns()
                .saturating_add(i64::try_from(shift_ns).unwrap_or(i64::MAX));
            header.stamp_sec = i32::try_from(stamp_ns.div_euclid(1_000_000_000)).unwrap_or(i32::MAX);
            header.stamp_nanosec = stamp_ns.rem_euclid(1_000_000_000) as u32;
        }
        moved.data = transforms.encode()?;
        moved.log_time_ns = message.log_time_ns.saturating_add(shift_ns);
    }
    moved.beside = Vec::new();
    Ok(moved)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

    use super::*;
    use crate::io::cdr::{CdrReader, CdrWriter};
    use crate::io::messages::HeaderMsg;

    #[test]
    fn stamps_move_in_both_byte_orders_and_across_the_second() {
        let mut writer = CdrWriter::with_capacity(64);
        HeaderMsg::new(1_999_999_999, "lidar")
            .unwrap()
            .write(&mut writer)
            .unwrap();
        let mut little = writer.finish();
        shift_stamp(&mut little, 2).unwrap();
        let header = HeaderMsg::read(&mut CdrReader::new(&little).unwrap()).unwrap();
        assert_eq!((header.stamp_ns(), header.frame_id), (2_000_000_001, "lidar"));

        let mut big = vec![0, 0, 0, 0];
        big.extend(7_i32.to_be_bytes());
        big.extend(5_u32.to_be_bytes());
        shift_stamp(&mut big, 3_000_000_001).unwrap();
        assert_eq!(big[4..12], [0, 0, 0, 10, 0, 0, 0, 6]);
        assert!(
            shift_stamp(&mut [0, 1, 0, 0, 1], 1).is_err(),
            "too short for a stamp"
        );
    }

    #[test]
    fn a_track_begins_again_one_period_after_its_end() {
        let track = Track {
            topic: PlayedTopic::new("/points", Sensor::Lidar),
            places: vec![3, 5, 8],
            period_ns: 100,
            span_ns: 200,
        };
        let offered: Vec<_> = (0..7).map(|turn| track.at(turn)).collect();
        assert_eq!(
            offered,
            [(3, 0), (5, 0), (8, 0), (3, 300), (5, 300), (8, 300), (3, 600)]
        );
    }
}
