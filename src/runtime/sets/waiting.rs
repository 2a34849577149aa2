//! How many members wait for the others of their sets.

use std::sync::Arc;

use super::matcher::Outcome;
use crate::telemetry::Ledger;

/// The members that one node holds, and what of them the ledger was told: frames that wait are open, and yet nothing is
/// under way.
#[derive(Debug)]
pub(super) struct Waiting {
    ledger: Arc<Ledger>,
    held: u64,
    told: u64,
}

impl Waiting {
    /// None yet.
    pub(super) fn new(ledger: &Arc<Ledger>) -> Self {
        Self {
            ledger: Arc::clone(ledger),
            held: 0,
            told: 0,
        }
    }

    /// A member was taken.
    pub(super) fn taken(&mut self) {
        self.held += 1;
    }

    /// What comes of members is about to be done: until it is, they count as under way.
    pub(super) fn begin<'a, T: 'a>(&mut self, outcomes: impl Iterator<Item = &'a Outcome<T>>) {
        let left = outcomes.map(|outcome| match outcome {
            Outcome::Set(set) => set.members.iter().flatten().filter(|placed| placed.first).count(),
            Outcome::Unused { .. } => 1,
            _ => 0,
        });
        self.held = self.held.saturating_sub(left.sum::<usize>() as u64);
        self.tell(0);
    }

    /// It is done.
    pub(super) fn done(&mut self) {
        self.tell(self.held);
    }

    fn tell(&mut self, waiting: u64) {
        self.ledger.frames_wait(self.told, waiting);
        self.told = waiting;
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.tell(0);
    }
}
