//! The device as a function of a variant sees it: what the function allocates is known, and what would break the
//! runner's own work is refused.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::tables::Held;
use crate::device::{
    BufferClass, BufferId, Cq, Device, DeviceCaps, DeviceError, DeviceHealth, DeviceMemory, EventId,
    HostSlot, LaunchTime, MissPolicy, OpDesc, ProgramId, TraceId, UnsafeLive, WeightDesc,
};
use crate::tensor::TensorSpec;

/// A device for the time of one function call. Intermediate and output buffers that the function allocated and that
/// nobody keeps are freed when it is dropped, however the function ended.
pub(super) struct PassDevice<'a> {
    inner: &'a mut dyn Device,
    /// Buffers that must not be freed by the function.
    held: &'a [Held],
    /// Buffers of this call with their sizes in bytes.
    allocated: Vec<(BufferId, usize)>,
}

impl<'a> PassDevice<'a> {
    pub(super) fn new(inner: &'a mut dyn Device, held: &'a [Held]) -> Self {
        Self {
            inner,
            held,
            allocated: Vec::new(),
        }
    }

    /// Size of a buffer that the function allocated and did not free.
    pub(super) fn bytes_of(&self, buffer: BufferId) -> Option<usize> {
        let mut allocated = self.allocated.iter();
        allocated.find(|(id, _)| *id == buffer).map(|&(_, bytes)| bytes)
    }

    /// Takes a buffer over from the function.
    pub(super) fn keep(&mut self, buffer: BufferId) {
        self.allocated.retain(|&(id, _)| id != buffer);
    }

    fn refused(what: &'static str) -> DeviceError {
        DeviceError::DuringCapture { what }
    }
}

impl Drop for PassDevice<'_> {
    fn drop(&mut self) {
        for &(buffer, _) in &self.allocated {
            // A device that refuses this is lost, which the next command tells.
            let _ = self.inner.free(buffer);
        }
    }
}

impl Device for PassDevice<'_> {
    fn caps(&self) -> &DeviceCaps {
        self.inner.caps()
    }

    /// What outlives the function is registered before it runs, or it would be made anew in every run.
    fn alloc(&mut self, spec: &TensorSpec, class: BufferClass) -> Result<BufferId, DeviceError> {
        use BufferClass::{Bank, Input, Param, Staging, State};
        if matches!(class, Input | Param | Staging | State | Bank) {
            return Err(Self::refused("allocating a persistent buffer"));
        }
        let buffer = self.inner.alloc(spec, class)?;
        if matches!(class, BufferClass::Intermediate | BufferClass::Output) {
            self.allocated.push((buffer, spec.bytes()));
        }
        Ok(buffer)
    }

    fn free(&mut self, buffer: BufferId) -> Result<(), DeviceError> {
        if self.held.iter().any(|held| held.buffer == buffer) {
            return Err(Self::refused("freeing a tensor that the trace runner keeps"));
        }
        self.inner.free(buffer)?;
        self.keep(buffer);
        Ok(())
    }

    fn address(&self, buffer: BufferId) -> Result<u64, DeviceError> {
        self.inner.address(buffer)
    }

    fn host_slot(&mut self, bytes: usize) -> Result<HostSlot, DeviceError> {
        self.inner.host_slot(bytes)
    }

    fn write(
        &mut self,
        cq: Cq,
        dst: BufferId,
        dst_offset: usize,
        src: &HostSlot,
        len: usize,
    ) -> Result<(), DeviceError> {
        self.inner.write(cq, dst, dst_offset, src, len)
    }

    fn read(
        &mut self,
        cq: Cq,
        src: BufferId,
        src_offset: usize,
        dst: &mut HostSlot,
        len: usize,
    ) -> Result<(), DeviceError> {
        self.inner.read(cq, src, src_offset, dst, len)
    }

    fn copy(&mut self, cq: Cq, src: BufferId, dst: BufferId) -> Result<(), DeviceError> {
        self.inner.copy(cq, src, dst)
    }

    fn record_event(&mut self, cq: Cq) -> Result<EventId, DeviceError> {
        self.inner.record_event(cq)
    }

    fn wait_event(&mut self, cq: Cq, event: EventId) -> Result<(), DeviceError> {
        self.inner.wait_event(cq, event)
    }

    fn poll_event(&self, event: EventId) -> Result<bool, DeviceError> {
        self.inner.poll_event(event)
    }

    fn sync_event(&self, event: EventId, deadline: Instant) -> Result<(), DeviceError> {
        self.inner.sync_event(event, deadline)
    }

    fn prepare_weights(&mut self, weights: &WeightDesc<'_>) -> Result<BufferId, DeviceError> {
        self.inner.prepare_weights(weights)
    }

    fn compile(&mut self, op: &OpDesc) -> Result<ProgramId, DeviceError> {
        self.inner.compile(op)
    }

    fn launch(&mut self, cq: Cq, program: ProgramId, buffers: &[BufferId]) -> Result<(), DeviceError> {
        self.inner.launch(cq, program, buffers)
    }

    fn begin_capture(&mut self, _: Cq) -> Result<(), DeviceError> {
        Err(Self::refused("beginning a capture inside a traced function"))
    }

    fn end_capture(&mut self) -> Result<TraceId, DeviceError> {
        Err(Self::refused("ending a capture inside a traced function"))
    }

    fn abort_capture(&mut self) -> Result<(), DeviceError> {
        Err(Self::refused("giving up a capture inside a traced function"))
    }

    fn replay(&mut self, _: Cq, _: TraceId) -> Result<(), DeviceError> {
        Err(Self::refused("replaying a trace inside a traced function"))
    }

    fn profile(&mut self, _: Cq, _: TraceId, _: Duration) -> Result<Vec<LaunchTime>, DeviceError> {
        Err(Self::refused("profiling a trace inside a traced function"))
    }

    fn release_trace(&mut self, _: TraceId) -> Result<(), DeviceError> {
        Err(Self::refused("releasing a trace inside a traced function"))
    }

    /// The runner decides when compiling is allowed.
    fn set_misses(&mut self, _: MissPolicy) {}

    fn program_count(&self) -> usize {
        self.inner.program_count()
    }

    fn memory(&self) -> DeviceMemory {
        self.inner.memory()
    }

    fn unsafe_live(&self, trace: TraceId) -> Result<UnsafeLive, DeviceError> {
        self.inner.unsafe_live(trace)
    }

    fn acknowledge(&mut self, buffer: BufferId) -> Result<(), DeviceError> {
        self.inner.acknowledge(buffer)
    }

    fn drain(&mut self, deadline: Duration) -> Result<(), DeviceError> {
        self.inner.drain(deadline)
    }

    /// The device's owner decides whom it tells.
    fn set_completion_hook(&mut self, _: Arc<dyn Fn() + Send + Sync>) {}

    fn health(&self) -> DeviceHealth {
        self.inner.health()
    }

    /// The device's owner closes it.
    fn close(&mut self) {}
}
