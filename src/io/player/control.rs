//! Commands to a player that plays.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Bell, PlayerError, Rate, read_ahead::Queue};

/// What a player was told.
#[derive(Debug, Default)]
pub(super) struct Control {
    orders: Mutex<Orders>,
    pub bell: Bell,
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Orders {
    pub stopped: bool,
    pub paused: bool,
    /// Messages to release though paused.
    pub steps: u64,
    /// The rate to play at, if it was changed.
    pub rate: Option<Rate>,
}

impl Control {
    pub(super) fn orders(&self) -> Orders {
        *self.lock()
    }

    /// Takes one step off those that were ordered.
    pub(super) fn stepped(&self) {
        let mut orders = self.lock();
        orders.steps = orders.steps.saturating_sub(1);
    }

    fn lock(&self) -> MutexGuard<'_, Orders> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn order(&self, change: impl FnOnce(&mut Orders)) {
        change(&mut self.lock());
        self.bell.ring();
    }
}

/// Commands a player, from any thread, while it plays or before.
#[derive(Debug, Clone)]
pub struct PlayerHandle {
    pub(super) control: Arc<Control>,
    pub(super) queue: Arc<Queue>,
}

impl PlayerHandle {
    /// Holds the bag's time. What is released already is not taken back.
    pub fn pause(&self) {
        self.control.order(|orders| {
            orders.paused = true;
            orders.steps = 0;
        });
    }

    /// Goes on from where it was paused.
    pub fn resume(&self) {
        self.control.order(|orders| {
            orders.paused = false;
            orders.steps = 0;
        });
    }

    /// Releases the next messages at once, though paused; pauses if it was not. `/clock` is not counted.
    pub fn step(&self, messages: u64) {
        self.control.order(|orders| {
            orders.paused = true;
            orders.steps = orders.steps.saturating_add(messages);
        });
    }

    /// Goes on at another rate.
    ///
    /// # Errors
    /// [`PlayerError::Rate`].
    pub fn set_rate(&self, rate: Rate) -> Result<(), PlayerError> {
        let rate = rate.check()?;
        self.control.order(|orders| orders.rate = Some(rate));
        Ok(())
    }

    /// Ends playing after the message that is being released.
    pub fn stop(&self) {
        self.control.order(|orders| orders.stopped = true);
        self.queue.close();
    }

    /// Whether it is paused.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.control.orders().paused
    }
}
