//! [`FaultDevice`]: any device, with the faults of a plan injected into it.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::contract::moment_after;
use super::fault::{EventFate, FaultScript, Hits};
use super::slot::SlotLease;
use super::{
    BufferClass, BufferId, Cq, Device, DeviceCaps, DeviceError, DeviceHealth, DeviceMemory, EventId,
    FaultCall, FaultPlan, HostSlot, LaunchTime, MissPolicy, OpDesc, ProgramId, TraceId, UnsafeLive,
    WeightDesc,
};
use crate::tensor::TensorSpec;

/// Longest time that a slow command is waited for, and that it is made to take more.
const LONGEST_DELAY: Duration = Duration::from_secs(10);

/// Longest sleep between two looks at the device while a host waits for an event that was lost.
const NAP: Duration = Duration::from_millis(10);

/// A fault plan under way. Clones share its counters, so that a plan goes on where it was when a device that it
/// broke is opened again: "lose the device at replay 20" happens once, "from replay 20 on" again and again.
#[derive(Debug, Clone)]
pub struct InjectedFaults(Arc<Mutex<FaultScript>>);

impl InjectedFaults {
    /// The plan, at its beginning.
    #[must_use]
    pub fn new(plan: &FaultPlan) -> Self {
        Self(Arc::new(Mutex::new(FaultScript::new(plan))))
    }

    fn script(&self) -> MutexGuard<'_, FaultScript> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A device that does as another one does, but for the faults of a plan.
///
/// A wrapper sees calls, not queues. So:
///
/// - Counted are all calls on a queue that exists, those included whose other arguments the device will refuse.
///   Calls that a capture does not allow are left to the device and not counted.
/// - A lost event is one that this wrapper does not tell of. A queue that waits for one stands still, and so
///   does all that comes after on it: commands are taken and kept, with the slots that they borrowed, until the
///   queue's depth is reached, and are never run. [`Device::close`] drops them.
/// - A slow command is waited for: the call returns when the command is over and `factor` times as long has
///   passed, at most 10 s each. Recorded launches are never slow, nor are events.
/// - Of a capture that does not fit, the bytes that are told as free are those of its first launches on average.
pub struct FaultDevice {
    inner: Box<dyn Device>,
    faults: InjectedFaults,
    caps: DeviceCaps,
    queues: Vec<Queue>,
    /// Events that never complete.
    lost_events: HashSet<EventId>,
    /// Events that complete too early: with that other event, or at once.
    early_events: HashMap<EventId, Option<EventId>>,
    capture: Option<Capture>,
    /// Why the device is lost, if the plan said so.
    lost: Option<String>,
    closed: bool,
}

/// What the wrapper knows of a queue.
#[derive(Debug, Default)]
struct Queue {
    last_event: Option<EventId>,
    /// Set by a wait for a lost event; holds what came after.
    standing: Option<Vec<Option<SlotLease>>>,
}

/// A capture in progress.
#[derive(Debug)]
struct Capture {
    cq: Cq,
    launches: usize,
    allocated: Vec<BufferId>,
    /// Bytes of the trace region that were taken before.
    trace_bytes: usize,
}

const NO_FAULT: Hits = Hits {
    refuse: false,
    event: EventFate::Regular,
    ignore_wait: false,
    lose_device: false,
    slow: 1,
};

impl FaultDevice {
    /// Injects faults into a device. A device that is opened in place of a lost one gets a clone of the same
    /// `faults`.
    #[must_use]
    pub fn new(inner: Box<dyn Device>, faults: InjectedFaults) -> Self {
        let mut caps = inner.caps().clone();
        caps.description.push_str(", faults injected");
        Self {
            queues: (0..caps.queues).map(|_| Queue::default()).collect(),
            inner,
            faults,
            caps,
            lost_events: HashSet::new(),
            early_events: HashMap::new(),
            capture: None,
            lost: None,
            closed: false,
        }
    }

    fn usable(&self) -> Result<(), DeviceError> {
        match &self.lost {
            _ if self.closed => Err(DeviceError::Closed),
            Some(reason) => Err(DeviceError::Lost {
                reason: reason.clone(),
            }),
            None => Ok(()),
        }
    }

    /// Counts a call and tells what hits it; fails if the plan says so.
    fn strike(&mut self, call: FaultCall, cq: Cq) -> Result<Hits, DeviceError> {
        self.usable()?;
        let not_in_captures = self.capture.is_some() && call != FaultCall::Launch;
        if not_in_captures || cq.0 >= self.caps.queues {
            return Ok(NO_FAULT);
        }
        let hits = self.faults.script().call(call, cq);
        if hits.lose_device {
            let reason = "the fault plan says so".to_owned();
            self.lost = Some(reason.clone());
            return Err(DeviceError::Lost { reason });
        }
        if hits.refuse {
            return Err(self.full(cq));
        }
        Ok(hits)
    }

    fn full(&self, cq: Cq) -> DeviceError {
        DeviceError::QueueFull {
            cq,
            depth: self.caps.queue_depth,
            waited: Duration::ZERO,
        }
    }

    /// Whether commands on this queue do not run any more. A capture does not run them anyway.
    fn stands(&self, cq: Cq) -> bool {
        let queue = self.queues.get(cq.0 as usize);
        self.capture.is_none() && queue.is_some_and(|queue| queue.standing.is_some())
    }

    /// Keeps a command that will never run.
    fn hold(&mut self, cq: Cq, slot: Option<SlotLease>) -> Result<(), DeviceError> {
        let depth = self.caps.queue_depth;
        match &mut self.queues[cq.0 as usize].standing {
            Some(held) if held.len() < depth => {
                held.push(slot);
                Ok(())
            }
            _ => Err(self.full(cq)),
        }
    }

    /// Gives a command to the device and makes it take `factor` times as long.
    fn slowly(
        &mut self,
        cq: Cq,
        factor: u64,
        command: impl FnOnce(&mut dyn Device) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        let device = self.inner.as_mut();
        if factor <= 1 || self.capture.is_some() {
            return command(device);
        }
        reach(device, cq);
        let start = Instant::now();
        command(device)?;
        reach(device, cq);
        let nanos = start.elapsed().as_nanos().saturating_mul(u128::from(factor - 1));
        let delay = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        std::thread::sleep(delay.min(LONGEST_DELAY));
        Ok(())
    }

    /// Waits in vain.
    fn wait_out(&self, what: String, deadline: Instant) -> DeviceError {
        let start = Instant::now();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let waited = start.elapsed();
                return DeviceError::Timeout { what, waited };
            }
            if let DeviceHealth::Lost { reason } = self.inner.health() {
                return DeviceError::Lost { reason };
            }
            std::thread::sleep(left.min(NAP));
        }
    }
}

/// Waits until a queue gets here. What keeps it from that is told by the calls that follow.
fn reach(device: &mut dyn Device, cq: Cq) {
    if let Ok(event) = device.record_event(cq) {
        let _ = device.sync_event(event, Instant::now() + LONGEST_DELAY);
    }
}

impl Device for FaultDevice {
    fn caps(&self) -> &DeviceCaps {
        &self.caps
    }

    fn alloc(&mut self, spec: &TensorSpec, class: BufferClass) -> Result<BufferId, DeviceError> {
        self.usable()?;
        let buffer = self.inner.alloc(spec, class)?;
        if let Some(capture) = &mut self.capture {
            capture.allocated.push(buffer);
        }
        Ok(buffer)
    }

    fn free(&mut self, buffer: BufferId) -> Result<(), DeviceError> {
        self.usable()?;
        self.inner.free(buffer)?;
        if let Some(capture) = &mut self.capture {
            capture.allocated.retain(|&id| id != buffer);
        }
        Ok(())
    }

    fn address(&self, buffer: BufferId) -> Result<u64, DeviceError> {
        self.usable()?;
        self.inner.address(buffer)
    }

    fn host_slot(&mut self, bytes: usize) -> Result<HostSlot, DeviceError> {
        self.usable()?;
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
        let hits = self.strike(FaultCall::Write, cq)?;
        if self.stands(cq) {
            self.inner.address(dst)?;
            return self.hold(cq, Some(src.lend_source()?));
        }
        self.slowly(cq, hits.slow, |device| {
            device.write(cq, dst, dst_offset, src, len)
        })
    }

    fn read(
        &mut self,
        cq: Cq,
        src: BufferId,
        src_offset: usize,
        dst: &mut HostSlot,
        len: usize,
    ) -> Result<(), DeviceError> {
        let hits = self.strike(FaultCall::Read, cq)?;
        if self.stands(cq) {
            self.inner.address(src)?;
            return self.hold(cq, Some(dst.lend_destination()?));
        }
        self.slowly(cq, hits.slow, |device| device.read(cq, src, src_offset, dst, len))
    }

    fn copy(&mut self, cq: Cq, src: BufferId, dst: BufferId) -> Result<(), DeviceError> {
        let hits = self.strike(FaultCall::Copy, cq)?;
        if self.stands(cq) {
            self.inner.address(src)?;
            self.inner.address(dst)?;
            return self.hold(cq, None);
        }
        self.slowly(cq, hits.slow, |device| device.copy(cq, src, dst))
    }

    fn record_event(&mut self, cq: Cq) -> Result<EventId, DeviceError> {
        let hits = self.strike(FaultCall::RecordEvent, cq)?;
        let stands = self.stands(cq);
        if stands {
            self.hold(cq, None)?;
        }
        // The device's own event gives the id; whether it counts is decided here.
        let event = self.inner.record_event(cq)?;
        let before = self.queues[cq.0 as usize].last_event.replace(event);
        let fate = if stands { EventFate::Lost } else { hits.event };
        match (fate, before) {
            (EventFate::Regular, _) => {}
            (EventFate::Early, before) if before.is_none_or(|before| !self.lost_events.contains(&before)) => {
                let with = before.and_then(|before| match self.early_events.get(&before) {
                    Some(&with) => with,
                    None => Some(before),
                });
                // Those that the device has completed are not early any more.
                let device = &self.inner;
                self.early_events
                    .retain(|&early, _| !matches!(device.poll_event(early), Ok(true)));
                self.early_events.insert(event, with);
            }
            (EventFate::Early | EventFate::Lost, _) => {
                self.lost_events.insert(event);
            }
        }
        Ok(event)
    }

    fn wait_event(&mut self, cq: Cq, event: EventId) -> Result<(), DeviceError> {
        let hits = self.strike(FaultCall::WaitEvent, cq)?;
        if self.capture.is_some() || cq.0 >= self.caps.queues {
            return self.inner.wait_event(cq, event);
        }
        // Refuses an event that was never recorded.
        self.inner.poll_event(event)?;
        if hits.ignore_wait {
            return Ok(());
        }
        if self.stands(cq) {
            return self.hold(cq, None);
        }
        if self.lost_events.contains(&event) {
            self.queues[cq.0 as usize].standing = Some(Vec::new());
            return Ok(());
        }
        match self.early_events.get(&event) {
            Some(None) => Ok(()),
            Some(&Some(with)) => self.inner.wait_event(cq, with),
            None => self.inner.wait_event(cq, event),
        }
    }

    fn poll_event(&self, event: EventId) -> Result<bool, DeviceError> {
        self.usable()?;
        let completed = self.inner.poll_event(event)?;
        if self.lost_events.contains(&event) {
            return Ok(false);
        }
        match self.early_events.get(&event) {
            Some(None) => Ok(true),
            Some(&Some(with)) => self.inner.poll_event(with),
            None => Ok(completed),
        }
    }

    fn sync_event(&self, event: EventId, deadline: Instant) -> Result<(), DeviceError> {
        self.usable()?;
        if self.capture.is_none() && self.lost_events.contains(&event) {
            return Err(self.wait_out(event.to_string(), deadline));
        }
        match self.early_events.get(&event) {
            Some(None) if self.capture.is_none() => Ok(()),
            Some(&Some(with)) => self.inner.sync_event(with, deadline),
            _ => self.inner.sync_event(event, deadline),
        }
    }

    fn prepare_weights(&mut self, weights: &WeightDesc<'_>) -> Result<BufferId, DeviceError> {
        self.usable()?;
        self.inner.prepare_weights(weights)
    }

    fn compile(&mut self, op: &OpDesc) -> Result<ProgramId, DeviceError> {
        self.usable()?;
        self.inner.compile(op)
    }

    fn launch(&mut self, cq: Cq, program: ProgramId, buffers: &[BufferId]) -> Result<(), DeviceError> {
        let hits = self.strike(FaultCall::Launch, cq)?;
        if self.stands(cq) {
            for &buffer in buffers {
                self.inner.address(buffer)?;
            }
            return self.hold(cq, None);
        }
        self.slowly(cq, hits.slow, |device| device.launch(cq, program, buffers))?;
        if let Some(capture) = &mut self.capture {
            capture.launches += 1;
        }
        Ok(())
    }

    fn begin_capture(&mut self, cq: Cq) -> Result<(), DeviceError> {
        self.usable()?;
        self.inner.begin_capture(cq)?;
        self.capture = Some(Capture {
            cq,
            launches: 0,
            allocated: Vec::new(),
            trace_bytes: self.inner.memory().trace_bytes,
        });
        Ok(())
    }

    fn end_capture(&mut self) -> Result<TraceId, DeviceError> {
        self.usable()?;
        let Some(capture) = self.capture.take() else {
            return self.inner.end_capture();
        };
        let fitting = self.faults.script().end_capture(capture.cq);
        let trace = self.inner.end_capture()?;
        let Some(fitting) = fitting.filter(|&fitting| fitting < capture.launches) else {
            return Ok(trace);
        };
        let needed = self
            .inner
            .memory()
            .trace_bytes
            .saturating_sub(capture.trace_bytes);
        self.inner.release_trace(trace)?;
        for buffer in capture.allocated {
            self.inner.free(buffer)?;
        }
        Err(DeviceError::TraceRegionFull {
            needed,
            free: needed / capture.launches * fitting,
            region: self.caps.trace_region_bytes,
        })
    }

    fn abort_capture(&mut self) -> Result<(), DeviceError> {
        self.usable()?;
        self.capture = None;
        self.inner.abort_capture()
    }

    fn replay(&mut self, cq: Cq, trace: TraceId) -> Result<(), DeviceError> {
        let hits = self.strike(FaultCall::Replay, cq)?;
        if self.stands(cq) {
            let live = Box::new(self.inner.unsafe_live(trace)?);
            if !live.is_empty() {
                return Err(DeviceError::UnsafeReplay { trace, live });
            }
            return self.hold(cq, None);
        }
        self.slowly(cq, hits.slow, |device| device.replay(cq, trace))
    }

    fn profile(
        &mut self,
        cq: Cq,
        trace: TraceId,
        deadline: Duration,
    ) -> Result<Vec<LaunchTime>, DeviceError> {
        self.usable()?;
        if self.stands(cq) {
            return Err(DeviceError::Timeout {
                what: format!("a profile of {trace}"),
                waited: deadline,
            });
        }
        self.inner.profile(cq, trace, deadline)
    }

    fn release_trace(&mut self, trace: TraceId) -> Result<(), DeviceError> {
        self.usable()?;
        self.inner.release_trace(trace)
    }

    fn set_misses(&mut self, policy: MissPolicy) {
        self.inner.set_misses(policy);
    }

    fn program_count(&self) -> usize {
        self.inner.program_count()
    }

    fn memory(&self) -> DeviceMemory {
        self.inner.memory()
    }

    fn unsafe_live(&self, trace: TraceId) -> Result<UnsafeLive, DeviceError> {
        self.usable()?;
        self.inner.unsafe_live(trace)
    }

    fn acknowledge(&mut self, buffer: BufferId) -> Result<(), DeviceError> {
        self.usable()?;
        self.inner.acknowledge(buffer)
    }

    fn drain(&mut self, deadline: Duration) -> Result<(), DeviceError> {
        self.usable()?;
        let end = moment_after(deadline);
        self.inner.drain(deadline)?;
        if self.queues.iter().any(|queue| queue.standing.is_some()) {
            return Err(self.wait_out("draining the queues".into(), end));
        }
        Ok(())
    }

    fn set_completion_hook(&mut self, hook: Arc<dyn Fn() + Send + Sync>) {
        self.inner.set_completion_hook(hook);
    }

    fn health(&self) -> DeviceHealth {
        match (&self.lost, self.closed) {
            (Some(reason), false) => DeviceHealth::Lost {
                reason: reason.clone(),
            },
            _ => self.inner.health(),
        }
    }

    fn close(&mut self) {
        self.closed = true;
        self.capture = None;
        self.queues.clear();
        self.lost_events.clear();
        self.early_events.clear();
        self.inner.close();
    }
}

impl fmt::Debug for FaultDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultDevice")
            .field("caps", &self.caps)
            .field("faults", &self.faults)
            .field("lost", &self.lost)
            .finish_non_exhaustive()
    }
}
