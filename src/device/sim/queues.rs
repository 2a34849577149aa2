//! What waiting changes: the queues, the clocks, and what the host knows of both.

use std::time::Duration;

use super::clock::{SimCommand, VirtualClock};
use super::detector::Detector;
use super::engine::{Engine, Task};
use crate::device::cpu::{Command, ENQUEUE_DEADLINE};
use crate::device::{Cq, DeviceError};

/// Queues with their clocks.
#[derive(Debug)]
pub(super) struct Queues {
    pub(super) engine: Engine,
    pub(super) clock: VirtualClock,
    pub(super) detector: Detector,
    pub(super) depth: usize,
}

impl Queues {
    /// Enqueues a command that takes `ns`. A full queue makes the host wait for room.
    pub(super) fn push(&mut self, cq: Cq, name: SimCommand, ns: u64, task: Task) -> Result<(), DeviceError> {
        let queue = cq.0 as usize;
        if !self.clock.make_room(queue) {
            self.clock.advance_host(ENQUEUE_DEADLINE);
            return Err(DeviceError::QueueFull {
                cq,
                depth: self.depth,
                waited: ENQUEUE_DEADLINE,
            });
        }
        let depth = self.depth;
        self.engine.run_until(|engine| engine.pending(queue) < depth);
        let event = match task.command {
            Command::Wait { queue, event } => Some((queue, event)),
            _ => None,
        };
        if let Some((queue, number)) = event {
            self.detector.wait(cq, queue, number);
        }
        self.detector.command(cq, name, &task.accesses);
        self.clock.push(cq, name, ns, event);
        if let Command::Record(_) = task.command {
            self.detector.record(queue, task.event);
            self.clock.record(queue, task.event);
        }
        self.engine.push(queue, task);
        Ok(())
    }

    /// Waits on the host for an event for at most `longest`; `false` after that.
    pub(super) fn wait_event(&mut self, queue: usize, number: u64, longest: Duration) -> bool {
        let in_time = self
            .clock
            .host_reaches(self.clock.event_ns(queue, number), longest);
        let completes = |engine: &Engine| engine.event_done(queue, number);
        // An event that a poll happened to execute is over whatever its time.
        let done = (in_time || completes(&self.engine)) && self.engine.run_until(completes);
        if done {
            self.saw_event(queue, number);
        } else {
            self.clock.advance_host(longest);
        }
        // The queues do not stop where the host stopped waiting.
        self.engine.run_some();
        done
    }

    /// Whether an event has completed, after whatever the queues got done meanwhile.
    pub(super) fn poll_event(&mut self, queue: usize, number: u64) -> bool {
        self.engine.run_some();
        let done = self.engine.event_done(queue, number);
        if done {
            self.saw_event(queue, number);
        } else {
            self.engine.invite_poll();
        }
        done
    }

    /// Waits on the host until every queue is empty; `false` after `longest`.
    pub(super) fn drain(&mut self, longest: Duration) -> bool {
        let idle_ns = self.clock.idle_ns();
        let in_time = self.clock.host_reaches(idle_ns, longest);
        let done = (in_time || self.engine.idle()) && self.engine.run_until(Engine::idle);
        if done {
            self.clock.host_sees(idle_ns);
            self.detector.host_saw_all();
        } else {
            self.clock.advance_host(longest);
            self.engine.run_some();
        }
        done
    }

    fn saw_event(&mut self, queue: usize, number: u64) {
        self.clock.host_sees(self.clock.event_ns(queue, number));
        self.detector.host_saw(queue, number);
    }
}
