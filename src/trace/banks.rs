//! Streams that take turns on one set of states.
//!
//! A trace holds the addresses of one set of states, and every stream needs states of its own. [`StreamBanks`] keeps
//! each stream's states in a bank while another stream's are in use, decides when a stream starts afresh, and which one
//! gives up its bank when there are more streams than banks.

use std::fmt::Display;

use super::{BankIndex, ResetValue, StateId, TraceError, TraceRunner};
use crate::device::Device;

/// What happens to a stream that comes when all banks are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum OnFull {
    /// It is refused.
    #[default]
    Reject,
    /// It takes the bank of the stream that was selected least recently, which starts afresh if it ever comes back.
    Evict,
}

/// How a [`StreamBanks`] works.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BankOptions {
    /// Streams whose states are kept, at least 1.
    pub max_streams: usize,
    /// What happens to one more.
    pub on_full: OnFull,
    /// A stream that was away for longer, in seconds, starts afresh. `None` for no limit.
    pub max_gap_s: Option<f64>,
}

impl Default for BankOptions {
    fn default() -> Self {
        Self {
            max_streams: 1,
            on_full: OnFull::Reject,
            max_gap_s: None,
        }
    }
}

/// What is known of a frame when its stream is selected.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Select {
    /// The sender asks for a fresh start.
    pub reset: bool,
    /// Time of the frame in seconds, not negative. Without one there is no check for gaps and jumps; the last known time
    /// stays.
    pub timestamp_s: Option<f64>,
}

/// Why a stream starts afresh. Where several reasons hold, the first one in this order is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FreshReason {
    /// The stream is not known, or not any more.
    New,
    /// The frame asked for it.
    Reset,
    /// Its states were lost: the runner warmed up again, or the device refused a command in the middle of a reset.
    Restarted,
    /// The frame is older than the stream's last one. Equal times are no reason.
    Backwards,
    /// More time than the limit passed since the stream's last frame. Exactly the limit is no reason.
    Gap,
}

/// Whether a stream goes on or starts afresh.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Freshness {
    /// Its states are those that its last frame left.
    Continued,
    /// Its states are those that were registered.
    Fresh(FreshReason),
}

impl Freshness {
    /// Whether the stream starts afresh.
    #[must_use]
    pub const fn is_fresh(self) -> bool {
        matches!(self, Self::Fresh(_))
    }
}

/// Errors of a [`StreamBanks`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BankError {
    /// A configuration that makes no sense.
    #[error("stream banks: {0}")]
    Options(String),
    /// One stream too many.
    #[error(
        "stream {stream}: the model keeps the states of {limit} stream(s), and all are taken by {known:?}"
    )]
    Full {
        /// The stream that was refused.
        stream: String,
        /// Streams that are kept.
        limit: usize,
        /// Their names, most recent first.
        known: Vec<String>,
    },
    /// A time that is none.
    #[error("stream {stream}: {timestamp_s} is no time in seconds: it must be finite and not negative")]
    Timestamp {
        /// The stream.
        stream: String,
        /// What was given.
        timestamp_s: f64,
    },
    /// The trace runner or its device refused.
    #[error(transparent)]
    Trace(#[from] TraceError),
}

#[derive(Debug)]
struct Stream<K> {
    key: K,
    /// Where its states are while another stream's are in use.
    bank: BankIndex,
    /// Time of its last frame, if it ever had one.
    timestamp_s: Option<f64>,
    /// Its states are nowhere.
    lost: bool,
}

/// Keeps the states of several streams apart on one [`TraceRunner`]. Select a frame's stream before its replay.
///
/// With room for one stream there are no banks: the one set of states is that stream's. Otherwise each state needs as
/// many banks as there may be streams. A ping-pong state is kept like any other: its bank holds what the next replay would
/// have read, and is loaded where the next replay reads.
#[derive(Debug)]
pub struct StreamBanks<K> {
    states: Vec<StateId>,
    options: BankOptions,
    /// Most recently selected first.
    streams: Vec<Stream<K>>,
    /// The states in use are those of the first stream.
    loaded: bool,
    /// Restarts of the runner so far.
    restarts: u64,
    switches: u64,
    evictions: u64,
}

impl<K: Eq + Clone + Display> StreamBanks<K> {
    /// Streams over some states of a runner. States that are left out are shared by all streams, which is right for
    /// those that only carry values from one segment of a graph to the next.
    ///
    /// # Errors
    /// [`BankError::Options`] naming a state with too few banks; [`BankError::Trace`] for states of another runner.
    pub fn new(runner: &TraceRunner, states: &[StateId], options: BankOptions) -> Result<Self, BankError> {
        let BankOptions {
            max_streams,
            max_gap_s,
            ..
        } = options;
        if max_streams == 0 {
            return Err(BankError::Options("there must be room for a stream".into()));
        }
        if let Some(gap) = max_gap_s.filter(|gap| !gap.is_finite() || *gap < 0.0) {
            return Err(BankError::Options(format!(
                "the longest gap must be finite and not negative, not {gap} s"
            )));
        }
        if states.is_empty() {
            return Err(BankError::Options(
                "without states there is nothing to keep apart".into(),
            ));
        }
        for (index, &state) in states.iter().enumerate() {
            let entry = &runner.tables.states[state.of(runner)?];
            if states[..index].contains(&state) {
                return Err(BankError::Options(format!("state {} is given twice", entry.name)));
            }
            if max_streams > 1 && entry.banks.len() < max_streams {
                return Err(BankError::Options(format!(
                    "{max_streams} streams need as many banks, state {} has {}",
                    entry.name,
                    entry.banks.len()
                )));
            }
        }
        Ok(Self {
            states: states.to_vec(),
            options,
            streams: Vec::with_capacity(max_streams),
            loaded: false,
            restarts: runner.restarts,
            switches: 0,
            evictions: 0,
        })
    }

    /// Brings a stream's states into use, behind the replays so far: saves those of the stream before, then loads this
    /// one's, or sets them to their first values if it starts afresh. The answer belongs into a parameter of models that
    /// treat a first frame differently.
    ///
    /// # Errors
    /// [`BankError::Full`], [`BankError::Timestamp`]: nothing changed. A [`BankError::Trace`] leaves every stream with its
    /// own states, or marks the one whose states are lost, so that it starts afresh when it is next selected.
    pub fn select(
        &mut self,
        device: &mut dyn Device,
        runner: &mut TraceRunner,
        key: &K,
        select: Select,
    ) -> Result<Freshness, BankError> {
        for state in &self.states {
            state.of(runner)?;
        }
        if let Some(timestamp_s) = select.timestamp_s.filter(|t| !t.is_finite() || *t < 0.0) {
            return Err(BankError::Timestamp {
                stream: key.to_string(),
                timestamp_s,
            });
        }
        let known = self.streams.iter().position(|stream| stream.key == *key);
        if known.is_none() && self.is_full() && self.options.on_full == OnFull::Reject {
            return Err(BankError::Full {
                stream: key.to_string(),
                limit: self.options.max_streams,
                known: self.streams.iter().map(|stream| stream.key.to_string()).collect(),
            });
        }
        runner.settle(device)?;
        self.notice_restart(runner);
        match known {
            Some(index) => self.select_known(device, runner, index, select),
            None => self.select_new(device, runner, key, select),
        }
    }

    fn select_known(
        &mut self,
        device: &mut dyn Device,
        runner: &mut TraceRunner,
        index: usize,
        select: Select,
    ) -> Result<Freshness, BankError> {
        let freshness = self.freshness(&self.streams[index], select);
        let in_use = self.loaded && index == 0;
        if !in_use {
            self.save(device, runner)?;
            self.loaded = false;
        }
        if freshness.is_fresh() {
            // Half a reset of the states in use leaves them to nobody.
            self.streams[index].lost |= in_use;
            self.reset(device, runner)?;
        } else if !in_use {
            let bank = self.streams[index].bank;
            for &state in &self.states {
                runner.load_state(device, state, bank)?;
            }
        }
        self.switches += u64::from(!in_use);
        self.loaded = true;
        self.streams[..=index].rotate_right(1);
        let stream = &mut self.streams[0];
        stream.lost = false;
        stream.timestamp_s = match freshness {
            Freshness::Fresh(_) => select.timestamp_s,
            Freshness::Continued => select.timestamp_s.or(stream.timestamp_s),
        };
        Ok(freshness)
    }

    fn select_new(
        &mut self,
        device: &mut dyn Device,
        runner: &mut TraceRunner,
        key: &K,
        select: Select,
    ) -> Result<Freshness, BankError> {
        let evicts = self.is_full();
        // The only stream has no bank to be saved to.
        match evicts && self.streams.len() == 1 {
            true => self.streams[0].lost = true,
            false => self.save(device, runner)?,
        }
        self.loaded = false;
        self.reset(device, runner)?;
        let bank = match self.streams.pop_if(|_| evicts) {
            Some(evicted) => evicted.bank,
            None => self.free_bank(),
        };
        self.evictions += u64::from(evicts);
        self.switches += 1;
        self.loaded = true;
        let stream = Stream {
            key: key.clone(),
            bank,
            timestamp_s: select.timestamp_s,
            lost: false,
        };
        self.streams.insert(0, stream);
        Ok(Freshness::Fresh(FreshReason::New))
    }

    fn freshness(&self, stream: &Stream<K>, select: Select) -> Freshness {
        let passed_s = match (select.timestamp_s, stream.timestamp_s) {
            (Some(now), Some(last)) => Some(now - last),
            _ => None,
        };
        if select.reset {
            Freshness::Fresh(FreshReason::Reset)
        } else if stream.lost {
            Freshness::Fresh(FreshReason::Restarted)
        } else if passed_s.is_some_and(|passed| passed < 0.0) {
            Freshness::Fresh(FreshReason::Backwards)
        } else if let (Some(passed), Some(limit)) = (passed_s, self.options.max_gap_s)
            && passed > limit
        {
            Freshness::Fresh(FreshReason::Gap)
        } else {
            Freshness::Continued
        }
    }

    /// A warm-up since the last selection wrote the states in use.
    fn notice_restart(&mut self, runner: &TraceRunner) {
        if self.restarts != runner.restarts {
            self.restarts = runner.restarts;
            if self.loaded {
                self.streams[0].lost = true;
                self.loaded = false;
            }
        }
    }

    /// Saves the states in use to their stream's bank. They stay in use.
    fn save(&self, device: &mut dyn Device, runner: &mut TraceRunner) -> Result<(), TraceError> {
        let Some(stream) = self.streams.first().filter(|stream| self.loaded && !stream.lost) else {
            return Ok(());
        };
        self.states
            .iter()
            .try_for_each(|&state| runner.save_state(device, state, stream.bank))
    }

    fn reset(&self, device: &mut dyn Device, runner: &mut TraceRunner) -> Result<(), TraceError> {
        self.states
            .iter()
            .try_for_each(|&state| runner.reset_state(device, state, ResetValue::Init))
    }

    fn is_full(&self) -> bool {
        self.streams.len() == self.options.max_streams
    }

    /// The lowest bank that no stream has.
    fn free_bank(&self) -> BankIndex {
        let taken = |bank: &usize| self.streams.iter().any(|stream| stream.bank.0 == *bank);
        let free = (0..self.options.max_streams).find(|bank| !taken(bank));
        // There are fewer streams than banks whenever this is asked.
        BankIndex(free.unwrap_or_default())
    }

    /// Forgets a stream: its bank is free, and it is new if it ever comes back. Whether it was known.
    pub fn forget(&mut self, key: &K) -> bool {
        let Some(index) = self.streams.iter().position(|stream| stream.key == *key) else {
            return false;
        };
        self.streams.remove(index);
        self.loaded &= index != 0;
        true
    }

    /// The streams whose states are kept, most recently selected first.
    pub fn streams(&self) -> impl Iterator<Item = &K> {
        self.streams.iter().map(|stream| &stream.key)
    }

    /// The stream whose states are in use.
    #[must_use]
    pub fn active(&self) -> Option<&K> {
        let first = self.streams.first();
        first
            .filter(|stream| self.loaded && !stream.lost)
            .map(|stream| &stream.key)
    }

    /// What is kept, for reports.
    #[must_use]
    pub fn describe(&self) -> serde_json::Value {
        serde_json::json!({
            "max_streams": self.options.max_streams,
            "on_full": match self.options.on_full {
                OnFull::Reject => "reject",
                OnFull::Evict => "evict",
            },
            "max_gap_s": self.options.max_gap_s,
            "states": self.states.len(),
            "streams": self.streams.iter().map(|stream| stream.key.to_string()).collect::<Vec<_>>(),
            "active": self.active().map(ToString::to_string),
            "switches": self.switches,
            "evictions": self.evictions,
        })
    }
}
