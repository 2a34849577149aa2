//! Time as a player sees it, and how it is woken from waiting.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Rung when a player that waits has to look at its commands.
#[derive(Debug, Default)]
pub struct Bell {
    rings: Mutex<u64>,
    rung: Condvar,
}

impl Bell {
    /// How often it was rung.
    #[must_use]
    pub fn rings(&self) -> u64 {
        *self.rings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes whoever waits.
    pub fn ring(&self) {
        *self.rings.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.rung.notify_all();
    }

    /// Waits until it was rung more than `heard` times, or for `time`; `None` waits without end.
    pub fn wait(&self, heard: u64, time: Option<Duration>) {
        let rings = self.rings.lock().unwrap_or_else(PoisonError::into_inner);
        let silent = |rings: &mut u64| *rings == heard;
        match time {
            // Whether time or the bell ended the wait is for the caller to find out.
            Some(time) => drop(self.rung.wait_timeout_while(rings, time, silent)),
            None => drop(self.rung.wait_while(rings, silent)),
        }
    }
}

/// A monotonic clock to play by.
pub trait PlayerClock {
    /// The time.
    fn now(&self) -> Instant;

    /// Waits until a time, or, with `None`, without end; and no longer than until the bell was rung more than `heard`
    /// times. May return early.
    fn wait(&self, until: Option<Instant>, bell: &Bell, heard: u64);
}

/// The system's monotonic clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl PlayerClock for SystemClock {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn wait(&self, until: Option<Instant>, bell: &Bell, heard: u64) {
        bell.wait(
            heard,
            until.map(|until| until.saturating_duration_since(Instant::now())),
        );
    }
}
