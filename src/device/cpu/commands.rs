//! The [`Device`] contract on [`CpuDevice`].

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use super::capture::{Capture, Trace};
use super::device::{ARENA_BASE, Buffer, CpuDevice, EVENT_QUEUE_SHIFT, PREPARE_DEADLINE, Program};
use super::kernels::{self, Kernel};
use super::queue::{BoundLaunch, Command};
use crate::device::{
    BufferClass, BufferId, Cq, Device, DeviceCaps, DeviceError, DeviceHealth, DeviceMemory, EventId,
    HostSlot, LaunchTime, MissPolicy, OpDesc, ProgramId, TraceId, UnsafeLive, WeightDesc,
};
use crate::tensor::{Layout, TensorSpec};

impl Device for CpuDevice {
    fn caps(&self) -> &DeviceCaps {
        &self.caps
    }

    fn alloc(&mut self, spec: &TensorSpec, class: BufferClass) -> Result<BufferId, DeviceError> {
        self.usable()?;
        if self.capture.is_some() && !class.may_change_in_capture() {
            return Err(DeviceError::DuringCapture {
                what: "allocating a persistent buffer",
            });
        }
        if spec.layout != Layout::RowMajor {
            return Err(DeviceError::UnsupportedLayout {
                backend: self.caps.backend,
                layout: spec.layout,
            });
        }
        let offset = self.arena.alloc(spec.bytes())?;
        self.last_buffer += 1;
        let id = BufferId(self.last_buffer);
        self.buffers.insert(
            id.0,
            Buffer {
                offset,
                bytes: spec.bytes(),
                class,
                acknowledged: false,
            },
        );
        if let Some(capture) = &mut self.capture {
            capture.allocated.push(id);
        }
        Ok(id)
    }

    fn free(&mut self, buffer: BufferId) -> Result<(), DeviceError> {
        let Buffer {
            offset, bytes, class, ..
        } = *self.buffer(buffer)?;
        if let Some(capture) = &mut self.capture {
            if !class.may_change_in_capture() {
                return Err(DeviceError::DuringCapture {
                    what: "freeing a persistent buffer",
                });
            }
            capture.allocated.retain(|&id| id != buffer);
        }
        self.buffers.remove(&buffer.0);
        self.arena.free(offset, bytes);
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
        self.queue_index(cq)?;
        let dst = self.range(dst, dst_offset, len)?;
        Self::check_slot("host slot", src, len)?;
        self.push(
            cq,
            Command::Upload {
                src: src.lend_source()?,
                dst,
            },
        )
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
        self.queue_index(cq)?;
        let src = self.range(src, src_offset, len)?;
        Self::check_slot("host slot", dst, len)?;
        self.push(
            cq,
            Command::Download {
                src,
                dst: dst.lend_destination()?,
            },
        )
    }

    fn copy(&mut self, cq: Cq, src: BufferId, dst: BufferId) -> Result<(), DeviceError> {
        self.usable_outside_capture("copying a buffer")?;
        self.queue_index(cq)?;
        let bytes = self.buffer(src)?.bytes;
        if self.buffer(dst)?.bytes != bytes {
            let size = self.buffer(dst)?.bytes;
            return Err(DeviceError::OutOfRange {
                what: dst.to_string(),
                start: 0,
                end: bytes,
                size,
            });
        }
        let (src, dst) = (self.range(src, 0, bytes)?, self.range(dst, 0, bytes)?);
        self.push(cq, Command::Copy { src, dst })
    }

    fn record_event(&mut self, cq: Cq) -> Result<EventId, DeviceError> {
        self.usable_outside_capture("recording an event")?;
        let queue = self.queue_index(cq)?;
        let number = self.events[queue] + 1;
        self.push(cq, Command::Record(number))?;
        self.events[queue] = number;
        Ok(EventId(((queue as u64) << EVENT_QUEUE_SHIFT) | number))
    }

    fn wait_event(&mut self, cq: Cq, event: EventId) -> Result<(), DeviceError> {
        self.usable_outside_capture("waiting for an event")?;
        self.queue_index(cq)?;
        let (queue, event) = self.locate(event)?;
        if self.shared.event_done(queue, event) {
            return Ok(());
        }
        self.push(cq, Command::Wait { queue, event })
    }

    fn poll_event(&self, event: EventId) -> Result<bool, DeviceError> {
        let (queue, event) = self.locate(event)?;
        // In this order: a device that is lost completes events without having done the work before them.
        let done = self.shared.event_done(queue, event);
        self.usable()?;
        Ok(done)
    }

    fn sync_event(&self, event: EventId, deadline: Instant) -> Result<(), DeviceError> {
        self.usable_outside_capture("synchronising with the host")?;
        let (queue, number) = self.locate(event)?;
        let start = Instant::now();
        if !self
            .shared
            .wait_until(Some(deadline), || self.shared.event_done(queue, number))
        {
            return Err(DeviceError::Timeout {
                what: event.to_string(),
                waited: start.elapsed(),
            });
        }
        self.usable()
    }

    fn prepare_weights(&mut self, weights: &WeightDesc<'_>) -> Result<BufferId, DeviceError> {
        self.usable_outside_capture("preparing weights")?;
        let packed = kernels::pack_weights(weights, self.kernels)?;
        // What is free now may still be in use by commands that are queued. Before the reservation, so that a
        // timeout leaves nothing reserved.
        self.drain(PREPARE_DEADLINE)?;
        let id = self.alloc(packed.spec(), BufferClass::Weight)?;
        let packed = packed.bytes();
        let dst = self.range(id, 0, packed.len())?;
        // SAFETY: `dst` holds `packed.len()` bytes of the arena, and the queues are empty.
        unsafe { std::ptr::copy_nonoverlapping(packed.as_ptr(), dst.ptr, dst.bytes) };
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
        let kernel = kernels::prepare(op, self.kernels)?;
        let scratch_bytes = kernel.scratch_bytes();
        if scratch_bytes > self.scratch_bytes {
            for queue in 0..self.caps.queues {
                self.push(Cq(queue), Command::ReserveScratch(scratch_bytes))?;
            }
            self.scratch_bytes = scratch_bytes;
        }
        let id = ProgramId(self.programs.len() as u64);
        self.programs.push(Program {
            name: op.name(),
            kernel,
        });
        self.program_of.insert(op.clone(), id);
        Ok(id)
    }

    fn launch(&mut self, cq: Cq, program: ProgramId, buffers: &[BufferId]) -> Result<(), DeviceError> {
        self.usable()?;
        self.queue_index(cq)?;
        let Program { name: op, kernel } = self
            .programs
            .get(program.0 as usize)
            .ok_or(DeviceError::UnknownProgram(program))?;
        let needs = kernel.required_bytes();
        if buffers.len() != needs.len() {
            let reason = format!("{} buffers bound, the program has {}", buffers.len(), needs.len());
            return Err(DeviceError::InvalidBinding { op, reason });
        }
        let mut bound = SmallVec::with_capacity(buffers.len());
        for (slot, (&id, &need)) in buffers.iter().zip(needs).enumerate() {
            let bytes = self.buffer(id)?.bytes;
            if bytes < need {
                let reason = format!("operand {slot} ({id}) has {bytes} bytes, the program reaches {need}");
                return Err(DeviceError::InvalidBinding { op, reason });
            }
            bound.push(self.range(id, 0, bytes)?);
        }
        let launch = BoundLaunch {
            kernel: Arc::clone(kernel),
            buffers: bound,
        };
        match &mut self.capture {
            Some(capture) if capture.cq == cq => {
                capture.launches.push(launch);
                Ok(())
            }
            Some(_) => Err(DeviceError::DuringCapture {
                what: "launching on another queue",
            }),
            None => self.push(cq, Command::Launch(launch)),
        }
    }

    fn begin_capture(&mut self, cq: Cq) -> Result<(), DeviceError> {
        self.usable_outside_capture("beginning a second capture")?;
        self.queue_index(cq)?;
        self.capture = Some(Capture {
            cq,
            launches: Vec::new(),
            allocated: Vec::new(),
        });
        Ok(())
    }

    fn end_capture(&mut self) -> Result<TraceId, DeviceError> {
        self.usable()?;
        let needed = self
            .capture
            .as_ref()
            .ok_or(DeviceError::NotCapturing)?
            .trace_bytes();
        let region = self.caps.trace_region_bytes;
        let free = region - self.traces.values().map(|trace| trace.bytes).sum::<usize>();
        if needed > free {
            self.abort_capture()?;
            return Err(DeviceError::TraceRegionFull { needed, free, region });
        }
        let capture = self.capture.take().ok_or(DeviceError::NotCapturing)?;
        self.last_trace += 1;
        let trace = Trace {
            launches: capture.launches.into(),
            bytes: needed,
            last_buffer: self.last_buffer,
            programs: self.programs.len(),
        };
        self.traces.insert(self.last_trace, trace);
        Ok(TraceId(self.last_trace))
    }

    fn abort_capture(&mut self) -> Result<(), DeviceError> {
        let Some(capture) = self.capture.take() else {
            return Err(self.missing(DeviceError::NotCapturing));
        };
        for id in capture.allocated {
            self.free(id)?;
        }
        Ok(())
    }

    fn replay(&mut self, cq: Cq, trace: TraceId) -> Result<(), DeviceError> {
        let launches = self.replayable(cq, trace)?;
        self.push(cq, Command::Replay(launches))
    }

    fn profile(
        &mut self,
        cq: Cq,
        trace: TraceId,
        deadline: Duration,
    ) -> Result<Vec<LaunchTime>, DeviceError> {
        let launches = self.replayable(cq, trace)?;
        let (times, taken) = channel();
        self.push(
            cq,
            Command::Profile {
                launches: Arc::clone(&launches),
                times,
            },
        )?;
        let taken = match taken.recv_timeout(deadline) {
            Ok(taken) => taken,
            Err(RecvTimeoutError::Timeout) => {
                return Err(DeviceError::Timeout {
                    what: format!("a profile of {trace}"),
                    waited: deadline,
                });
            }
            Err(RecvTimeoutError::Disconnected) => {
                // The queue dropped the command, which it does once the device is lost.
                self.usable()?;
                let reason = "a queue ended".to_owned();
                return Err(DeviceError::Lost { reason });
            }
        };
        let ops: HashMap<*const (), &OpDesc> = self
            .program_of
            .iter()
            .map(|(op, id)| (kernel_address(&self.programs[id.0 as usize].kernel), op))
            .collect();
        let first = taken.first().map(|[start, _]| *start);
        let since = |moment: Instant| {
            let since = first.map_or(Duration::ZERO, |first| moment.duration_since(first));
            since.as_nanos() as u64
        };
        let timed = launches.iter().zip(taken).filter_map(|(launch, [start, end])| {
            // Programs live as long as the device, so every launch has its own.
            let op = ops.get(&kernel_address(&launch.kernel))?;
            Some(LaunchTime {
                op: (*op).clone(),
                start_ns: since(start),
                end_ns: since(end),
            })
        });
        Ok(timed.collect())
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
            used_bytes: self.arena.used(),
            largest_free_bytes: self.arena.largest_free(),
            trace_bytes: self.traces.values().map(|trace| trace.bytes).sum(),
        }
    }

    fn unsafe_live(&self, trace: TraceId) -> Result<UnsafeLive, DeviceError> {
        let recorded = self.trace(trace)?;
        let mut buffers: Vec<BufferId> = self
            .buffers
            .iter()
            .filter(|&(&id, buffer)| id > recorded.last_buffer && !buffer.acknowledged)
            .map(|(&id, _)| BufferId(id))
            .collect();
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
        if self.capture.is_some() {
            return Err(DeviceError::DuringCapture {
                what: "draining the queues",
            });
        }
        // A deadline beyond all clocks is none.
        let end = Instant::now().checked_add(deadline);
        if !self.shared.wait_until(end, || self.shared.idle()) {
            return Err(DeviceError::Timeout {
                what: "draining the queues".into(),
                waited: deadline,
            });
        }
        self.usable()
    }

    fn set_completion_hook(&mut self, hook: Arc<dyn Fn() + Send + Sync>) {
        self.shared.set_hook(hook);
    }

    fn health(&self) -> DeviceHealth {
        match (self.closed, self.shared.lost_reason()) {
            (true, _) => DeviceHealth::Closed,
            (false, Some(reason)) => DeviceHealth::Lost { reason },
            (false, None) => DeviceHealth::Healthy,
        }
    }

    fn close(&mut self) {
        if self.closed {
            return;
        }
        self.closed = true;
        self.capture = None;
        for queue in 0..self.threads.len() {
            self.shared.push_stop(Cq(queue as u8));
        }
        for thread in self.threads.drain(..) {
            // A queue that panicked has marked the device lost already.
            let _ = thread.join();
        }
        self.traces.clear();
        self.programs.clear();
        self.program_of.clear();
        for (_, buffer) in self.buffers.drain() {
            self.arena.free(buffer.offset, buffer.bytes);
        }
    }
}

/// Where a kernel lies: its name among the programs of a device.
fn kernel_address(kernel: &Arc<dyn Kernel>) -> *const () {
    Arc::as_ptr(kernel).cast()
}
