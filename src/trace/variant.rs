//! Variants: functions that build a graph on the device, and their traces.

use std::error::Error;
use std::fmt;

use smallvec::SmallVec;

use super::tables::ReadMark;
use super::{Pending, TraceContext};
use crate::device::{BufferId, TraceId};
use crate::ops::{DeviceTensor, OpContext};
use crate::tensor::TensorSpec;

/// What a function that is handed to a runner answers when it fails.
pub type WorkError = Box<dyn Error + Send + Sync>;

/// The function of a variant: builds its graph on the device and returns the named outputs, each either a
/// persistent output ([`TraceContext::output`], [`TraceContext::write_output`]) or a tensor that it allocated itself.
/// Intermediate and output buffers that it allocated and neither freed nor returned are freed when it ends.
///
/// It is called at warm-up, once a phase at the capture, and at eager runs. Nothing can be registered from inside:
/// the context has no such method, the function borrows nothing (it is `'static`), and the runner is borrowed mutably
/// for as long as the function runs. Persistent buffers are refused by the device that the function sees, in the warm-up
/// as in the capture.
///
/// ```compile_fail
/// # use sensorium::device::{Device, DeviceError};
/// # use sensorium::trace::TraceRunner;
/// # fn register(mut runner: TraceRunner, device: &mut dyn Device) {
/// // What the runner calls cannot hold the runner.
/// runner.add_variant(device, "odd", Box::new(|context| {
///     runner.add_param(context.ops().device, "late", 1.0)?;
///     Ok(Vec::new())
/// })).unwrap();
/// # }
/// ```
pub type VariantFn =
    Box<dyn FnMut(&mut TraceContext<'_>) -> Result<Vec<(String, DeviceTensor)>, WorkError> + Send>;

/// Moves uploaded data from an input's staging copy (second argument) into the input that traces read (third), for
/// example converting its type. It runs eagerly on queue 0 at the head of a replay, so every program it needs must be
/// the same each time: it is run once before the first capture, and what it would compile later is refused.
pub type StageFn =
    Box<dyn FnMut(&mut OpContext<'_>, DeviceTensor, DeviceTensor) -> Result<(), WorkError> + Send>;

/// Eager device work of a model between its replays.
pub type EagerFn = Box<dyn FnMut(&mut OpContext<'_>) -> Result<(), WorkError> + Send>;

/// One output of a captured variant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputInfo {
    /// Name given by the variant.
    pub name: String,
    /// Shape and type; dense and row-major.
    pub spec: TensorSpec,
    pub(super) buffer: BufferId,
    pub(super) source: OutputSource,
}

impl OutputInfo {
    /// Allocated by the variant itself, so freed with its trace.
    pub(super) fn owned(&self) -> bool {
        self.source == OutputSource::Own
    }
}

/// Whose buffer an output is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutputSource {
    /// The registered output of this index.
    Persistent(usize),
    /// Allocated by the variant.
    Own,
}

/// Why a variant's function runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PassKind {
    /// To compile its programs; the inputs mean nothing.
    WarmUp,
    /// To record its launches.
    Capture,
    /// For its results.
    Eager,
}

/// What one run of a variant's function made.
#[derive(Debug)]
pub(super) struct Pass {
    pub(super) outputs: Vec<OutputInfo>,
    /// Persistent outputs that it may have written.
    pub(super) writes: SmallVec<[usize; 4]>,
    /// It wrote the ping-pong states.
    pub(super) stepping: bool,
}

/// One captured trace of a variant.
#[derive(Debug)]
pub(super) struct Captured {
    pub(super) trace: TraceId,
    /// Captures are numbered: a trace may overwrite what later captures allocated, and nothing that earlier ones did.
    pub(super) serial: u64,
    pub(super) pass: Pass,
    /// Bytes of the trace region.
    pub(super) bytes: usize,
    /// Number of its last replay, 0 for none.
    pub(super) last: u64,
    /// Last read of an output that it allocated.
    pub(super) read: Option<ReadMark>,
}

pub(super) struct Variant {
    pub(super) name: String,
    pub(super) forward: VariantFn,
    pub(super) warm: bool,
    /// One trace a phase; empty before the capture.
    pub(super) captured: Vec<Captured>,
    pub(super) last: Option<Pending>,
}

impl fmt::Debug for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Variant")
            .field("name", &self.name)
            .field("captured", &self.captured)
            .finish_non_exhaustive()
    }
}
