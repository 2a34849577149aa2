//! The [`Device`] contract on [`SimDevice`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::access::{Access, Footprint, uses};
use super::clock::SimCommand;
use super::costs::bytes_ns;
use super::device::{Buffer, Program, SimCapture, SimDevice, SimTrace};
use super::engine::{Engine, Scribble, Task};
use super::enqueue::task;
use super::ranges::Ranges;
use crate::device::cpu::{
    ARENA_BASE, BoundLaunch, Capture, Command, EVENT_QUEUE_SHIFT, PREPARE_DEADLINE, Trace, kernels,
};
use crate::device::fault::EventFate;
use crate::device::{
    BufferClass, BufferId, Cq, Device, DeviceCaps, DeviceError, DeviceHealth, DeviceMemory, EventId,
    FaultCall, HostSlot, MissPolicy, OpDesc, ProgramId, TraceId, UnsafeLive, WeightDesc,
};
use crate::tensor::{Layout, TensorSpec};

impl Device for SimDevice {
    fn caps(&self) -> &DeviceCaps {
        &self.caps
    }

    fn alloc(&mut self, spec: &TensorSpec, class: BufferClass) -> Result<BufferId, DeviceError> {
        if spec.layout != Layout::RowMajor {
            return Err(DeviceError::UnsupportedLayout {
                backend: self.caps.backend,
                layout: spec.layout,
            });
        }
        let id = self.reserve(spec.bytes(), class)?;
        let (_, contents) = self.range(id, 0, spec.bytes(), true)?;
        self.queues.get_mut().engine.allocated(id, contents.range);
        Ok(id)
    }

    fn free(&mut self, buffer: BufferId) -> Result<(), DeviceError> {
        let Buffer {
            offset, bytes, class, ..
        } = *self.buffer(buffer)?;
        let (_, contents) = self.range(buffer, 0, bytes, true)?;
        if let Some(capture) = &mut self.capture {
            if !class.may_change_in_capture() {
                return Err(DeviceError::DuringCapture {
                    what: "freeing a persistent buffer",
                });
            }
            capture.base.allocated.retain(|&id| id != buffer);
            capture.freed.push(contents.range.clone());
            capture.footprint.add(&[contents]);
        }
        self.buffers.remove(&buffer.0);
        self.memory.free(offset, bytes);
        self.queues.get_mut().engine.freed(buffer);
        Ok(())
    }

    fn address(&self, buffer: BufferId) -> Result<u64, DeviceError> {
        Ok(ARENA_BASE + self.buffer(buffer)?.offset as u64)
    }

    fn host_slot(&mut self, bytes: usize) -> Result<HostSlot, DeviceError> {
        self.usable()?;
        HostSlot::try_new(bytes).map_err(|_| DeviceError::OutOfMemory {
            requested: bytes,
            largest_free: 0,
        })
    }

    fn write(
        &mut self,
        cq: Cq,
        dst: BufferId,
        dst_offset: usize,
        src: &HostSlot,
        len: usize,
    ) -> Result<(), DeviceError> {
        self.usable_outside_capture("writing a buffer")?;
        self.known_queue(cq)?;
        let (dst, written) = self.range(dst, dst_offset, len, true)?;
        Self::check_slot(src, len)?;
        let src = src.lend_source()?;
        let read = Access::slot(src.slot_id(), len, false);
        let ns = bytes_ns(len, self.costs.upload_bytes_per_us);
        let task = task(Command::Upload { src, dst }, [read, written]);
        self.enqueue(cq, FaultCall::Write, SimCommand::Upload, ns, task)
    }

    fn read(
        &mut self,
        cq: Cq,
        src: BufferId,
        src_offset: usize,
        dst: &mut HostSlot,
        len: usize,
    ) -> Result<(), DeviceError> {
        self.usable_outside_capture("reading a buffer")?;
        self.known_queue(cq)?;
        let (src, read) = self.range(src, src_offset, len, false)?;
        Self::check_slot(dst, len)?;
        let dst = dst.lend_destination()?;
        let written = Access::slot(dst.slot_id(), len, true);
        let ns = bytes_ns(len, self.costs.read_bytes_per_us);
        let task = task(Command::Download { src, dst }, [read, written]);
        self.enqueue(cq, FaultCall::Read, SimCommand::Read, ns, task)
    }

    fn copy(&mut self, cq: Cq, src: BufferId, dst: BufferId) -> Result<(), DeviceError> {
        self.usable_outside_capture("copying a buffer")?;
        self.known_queue(cq)?;
        let bytes = self.buffer(src)?.bytes;
        let size = self.buffer(dst)?.bytes;
        if size != bytes {
            return Err(DeviceError::OutOfRange {
                what: dst.to_string(),
                start: 0,
                end: bytes,
                size,
            });
        }
        let (src, read) = self.range(src, 0, bytes, false)?;
        let (dst, written) = self.range(dst, 0, bytes, true)?;
        let ns = bytes_ns(bytes, self.costs.copy_bytes_per_us);
        let task = task(Command::Copy { src, dst }, [read, written]);
        self.enqueue(cq, FaultCall::Copy, SimCommand::Copy, ns, task)
    }

    fn record_event(&mut self, cq: Cq) -> Result<EventId, DeviceError> {
        self.usable_outside_capture("recording an event")?;
        self.known_queue(cq)?;
        let queue = cq.0 as usize;
        let number = self.events[queue] + 1;
        let task = task(Command::Record(number), []);
        let ns = self.costs.event_ns;
        self.enqueue(cq, FaultCall::RecordEvent, SimCommand::Record, ns, task)?;
        self.events[queue] = number;
        Ok(EventId(((queue as u64) << EVENT_QUEUE_SHIFT) | number))
    }

    fn wait_event(&mut self, cq: Cq, event: EventId) -> Result<(), DeviceError> {
        self.usable_outside_capture("waiting for an event")?;
        self.known_queue(cq)?;
        let (queue, event) = self.locate(event)?;
        let task = task(Command::Wait { queue, event }, []);
        let ns = self.costs.event_ns;
        self.enqueue(cq, FaultCall::WaitEvent, SimCommand::Wait, ns, task)
    }

    fn poll_event(&self, event: EventId) -> Result<bool, DeviceError> {
        let (queue, number) = self.locate(event)?;
        self.usable()?;
        self.answer_race()?;
        Ok(self.queues.borrow_mut().poll_event(queue, number))
    }

    fn sync_event(&self, event: EventId, deadline: Instant) -> Result<(), DeviceError> {
        self.usable_outside_capture("synchronising with the host")?;
        let (queue, number) = self.locate(event)?;
        self.answer_race()?;
        let longest = whole_ms(deadline.saturating_duration_since(Instant::now()));
        if self.queues.borrow_mut().wait_event(queue, number, longest) {
            Ok(())
        } else {
            Err(DeviceError::Timeout {
                what: event.to_string(),
                waited: longest,
            })
        }
    }

    fn prepare_weights(&mut self, weights: &WeightDesc<'_>) -> Result<BufferId, DeviceError> {
        self.usable_outside_capture("preparing weights")?;
        let packed = kernels::pack_weights(weights, self.isa)?;
        // The memory may have been freed while commands that use it are still queued.
        self.drain(PREPARE_DEADLINE)?;
        let id = self.reserve(packed.bytes().len(), BufferClass::Weight)?;
        let offset = self.buffer(id)?.offset;
        self.memory.store(offset, packed.bytes());
        Ok(id)
    }

    fn compile(&mut self, op: &OpDesc) -> Result<ProgramId, DeviceError> {
        self.usable()?;
        if let Some(&program) = self.program_of.get(op) {
            return Ok(program);
        }
        if self.misses == MissPolicy::Forbid {
            return Err(DeviceError::CacheMissForbidden {
                op: format!("{op:?}"),
            });
        }
        let kernel = kernels::prepare(op, self.isa)?;
        self.queues
            .get_mut()
            .engine
            .reserve_scratch(kernel.scratch_bytes());
        let uses = uses(op);
        let output_bytes = uses
            .iter()
            .filter(|operand| operand.writes)
            .map(|operand| operand.elements_bytes)
            .sum();
        let id = ProgramId(self.programs.len() as u64);
        self.programs.push(Program {
            name: op.name(),
            kernel,
            work_ns: self.costs.work_ns(op.name(), output_bytes),
            uses,
        });
        self.program_of.insert(op.clone(), id);
        Ok(id)
    }

    fn launch(&mut self, cq: Cq, program: ProgramId, buffers: &[BufferId]) -> Result<(), DeviceError> {
        self.usable()?;
        self.known_queue(cq)?;
        let (launch, accesses) = self.bind(program, buffers)?;
        let Program { name, work_ns, .. } = self.programs[program.0 as usize];
        if self.capture.as_ref().is_some_and(|capture| capture.base.cq != cq) {
            return Err(DeviceError::DuringCapture {
                what: "launching on another queue",
            });
        }
        if self.capture.is_some() {
            self.strike(FaultCall::Launch, cq)?;
        }
        if let Some(capture) = &mut self.capture {
            capture.base.launches.push(launch);
            capture.footprint.add(&accesses);
            capture.work_ns = capture.work_ns.saturating_add(work_ns);
            return Ok(());
        }
        let ns = self.costs.launch_ns.saturating_add(work_ns);
        let task = task(Command::Launch(launch), accesses);
        self.enqueue(cq, FaultCall::Launch, SimCommand::Launch(name), ns, task)
    }

    fn begin_capture(&mut self, cq: Cq) -> Result<(), DeviceError> {
        self.usable_outside_capture("beginning a second capture")?;
        self.known_queue(cq)?;
        self.capture = Some(SimCapture {
            base: Capture {
                cq,
                launches: Vec::new(),
                allocated: Vec::new(),
            },
            footprint: Footprint::default(),
            freed: Vec::new(),
            work_ns: 0,
        });
        Ok(())
    }

    fn end_capture(&mut self) -> Result<TraceId, DeviceError> {
        self.usable()?;
        let capture = self.capture.as_ref().ok_or(DeviceError::NotCapturing)?;
        let needed = capture.base.trace_bytes();
        let region = self.caps.trace_region_bytes;
        let mut free = region - self.traces.values().map(|trace| trace.base.bytes).sum::<usize>();
        if let Some(fitting) = self.faults.end_capture(capture.base.cq)
            && let Some(beyond) = capture
                .base
                .launches
                .get(fitting..)
                .filter(|beyond| !beyond.is_empty())
        {
            free = free.min(needed - beyond.iter().map(BoundLaunch::trace_bytes).sum::<usize>());
        }
        if needed > free {
            self.abort_capture()?;
            return Err(DeviceError::TraceRegionFull { needed, free, region });
        }
        let capture = self.capture.take().ok_or(DeviceError::NotCapturing)?;
        let mut after = Ranges::default();
        for range in &capture.freed {
            after.insert(range.clone());
        }
        for &id in &capture.base.allocated {
            let output = self.buffer(id)?;
            after.remove(&(output.offset..output.offset + output.bytes));
        }
        self.last_trace += 1;
        let trace = SimTrace {
            base: Trace {
                launches: capture.base.launches.into(),
                bytes: needed,
                last_buffer: self.last_buffer,
                programs: self.programs.len(),
            },
            accesses: capture.footprint.accesses().into(),
            scribble: Arc::new(Scribble {
                before: capture.freed,
                after: after.iter().collect(),
            }),
            work_ns: capture.work_ns,
        };
        self.traces.insert(self.last_trace, trace);
        Ok(TraceId(self.last_trace))
    }

    fn abort_capture(&mut self) -> Result<(), DeviceError> {
        let Some(capture) = self.capture.take() else {
            return Err(self.missing(DeviceError::NotCapturing));
        };
        for id in capture.base.allocated {
            self.free(id)?;
        }
        Ok(())
    }

    fn replay(&mut self, cq: Cq, trace: TraceId) -> Result<(), DeviceError> {
        self.usable_outside_capture("replaying a trace")?;
        self.known_queue(cq)?;
        let recorded = self.trace(trace)?;
        if self.track_allocations {
            let live = self.unsafe_live(trace)?;
            if !live.is_empty() {
                return Err(DeviceError::UnsafeReplay {
                    trace,
                    live: Box::new(live),
                });
            }
        }
        let task = Task {
            command: Command::Replay(Arc::clone(&recorded.base.launches)),
            accesses: Arc::clone(&recorded.accesses),
            scribble: Some(Arc::clone(&recorded.scribble)),
            event: EventFate::Regular,
        };
        let ns = self.costs.replay_ns.saturating_add(recorded.work_ns);
        self.enqueue(cq, FaultCall::Replay, SimCommand::Replay(trace), ns, task)
    }

    fn release_trace(&mut self, trace: TraceId) -> Result<(), DeviceError> {
        self.usable_outside_capture("releasing a trace")?;
        self.traces
            .remove(&trace.0)
            .map(drop)
            .ok_or(DeviceError::UnknownTrace(trace))
    }

    fn set_misses(&mut self, policy: MissPolicy) {
        self.misses = policy;
    }

    fn program_count(&self) -> usize {
        self.programs.len()
    }

    fn memory(&self) -> DeviceMemory {
        DeviceMemory {
            used_bytes: self.memory.used(),
            largest_free_bytes: self.memory.largest_free(),
            trace_bytes: self.traces.values().map(|trace| trace.base.bytes).sum(),
        }
    }

    fn unsafe_live(&self, trace: TraceId) -> Result<UnsafeLive, DeviceError> {
        let recorded = &self.trace(trace)?.base;
        let later = self
            .buffers
            .iter()
            .filter(|&(&id, buffer)| id > recorded.last_buffer && !buffer.acknowledged);
        let mut buffers: Vec<BufferId> = later.map(|(&id, _)| BufferId(id)).collect();
        buffers.sort_unstable();
        let programs = self.programs[recorded.programs..].iter();
        Ok(UnsafeLive {
            buffers,
            programs: programs.map(|program| program.name.to_owned()).collect(),
        })
    }

    fn acknowledge(&mut self, buffer: BufferId) -> Result<(), DeviceError> {
        self.buffer(buffer)?;
        if let Some(entry) = self.buffers.get_mut(&buffer.0) {
            entry.acknowledged = true;
        }
        Ok(())
    }

    fn drain(&mut self, deadline: Duration) -> Result<(), DeviceError> {
        self.usable_outside_capture("draining the queues")?;
        self.answer_race()?;
        if self.queues.get_mut().drain(deadline) {
            Ok(())
        } else {
            Err(DeviceError::Timeout {
                what: "draining the queues".into(),
                waited: deadline,
            })
        }
    }

    /// Called when an event completes. As nothing completes here unless somebody asks, it is also called when
    /// an event is enqueued, and after a poll that found its event incomplete while a queue can go on: an owner
    /// that sleeps between calls of the hook polls on.
    fn set_completion_hook(&mut self, hook: Arc<dyn Fn() + Send + Sync>) {
        self.queues.get_mut().engine.set_hook(hook);
    }

    fn health(&self) -> DeviceHealth {
        match (self.closed, &self.lost) {
            (true, _) => DeviceHealth::Closed,
            (false, Some(reason)) => DeviceHealth::Lost {
                reason: reason.clone(),
            },
            (false, None) => DeviceHealth::Healthy,
        }
    }

    fn close(&mut self) {
        if self.closed {
            return;
        }
        self.closed = true;
        self.capture = None;
        let engine = &mut self.queues.get_mut().engine;
        // What stands behind a lost event never runs.
        engine.run_until(Engine::idle);
        engine.clear();
        self.traces.clear();
        self.programs.clear();
        self.program_of.clear();
        for (_, buffer) in self.buffers.drain() {
            self.memory.free(buffer.offset, buffer.bytes);
        }
    }
}

/// Rounded up: the time between a caller's look at the clock and ours must not show.
fn whole_ms(time: Duration) -> Duration {
    let ms = time.as_nanos().div_ceil(1_000_000);
    Duration::from_millis(u64::try_from(ms).unwrap_or(u64::MAX))
}
