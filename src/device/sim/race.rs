//! What a race is, in words that say which wait is missing.

use std::fmt;
use std::ops::Range;

use super::SimCommand;
use crate::device::{BufferClass, BufferId, Cq};

/// Two commands of different queues that touch the same bytes, at least one of them writing, without an order
/// between them: no event that was recorded behind the first is waited for, by the second's queue or by the
/// host, before the second.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Race {
    /// The command that was enqueued first. Where several commands of its queue race with the second, the last
    /// of them: waiting for it orders all.
    pub first: CommandInfo,
    /// The command that was enqueued later.
    pub second: CommandInfo,
    /// Bytes that both touch (where there are several ranges, one of them): device addresses, or bytes of the
    /// host slot.
    pub bytes: Range<u64>,
}

impl Race {
    /// What would order the two.
    #[must_use]
    pub fn missing_edge(&self) -> String {
        let Self { first, second, .. } = self;
        format!(
            "{} must wait for an event recorded on {} after {} (its command {})",
            second.cq, first.cq, first.command, first.sequence
        )
    }
}

impl fmt::Display for Race {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, second, bytes } = self;
        write!(
            f,
            "race for bytes {:#x}..{:#x}: {first}; {second}, with nothing to order them",
            bytes.start, bytes.end
        )?;
        if first.object != second.object {
            f.write_str(" (the first object's memory was used again)")?;
        }
        write!(f, ": {}", self.missing_edge())
    }
}

impl std::error::Error for Race {}

/// One side of a race.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandInfo {
    /// The queue.
    pub cq: Cq,
    /// Number of the command on its queue, from 1; recording and waiting count.
    pub sequence: u64,
    /// What the command does.
    pub command: SimCommand,
    /// Whether it writes the bytes or reads them.
    pub writes: bool,
    /// Whose bytes they are to this command.
    pub object: RaceObject,
}

impl fmt::Display for CommandInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} (command {}) {} {}",
            self.cq,
            self.command,
            self.sequence,
            if self.writes { "writes" } else { "reads" },
            self.object
        )
    }
}

/// What two commands race for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RaceObject {
    /// A device buffer, maybe freed meanwhile.
    Buffer {
        /// Its id.
        id: BufferId,
        /// Its class.
        class: BufferClass,
    },
    /// A host slot, numbered in the process.
    HostSlot(u64),
}

impl fmt::Display for RaceObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Buffer { id, class } => write!(f, "{id} ({class:?})"),
            Self::HostSlot(number) => write!(f, "host slot {number}"),
        }
    }
}
