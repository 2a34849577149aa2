//! How a run ends: told once, seen by everyone.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use tokio::sync::Notify;

use super::RuntimeError;
use super::control::Board;

/// States in the order in which a run passes them; 0 is running.
const DRAINING: u8 = 1;
const ABORTING: u8 = 2;

/// Shared by all actors of a run. Draining stops the sources and lets everything under way come out; aborting
/// lets stages drop what they hold, counted as `shutting_down`.
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    state: AtomicU8,
    changed: Notify,
    faults: Mutex<Vec<RuntimeError>>,
    /// What ends the run is told here too.
    board: OnceLock<Weak<Board>>,
}

impl Shutdown {
    /// Stops the sources.
    pub fn drain(&self) {
        self.raise(DRAINING);
    }

    /// Makes stages drop what they hold.
    pub fn abort(&self) {
        self.raise(ABORTING);
    }

    /// Keeps an error for the end of the run, which goes on.
    pub fn note(&self, error: RuntimeError) {
        self.inner
            .faults
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(error);
    }

    /// Ends the run because of an error.
    pub fn fail(&self, error: RuntimeError) {
        if let Some(board) = self.inner.board.get().and_then(Weak::upgrade) {
            board.fail(&error);
        }
        self.note(error);
        self.abort();
    }

    /// Has failures told to a board.
    pub(crate) fn report_to(&self, board: &Arc<Board>) {
        // A run has one board.
        let _ = self.inner.board.set(Arc::downgrade(board));
    }

    /// The errors so far, oldest first.
    #[must_use]
    pub fn take_faults(&self) -> Vec<RuntimeError> {
        std::mem::take(&mut self.inner.faults.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether sources should stop.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.inner.state.load(Ordering::Acquire) >= DRAINING
    }

    /// Whether stages should drop what they hold.
    #[must_use]
    pub fn is_aborting(&self) -> bool {
        self.inner.state.load(Ordering::Acquire) >= ABORTING
    }

    /// Completes once sources should stop.
    pub async fn draining(&self) {
        loop {
            let changed = self.inner.changed.notified();
            tokio::pin!(changed);
            // Registered before the state is read, so that no change falls in between.
            changed.as_mut().enable();
            if self.is_draining() {
                return;
            }
            changed.await;
        }
    }

    fn raise(&self, state: u8) {
        self.inner.state.fetch_max(state, Ordering::AcqRel);
        self.inner.changed.notify_waiters();
    }
}
