//! What a trace runner keeps: options, persistent tensors, variants and their traces.

use std::time::Duration;

use super::TraceContext;
use crate::device::{BufferId, EventId, HostSlot, TraceId};
use crate::ops::DeviceTensor;
use crate::tensor::TensorSpec;

/// How a [`super::TraceRunner`] works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceOptions {
    /// Command queues: with 2, transfers run on queue 1 while queue 0 replays.
    pub queues: u8,
    /// Eager runs of each variant before its capture, at least 1.
    pub warmup_runs: usize,
    /// Inputs are uploaded into staging copies, so that upload n+1 overlaps replay n. Needs 2 queues.
    pub stage_inputs: bool,
    /// Sets of persistent outputs, 1 or 2: with 2, replay n+1 may write its outputs while outputs n are
    /// still being read. Every variant is captured once a set.
    pub output_phases: usize,
    /// Longest wait for the device.
    pub deadline: Duration,
}

impl Default for TraceOptions {
    fn default() -> Self {
        Self {
            queues: 1,
            warmup_runs: 1,
            stage_inputs: false,
            output_phases: 1,
            deadline: Duration::from_secs(10),
        }
    }
}

impl TraceOptions {
    /// Two queues, staged inputs, two sets of outputs: everything overlaps.
    #[must_use]
    pub fn two_queues() -> Self {
        Self {
            queues: 2,
            stage_inputs: true,
            output_phases: 2,
            ..Self::default()
        }
    }
}

/// Index of a registered input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct InputId(pub(super) usize);

/// Index of a registered parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ParamId(pub(super) usize);

/// Index of a registered variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct VariantId(pub(super) usize);

/// The function of a variant: builds its graph on the device and returns the named outputs, each either a
/// persistent output ([`TraceContext::output`]) or a tensor that its last operations produced.
pub type VariantFn = Box<
    dyn FnMut(
            &mut TraceContext<'_>,
        ) -> Result<Vec<(String, DeviceTensor)>, Box<dyn std::error::Error + Send + Sync>>
        + Send,
>;

#[derive(Debug)]
pub(super) struct Input {
    pub(super) name: String,
    pub(super) spec: TensorSpec,
    pub(super) tensor: DeviceTensor,
    pub(super) staging: Option<BufferId>,
    /// The staging copy holds data that the trace input does not have yet.
    pub(super) staged: bool,
}

#[derive(Debug)]
pub(super) struct Param {
    pub(super) name: String,
    pub(super) tensor: DeviceTensor,
    pub(super) value: f32,
    /// Value on the device, once uploaded.
    pub(super) uploaded: Option<f32>,
    pub(super) slot: HostSlot,
}

#[derive(Debug)]
pub(super) struct Output {
    pub(super) name: String,
    pub(super) tensors: Vec<DeviceTensor>,
}

/// The persistent tensors, by name.
#[derive(Debug, Default)]
pub(super) struct Tables {
    pub(super) inputs: Vec<Input>,
    pub(super) params: Vec<Param>,
    pub(super) outputs: Vec<Output>,
}

/// One output of a captured variant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputInfo {
    /// Name given by the variant.
    pub name: String,
    /// Shape and type; dense and row-major.
    pub spec: TensorSpec,
    pub(super) buffer: BufferId,
    /// Allocated by the variant itself, so freed with its trace.
    pub(super) owned: bool,
}

/// One captured trace of a variant.
#[derive(Debug)]
pub(super) struct Captured {
    pub(super) trace: TraceId,
    pub(super) outputs: Vec<OutputInfo>,
}

pub(super) struct Variant {
    pub(super) name: String,
    pub(super) forward: VariantFn,
    pub(super) warm: bool,
    /// One trace a phase; empty before the capture.
    pub(super) captured: Vec<Captured>,
    /// Phase and completion of the last replay.
    pub(super) last: Option<(usize, EventId)>,
    /// Last replay of each phase.
    pub(super) written: [Option<EventId>; 2],
}

impl std::fmt::Debug for Variant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Variant")
            .field("name", &self.name)
            .field("captured", &self.captured)
            .finish()
    }
}
