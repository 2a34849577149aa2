//! Virtual time: when each command starts and ends.
//!
//! Times are fixed the moment a command is enqueued, from its queue, its events and the host's time alone, so
//! the order in which commands happen to be executed does not show in them.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use smallvec::SmallVec;

use crate::device::fault::EventFate;
use crate::device::{Cq, TraceId};

/// What a command does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SimCommand {
    /// A transfer from a host slot.
    Upload,
    /// A transfer into a host slot.
    Read,
    /// A copy between buffers.
    Copy,
    /// A launch of the named operation.
    Launch(&'static str),
    /// A replay.
    Replay(TraceId),
    /// The recording of an event.
    Record,
    /// A wait for an event.
    Wait,
}

impl fmt::Display for SimCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Upload => f.pad("upload"),
            Self::Read => f.pad("read"),
            Self::Copy => f.pad("copy"),
            Self::Launch(op) => write!(f, "launch of {op}"),
            Self::Replay(trace) => write!(f, "replay of {trace}"),
            Self::Record => f.pad("record"),
            Self::Wait => f.pad("wait"),
        }
    }
}

/// One command in virtual time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimelineEntry {
    /// Its queue.
    pub cq: Cq,
    /// What it does.
    pub command: SimCommand,
    /// When it starts.
    pub start_ns: u64,
    /// When it is done.
    pub end_ns: u64,
}

/// The clocks of the host and of each queue. `None` stands for "never": behind an event that is lost.
#[derive(Debug)]
pub(super) struct VirtualClock {
    pub(super) host_ns: u64,
    queues: SmallVec<[QueueClock; 2]>,
    depth: usize,
    timeline: Vec<TimelineEntry>,
}

#[derive(Debug)]
struct QueueClock {
    /// End of the last command.
    end_ns: Option<u64>,
    /// Completion of each event, the first at index 0.
    events: Vec<Option<u64>>,
    /// Ends of the last commands, as many as the queue holds.
    recent: VecDeque<Option<u64>>,
}

impl VirtualClock {
    pub(super) fn new(queues: usize, depth: usize) -> Self {
        let clock = |_| QueueClock {
            end_ns: Some(0),
            events: Vec::new(),
            recent: VecDeque::new(),
        };
        Self {
            host_ns: 0,
            queues: (0..queues).map(clock).collect(),
            depth,
            timeline: Vec::new(),
        }
    }

    /// Lets the host wait until a queue has room; `false` if it never will.
    pub(super) fn make_room(&mut self, queue: usize) -> bool {
        let recent = &mut self.queues[queue].recent;
        if recent.len() < self.depth {
            return true;
        }
        match recent.front().copied().flatten() {
            Some(end_ns) => {
                recent.pop_front();
                self.host_sees(Some(end_ns));
                true
            }
            None => false,
        }
    }

    /// Appends a command: it starts when its queue, the host's call and, for a wait, the event are there.
    pub(super) fn push(&mut self, cq: Cq, command: SimCommand, ns: u64, event: Option<(usize, u64)>) {
        let event_ns = match event {
            Some((queue, number)) => self.event_ns(queue, number),
            None => Some(0),
        };
        let queue = &mut self.queues[cq.0 as usize];
        let start_ns = queue
            .end_ns
            .zip(event_ns)
            .map(|(queue_ns, event_ns)| queue_ns.max(event_ns).max(self.host_ns));
        queue.end_ns = start_ns.map(|start_ns| start_ns.saturating_add(ns));
        queue.recent.push_back(queue.end_ns);
        if let Some((start_ns, end_ns)) = start_ns.zip(queue.end_ns) {
            self.timeline.push(TimelineEntry {
                cq,
                command,
                start_ns,
                end_ns,
            });
        }
    }

    /// Notes that the last command of a queue recorded its next event.
    pub(super) fn record(&mut self, queue: usize, fate: EventFate) {
        let queue = &mut self.queues[queue];
        queue.events.push(match fate {
            EventFate::Regular => queue.end_ns,
            EventFate::Early => queue.events.last().copied().unwrap_or(Some(0)),
            EventFate::Lost => None,
        });
    }

    /// When an event completes.
    pub(super) fn event_ns(&self, queue: usize, number: u64) -> Option<u64> {
        self.queues[queue]
            .events
            .get(number as usize - 1)
            .copied()
            .flatten()
    }

    /// When every queue is empty.
    pub(super) fn idle_ns(&self) -> Option<u64> {
        self.queues
            .iter()
            .try_fold(0, |latest: u64, queue| Some(latest.max(queue.end_ns?)))
    }

    /// Whether the host would see something that happens at `at_ns` if it waited for `longest`.
    pub(super) fn host_reaches(&self, at_ns: Option<u64>, longest: Duration) -> bool {
        at_ns.is_some_and(|at_ns| at_ns <= self.host_ns.saturating_add(whole_ns(longest)))
    }

    /// The host has seen something that happens at `at_ns`.
    pub(super) fn host_sees(&mut self, at_ns: Option<u64>) {
        self.host_ns = self.host_ns.max(at_ns.unwrap_or(0));
    }

    /// The host does something else for a while.
    pub(super) fn advance_host(&mut self, time: Duration) {
        self.host_ns = self.host_ns.saturating_add(whole_ns(time));
    }

    /// Every command that has a time, in the order of enqueueing.
    pub(super) fn timeline(&self) -> &[TimelineEntry] {
        &self.timeline
    }
}

fn whole_ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
