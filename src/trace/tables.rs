//! The persistent tensors of a runner.

use std::fmt;

use super::variant::StageFn;
use super::{Phase, StateOptions};
use crate::device::{BufferClass, BufferId, EventId, HostSlot};
use crate::ops::DeviceTensor;
use crate::tensor::TensorSpec;

/// A buffer that exists from its registration to the release.
#[derive(Debug, Clone, Copy)]
pub(super) struct Held {
    pub(super) buffer: BufferId,
    /// Where traces find it.
    pub(super) address: u64,
    pub(super) bytes: usize,
    pub(super) class: BufferClass,
}

#[derive(Debug)]
pub(super) struct Input {
    pub(super) name: String,
    /// What is uploaded: the spec of the staging copy where there is one.
    pub(super) spec: TensorSpec,
    /// What traces read.
    pub(super) tensor: DeviceTensor,
    pub(super) staging: Option<Staging>,
}

impl Input {
    /// Where uploads go.
    pub(super) fn target(&self) -> BufferId {
        match &self.staging {
            Some(staging) => staging.tensor.buffer,
            None => self.tensor.buffer,
        }
    }
}

/// A copy of an input that is uploaded while a replay still reads the input itself.
pub(super) struct Staging {
    pub(super) tensor: DeviceTensor,
    /// Moves the data into the trace's input; a plain copy if absent.
    pub(super) stage: Option<StageFn>,
    /// The copy holds data that the input does not have yet.
    pub(super) fresh: bool,
}

impl fmt::Debug for Staging {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Staging")
            .field("tensor", &self.tensor)
            .field("by_function", &self.stage.is_some())
            .field("fresh", &self.fresh)
            .finish()
    }
}

#[derive(Debug)]
pub(super) struct Param {
    pub(super) name: String,
    pub(super) spec: TensorSpec,
    pub(super) tensor: DeviceTensor,
    pub(super) values: Box<[f32]>,
    /// Values on the device.
    pub(super) uploaded: Box<[f32]>,
    pub(super) slot: HostSlot,
}

impl Param {
    /// Whether the device has other bits: -0 is not 0 here, and a NaN equals itself.
    pub(super) fn changed(&self) -> bool {
        bytemuck::cast_slice::<_, u8>(&self.values) != bytemuck::cast_slice::<_, u8>(&self.uploaded)
    }
}

#[derive(Debug)]
pub(super) struct Output {
    pub(super) name: String,
    pub(super) spec: TensorSpec,
    /// One a set.
    pub(super) sets: Vec<OutputSet>,
}

#[derive(Debug)]
pub(super) struct OutputSet {
    pub(super) tensor: DeviceTensor,
    /// Number of the run that wrote it last, 0 for none.
    pub(super) written: u64,
    pub(super) read: Option<ReadMark>,
}

/// The last read of an output.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReadMark {
    /// Reads are numbered in the order of their queue, so that waiting for the last one is enough.
    pub(super) number: u64,
    pub(super) event: EventId,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) name: String,
    pub(super) spec: TensorSpec,
    pub(super) options: StateOptions,
    /// What is read in each state phase; in place both are one.
    pub(super) tensors: [DeviceTensor; 2],
    pub(super) banks: Vec<BufferId>,
    /// Never written again, so that it can be the source of any number of transfers.
    pub(super) init: HostSlot,
}

impl State {
    pub(super) const fn read(&self, phase: Phase) -> DeviceTensor {
        self.tensors[phase.state]
    }

    pub(super) const fn write_target(&self, phase: Phase) -> DeviceTensor {
        self.tensors[1 - phase.state]
    }

    /// Every buffer once.
    pub(super) fn distinct(&self) -> &[DeviceTensor] {
        &self.tensors[..1 + usize::from(self.options.pingpong)]
    }
}

/// The persistent tensors, by index.
#[derive(Debug, Default)]
pub(super) struct Tables {
    pub(super) inputs: Vec<Input>,
    pub(super) params: Vec<Param>,
    pub(super) outputs: Vec<Output>,
    pub(super) states: Vec<State>,
    /// Every buffer of the above.
    pub(super) held: Vec<Held>,
}

impl Tables {
    /// What a buffer is to the runner, in words.
    pub(super) fn describe(&self, buffer: BufferId) -> Option<String> {
        let input = self
            .inputs
            .iter()
            .find(|input| input.tensor.buffer == buffer || input.target() == buffer);
        if let Some(input) = input {
            return Some(format!("input {}", input.name));
        }
        let param = self.params.iter().find(|param| param.tensor.buffer == buffer);
        if let Some(param) = param {
            return Some(format!("parameter {}", param.name));
        }
        let outputs = self
            .outputs
            .iter()
            .find(|output| output.sets.iter().any(|set| set.tensor.buffer == buffer));
        if let Some(output) = outputs {
            return Some(format!("output {}", output.name));
        }
        self.states
            .iter()
            .find(|state| {
                state.tensors.iter().any(|tensor| tensor.buffer == buffer) || state.banks.contains(&buffer)
            })
            .map(|state| format!("state {}", state.name))
    }
}
