//! Messages read before they are due, by a thread of its own, within a number of bytes.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::PlayerError;
use crate::io::bag::{Bag, BagError, TimeRange};

/// What comes out of a bag, in order.
#[derive(Debug)]
pub(super) enum Item {
    Message(Message),
    /// Something of the bag that cannot be read.
    Damage(BagError),
    /// The end of the bag, before its beginning comes again.
    LoopEnd,
}

#[derive(Debug, Clone)]
pub(super) struct Message {
    /// Place in the list of played topics.
    pub topic: usize,
    pub log_time_ns: u64,
    pub data: Vec<u8>,
}

/// Bytes that an item takes beside its payload, about.
const ITEM_BYTES: usize = size_of::<Item>();

impl Item {
    fn bytes(&self) -> usize {
        match self {
            Self::Message(message) => ITEM_BYTES + message.data.len(),
            Self::Damage(_) | Self::LoopEnd => ITEM_BYTES,
        }
    }
}

/// Items between the reader and the player, bounded by bytes.
#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    limit: usize,
}

#[derive(Debug, Default)]
struct State {
    items: VecDeque<Item>,
    bytes: usize,
    largest_bytes: usize,
    /// The reader had to wait for room, or has read the bag once.
    filled: bool,
    /// The reader has put in all that there is.
    finished: bool,
    /// Nobody takes anything any more.
    closed: bool,
}

impl Queue {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            limit,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an item when there is room for it; one that is larger than all the room waits for an empty queue.
    /// `false` when the queue is closed.
    fn push(&self, item: Item) -> bool {
        let bytes = item.bytes();
        let full = |state: &mut State| {
            !state.closed && !state.items.is_empty() && state.bytes.saturating_add(bytes) > self.limit
        };
        let mut state = self.lock();
        if full(&mut state) {
            state.filled = true;
            self.changed.notify_all();
            state = self
                .changed
                .wait_while(state, full)
                .unwrap_or_else(PoisonError::into_inner);
        }
        if state.closed {
            return false;
        }
        state.filled |= matches!(item, Item::LoopEnd);
        state.items.push_back(item);
        state.bytes += bytes;
        state.largest_bytes = state.largest_bytes.max(state.bytes);
        drop(state);
        self.changed.notify_all();
        true
    }

    /// The next item, and whether it had to be waited for; `None` at the end and when closed.
    pub(super) fn pop(&self) -> Option<(Item, bool)> {
        let mut state = self.lock();
        let waited = state.items.is_empty() && !state.finished && !state.closed;
        let dry = |state: &mut State| state.items.is_empty() && !state.finished && !state.closed;
        state = self
            .changed
            .wait_while(state, dry)
            .unwrap_or_else(PoisonError::into_inner);
        if state.closed {
            return None;
        }
        let item = state.items.pop_front()?;
        state.bytes -= item.bytes();
        drop(state);
        self.changed.notify_all();
        Some((item, waited))
    }

    /// Waits until there was no more room for the reader, or the bag was read once.
    pub(super) fn wait_until_filled(&self) {
        let filling = |state: &mut State| !state.finished && !state.closed && !state.filled;
        drop(self.changed.wait_while(self.lock(), filling));
    }

    pub(super) fn largest_bytes(&self) -> usize {
        self.lock().largest_bytes
    }

    fn finish(&self) {
        self.lock().finished = true;
        self.changed.notify_all();
    }

    /// Ends both sides.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }
}

/// What is read, and how often.
#[derive(Debug)]
pub(super) struct Reading {
    pub bag: Arc<Bag>,
    /// Topics by their recorded names, with their places in the list of played topics.
    pub topics: HashMap<String, usize>,
    pub range: TimeRange,
    pub looped: bool,
}

impl Reading {
    /// The bag once from beginning to end.
    fn once(&self) -> Result<impl Iterator<Item = Item>, PlayerError> {
        let names: Vec<&str> = self.topics.keys().map(String::as_str).collect();
        let messages = self.bag.messages_within(Some(&names), self.range)?;
        Ok(messages.filter_map(|message| match message {
            Ok(message) => self.topics.get(&*message.topic).map(|topic| {
                Item::Message(Message {
                    topic: *topic,
                    log_time_ns: message.log_time_ns,
                    data: message.data,
                })
            }),
            Err(error) => Some(Item::Damage(error)),
        }))
    }

    /// Puts everything into the queue until that is closed.
    pub(super) fn run(&self, queue: &Queue) -> Result<(), PlayerError> {
        /// Tells the player of the end also where reading ends by a panic.
        struct Ends<'a>(&'a Queue);
        impl Drop for Ends<'_> {
            fn drop(&mut self) {
                self.0.finish();
            }
        }
        let _ends = Ends(queue);
        for turn in 0u64.. {
            let mut messages = 0u64;
            for item in self.once()? {
                messages += u64::from(matches!(item, Item::Message(_)));
                // Damage was told in the first turn.
                if matches!(item, Item::Damage(_)) && turn > 0 {
                    continue;
                }
                if !queue.push(item) {
                    return Ok(());
                }
            }
            // Nothing, again and again, would be a loop without end.
            if !self.looped || messages == 0 || !queue.push(Item::LoopEnd) {
                break;
            }
        }
        Ok(())
    }

    /// All messages of one turn, `limit` bytes at most, and what cannot be read.
    pub(super) fn load(&self, limit: u64) -> Result<(Vec<Message>, Vec<BagError>), PlayerError> {
        let (mut messages, mut damage) = (Vec::new(), Vec::new());
        let mut bytes = 0u64;
        for item in self.once()? {
            bytes = bytes.saturating_add(item.bytes() as u64);
            if bytes > limit {
                return Err(PlayerError::Preload { limit });
            }
            match item {
                Item::Message(message) => messages.push(message),
                Item::Damage(error) => damage.push(error),
                Item::LoopEnd => {}
            }
        }
        Ok((messages, damage))
    }
}
