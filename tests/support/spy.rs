//! A device that notes and refuses calls.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "every test target includes this file and uses its own part"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use sensorium::device::{
    BufferClass, BufferId, Cq, Device, DeviceCaps, DeviceError, DeviceHealth, DeviceMemory, EventId,
    HostSlot, MissPolicy, OpDesc, ProgramId, TraceId, UnsafeLive, WeightDesc,
};
use sensorium::tensor::TensorSpec;

/// A device that passes calls on, notes those that put something on a queue, and refuses one of them.
pub struct Spy {
    pub inner: Box<dyn Device>,
    /// Names of the calls that were passed on.
    pub log: Vec<&'static str>,
    /// Calls until one is refused.
    pub refuse_in: Option<usize>,
    /// Compiling cannot be forbidden.
    pub compiles_always: bool,
    /// How often it was closed.
    pub closes: Arc<AtomicUsize>,
}

impl Spy {
    pub fn new(inner: Box<dyn Device>) -> Self {
        Self {
            inner,
            log: Vec::new(),
            refuse_in: None,
            compiles_always: false,
            closes: Arc::default(),
        }
    }

    /// How many calls of a name were passed on since the last question; forgets all calls.
    pub fn take(&mut self, name: &str) -> usize {
        let log = std::mem::take(&mut self.log);
        log.iter().filter(|known| **known == name).count()
    }

    fn call(&mut self, name: &'static str) -> Result<(), DeviceError> {
        match &mut self.refuse_in {
            Some(0) => {
                self.refuse_in = None;
                return Err(DeviceError::QueueFull {
                    cq: Cq::COMPUTE,
                    depth: 0,
                    waited: Duration::ZERO,
                });
            }
            Some(left) => *left -= 1,
            None => {}
        }
        self.log.push(name);
        Ok(())
    }
}

impl Device for Spy {
    fn caps(&self) -> &DeviceCaps {
        self.inner.caps()
    }
    fn alloc(&mut self, spec: &TensorSpec, class: BufferClass) -> Result<BufferId, DeviceError> {
        self.call("alloc")?;
        self.inner.alloc(spec, class)
    }
    fn free(&mut self, buffer: BufferId) -> Result<(), DeviceError> {
        self.inner.free(buffer)
    }
    fn address(&self, buffer: BufferId) -> Result<u64, DeviceError> {
        self.inner.address(buffer)
    }
    fn host_slot(&mut self, bytes: usize) -> Result<HostSlot, DeviceError> {
        self.call("host_slot")?;
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
        self.call("write")?;
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
        self.call("read")?;
        self.inner.read(cq, src, src_offset, dst, len)
    }
    fn copy(&mut self, cq: Cq, src: BufferId, dst: BufferId) -> Result<(), DeviceError> {
        self.call("copy")?;
        self.inner.copy(cq, src, dst)
    }
    fn record_event(&mut self, cq: Cq) -> Result<EventId, DeviceError> {
        self.call("record_event")?;
        self.inner.record_event(cq)
    }
    fn wait_event(&mut self, cq: Cq, event: EventId) -> Result<(), DeviceError> {
        self.call("wait_event")?;
        self.inner.wait_event(cq, event)
    }
    fn poll_event(&self, event: EventId) -> Result<bool, DeviceError> {
        self.inner.poll_event(event)
    }
    fn sync_event(&self, event: EventId, deadline: Instant) -> Result<(), DeviceError> {
        self.inner.sync_event(event, deadline)
    }
    fn prepare_weights(&mut self, weights: &WeightDesc<'_>) -> Result<BufferId, DeviceError> {
        self.call("prepare_weights")?;
        self.inner.prepare_weights(weights)
    }
    fn compile(&mut self, op: &OpDesc) -> Result<ProgramId, DeviceError> {
        self.call("compile")?;
        self.inner.compile(op)
    }
    fn launch(&mut self, cq: Cq, program: ProgramId, buffers: &[BufferId]) -> Result<(), DeviceError> {
        self.call("launch")?;
        self.inner.launch(cq, program, buffers)
    }
    fn begin_capture(&mut self, cq: Cq) -> Result<(), DeviceError> {
        self.call("begin_capture")?;
        self.inner.begin_capture(cq)
    }
    fn end_capture(&mut self) -> Result<TraceId, DeviceError> {
        self.call("end_capture")?;
        self.inner.end_capture()
    }
    fn abort_capture(&mut self) -> Result<(), DeviceError> {
        self.inner.abort_capture()
    }
    fn replay(&mut self, cq: Cq, trace: TraceId) -> Result<(), DeviceError> {
        self.call("replay")?;
        self.inner.replay(cq, trace)
    }
    fn release_trace(&mut self, trace: TraceId) -> Result<(), DeviceError> {
        self.inner.release_trace(trace)
    }
    fn set_misses(&mut self, policy: MissPolicy) {
        let policy = match self.compiles_always {
            true => MissPolicy::Allow,
            false => policy,
        };
        self.inner.set_misses(policy);
    }
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
        self.call("acknowledge")?;
        self.inner.acknowledge(buffer)
    }
    fn drain(&mut self, deadline: Duration) -> Result<(), DeviceError> {
        self.inner.drain(deadline)
    }
    fn set_completion_hook(&mut self, hook: Arc<dyn Fn() + Send + Sync>) {
        self.inner.set_completion_hook(hook);
    }
    fn health(&self) -> DeviceHealth {
        self.inner.health()
    }
    fn close(&mut self) {
        self.closes.fetch_add(1, Ordering::Relaxed);
        self.inner.close();
    }
}
