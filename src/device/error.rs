//! What a device may answer instead of doing as it was told.

use std::time::Duration;

use super::{BufferId, Cq, EventId, ProgramId, Race, SlotError, TraceId, UnsafeLive};
use crate::tensor::{Layout, TensorError};

/// Errors of the device contract. A refusal changes nothing and leaves the device usable, except
/// [`DeviceError::Lost`].
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The buffer was freed or never existed.
    #[error("{0} does not exist")]
    UnknownBuffer(BufferId),
    /// The program does not exist.
    #[error("{0} does not exist")]
    UnknownProgram(ProgramId),
    /// The trace was released or never existed.
    #[error("{0} does not exist")]
    UnknownTrace(TraceId),
    /// The event was never recorded.
    #[error("{0} was never recorded: an event can be waited for only after it was recorded")]
    UnknownEvent(EventId),
    /// The device has no such queue.
    #[error("{0} does not exist: the device has {1} command queue(s)")]
    UnknownQueue(Cq, u8),
    /// No room for a buffer.
    #[error("out of device memory: {requested} bytes requested, largest free block {largest_free}")]
    OutOfMemory {
        /// Bytes asked for.
        requested: usize,
        /// Largest block that is free.
        largest_free: usize,
    },
    /// Bytes outside a buffer or slot.
    #[error("{what}: bytes {start}..{end} lie outside its {size} bytes")]
    OutOfRange {
        /// What was accessed.
        what: String,
        /// First byte.
        start: usize,
        /// One past the last byte.
        end: usize,
        /// Size of the buffer or slot.
        size: usize,
    },
    /// An operation that no kernel can do as described.
    #[error("{op}: {reason}")]
    InvalidOp {
        /// Name of the operation.
        op: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// A launch with the wrong buffers.
    #[error("{op}: {reason}")]
    InvalidBinding {
        /// Name of the operation.
        op: &'static str,
        /// What is wrong with the binding.
        reason: String,
    },
    /// A program would have been compiled while that is forbidden.
    #[error("program cache miss occurred, but cache misses are forbidden: {op}")]
    CacheMissForbidden {
        /// Name and description of the operation.
        op: String,
    },
    /// Something that a capture cannot contain.
    #[error("{what} is not supported during trace capture")]
    DuringCapture {
        /// The refused command.
        what: &'static str,
    },
    /// `end_capture` or `abort_capture` without a capture.
    #[error("no trace capture is in progress on this device")]
    NotCapturing,
    /// A replay while something made after the capture is alive: the replay could overwrite it.
    #[error("{trace}: {}", unsafe_text(.live))]
    UnsafeReplay {
        /// The refused trace.
        trace: TraceId,
        /// What is alive.
        live: Box<UnsafeLive>,
    },
    /// No room for a trace.
    #[error(
        "the trace needs {needed} bytes, but only {free} of the {region} bytes of the trace region are free: release \
             traces or open the device with a larger trace region"
    )]
    TraceRegionFull {
        /// Bytes of the trace.
        needed: usize,
        /// Bytes left.
        free: usize,
        /// Bytes of the region.
        region: usize,
    },
    /// The queue took no further command in time; nothing was enqueued.
    #[error("{cq} is full ({depth} commands) and took no further one within {waited:?}")]
    QueueFull {
        /// The queue.
        cq: Cq,
        /// Commands that it holds.
        depth: usize,
        /// How long the caller waited.
        waited: Duration,
    },
    /// A host slot that is in use by the device.
    #[error(transparent)]
    Slot(#[from] SlotError),
    /// A queue did not get there in time.
    #[error("{what} did not complete within {waited:?}")]
    Timeout {
        /// What was waited for.
        what: String,
        /// How long.
        waited: Duration,
    },
    /// The device failed; nothing but [`super::Device::close`] works any more.
    #[error("device lost: {reason}")]
    Lost {
        /// What happened.
        reason: String,
    },
    /// Two commands touched the same bytes without an order between them. Only devices that look for races
    /// answer this; the commands were enqueued, and the refused wait can be repeated.
    #[error(transparent)]
    Race(Box<Race>),
    /// The device was closed.
    #[error("the device is closed")]
    Closed,
    /// A shape or view that is refused.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// A buffer in a layout that the device does not have.
    #[error(
        "the {backend} device holds row-major tensors, not {layout} layout: convert with to_layout first"
    )]
    UnsupportedLayout {
        /// Name of the backend.
        backend: &'static str,
        /// The refused layout.
        layout: Layout,
    },
    /// A device that cannot time the launches of a trace.
    #[error("the {backend} device cannot tell when the launches of a trace run: profile on the cpu device")]
    NoProfile {
        /// Name of the backend.
        backend: &'static str,
    },
    /// A configuration that the device cannot open with.
    #[error("device configuration: {0}")]
    Config(String),
}

fn unsafe_text(live: &UnsafeLive) -> String {
    let mut parts = Vec::new();
    if !live.buffers.is_empty() {
        parts.push(format!(
            "found {} device buffer(s) still alive that were allocated after the capture and may overlap its \
             intermediates: {:?}",
            live.buffers.len(),
            live.buffers
        ));
    }
    if !live.programs.is_empty() {
        parts.push(format!(
            "found {} program(s) compiled after the capture: {}; run the work that needs them once before the first \
             capture",
            live.programs.len(),
            live.programs.join(", ")
        ));
    }
    parts.join("; ")
}
