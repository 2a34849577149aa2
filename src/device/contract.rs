//! The [`Device`] trait.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{BufferId, Cq, DeviceError, EventId, HostSlot, OpDesc, ProgramId, TraceId, WeightDesc};
use crate::tensor::{DType, TensorSpec};

/// What a buffer is for. The class decides where it may live and what a trace may do to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BufferClass {
    /// Written by the host before a replay.
    Input,
    /// A small run-time parameter.
    Param,
    /// Constants, prepared once.
    Weight,
    /// Read by the host after a replay, alive as long as its owner wants.
    Output,
    /// Copy of an input that is written while the previous replay still runs.
    Staging,
    /// What one replay hands to the next.
    State,
    /// A stream's copy of a state while another stream's is loaded.
    Bank,
    /// Between two operations; freed by the function that allocated it.
    Intermediate,
}

impl BufferClass {
    /// Whether buffers of this class may come and go while launches are recorded.
    pub(super) const fn may_change_in_capture(self) -> bool {
        matches!(self, Self::Intermediate | Self::Output)
    }
}

/// Whether an operation that has no compiled program yet may be compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MissPolicy {
    /// Compile it.
    Allow,
    /// Answer [`DeviceError::CacheMissForbidden`].
    Forbid,
}

/// How launches become a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CaptureKind {
    /// Launches between begin and end are recorded and do not run.
    Recorded,
    /// Launches between begin and end are taken over from the device's own stream capture.
    Captured,
    /// Traces are made ahead of time; begin and end only name one.
    Prebuilt,
}

/// What a device can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceCaps {
    /// Backend name, for example `cpu`.
    pub backend: &'static str,
    /// Human-readable description: instruction set, threads.
    pub description: String,
    /// Number of command queues.
    pub queues: u8,
    /// Alignment of buffer addresses in bytes.
    pub alignment: usize,
    /// Bytes of device memory.
    pub memory_bytes: usize,
    /// Bytes that all traces together may take.
    pub trace_region_bytes: usize,
    /// Commands that one queue holds before it is full.
    pub queue_depth: usize,
    /// How launches become a trace.
    pub capture: CaptureKind,
    /// Whether one queue can wait for another's event without the host.
    pub device_side_wait: bool,
    /// Types that buffers hold and operations compute with. Whether the bits of others can be stored is up to the device.
    pub dtypes: &'static [DType],
}

/// How much of a device's memory is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeviceMemory {
    /// Bytes in buffers.
    pub used_bytes: usize,
    /// Largest buffer that could still be reserved, in bytes.
    pub largest_free_bytes: usize,
    /// Bytes of the trace region in use.
    pub trace_bytes: usize,
}

/// What was made after a trace's capture and is still there, so that a replay could overwrite it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UnsafeLive {
    /// Buffers that their owner has not acknowledged.
    pub buffers: Vec<BufferId>,
    /// Names of programs: their code lies in device memory too.
    pub programs: Vec<String>,
}

impl UnsafeLive {
    /// Whether a replay is safe.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buffers.is_empty() && self.programs.is_empty()
    }
}

/// When one launch of a trace ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchTime {
    /// What it computed.
    pub op: OpDesc,
    /// When it began, in nanoseconds after the first launch of the trace began.
    pub start_ns: u64,
    /// When it ended.
    pub end_ns: u64,
}

/// Whether the device still works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceHealth {
    /// It does.
    Healthy,
    /// It failed; only [`Device::close`] works.
    Lost {
        /// What happened.
        reason: String,
    },
    /// It was closed.
    Closed,
}

/// The moment after this time, for [`Device::sync_event`]; for a time beyond all clocks, a moment that nobody sees.
pub(crate) fn moment_after(time: Duration) -> Instant {
    const AGES: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
    let now = Instant::now();
    now.checked_add(time).unwrap_or_else(|| now + AGES)
}

/// A device: owned and called by one thread, object-safe, every call fallible. Objects are named by ids.
///
/// Commands on one queue run in order; queues are ordered only by events. Inside a capture only
/// [`Device::compile`], [`Device::launch`] on the capturing queue and allocation or freeing of
/// [`BufferClass::Intermediate`] and [`BufferClass::Output`] buffers are allowed, and calls that touch no queue
/// ([`Device::host_slot`], [`Device::poll_event`], look-ups); anything else is refused with
/// [`DeviceError::DuringCapture`] and the capture stays usable.
pub trait Device: Send {
    /// What the device can do.
    fn caps(&self) -> &DeviceCaps;

    /// Reserves a buffer. Contents are undefined.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`]; [`DeviceError::DuringCapture`] for persistent classes in a capture;
    /// [`DeviceError::UnsupportedLayout`].
    fn alloc(&mut self, spec: &TensorSpec, class: BufferClass) -> Result<BufferId, DeviceError>;

    /// Returns a buffer's memory. What a trace freed during its capture stays reserved for that trace's
    /// replays only in so far as later captures and allocations may reuse the addresses (see
    /// [`Device::replay`]).
    ///
    /// # Errors
    /// [`DeviceError::UnknownBuffer`].
    fn free(&mut self, buffer: BufferId) -> Result<(), DeviceError>;

    /// The buffer's address in the device arena, in bytes.
    ///
    /// # Errors
    /// [`DeviceError::UnknownBuffer`].
    fn address(&self, buffer: BufferId) -> Result<u64, DeviceError>;

    /// Host memory that the device can copy from and to. It outlives the device.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`].
    fn host_slot(&mut self, bytes: usize) -> Result<HostSlot, DeviceError>;

    /// Copies `len` bytes from the start of a slot into a buffer at `dst_offset` (bytes). The slot belongs to the device until
    /// the copy is done.
    ///
    /// # Errors
    /// [`DeviceError::OutOfRange`], [`DeviceError::UnknownBuffer`], [`DeviceError::DuringCapture`].
    fn write(
        &mut self,
        cq: Cq,
        dst: BufferId,
        dst_offset: usize,
        src: &HostSlot,
        len: usize,
    ) -> Result<(), DeviceError>;

    /// Copies `len` bytes of a buffer from `src_offset` into the start of a slot. The slot belongs to the device until the
    /// copy is done.
    ///
    /// # Errors
    /// As [`Device::write`].
    fn read(
        &mut self,
        cq: Cq,
        src: BufferId,
        src_offset: usize,
        dst: &mut HostSlot,
        len: usize,
    ) -> Result<(), DeviceError>;

    /// Copies one buffer into another of the same size.
    ///
    /// # Errors
    /// [`DeviceError::OutOfRange`] if the sizes differ; as [`Device::write`].
    fn copy(&mut self, cq: Cq, src: BufferId, dst: BufferId) -> Result<(), DeviceError>;

    /// Marks this point of a queue. The event completes when the queue gets there.
    ///
    /// # Errors
    /// [`DeviceError::UnknownQueue`], [`DeviceError::DuringCapture`].
    fn record_event(&mut self, cq: Cq) -> Result<EventId, DeviceError>;

    /// Makes a queue wait for an event of another queue.
    ///
    /// # Errors
    /// [`DeviceError::UnknownEvent`] if it was never recorded.
    fn wait_event(&mut self, cq: Cq, event: EventId) -> Result<(), DeviceError>;

    /// Whether an event has completed.
    ///
    /// # Errors
    /// [`DeviceError::UnknownEvent`], [`DeviceError::Lost`].
    fn poll_event(&self, event: EventId) -> Result<bool, DeviceError>;

    /// Waits on the host for an event.
    ///
    /// # Errors
    /// [`DeviceError::Timeout`] after the deadline, [`DeviceError::Lost`].
    fn sync_event(&self, event: EventId, deadline: Instant) -> Result<(), DeviceError>;

    /// Stores constants in the device's own form.
    ///
    /// # Errors
    /// [`DeviceError::InvalidOp`] if sizes do not fit the description; [`DeviceError::OutOfMemory`].
    fn prepare_weights(&mut self, weights: &WeightDesc<'_>) -> Result<BufferId, DeviceError>;

    /// The program of an operation, compiled on first use.
    ///
    /// # Errors
    /// [`DeviceError::InvalidOp`]; [`DeviceError::CacheMissForbidden`] under [`MissPolicy::Forbid`].
    fn compile(&mut self, op: &OpDesc) -> Result<ProgramId, DeviceError>;

    /// Runs a program on bound buffers, or records it if the queue is capturing.
    ///
    /// # Errors
    /// [`DeviceError::InvalidBinding`] if a buffer is missing or too small for the program's views.
    fn launch(&mut self, cq: Cq, program: ProgramId, buffers: &[BufferId]) -> Result<(), DeviceError>;

    /// Starts recording the launches of one queue.
    ///
    /// # Errors
    /// [`DeviceError::DuringCapture`] if a capture is in progress on any queue.
    fn begin_capture(&mut self, cq: Cq) -> Result<(), DeviceError>;

    /// Ends the recording.
    ///
    /// # Errors
    /// [`DeviceError::NotCapturing`]; [`DeviceError::TraceRegionFull`], after which the capture has been given up as
    /// by [`Device::abort_capture`].
    fn end_capture(&mut self) -> Result<TraceId, DeviceError>;

    /// Gives up the recording; buffers allocated in it are freed.
    ///
    /// # Errors
    /// [`DeviceError::NotCapturing`].
    fn abort_capture(&mut self) -> Result<(), DeviceError>;

    /// Runs a trace. Allocates nothing.
    ///
    /// # Errors
    /// [`DeviceError::UnsafeReplay`] while a program that was compiled, or a buffer that was allocated and not
    /// acknowledged, after the capture is alive.
    fn replay(&mut self, cq: Cq, trace: TraceId) -> Result<(), DeviceError>;

    /// Runs a trace as [`Device::replay`] does, waits for it, and tells when each of its launches ran. For looking at a
    /// trace, not for running it: it allocates. A device that cannot time its launches refuses.
    ///
    /// # Errors
    /// As [`Device::replay`]; [`DeviceError::NoProfile`]; [`DeviceError::Timeout`] after the deadline.
    fn profile(
        &mut self,
        cq: Cq,
        trace: TraceId,
        deadline: Duration,
    ) -> Result<Vec<LaunchTime>, DeviceError> {
        let _ = (cq, trace, deadline);
        Err(DeviceError::NoProfile {
            backend: self.caps().backend,
        })
    }

    /// Frees a trace.
    ///
    /// # Errors
    /// [`DeviceError::UnknownTrace`].
    fn release_trace(&mut self, trace: TraceId) -> Result<(), DeviceError>;

    /// Allows or forbids compiling.
    fn set_misses(&mut self, policy: MissPolicy);

    /// Number of compiled programs.
    fn program_count(&self) -> usize;

    /// How much memory is in use.
    fn memory(&self) -> DeviceMemory;

    /// What makes a replay of this trace unsafe.
    ///
    /// # Errors
    /// [`DeviceError::UnknownTrace`].
    fn unsafe_live(&self, trace: TraceId) -> Result<UnsafeLive, DeviceError>;

    /// Declares that the owner knows that replays may overwrite this buffer.
    ///
    /// # Errors
    /// [`DeviceError::UnknownBuffer`].
    fn acknowledge(&mut self, buffer: BufferId) -> Result<(), DeviceError>;

    /// Waits until every queue is empty.
    ///
    /// # Errors
    /// [`DeviceError::Timeout`] after the deadline.
    fn drain(&mut self, deadline: Duration) -> Result<(), DeviceError>;

    /// Called whenever an event completes, so that an owner can sleep until then: on a thread of the device, or on the
    /// one that waits for the device. It returns at once, and takes no lock that is held by whoever waits.
    fn set_completion_hook(&mut self, hook: Arc<dyn Fn() + Send + Sync>);

    /// Whether the device works.
    fn health(&self) -> DeviceHealth;

    /// Releases traces, then buffers, and stops the queues. Afterwards no host slot is on loan any more, also where
    /// the device was lost. Idempotent.
    fn close(&mut self);
}
