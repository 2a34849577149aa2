//! One order of everything, whatever the threads do: what makes a run repeat itself to the byte.
//!
//! Sources take turns by the times of their messages, and each frame carries its place in that order. Frames still
//! overtake each other between detectors, so a sink that several of them feed holds a result back until nothing that
//! comes before it is under way any more.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::channel::Receiver;
use super::finish::SinkItem;
use super::shutdown::Shutdown;
use crate::telemetry::FrameId;

/// Messages that the sources may be ahead of the oldest frame under way. It bounds what sinks hold back.
const WINDOW: u64 = 64;

/// Longest sleep between two looks at whether the run is over.
const NAP: Duration = Duration::from_millis(50);

/// The place of a frame in the order of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Turn {
    /// Position of the message among all messages of all sources.
    message: u64,
    /// Position of the receiver among those that the message goes to.
    receiver: u32,
    /// What was made of it, among all that was made.
    made: [u16; 3],
}

impl Turn {
    /// The turn of what is made of a frame of this turn, by its position at so many steps; 0 is the frame itself.
    pub(crate) fn made(self, step: usize, position: usize) -> Self {
        let mut made = self.made;
        if let Some(place) = made.get_mut(step) {
            *place = u16::try_from(position + 1).unwrap_or(u16::MAX);
        }
        Self { made, ..self }
    }
}

/// The order of a run. All that is under way has a turn here, from its release to when its result is in the channels of
/// all sinks.
#[derive(Debug)]
pub(crate) struct Turns {
    state: Mutex<State>,
    /// Wakes sources.
    freed: Condvar,
    /// Wakes sinks.
    settled: Notify,
    shutdown: Shutdown,
}

#[derive(Debug)]
struct State {
    sources: Vec<Next>,
    /// A source is handing its message to the receivers.
    releasing: bool,
    /// Messages released so far.
    released: u64,
    under_way: BTreeSet<Turn>,
    turn_of: HashMap<FrameId, Turn>,
}

/// What a source will release next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// Not known yet.
    Reading,
    /// A message of this time.
    At(u64),
    /// Nothing any more.
    Over,
}

/// The right to release one message; the next source's turn comes when it is dropped.
#[derive(Debug)]
pub(crate) struct Release {
    turns: Arc<Turns>,
    message: u64,
}

/// The turn of what a node makes when nothing comes any more.
#[derive(Debug)]
pub(crate) struct LastTurn {
    turns: Arc<Turns>,
    turn: Turn,
}

impl LastTurn {
    /// The turn.
    pub(crate) const fn turn(&self) -> Turn {
        self.turn
    }
}

impl Drop for LastTurn {
    fn drop(&mut self) {
        self.turns.lock().under_way.remove(&self.turn);
        self.turns.freed.notify_all();
        self.turns.settled.notify_waiters();
    }
}

impl Turns {
    /// The order of a run of so many sources.
    pub(crate) fn new(sources: usize, shutdown: Shutdown) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                sources: vec![Next::Reading; sources],
                releasing: false,
                released: 0,
                under_way: BTreeSet::new(),
                turn_of: HashMap::new(),
            }),
            freed: Condvar::new(),
            settled: Notify::new(),
            shutdown,
        })
    }

    /// Waits until the message of a source is the next of all; `None` if the run ended meanwhile. Of messages of one
    /// time, that of the first source comes first.
    pub(crate) fn wait(self: &Arc<Self>, source: usize, time_ns: u64) -> Option<Release> {
        let mut state = self.lock();
        state.sources[source] = Next::At(time_ns);
        // Another source may have waited to learn this.
        self.freed.notify_all();
        while !state.may_release(source, time_ns) {
            if self.shutdown.is_draining() {
                return None;
            }
            state = self
                .freed
                .wait_timeout(state, NAP)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        state.releasing = true;
        state.sources[source] = Next::Reading;
        let message = state.released;
        state.released += 1;
        Some(Release {
            turns: Arc::clone(self),
            message,
        })
    }

    /// A source has no more messages.
    pub(crate) fn over(&self, source: usize) {
        self.lock().sources[source] = Next::Over;
        self.freed.notify_all();
    }

    /// A frame is not under way any more: it was dropped, or its result is in the channels of all sinks.
    pub(crate) fn settle(&self, frame: FrameId) {
        let mut state = self.lock();
        if let Some(turn) = state.turn_of.remove(&frame) {
            state.under_way.remove(&turn);
            drop(state);
            self.freed.notify_all();
            self.settled.notify_waiters();
        }
    }

    /// A frame that was made of others is under way from now on.
    pub(crate) fn begin(&self, frame: FrameId, turn: Turn) {
        let mut state = self.lock();
        state.under_way.insert(turn);
        state.turn_of.insert(frame, turn);
    }

    /// A turn after those of all messages, for what a node makes when nothing comes any more; `position` tells such nodes
    /// apart. It is under way until it is dropped, so that nothing of a later node goes before what is made in it.
    pub(crate) fn after_all(self: &Arc<Self>, position: usize) -> LastTurn {
        let turn = Turn {
            message: u64::MAX,
            receiver: u32::try_from(position).unwrap_or(u32::MAX),
            made: [0; 3],
        };
        self.lock().under_way.insert(turn);
        LastTurn {
            turns: Arc::clone(self),
            turn,
        }
    }

    /// The first turn that is under way.
    fn first(&self) -> Option<Turn> {
        self.lock().under_way.first().copied()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn may_release(&self, source: usize, time_ns: u64) -> bool {
        let others = self.sources.iter().enumerate().filter(|(i, _)| *i != source);
        let mut comes_first = others.map(|(i, next)| match next {
            Next::Reading => false,
            Next::At(other_ns) => (time_ns, source) < (*other_ns, i),
            Next::Over => true,
        });
        let oldest = self.under_way.first().map_or(self.released, |turn| turn.message);
        // What is made after all messages keeps none of them waiting.
        let oldest = oldest.min(self.released);
        !self.releasing && self.released - oldest < WINDOW && comes_first.all(|first| first)
    }
}

impl Release {
    /// The turn of the message's frame for the receiver of that position. It is under way from now on.
    pub(crate) fn open(&self, frame: FrameId, receiver: usize) -> Turn {
        let turn = Turn {
            message: self.message,
            receiver: u32::try_from(receiver).unwrap_or(u32::MAX),
            made: [0; 3],
        };
        let mut state = self.turns.lock();
        state.under_way.insert(turn);
        state.turn_of.insert(frame, turn);
        turn
    }
}

impl Drop for Release {
    fn drop(&mut self) {
        self.turns.lock().releasing = false;
        self.turns.freed.notify_all();
    }
}

/// The results that go to one sink: as they come, or in the order of their turns.
#[derive(Debug)]
pub(crate) struct SinkInput {
    items: Receiver<SinkItem>,
    turns: Option<Arc<Turns>>,
    held: BTreeMap<Turn, SinkItem>,
    /// Nothing comes any more.
    exhausted: bool,
}

impl SinkInput {
    /// The results of a channel; with `turns` in their order.
    pub(crate) fn new(items: Receiver<SinkItem>, turns: Option<Arc<Turns>>) -> Self {
        Self {
            items,
            turns,
            held: BTreeMap::new(),
            exhausted: false,
        }
    }

    /// The next result; `None` once all senders are gone and nothing waits. Dropping the future loses nothing.
    pub(crate) async fn recv(&mut self) -> Option<SinkItem> {
        let Some(turns) = self.turns.clone() else {
            return self.items.recv().await;
        };
        loop {
            let settled = turns.settled.notified();
            tokio::pin!(settled);
            // Registered before anything is looked at, so that nothing falls in between.
            settled.as_mut().enable();
            // Looked at in this order: what was settled before is in the channel.
            let first = turns.first();
            while let Some(item) = self.items.try_recv() {
                self.held.insert(item.1.meta.turn, item);
            }
            if let Some(next) = self.held.first_entry()
                && (self.exhausted || first.is_none_or(|first| *next.key() <= first))
            {
                return Some(next.remove());
            }
            if self.exhausted {
                return None;
            }
            tokio::select! {
                item = self.items.recv() => match item {
                    Some(item) => drop(self.held.insert(item.1.meta.turn, item)),
                    None => self.exhausted = true,
                },
                () = settled => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What two nodes make of what was left comes after all messages, node by node, whichever is ready first.
    #[test]
    fn what_is_left_at_the_end_has_turns_after_all_messages() {
        let turns = Turns::new(1, Shutdown::default());
        let (one, other) = (turns.after_all(0), turns.after_all(1));
        let released = (0..WINDOW * 2).filter(|&at| turns.wait(0, at).is_some());
        assert_eq!(released.count() as u64, WINDOW * 2, "no message waits for it");
        assert_eq!(turns.first(), Some(one.turn()));
        let left = one.turn().made(0, 0);
        assert!(one.turn() < left && left < other.turn());
        drop(one);
        assert_eq!(turns.first(), Some(other.turn()));
        drop(other);
        assert_eq!(turns.first(), None);
    }
}
