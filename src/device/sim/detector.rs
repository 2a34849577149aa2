//! Happens-before by vector clocks.
//!
//! The agents are the host and the queues. A queue's clock counts, for each queue, how many of its commands
//! are known to be over; a command comes after another exactly if its clock counts it. Clocks travel
//!
//! - along a queue, from command to command,
//! - with an event, from the queue that records it to the queue or host that waits for it,
//! - with every call, from the host to the queue: a command comes after all that the host had waited for.
//!
//! All of this is known when a command is enqueued, so a race is found whatever order the commands are
//! executed in. For each byte the last read and the last write of each queue are kept; what came before
//! those on a queue is ordered whenever they are.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use smallvec::SmallVec;

use super::SimCommand;
use super::access::{Access, Space};
use super::race::{CommandInfo, Race};
use crate::device::Cq;
use crate::device::cpu::ARENA_BASE;
use crate::device::fault::EventFate;

/// Queues that a simulated device may have.
pub(super) const MAX_QUEUES: usize = 2;

/// Commands of each queue that are over.
type Clock = [u64; MAX_QUEUES];

fn join(clock: &mut Clock, other: &Clock) {
    for (own, other) in clock.iter_mut().zip(other) {
        *own = (*own).max(*other);
    }
}

/// Bytes with one history.
#[derive(Debug, Clone, Copy, Default)]
struct Segment {
    end: usize,
    /// Last access of each queue: a read, a write.
    last: [[Option<CommandInfo>; 2]; MAX_QUEUES],
}

/// History of one address space: segments by their first byte.
type Shadow = BTreeMap<usize, Segment>;

/// Watches commands as they are enqueued.
#[derive(Debug)]
pub(super) struct Detector {
    host: Clock,
    queues: [Clock; MAX_QUEUES],
    /// Clock of each recorded event, the first at index 0.
    events: [Vec<Clock>; MAX_QUEUES],
    shadows: HashMap<Space, Shadow>,
    races: Vec<Race>,
    /// Races that were handed out by [`Self::next_unreported`].
    reported: usize,
}

impl Detector {
    pub(super) fn new() -> Self {
        Self {
            host: [0; MAX_QUEUES],
            queues: [[0; MAX_QUEUES]; MAX_QUEUES],
            events: Default::default(),
            shadows: HashMap::new(),
            races: Vec::new(),
            reported: 0,
        }
    }

    /// Enters a command with all it touches.
    pub(super) fn command(&mut self, cq: Cq, command: SimCommand, accesses: &[Access]) {
        let queue = cq.0 as usize;
        let clock = &mut self.queues[queue];
        join(clock, &self.host);
        clock[queue] += 1;
        let clock = *clock;
        let mut found: SmallVec<[Race; 2]> = SmallVec::new();
        for access in accesses {
            let second = CommandInfo {
                cq,
                sequence: clock[queue],
                command,
                writes: access.writes,
                object: access.object,
            };
            let base = match access.space {
                Space::Arena => ARENA_BASE,
                Space::Slot(_) => 0,
            };
            let shadow = self.shadows.entry(access.space).or_default();
            touch(shadow, &access.range, |start, segment| {
                for first in conflicts(segment, &second, &clock) {
                    let race = Race {
                        first,
                        second,
                        bytes: base + start as u64..base + segment.end as u64,
                    };
                    match found.iter_mut().find(|known| known.first.cq == first.cq) {
                        Some(known) if known.first.sequence >= first.sequence => {}
                        Some(known) => *known = race,
                        None => found.push(race),
                    }
                }
                segment.last[queue][usize::from(second.writes)] = Some(second);
            });
        }
        self.races.extend(found);
    }

    /// Notes that the last command of a queue recorded its next event.
    pub(super) fn record(&mut self, queue: usize, fate: EventFate) {
        let clock = match fate {
            EventFate::Regular | EventFate::Lost => self.queues[queue],
            EventFate::Early => self.events[queue].last().copied().unwrap_or_default(),
        };
        self.events[queue].push(clock);
    }

    /// A queue waits for an event; called before the command is entered.
    pub(super) fn wait(&mut self, cq: Cq, queue: usize, number: u64) {
        if let Some(event) = self.events[queue].get(number as usize - 1) {
            join(&mut self.queues[cq.0 as usize], event);
        }
    }

    /// The host has seen an event complete.
    pub(super) fn host_saw(&mut self, queue: usize, number: u64) {
        if let Some(event) = self.events[queue].get(number as usize - 1) {
            join(&mut self.host, event);
        }
    }

    /// The host has seen every queue empty: nothing before can race with anything that follows.
    pub(super) fn host_saw_all(&mut self) {
        for clock in &self.queues {
            join(&mut self.host, clock);
        }
        self.shadows.clear();
    }

    /// All races so far.
    pub(super) fn races(&self) -> &[Race] {
        &self.races
    }

    /// The first race that no call has answered yet.
    pub(super) fn next_unreported(&mut self) -> Option<Race> {
        let race = self.races.get(self.reported)?.clone();
        self.reported += 1;
        Some(race)
    }
}

/// Accesses of other queues that conflict with a command and are not known to be over.
fn conflicts(segment: &Segment, second: &CommandInfo, clock: &Clock) -> SmallVec<[CommandInfo; 2]> {
    let others = segment
        .last
        .iter()
        .enumerate()
        .filter(|&(queue, _)| queue != second.cq.0 as usize);
    others
        .flat_map(|(queue, last)| {
            let unordered = move |access: &&CommandInfo| access.sequence > clock[queue];
            let [read, write] = last;
            let read = read.as_ref().filter(|_| second.writes);
            [write.as_ref(), read]
                .into_iter()
                .flatten()
                .filter(unordered)
                .copied()
        })
        .collect()
}

/// Calls `visit(start, segment)` for segments that together are exactly `range`.
fn touch(shadow: &mut Shadow, range: &Range<usize>, mut visit: impl FnMut(usize, &mut Segment)) {
    if range.is_empty() {
        return;
    }
    split(shadow, range.start);
    split(shadow, range.end);
    let mut at = range.start;
    while at < range.end {
        let next = shadow
            .range(at..range.end)
            .next()
            .map_or(range.end, |(&start, _)| start);
        if next > at {
            shadow.insert(
                at,
                Segment {
                    end: next,
                    ..Segment::default()
                },
            );
        }
        let Some(segment) = shadow.get_mut(&at) else { break };
        visit(at, segment);
        at = segment.end;
    }
}

/// Makes a segment boundary at `at`.
fn split(shadow: &mut Shadow, at: usize) {
    if let Some((_, segment)) = shadow.range_mut(..at).next_back()
        && segment.end > at
    {
        let behind = *segment;
        segment.end = at;
        shadow.insert(at, behind);
    }
}
