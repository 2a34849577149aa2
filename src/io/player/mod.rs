//! Plays a bag in the process: messages are handed out when they are due.
//!
//! A [`Player`] knows no middleware. It calls a [`PlayerSink`] on the thread that plays, once for each message, while
//! another thread reads ahead; [`PlayerHandle`]s pause, step, hasten and stop it from elsewhere. Due times are counted
//! from one anchor on a monotonic clock, so nothing drifts; what is released late is released all the same, and counted.
//!
//! A bag that is played in a loop begins again with a [`Reset`], and with all its times moved on by the length of a turn:
//! log times, `/clock`, and stamps inside of messages as far as they are known: those of types that begin with a
//! `std_msgs/Header` or a time, and every one of a `TFMessage`. Stamps deeper inside (of the markers of a `MarkerArray`,
//! say) stay as they were recorded.
//!
//! ```no_run
//! use sensorium::io::bag::Bag;
//! use sensorium::io::player::{Player, PlayerSettings, PlayerSink, Release, SystemClock};
//!
//! struct Print;
//! impl PlayerSink for Print {
//!     fn release(&mut self, release: Release) {
//!         println!("{} ns: {} bytes", release.log_time_ns, release.data.len());
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let bag = Bag::open("drive".as_ref())?;
//! let player = Player::open(bag, PlayerSettings::default())?;
//! let summary = player.play(&SystemClock, &mut Print)?;
//! println!("{} late", summary.late);
//! # Ok(())
//! # }
//! ```

mod clock;
mod control;
mod error;
mod play;
mod read_ahead;
mod schedule;
mod stamps;
mod summary;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use clock::{Bell, PlayerClock, SystemClock};
pub use control::PlayerHandle;
pub use error::PlayerError;
pub use schedule::Rate;
pub use summary::{Ending, PlayerSummary};

use super::bag::{Bag, BagTopic, TimeRange};
use super::messages::CLOCK_TYPE;
use super::ros::Qos;
use control::Control;
use play::{Feed, Playing};
use read_ahead::{Queue, Reading};
use schedule::Schedule;
use stamps::Stamps;

/// Name of the topic of the time.
pub const CLOCK_TOPIC: &str = "/clock";

/// When messages are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Buffering {
    /// While playing, this many bytes ahead; a message that is larger is read by itself.
    ReadAhead {
        /// Bytes.
        bytes: usize,
    },
    /// All before the first is released.
    Preload {
        /// Most bytes of messages.
        max_bytes: u64,
    },
}

/// When `/clock` is published: always before the messages that it belongs to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ClockMessages {
    /// Never.
    Off,
    /// So many times a second of the wall; as often a second of the bag's time when played as fast as possible.
    Hz(f64),
    /// Before each message, with its log time.
    BeforeEachMessage,
}

/// How a bag is played.
#[derive(Debug, Clone, PartialEq)]
pub struct PlayerSettings {
    /// How fast.
    pub rate: Rate,
    /// How far into the bag playing starts, in nanoseconds.
    pub start_offset_ns: u64,
    /// How much of the bag's time is played, in nanoseconds; `None` to its end.
    pub duration_ns: Option<u64>,
    /// Whether it begins again at the end, until it is told to stop.
    pub looped: bool,
    /// When messages are read.
    pub buffering: Buffering,
    /// Topics to play, by their recorded names; `None` for all.
    pub topics: Option<Vec<String>>,
    /// New names of topics, by their recorded ones.
    pub remap: BTreeMap<String, String>,
    /// Whether `/clock` is made. A recorded topic that would be played under that name is left out then.
    pub clock: ClockMessages,
    /// Whether stamps inside of messages move on with loops, as log times do.
    pub shift_stamps: bool,
    /// Up to this much late is not counted as late.
    pub late_after: Duration,
}

impl Default for PlayerSettings {
    /// The whole bag once, as fast as it was recorded, 64 MiB read ahead, without `/clock`; late is 1 ms late.
    fn default() -> Self {
        Self {
            rate: Rate::Times(1.0),
            start_offset_ns: 0,
            duration_ns: None,
            looped: false,
            buffering: Buffering::ReadAhead { bytes: 64 << 20 },
            topics: None,
            remap: BTreeMap::new(),
            clock: ClockMessages::Off,
            shift_stamps: true,
            late_after: Duration::from_millis(1),
        }
    }
}

/// A topic that is played.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlayedTopic {
    /// The name under which it is played.
    pub name: String,
    /// The topic as the bag has it; for the `/clock` that a player makes, as it should be offered.
    pub recorded: BagTopic,
}

/// A message that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release {
    /// Place in [`Player::topics`].
    pub topic: usize,
    /// The serialised message, its stamps moved on with the loop.
    pub data: Vec<u8>,
    /// Log time in nanoseconds since the epoch, moved on with the loop.
    pub log_time_ns: u64,
    /// By how much times are moved in this loop, in nanoseconds.
    pub shift_ns: u64,
    /// When it should have been released.
    pub intended: Instant,
    /// How much later it was.
    pub lateness: Duration,
}

/// The bag begins again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reset {
    /// How often it has begun again, this time included.
    pub loop_number: u64,
    /// By how much times are moved from now on, in nanoseconds.
    pub shift_ns: u64,
}

/// Takes what a player hands out, on the thread that plays: what takes long here makes the next message late.
pub trait PlayerSink {
    /// A message is due.
    fn release(&mut self, release: Release);

    /// The bag begins again: what was learned of times before is over.
    fn reset(&mut self, reset: Reset) {
        let _ = reset;
    }
}

/// A bag that is ready to be played.
pub struct Player {
    reading: Reading,
    settings: PlayerSettings,
    topics: Vec<PlayedTopic>,
    stamps: Vec<Stamps>,
    control: Arc<Control>,
    queue: Arc<Queue>,
    /// The time of the bag at which playing starts.
    start_ns: u64,
    loop_length_ns: u64,
}

impl fmt::Debug for Player {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Player")
            .field("settings", &self.settings)
            .field("topics", &self.topics)
            .finish_non_exhaustive()
    }
}

impl Player {
    /// Checks the settings against the bag. Nothing is read yet.
    ///
    /// # Errors
    /// Any [`PlayerError`] about the settings.
    pub fn open(bag: Bag, settings: PlayerSettings) -> Result<Self, PlayerError> {
        settings.rate.check()?;
        if let ClockMessages::Hz(hz) = settings.clock
            && !(0.01..=1e5).contains(&hz)
        {
            return Err(PlayerError::ClockRate { hz });
        }
        if settings.duration_ns == Some(0) {
            return Err(PlayerError::NoDuration);
        }
        let (first_ns, last_ns) = bag.range_ns().unwrap_or((0, 0));
        let start_ns = first_ns.saturating_add(settings.start_offset_ns);
        if start_ns > last_ns {
            return Err(PlayerError::StartBeyond {
                offset_ns: settings.start_offset_ns,
                duration_ns: bag.duration_ns(),
            });
        }
        let (topics, places) = topics(&bag, &settings)?;
        let range = TimeRange {
            start_ns,
            end_ns: settings
                .duration_ns
                .map(|duration| start_ns.saturating_add(duration)),
        };
        let read_ahead = match settings.buffering {
            Buffering::ReadAhead { bytes } => bytes,
            Buffering::Preload { .. } => 0,
        };
        Ok(Self {
            stamps: topics.iter().map(|topic| Stamps::of(&topic.recorded)).collect(),
            topics,
            control: Arc::default(),
            queue: Arc::new(Queue::new(read_ahead)),
            start_ns,
            loop_length_ns: play::loop_length_ns(last_ns - start_ns, settings.duration_ns),
            reading: Reading {
                bag: Arc::new(bag),
                topics: places,
                range,
                looped: settings.looped,
            },
            settings,
        })
    }

    /// The topics that will be played. A [`Release`] names its topic by its place here; the last one is the `/clock`
    /// that the player makes, if it makes one.
    #[must_use]
    pub fn topics(&self) -> &[PlayedTopic] {
        &self.topics
    }

    /// The bag.
    #[must_use]
    pub fn bag(&self) -> &Bag {
        &self.reading.bag
    }

    /// By how much times move with each loop, in nanoseconds: the duration that was asked for, or the time from the
    /// start to the last message and a millisecond.
    #[must_use]
    pub fn loop_length_ns(&self) -> u64 {
        self.loop_length_ns
    }

    /// Commands this player.
    #[must_use]
    pub fn handle(&self) -> PlayerHandle {
        PlayerHandle {
            control: Arc::clone(&self.control),
            queue: Arc::clone(&self.queue),
        }
    }

    /// Plays on this thread, to the end or until it is told to stop. The bag's time starts when the read-ahead is full,
    /// or everything is loaded.
    ///
    /// # Errors
    /// [`PlayerError::Preload`], [`PlayerError::ClockTime`], [`PlayerError::Thread`], [`PlayerError::Reader`]. Damage of
    /// the bag is no error but told in the summary.
    pub fn play(
        self,
        clock: &dyn PlayerClock,
        sink: &mut dyn PlayerSink,
    ) -> Result<PlayerSummary, PlayerError> {
        let playing = Playing {
            settings: &self.settings,
            stamps: &self.stamps,
            clock_topic: self.topics.len().saturating_sub(1),
            control: Arc::clone(&self.control),
            clock,
            sink,
            // The anchor is set when the first message is there.
            schedule: Schedule::new(self.settings.rate, self.start_ns, clock.now()),
            loop_length_ns: self.loop_length_ns,
            summary: PlayerSummary::default(),
            shift_ns: 0,
            next_tick_ns: self.start_ns,
        };
        let anchored = |mut playing: Playing<'_>, feed: Feed<'_>| {
            playing.schedule = Schedule::new(self.settings.rate, self.start_ns, clock.now());
            playing.run(feed)
        };
        match self.settings.buffering {
            Buffering::ReadAhead { .. } => {
                let mut summary = play::with_reader(&self.reading, &self.queue, || {
                    anchored(playing, Feed::ReadAhead(&self.queue))
                })?;
                summary.read_ahead_bytes = self.queue.largest_bytes() as u64;
                Ok(summary)
            }
            Buffering::Preload { max_bytes } => {
                let (messages, damage) = self.reading.load(max_bytes)?;
                let loaded: usize = messages.iter().map(|message| message.data.len()).sum();
                let mut playing = playing;
                damage
                    .into_iter()
                    .for_each(|error| playing.summary.damaged(error));
                let feed = Feed::Loaded {
                    messages,
                    next: 0,
                    looped: self.settings.looped,
                };
                let mut summary = anchored(playing, feed)?;
                summary.read_ahead_bytes = loaded as u64;
                Ok(summary)
            }
        }
    }
}

/// Topics to play, and their places by recorded name.
fn topics(
    bag: &Bag,
    settings: &PlayerSettings,
) -> Result<(Vec<PlayedTopic>, HashMap<String, usize>), PlayerError> {
    let wanted: Option<Vec<&str>> = settings
        .topics
        .as_ref()
        .map(|topics| topics.iter().map(String::as_str).collect());
    // Tells of topics that the bag does not have.
    bag.messages_within(wanted.as_deref(), TimeRange::ALL)?;
    let is_wanted = |topic: &str| wanted.as_ref().is_none_or(|wanted| wanted.contains(&topic));
    for topic in settings.remap.keys() {
        if !is_wanted(topic) || !bag.topics().iter().any(|known| known.name == *topic) {
            return Err(PlayerError::Renamed { topic: topic.clone() });
        }
    }
    let mut played: Vec<PlayedTopic> = Vec::new();
    let mut places = HashMap::new();
    for recorded in bag.topics().iter().filter(|topic| is_wanted(&topic.name)) {
        let name = settings.remap.get(&recorded.name).unwrap_or(&recorded.name);
        if settings.clock != ClockMessages::Off && name == CLOCK_TOPIC {
            continue;
        }
        if let Some(other) = played.iter().find(|other| other.name == *name)
            && other.recorded.type_name != recorded.type_name
        {
            return Err(PlayerError::TwoTypes {
                topic: name.clone(),
                first: other.recorded.type_name.clone(),
                second: recorded.type_name.clone(),
            });
        }
        places.insert(recorded.name.clone(), played.len());
        played.push(PlayedTopic {
            name: name.clone(),
            recorded: recorded.clone(),
        });
    }
    if settings.clock != ClockMessages::Off {
        played.push(PlayedTopic {
            name: CLOCK_TOPIC.to_owned(),
            recorded: BagTopic::of_type(CLOCK_TOPIC, CLOCK_TYPE).offering(Qos::reliable(1)),
        });
    }
    Ok((played, places))
}
