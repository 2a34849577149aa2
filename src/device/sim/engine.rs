//! The queues: commands lie here until the host waits or polls, and then run in a random legal order.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;

use super::access::Access;
use super::memory::poison;
use super::race::RaceObject;
use super::ranges::Ranges;
use crate::device::BufferId;
use crate::device::cpu::kernels::BufferRef;
use crate::device::cpu::pool::ComputePool;
use crate::device::cpu::{Command, execute};
use crate::device::fault::EventFate;
use crate::device::random::SplitMix64;

/// Most commands that one poll executes.
const POLL_STEPS: u64 = 3;

/// Commands of one queue in a row are drawn up to 2 to the power of this, so that a queue sometimes runs far
/// ahead of the other and sometimes takes turns with it.
const BURST_POWERS: u64 = 6;

/// Bytes that a replay makes undefined.
#[derive(Debug, Default)]
pub(super) struct Scribble {
    /// Before its launches: what was freed in the capture.
    pub(super) before: Vec<Range<usize>>,
    /// Behind them: the same without what the capture's own outputs reuse.
    pub(super) after: Vec<Range<usize>>,
}

/// An enqueued command.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) command: Command,
    pub(super) accesses: Arc<[Access]>,
    pub(super) scribble: Option<Arc<Scribble>>,
    /// Of the event that the command records.
    pub(super) event: EventFate,
}

/// Queues and the memory that their commands work on.
pub(super) struct Engine {
    arena: BufferRef,
    pool: ComputePool,
    queues: SmallVec<[VecDeque<Task>; 2]>,
    /// Number of the last event that each queue got to.
    events: SmallVec<[u64; 2]>,
    lost_events: HashSet<(usize, u64)>,
    early_events: HashSet<(usize, u64)>,
    /// Bytes of each buffer that no command has touched since it was allocated.
    fresh: HashMap<BufferId, Ranges>,
    /// Freed buffers that commands may still touch.
    freed: Vec<BufferId>,
    random: SplitMix64,
    /// The queue that runs, and for how many commands it goes on.
    burst: (usize, u64),
    /// The last poll executed nothing.
    idled: bool,
    hook: Option<Arc<dyn Fn() + Send + Sync>>,
}

impl Engine {
    pub(super) fn new(queues: usize, arena: BufferRef, seed: u64) -> Self {
        Self {
            arena,
            pool: ComputePool::new(1),
            queues: (0..queues).map(|_| VecDeque::new()).collect(),
            events: SmallVec::from_elem(0, queues),
            lost_events: HashSet::new(),
            early_events: HashSet::new(),
            fresh: HashMap::new(),
            freed: Vec::new(),
            random: SplitMix64::new(seed),
            burst: (0, 0),
            idled: false,
            hook: None,
        }
    }

    pub(super) fn reserve_scratch(&mut self, bytes: usize) {
        self.pool.reserve_scratch(bytes);
    }

    pub(super) fn set_hook(&mut self, hook: Arc<dyn Fn() + Send + Sync>) {
        self.hook = Some(hook);
    }

    /// Notes that a new buffer's contents are undefined.
    pub(super) fn allocated(&mut self, id: BufferId, range: Range<usize>) {
        self.fresh.entry(id).or_default().insert(range);
    }

    /// Notes that no further command will name a buffer.
    pub(super) fn freed(&mut self, id: BufferId) {
        self.freed.push(id);
        self.forget_freed();
    }

    pub(super) fn push(&mut self, queue: usize, task: Task) {
        let recorded = match task.command {
            Command::Record(number) => Some(number),
            _ => None,
        };
        let fate = task.event;
        self.queues[queue].push_back(task);
        if let Some(number) = recorded {
            match fate {
                EventFate::Regular => false,
                EventFate::Early => self.early_events.insert((queue, number)),
                EventFate::Lost => self.lost_events.insert((queue, number)),
            };
            self.call_hook();
        }
    }

    /// Commands in a queue.
    pub(super) fn pending(&self, queue: usize) -> usize {
        self.queues[queue].len()
    }

    /// Whether every queue is empty.
    pub(super) fn idle(&self) -> bool {
        self.queues.iter().all(VecDeque::is_empty)
    }

    /// Whether a queue has completed its event of this number.
    pub(super) fn event_done(&self, queue: usize, number: u64) -> bool {
        let mut number = number;
        while self.early_events.contains(&(queue, number)) {
            number -= 1;
        }
        self.events[queue] >= number && !self.lost_events.contains(&(queue, number))
    }

    /// Executes one command of a queue that can go on; `false` if there is none.
    pub(super) fn step(&mut self) -> bool {
        let ready: SmallVec<[usize; 2]> = (0..self.queues.len())
            .filter(|&queue| self.is_ready(queue))
            .collect();
        let queue = match ready[..] {
            [] => return false,
            [only] => only,
            _ if self.burst.1 > 0 => self.burst.0,
            _ => {
                let queue = ready[self.random.below(ready.len() as u64) as usize];
                self.burst = (queue, 1 << self.random.below(BURST_POWERS));
                queue
            }
        };
        self.burst.1 = self.burst.1.saturating_sub(1);
        if let Some(task) = self.queues[queue].pop_front() {
            self.execute(queue, task);
        }
        self.forget_freed();
        true
    }

    /// Executes a few commands, or none: what the queues got done since the host last looked.
    pub(super) fn run_some(&mut self) {
        // Never twice none in a row: polling gets there.
        let steps = u64::from(self.idled) + self.random.below(POLL_STEPS + 1 - u64::from(self.idled));
        self.idled = steps == 0;
        for _ in 0..steps {
            if !self.step() {
                break;
            }
        }
    }

    /// Executes commands until `done`; `false` if none is left that can go on.
    pub(super) fn run_until(&mut self, done: impl Fn(&Self) -> bool) -> bool {
        while !done(self) {
            if !self.step() {
                return false;
            }
        }
        true
    }

    /// Tells the owner to poll again if that can lead to anything.
    pub(super) fn invite_poll(&self) {
        if (0..self.queues.len()).any(|queue| self.is_ready(queue)) {
            self.call_hook();
        }
    }

    /// Drops everything that is enqueued; host slots go back.
    pub(super) fn clear(&mut self) {
        self.queues.iter_mut().for_each(VecDeque::clear);
        self.forget_freed();
    }

    fn is_ready(&self, queue: usize) -> bool {
        match self.queues[queue].front().map(|task| &task.command) {
            None => false,
            Some(&Command::Wait { queue, event }) => self.event_done(queue, event),
            Some(_) => true,
        }
    }

    fn execute(&mut self, queue: usize, task: Task) {
        for access in &*task.accesses {
            self.make_undefined(access);
        }
        let Task {
            command, scribble, ..
        } = task;
        if let Command::Record(number) = command {
            self.events[queue] = number;
            self.call_hook();
            return;
        }
        let scribble = scribble.as_deref();
        for range in scribble.iter().flat_map(|scribble| &scribble.before) {
            poison(self.arena, range);
        }
        execute(command, &mut self.pool);
        for range in scribble.iter().flat_map(|scribble| &scribble.after) {
            poison(self.arena, range);
        }
    }

    /// Poisons what a command is the first to touch. Not done when the buffer is allocated: commands that use
    /// the address under its former name may still be enqueued, and whoever is ordered behind them may reuse it.
    fn make_undefined(&mut self, access: &Access) {
        let RaceObject::Buffer { id, .. } = access.object else {
            return;
        };
        let Some(fresh) = self.fresh.get_mut(&id) else {
            return;
        };
        for range in fresh.remove(&access.range) {
            poison(self.arena, &range);
        }
        if fresh.is_empty() {
            self.fresh.remove(&id);
        }
    }

    fn forget_freed(&mut self) {
        if self.idle() {
            for id in self.freed.drain(..) {
                self.fresh.remove(&id);
            }
        }
    }

    fn call_hook(&self) {
        if let Some(hook) = &self.hook {
            hook();
        }
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field(
                "pending",
                &self.queues.iter().map(VecDeque::len).collect::<Vec<_>>(),
            )
            .finish_non_exhaustive()
    }
}
