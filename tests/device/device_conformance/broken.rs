//! Devices that break one promise each.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sensorium::device::{
    BinaryKind, BufferClass, BufferId, CpuConfig, CpuDevice, Cq, Device, DeviceCaps, DeviceError,
    DeviceHealth, DeviceMemory, EventId, HostSlot, MissPolicy, OpDesc, ProgramId, TraceId, UnsafeLive,
    WeightDesc,
};
use sensorium::tensor::{DType, TensorSpec};

/// What is wrong with a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// Its capabilities name an alignment that is none.
    OddAlignment,
    /// Its capabilities name a smaller trace region than it has.
    HidesTraceRegion,
    /// Bytes cannot be stored.
    RefusesBytes,
    /// Layouts that it does not have are refused for want of memory.
    FullOfTiles,
    /// Empty tensors cannot be stored.
    RefusesEmpty,
    /// Running out of memory costs memory.
    LeaksWhenFull,
    /// A closed device says that it is out of memory.
    ClosedIsFull,
    /// Persistent buffers can be reserved in a capture.
    AllocatesInCapture,
    /// What a capture frees stays reserved.
    KeepsFreedInCapture,
    /// Freeing what is not there works.
    FreesTwice,
    /// Addresses are not aligned.
    OffByFour,
    /// Addresses change with every replay.
    Wanders,
    /// A slot is smaller than asked for.
    ShortSlots,
    /// Uploads are reported and not done.
    WritesNothing,
    /// Downloads are reported and not done.
    ReadsNothing,
    /// Transfers are cut to what fits.
    CutsTransfers,
    /// Commands on queues that do not exist go to queue 0.
    AnyQueue,
    /// Transfers in a capture are reported and not done.
    SwallowsInCapture,
    /// A host that synchronises in a capture is told that all is done.
    SyncsInCapture,
    /// A look at an event is refused in a capture.
    BlindInCapture,
    /// A copy happens after the launch that follows it.
    LateCopies,
    /// Copies between different sizes are reported and not done.
    CopiesAnySize,
    /// Queues wait for nothing.
    WaitsForNothing,
    /// Events that nobody recorded are complete.
    KnowsEveryEvent,
    /// Events are complete from the start.
    EagerEvents,
    /// Events are forgotten once they are complete.
    ForgetsEvents,
    /// The host waits beyond its deadline.
    Patient,
    /// Weights of any size are taken.
    AnyWeights,
    /// Every compilation makes a program.
    NoCache,
    /// A description that makes no sense gets another one's program.
    CompilesNonsense,
    /// Compiling cannot be forbidden.
    CompilesAlways,
    /// Sums are differences.
    Subtracts,
    /// Every hundredth launch is reported and not done.
    LosesLaunches,
    /// Launches with wrong bindings are reported and not done.
    BindsAnything,
    /// Launches run when their capture ends.
    RunsWhenCaptured,
    /// Giving up no capture works.
    AbortsNothing,
    /// Giving up a capture ends it instead.
    AbortEnds,
    /// Giving up a capture is reported and not done.
    AbortForgets,
    /// Replays are reported and not done.
    ReplaysNothing,
    /// Every replay is one of the latest trace.
    ReplaysLatest,
    /// Every replay takes memory.
    ReplayAllocates,
    /// A replay that was refused is reported as done.
    ReplayLies,
    /// Replays work on queue 0 only.
    ReplaysOnOneQueue,
    /// Releasing what is not there works.
    ReleasesTwice,
    /// Acknowledging a buffer has no effect.
    Deaf,
    /// Draining waits for nothing.
    DrainsNothing,
    /// Nobody is told of completed events.
    Mute,
    /// Closing has no effect.
    CloseForgets,
    /// Dropping an open device panics.
    DropPanics,
    /// Replays are not checked against later buffers and programs.
    Untracked,
}

/// The CPU device with a flaw.
pub(crate) struct Broken {
    inner: CpuDevice,
    flaw: Flaw,
    caps: DeviceCaps,
    capturing: bool,
    launches: usize,
    compiled: usize,
    replays: u64,
    program: Option<ProgramId>,
    latest: Option<TraceId>,
    /// A copy that was not made yet.
    late: Option<(Cq, BufferId, BufferId)>,
}

impl Broken {
    pub(crate) fn open(config: &CpuConfig, flaw: Flaw) -> Result<Self, DeviceError> {
        let config = CpuConfig {
            track_allocations: flaw != Flaw::Untracked,
            ..config.clone()
        };
        let inner = CpuDevice::open(&config)?;
        let mut caps = inner.caps().clone();
        match flaw {
            Flaw::OddAlignment => caps.alignment = 48,
            Flaw::HidesTraceRegion => caps.trace_region_bytes /= 4,
            _ => {}
        }
        Ok(Self {
            inner,
            flaw,
            caps,
            capturing: false,
            launches: 0,
            compiled: 0,
            replays: 0,
            program: None,
            latest: None,
            late: None,
        })
    }

    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == flaw
    }

    fn queue(&self, cq: Cq) -> Cq {
        if self.has(Flaw::AnyQueue) && cq.0 >= self.caps.queues {
            Cq::COMPUTE
        } else {
            cq
        }
    }

    fn swallows(&self) -> bool {
        self.capturing && self.has(Flaw::SwallowsInCapture)
    }

    fn cut(&self, len: usize, offset: usize, slot: &HostSlot) -> (usize, usize) {
        if self.has(Flaw::CutsTransfers) {
            (offset.min(64), len.min(64).min(slot.len()))
        } else {
            (offset, len)
        }
    }
}

/// Success instead of the refusals that `hidden` picks.
fn hide<T>(
    outcome: Result<T, DeviceError>,
    lie: bool,
    hidden: fn(&DeviceError) -> bool,
    instead: T,
) -> Result<T, DeviceError> {
    match outcome {
        Err(error) if lie && hidden(&error) => Ok(instead),
        honest => honest,
    }
}

impl Device for Broken {
    fn caps(&self) -> &DeviceCaps {
        &self.caps
    }

    fn alloc(&mut self, spec: &TensorSpec, class: BufferClass) -> Result<BufferId, DeviceError> {
        let full = DeviceError::OutOfMemory {
            requested: spec.bytes(),
            largest_free: 0,
        };
        if self.has(Flaw::RefusesBytes) && spec.dtype == DType::U8
            || self.has(Flaw::RefusesEmpty) && spec.bytes() == 0
        {
            return Err(full);
        }
        match (self.flaw, self.inner.alloc(spec, class)) {
            (Flaw::LeaksWhenFull, Err(error @ DeviceError::OutOfMemory { .. })) => {
                let small = TensorSpec::new(&[1], DType::F32)?;
                self.inner.alloc(&small, class)?;
                Err(error)
            }
            (Flaw::ClosedIsFull, Err(DeviceError::Closed))
            | (Flaw::FullOfTiles, Err(DeviceError::UnsupportedLayout { .. })) => Err(full),
            (Flaw::AllocatesInCapture, Err(DeviceError::DuringCapture { .. })) => {
                self.inner.alloc(spec, BufferClass::Output)
            }
            (_, honest) => honest,
        }
    }

    fn free(&mut self, buffer: BufferId) -> Result<(), DeviceError> {
        if self.capturing && self.has(Flaw::KeepsFreedInCapture) {
            return Ok(());
        }
        let unknown = |error: &DeviceError| matches!(error, DeviceError::UnknownBuffer(_));
        hide(self.inner.free(buffer), self.has(Flaw::FreesTwice), unknown, ())
    }

    fn address(&self, buffer: BufferId) -> Result<u64, DeviceError> {
        let address = self.inner.address(buffer)?;
        Ok(match self.flaw {
            Flaw::OffByFour => address + 4,
            Flaw::Wanders => address + 64 * self.replays,
            _ => address,
        })
    }

    fn host_slot(&mut self, bytes: usize) -> Result<HostSlot, DeviceError> {
        let most = if self.has(Flaw::ShortSlots) {
            1 << 20
        } else {
            usize::MAX
        };
        self.inner.host_slot(bytes.min(most))
    }

    fn write(
        &mut self,
        cq: Cq,
        dst: BufferId,
        dst_offset: usize,
        src: &HostSlot,
        len: usize,
    ) -> Result<(), DeviceError> {
        if self.swallows() || self.has(Flaw::WritesNothing) {
            return Ok(());
        }
        let (offset, len) = self.cut(len, dst_offset, src);
        self.inner.write(self.queue(cq), dst, offset, src, len)
    }

    fn read(
        &mut self,
        cq: Cq,
        src: BufferId,
        src_offset: usize,
        dst: &mut HostSlot,
        len: usize,
    ) -> Result<(), DeviceError> {
        if self.swallows() || self.has(Flaw::ReadsNothing) {
            return Ok(());
        }
        let (offset, len) = self.cut(len, src_offset, dst);
        self.inner.read(self.queue(cq), src, offset, dst, len)
    }

    fn copy(&mut self, cq: Cq, src: BufferId, dst: BufferId) -> Result<(), DeviceError> {
        if self.swallows() {
            return Ok(());
        }
        if self.has(Flaw::LateCopies) {
            self.late = Some((cq, src, dst));
            return Ok(());
        }
        let sizes = |error: &DeviceError| matches!(error, DeviceError::OutOfRange { .. });
        let copied = self.inner.copy(self.queue(cq), src, dst);
        hide(copied, self.has(Flaw::CopiesAnySize), sizes, ())
    }

    fn record_event(&mut self, cq: Cq) -> Result<EventId, DeviceError> {
        self.inner.record_event(self.queue(cq))
    }

    fn wait_event(&mut self, cq: Cq, event: EventId) -> Result<(), DeviceError> {
        let waits = !self.has(Flaw::WaitsForNothing) || self.capturing;
        if !waits {
            return Ok(());
        }
        let unknown = |error: &DeviceError| matches!(error, DeviceError::UnknownEvent(_));
        let waited = self.inner.wait_event(self.queue(cq), event);
        hide(waited, self.has(Flaw::KnowsEveryEvent), unknown, ())
    }

    fn poll_event(&self, event: EventId) -> Result<bool, DeviceError> {
        match self.flaw {
            Flaw::EagerEvents => Ok(true),
            Flaw::BlindInCapture if self.capturing => Err(DeviceError::DuringCapture { what: "looking" }),
            Flaw::ForgetsEvents if self.inner.poll_event(event)? => Err(DeviceError::UnknownEvent(event)),
            _ => self.inner.poll_event(event),
        }
    }

    fn sync_event(&self, event: EventId, deadline: Instant) -> Result<(), DeviceError> {
        if self.capturing && self.has(Flaw::SyncsInCapture) {
            return Ok(());
        }
        let more = if self.has(Flaw::Patient) { 60 } else { 0 };
        self.inner.sync_event(event, deadline + Duration::from_secs(more))
    }

    fn prepare_weights(&mut self, weights: &WeightDesc<'_>) -> Result<BufferId, DeviceError> {
        match self.inner.prepare_weights(weights) {
            Err(DeviceError::InvalidOp { .. }) if self.has(Flaw::AnyWeights) => {
                let spec = TensorSpec::new(&[1], DType::F32)?;
                self.inner.alloc(&spec, BufferClass::Weight)
            }
            honest => honest,
        }
    }

    fn compile(&mut self, op: &OpDesc) -> Result<ProgramId, DeviceError> {
        self.compiled += 1;
        let wrong;
        let op = match op {
            OpDesc::Binary {
                lhs,
                rhs,
                dst,
                kind: BinaryKind::Add,
            } if self.has(Flaw::Subtracts) => {
                wrong = OpDesc::Binary {
                    lhs: *lhs,
                    rhs: *rhs,
                    dst: *dst,
                    kind: BinaryKind::Sub,
                };
                &wrong
            }
            op => op,
        };
        match (self.inner.compile(op), self.program) {
            (Err(DeviceError::InvalidOp { .. }), Some(other)) if self.has(Flaw::CompilesNonsense) => {
                Ok(other)
            }
            (compiled, _) => {
                self.program = compiled.as_ref().ok().copied().or(self.program);
                compiled
            }
        }
    }

    fn launch(&mut self, cq: Cq, program: ProgramId, buffers: &[BufferId]) -> Result<(), DeviceError> {
        self.launches += 1;
        if self.has(Flaw::LosesLaunches) && self.launches.is_multiple_of(100) {
            return Ok(());
        }
        let wrong = |error: &DeviceError| matches!(error, DeviceError::InvalidBinding { .. });
        let launched = self.inner.launch(self.queue(cq), program, buffers);
        if let Some((cq, src, dst)) = self.late.take() {
            self.inner.copy(cq, src, dst)?;
        }
        hide(launched, self.has(Flaw::BindsAnything), wrong, ())
    }

    fn begin_capture(&mut self, cq: Cq) -> Result<(), DeviceError> {
        self.inner.begin_capture(self.queue(cq))?;
        self.capturing = true;
        Ok(())
    }

    fn end_capture(&mut self) -> Result<TraceId, DeviceError> {
        let ended = self.inner.end_capture();
        self.capturing = false;
        self.latest = ended.as_ref().ok().copied().or(self.latest);
        if self.has(Flaw::RunsWhenCaptured)
            && let Ok(trace) = ended
        {
            self.inner.replay(Cq::COMPUTE, trace)?;
        }
        ended
    }

    fn abort_capture(&mut self) -> Result<(), DeviceError> {
        self.capturing = false;
        match self.flaw {
            Flaw::AbortEnds => self.inner.end_capture().map(drop),
            Flaw::AbortForgets => Ok(()),
            _ => {
                let none = |error: &DeviceError| matches!(error, DeviceError::NotCapturing);
                hide(
                    self.inner.abort_capture(),
                    self.has(Flaw::AbortsNothing),
                    none,
                    (),
                )
            }
        }
    }

    fn replay(&mut self, cq: Cq, trace: TraceId) -> Result<(), DeviceError> {
        self.replays += 1;
        let trace = match self.flaw {
            Flaw::ReplaysNothing if !self.capturing => return Ok(()),
            Flaw::ReplaysOnOneQueue if cq != Cq::COMPUTE => {
                return Err(DeviceError::UnknownQueue(cq, 1));
            }
            Flaw::ReplayAllocates => {
                let spec = TensorSpec::new(&[1], DType::F32)?;
                let taken = self.inner.alloc(&spec, BufferClass::Output)?;
                self.inner.acknowledge(taken)?;
                trace
            }
            Flaw::ReplaysLatest => self.latest.unwrap_or(trace),
            _ => trace,
        };
        let refused = |error: &DeviceError| matches!(error, DeviceError::UnsafeReplay { .. });
        let replayed = self.inner.replay(self.queue(cq), trace);
        hide(replayed, self.has(Flaw::ReplayLies), refused, ())
    }

    fn release_trace(&mut self, trace: TraceId) -> Result<(), DeviceError> {
        let unknown = |error: &DeviceError| matches!(error, DeviceError::UnknownTrace(_));
        let released = self.inner.release_trace(trace);
        hide(released, self.has(Flaw::ReleasesTwice), unknown, ())
    }

    fn set_misses(&mut self, policy: MissPolicy) {
        if !self.has(Flaw::CompilesAlways) {
            self.inner.set_misses(policy);
        }
    }

    fn program_count(&self) -> usize {
        if self.has(Flaw::NoCache) {
            self.compiled
        } else {
            self.inner.program_count()
        }
    }

    fn memory(&self) -> DeviceMemory {
        self.inner.memory()
    }

    fn unsafe_live(&self, trace: TraceId) -> Result<UnsafeLive, DeviceError> {
        self.inner.unsafe_live(trace)
    }

    fn acknowledge(&mut self, buffer: BufferId) -> Result<(), DeviceError> {
        if self.has(Flaw::Deaf) {
            return Ok(());
        }
        self.inner.acknowledge(buffer)
    }

    fn drain(&mut self, deadline: Duration) -> Result<(), DeviceError> {
        if self.has(Flaw::DrainsNothing) {
            return Ok(());
        }
        self.inner.drain(deadline)
    }

    fn set_completion_hook(&mut self, hook: Arc<dyn Fn() + Send + Sync>) {
        if !self.has(Flaw::Mute) {
            self.inner.set_completion_hook(hook);
        }
    }

    fn health(&self) -> DeviceHealth {
        self.inner.health()
    }

    fn close(&mut self) {
        if !self.has(Flaw::CloseForgets) {
            self.inner.close();
        }
    }
}

impl Drop for Broken {
    fn drop(&mut self) {
        let open = self.inner.health() != DeviceHealth::Closed;
        assert!(!(open && self.has(Flaw::DropPanics)), "dropped while open");
    }
}
