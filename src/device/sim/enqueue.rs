//! What the calls of the contract share: fault plan, memory, bindings.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::access::Access;
use super::clock::SimCommand;
use super::device::{Buffer, SimDevice};
use super::engine::Task;
use crate::device::cpu::{BoundLaunch, Command};
use crate::device::fault::{EventFate, Hits};
use crate::device::{BufferClass, BufferId, Cq, DeviceError, FaultCall, ProgramId};

impl SimDevice {
    /// Enqueues a command unless a fault keeps it from that.
    pub(super) fn enqueue(
        &mut self,
        cq: Cq,
        call: FaultCall,
        name: SimCommand,
        ns: u64,
        mut task: Task,
    ) -> Result<(), DeviceError> {
        let hits = self.strike(call, cq)?;
        if hits.ignore_wait {
            return Ok(());
        }
        task.event = hits.event;
        self.queues
            .get_mut()
            .push(cq, name, ns.saturating_mul(hits.slow), task)
    }

    /// Counts a call for the fault plan, and fails if the plan says so.
    pub(super) fn strike(&mut self, call: FaultCall, cq: Cq) -> Result<Hits, DeviceError> {
        let hits = self.faults.call(call, cq);
        if hits.lose_device {
            return Err(self.lose("the fault plan says so"));
        }
        if hits.refuse {
            return Err(DeviceError::QueueFull {
                cq,
                depth: self.caps.queue_depth,
                waited: Duration::ZERO,
            });
        }
        Ok(hits)
    }

    /// Gives out memory under a new id.
    pub(super) fn reserve(&mut self, bytes: usize, class: BufferClass) -> Result<BufferId, DeviceError> {
        self.usable()?;
        if self.capture.is_some() && !class.may_change_in_capture() {
            return Err(DeviceError::DuringCapture {
                what: "allocating a persistent buffer",
            });
        }
        let preferred: Vec<_> = self.freed_in_traces().collect();
        let offset = self.memory.alloc(bytes, preferred.into_iter())?;
        self.last_buffer += 1;
        let id = BufferId(self.last_buffer);
        self.buffers.insert(
            id.0,
            Buffer {
                offset,
                bytes,
                class,
                acknowledged: false,
            },
        );
        if let Some(capture) = &mut self.capture {
            capture.base.allocated.push(id);
        }
        Ok(id)
    }

    /// Binds buffers to a program, and tells what a launch touches.
    pub(super) fn bind(
        &self,
        program: ProgramId,
        buffers: &[BufferId],
    ) -> Result<(BoundLaunch, Vec<Access>), DeviceError> {
        let program = self
            .programs
            .get(program.0 as usize)
            .ok_or(DeviceError::UnknownProgram(program))?;
        let op = program.name;
        let needs = program.kernel.required_bytes();
        if buffers.len() != needs.len() {
            let reason = format!("{} buffers bound, the program has {}", buffers.len(), needs.len());
            return Err(DeviceError::InvalidBinding { op, reason });
        }
        let mut bound = SmallVec::with_capacity(buffers.len());
        let mut accesses = Vec::with_capacity(buffers.len());
        for (slot, (&id, (&need, operand))) in buffers.iter().zip(needs.iter().zip(&program.uses)).enumerate()
        {
            let bytes = self.buffer(id)?.bytes;
            if bytes < need {
                let reason = format!("operand {slot} ({id}) has {bytes} bytes, the program reaches {need}");
                return Err(DeviceError::InvalidBinding { op, reason });
            }
            let used = operand.range.clone().unwrap_or(0..need);
            let (_, access) = self.range(id, used.start, used.len(), operand.writes)?;
            accesses.push(access);
            bound.push(self.range(id, 0, bytes, false)?.0);
        }
        let launch = BoundLaunch {
            kernel: Arc::clone(&program.kernel),
            buffers: bound,
        };
        Ok((launch, accesses))
    }
}

/// A command that is no replay.
pub(super) fn task(command: Command, accesses: impl Into<Arc<[Access]>>) -> Task {
    Task {
        command,
        accesses: accesses.into(),
        scribble: None,
        event: EventFate::Regular,
    }
}
