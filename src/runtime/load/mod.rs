//! Offered load: messages held in memory and released on a schedule that the pipeline cannot slow down.
//!
//! Messages are taken once from what the source would play, and offered again and again; stamps go on where the last
//! message left off, so that a stream never jumps back. Latency counts from the time at which a message was due. One
//! that gets away late is counted, and later ones keep their times.

mod feed;
mod restamp;
mod tally;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

pub(super) use self::feed::LoadFeed;
use self::feed::{Lane, Track};
pub use self::tally::LoadTally;
use super::RuntimeError;
use super::frame::Message;
use super::playback::collect;
use super::source::{Feed, TopicDesk};
use super::topics::PlayedTopic;
use crate::io::messages::TF_TYPE;
use crate::perception::Sensor;

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

/// Keeps the topics of a load as they are: what is measured does not change while it is.
#[derive(Debug)]
pub(super) struct LoadDesk;

impl TopicDesk for LoadDesk {
    fn find(&self, _: &str, _: &[Sensor]) -> Result<PlayedTopic, String> {
        Err("a load is offered to fixed streams".to_owned())
    }

    fn add(&self, _: PlayedTopic) {}

    fn remove(&self, _: &str) {}
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

impl Load {
    /// Takes the messages of `feed` into memory, unless that was done before, and makes the feed and the topics that
    /// take its place. `receivers` tells how many results come of a message of a stream.
    ///
    /// # Errors
    /// [`RuntimeError::Source`] for a feed without messages that fit into the memory, and for a place that cannot be read.
    pub(super) fn over(
        &self,
        node: &str,
        feed: Box<dyn Feed>,
        topics: &[PlayedTopic],
        receivers: impl Fn(&PlayedTopic) -> u64,
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
                let stream = PlayedTopic {
                    name: copy_name(&of.topic.name, copy),
                    sensor: of.topic.sensor,
                };
                lanes.push(Lane {
                    track,
                    receivers: receivers(&stream),
                    name: stream.name,
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
