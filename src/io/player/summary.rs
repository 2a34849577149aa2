//! What a player did.

use std::time::Duration;

use crate::io::bag::BagError;

/// Errors of reading that are kept; those beyond are counted.
const MAX_DAMAGE_KEPT: usize = 100;

/// How playing ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ending {
    /// Everything that was asked for was played.
    #[default]
    Finished,
    /// It was told to stop.
    Stopped,
}

/// What a player did. Nothing that was late, missing or left as it was is left out of the counts.
#[derive(Debug, Default)]
pub struct PlayerSummary {
    /// Messages of the bag that were released.
    pub messages: u64,
    /// Bytes of these messages.
    pub bytes: u64,
    /// `/clock` messages that were released.
    pub clock_messages: u64,
    /// How often the bag began again.
    pub loops: u64,
    /// Messages, of `/clock` too, that were released later than their time by more than the tolerance.
    pub late: u64,
    /// The largest lateness of all messages.
    pub largest_lateness: Duration,
    /// How often two or more late messages were released one right after the other.
    pub bursts: u64,
    /// Most messages of one burst; 0 without any.
    pub largest_burst: u64,
    /// How often a message was not read yet when its turn came.
    pub starved: u64,
    /// Most bytes that were read ahead, or all that were loaded beforehand.
    pub read_ahead_bytes: u64,
    /// Messages whose stamps could not be moved along with a loop.
    pub unshifted: u64,
    /// What of the bag could not be read, the first hundred.
    pub damage: Vec<BagError>,
    /// How much of the bag could not be read.
    pub damaged: u64,
    /// How playing ended.
    pub ending: Ending,
    /// Late messages in a row, up to now.
    late_in_a_row: u64,
}

impl PlayerSummary {
    /// Counts a release.
    pub(super) fn released(&mut self, lateness: Duration, tolerance: Duration) {
        self.largest_lateness = self.largest_lateness.max(lateness);
        if lateness <= tolerance {
            self.late_in_a_row = 0;
            return;
        }
        self.late += 1;
        self.late_in_a_row += 1;
        if self.late_in_a_row >= 2 {
            self.bursts += u64::from(self.late_in_a_row == 2);
            self.largest_burst = self.largest_burst.max(self.late_in_a_row);
        }
    }

    pub(super) fn damaged(&mut self, error: BagError) {
        self.damaged += 1;
        if self.damage.len() < MAX_DAMAGE_KEPT {
            self.damage.push(error);
        }
    }
}
