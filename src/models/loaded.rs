//! A lowered graph with its constants on a device.

use super::plan::{DensePlan, InputPlan, LoweredGraph, OutputPlan, Slot, Step, WeightPlan};
use crate::device::{BufferClass, BufferId, Cq, DenseLayer, Device, DeviceError, WeightDesc};
use crate::ops::{DeviceTensor, OpContext};
use crate::tensor::{TensorSpec, View};

/// Why a forward pass did not happen.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ForwardError {
    /// Another number of inputs or outputs than the graph has.
    #[error("{model}: {expected} {kind}s are needed, {found} were given")]
    Count {
        /// The model.
        model: String,
        /// `input` or `output`.
        kind: &'static str,
        /// How many the graph has.
        expected: usize,
        /// How many were given.
        found: usize,
    },
    /// A tensor of another shape or type, or one that is not the whole of a row-major buffer.
    #[error("{model}: {kind} `{tensor}` must be the whole of a row-major {expected}, found {found}")]
    Mismatch {
        /// The model.
        model: String,
        /// `input` or `output`.
        kind: &'static str,
        /// The tensor.
        tensor: String,
        /// What the plan says, in words.
        expected: String,
        /// What was given, in words.
        found: String,
    },
    /// The device refused.
    #[error("{model}: {step}")]
    Device {
        /// The model.
        model: String,
        /// What was being done.
        step: String,
        /// What the device said.
        source: Box<DeviceError>,
    },
    /// The steps of the graph use a buffer that they have not reserved: the plan is damaged.
    #[error("{model}: a step uses a buffer that is not reserved")]
    Plan {
        /// The model.
        model: String,
    },
}

/// A graph whose constants lie on a device. The buffers stay there until [`LoadedGraph::release`].
#[derive(Debug)]
pub struct LoadedGraph {
    graph: LoweredGraph,
    weights: Vec<BufferId>,
}

impl LoadedGraph {
    /// Brings a graph's constants onto a device (on queue `cq` where they are transferred as they are).
    ///
    /// # Errors
    /// [`ForwardError::Device`]; nothing stays allocated.
    pub fn prepare(graph: LoweredGraph, device: &mut dyn Device, cq: Cq) -> Result<Self, ForwardError> {
        let mut weights = Vec::with_capacity(graph.weights.len());
        for plan in &graph.weights {
            match prepare(plan, device, cq) {
                Ok(buffer) => weights.push(buffer),
                Err(source) => {
                    release(device, &weights);
                    let name = match plan {
                        WeightPlan::Conv2d { name, .. }
                        | WeightPlan::Pillars { name, .. }
                        | WeightPlan::Constant { name, .. } => name,
                    };
                    return Err(ForwardError::Device {
                        step: format!("constant `{name}`"),
                        model: graph.model,
                        source: Box::new(source),
                    });
                }
            }
        }
        // Values are kept once, on the device.
        let graph = LoweredGraph {
            weights: Vec::new(),
            ..graph
        };
        Ok(Self { graph, weights })
    }

    /// The inputs of [`LoadedGraph::forward`], in order.
    #[must_use]
    pub fn inputs(&self) -> &[InputPlan] {
        &self.graph.inputs
    }

    /// The outputs of [`LoadedGraph::forward`], in order; their shapes are known before anything runs.
    #[must_use]
    pub fn outputs(&self) -> &[OutputPlan] {
        &self.graph.outputs
    }

    /// Name of the model.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.graph.model
    }

    /// Launches one pass. Intermediates are reserved and returned on the way; the outputs (row-major f32, of
    /// class [`BufferClass::Output`]) belong to the caller. Inputs are whole row-major buffers as
    /// [`InputPlan::spec`] says.
    ///
    /// # Errors
    /// [`ForwardError`]; whatever the pass had reserved is returned to the device.
    pub fn forward(
        &self,
        context: &mut OpContext<'_>,
        inputs: &[DeviceTensor],
    ) -> Result<Vec<DeviceTensor>, ForwardError> {
        self.check_inputs(inputs)?;
        let buffers = self.pass(context, inputs, &[])?;
        let outputs = self.graph.outputs.iter().map(|plan| {
            let buffer = buffers[plan.buffer].ok_or_else(|| self.damaged())?;
            Ok(DeviceTensor::whole(buffer, &plan.spec))
        });
        outputs.collect()
    }

    /// As [`LoadedGraph::forward`], into outputs that exist already: whole row-major buffers as
    /// [`OutputPlan::spec`] says, in order.
    ///
    /// # Errors
    /// [`ForwardError`]; whatever the pass had reserved is returned to the device.
    pub fn forward_into(
        &self,
        context: &mut OpContext<'_>,
        inputs: &[DeviceTensor],
        outputs: &[DeviceTensor],
    ) -> Result<(), ForwardError> {
        self.check_inputs(inputs)?;
        let plans = self
            .graph
            .outputs
            .iter()
            .map(|plan| (plan.name.as_str(), plan.spec));
        self.check("output", plans, outputs)?;
        self.pass(context, inputs, outputs).map(drop)
    }

    /// Returns the constants' memory.
    pub fn release(&self, device: &mut dyn Device) {
        release(device, &self.weights);
    }

    fn damaged(&self) -> ForwardError {
        ForwardError::Plan {
            model: self.graph.model.clone(),
        }
    }

    fn check_inputs(&self, inputs: &[DeviceTensor]) -> Result<(), ForwardError> {
        let plans = self
            .graph
            .inputs
            .iter()
            .map(|plan| (plan.name.as_str(), plan.spec));
        self.check("input", plans, inputs)
    }

    fn check<'a>(
        &self,
        kind: &'static str,
        plans: impl ExactSizeIterator<Item = (&'a str, TensorSpec)>,
        tensors: &[DeviceTensor],
    ) -> Result<(), ForwardError> {
        if tensors.len() != plans.len() {
            return Err(ForwardError::Count {
                model: self.graph.model.clone(),
                kind,
                expected: plans.len(),
                found: tensors.len(),
            });
        }
        for ((name, spec), given) in plans.zip(tensors) {
            if given.dtype != spec.dtype || given.view != View::contiguous(spec.shape) {
                return Err(ForwardError::Mismatch {
                    model: self.graph.model.clone(),
                    kind,
                    tensor: name.to_owned(),
                    expected: spec.to_string(),
                    found: format!("{} {}", given.dtype, given.view.shape),
                });
            }
        }
        Ok(())
    }

    /// Runs the steps and returns the buffers that are still there: the outputs. Outputs that the caller
    /// brings are used where the steps would reserve them.
    fn pass(
        &self,
        context: &mut OpContext<'_>,
        inputs: &[DeviceTensor],
        outputs: &[DeviceTensor],
    ) -> Result<Vec<Option<BufferId>>, ForwardError> {
        let mut buffers: Vec<Option<BufferId>> = vec![None; self.graph.buffers.len()];
        for (plan, given) in self.graph.outputs.iter().zip(outputs) {
            buffers[plan.buffer] = Some(given.buffer);
        }
        let done = self.steps(context, inputs, &mut buffers);
        if let Err(error) = done {
            let mine = |buffer: &BufferId| outputs.iter().all(|given| given.buffer != *buffer);
            let reserved: Vec<BufferId> = buffers.into_iter().flatten().filter(mine).collect();
            release(context.device, &reserved);
            return Err(error);
        }
        Ok(buffers)
    }

    fn steps(
        &self,
        context: &mut OpContext<'_>,
        inputs: &[DeviceTensor],
        buffers: &mut [Option<BufferId>],
    ) -> Result<(), ForwardError> {
        let refused = |step: &str| {
            let (model, step) = (self.graph.model.clone(), step.to_owned());
            move |source| ForwardError::Device {
                model,
                step,
                source: Box::new(source),
            }
        };
        for step in &self.graph.steps {
            match step {
                // An output that the caller brought.
                Step::Alloc(index) if buffers[*index].is_some() => {}
                Step::Alloc(index) => {
                    let plan = &self.graph.buffers[*index];
                    let buffer = context
                        .device
                        .alloc(&plan.spec, plan.class)
                        .map_err(refused(&plan.name))?;
                    buffers[*index] = Some(buffer);
                }
                Step::Launch(launch) => {
                    let bound = launch.slots.iter().map(|slot| match *slot {
                        Slot::Input(index) => Some(inputs[index].buffer),
                        Slot::Weight(index) => self.weights.get(index).copied(),
                        Slot::Buffer(index) => buffers[index],
                    });
                    let bound: Vec<BufferId> = bound.collect::<Option<_>>().ok_or_else(|| self.damaged())?;
                    context.run(&launch.op, &bound).map_err(refused(&launch.name))?;
                }
                Step::Free(index) => {
                    if let Some(buffer) = buffers[*index].take() {
                        context
                            .device
                            .free(buffer)
                            .map_err(refused("returning a buffer"))?;
                    }
                }
            }
        }
        Ok(())
    }
}

fn prepare(plan: &WeightPlan, device: &mut dyn Device, cq: Cq) -> Result<BufferId, DeviceError> {
    match plan {
        WeightPlan::Conv2d {
            desc, weight, bias, ..
        } => device.prepare_weights(&WeightDesc::Conv2d {
            desc,
            weight: &weight.widen(),
            bias: bias.as_deref(),
        }),
        WeightPlan::Pillars {
            desc, first, second, ..
        } => device.prepare_weights(&WeightDesc::Pillars {
            desc,
            first: first.layer(),
            second: second.as_ref().map(DensePlan::layer),
        }),
        WeightPlan::Constant { values, .. } => {
            let mut context = OpContext { device, cq };
            context
                .upload(values, BufferClass::Weight)
                .map(|tensor| tensor.buffer)
        }
    }
}

impl DensePlan {
    const fn layer(&self) -> DenseLayer<'_> {
        DenseLayer {
            weight: self.weight.as_slice(),
            bias: self.bias.as_slice(),
        }
    }
}

/// Returns buffers; a device that cannot take one back has failed as a whole and says so on the next call.
fn release(device: &mut dyn Device, buffers: &[BufferId]) {
    for &buffer in buffers {
        if let Err(error) = device.free(buffer) {
            tracing::debug!(%error, "a buffer could not be returned");
        }
    }
}

#[cfg(test)]
mod tests;
