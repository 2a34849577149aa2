//! Signs of life of an actor.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;
use tokio::sync::Notify;

use crate::telemetry::MonotonicClock;

/// What an actor is at, and what it has done.
#[derive(Debug)]
pub(crate) struct Pulse {
    actor: Arc<str>,
    clock: MonotonicClock,
    held: Mutex<Held>,
    done: AtomicU64,
    restarts: AtomicU64,
    panics: AtomicU64,
    /// Woken by the watchdog when a frame has been held for too long.
    pub(crate) alarm: Notify,
}

#[derive(Debug, Default)]
struct Held {
    next_key: u64,
    /// Frames that are worked on: a key, and since when in nanoseconds.
    since_ns: SmallVec<[(u64, u64); 4]>,
}

/// A frame that is worked on, until this is dropped, also by a panic.
#[derive(Debug)]
pub(crate) struct Holding {
    pulse: Arc<Pulse>,
    key: u64,
}

impl Pulse {
    /// The pulse of an actor that has not begun.
    pub(crate) fn new(actor: &str, clock: MonotonicClock) -> Arc<Self> {
        Arc::new(Self {
            actor: actor.into(),
            clock,
            held: Mutex::default(),
            done: AtomicU64::new(0),
            restarts: AtomicU64::new(0),
            panics: AtomicU64::new(0),
            alarm: Notify::new(),
        })
    }

    /// Name of the actor.
    pub(crate) const fn actor(&self) -> &Arc<str> {
        &self.actor
    }

    /// Work on a frame begins.
    pub(crate) fn begin(self: &Arc<Self>) -> Holding {
        let now_ns = self.clock.now_ns();
        let mut held = self.lock();
        let key = held.next_key;
        held.next_key += 1;
        held.since_ns.push((key, now_ns));
        drop(held);
        Holding {
            pulse: Arc::clone(self),
            key,
        }
    }

    /// For how long the frame that has been worked on longest is; `None` where there is none.
    pub(crate) fn holding_ns(&self) -> Option<u64> {
        let oldest = self.lock().since_ns.iter().map(|&(_, since_ns)| since_ns).min();
        oldest.map(|since_ns| self.clock.now_ns().saturating_sub(since_ns))
    }

    /// A frame got through.
    pub(crate) fn frame_done(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }

    /// The actor was started again.
    pub(crate) fn restarted(&self) {
        self.restarts.fetch_add(1, Ordering::Relaxed);
    }

    /// A worker of the actor panicked.
    pub(crate) fn panicked(&self) {
        self.panics.fetch_add(1, Ordering::Relaxed);
    }

    /// Frames that got through.
    pub(crate) fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// How often the actor was started again.
    pub(crate) fn restarts(&self) -> u64 {
        self.restarts.load(Ordering::Relaxed)
    }

    /// How often a worker of it panicked.
    pub(crate) fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.pulse.lock().since_ns.retain(|(key, _)| *key != self.key);
    }
}
