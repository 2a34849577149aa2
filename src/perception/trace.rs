//! A model on a device: its variants as captured traces.

use smallvec::SmallVec;

use super::DeviceWeights;
use crate::device::{Device, EventId, HostSlot};
use crate::tensor::TensorSpec;
use crate::trace::{InputId, Pending, TraceError, TraceRunner, VariantId};

/// A network on a device, ready to be captured and replayed. All its variants take the same inputs and give one
/// output.
#[derive(Debug)]
pub struct ModelTrace {
    weights: Box<dyn DeviceWeights>,
    runner: TraceRunner,
    variants: SmallVec<[VariantId; 4]>,
    inputs: SmallVec<[InputId; 2]>,
    input_specs: SmallVec<[TensorSpec; 2]>,
    output_spec: TensorSpec,
}

impl ModelTrace {
    /// Warms up what a model registered.
    ///
    /// # Errors
    /// [`TraceError`].
    pub fn new(
        device: &mut dyn Device,
        mut runner: TraceRunner,
        inputs: &[(InputId, TensorSpec)],
        output_spec: TensorSpec,
        variants: &[VariantId],
        weights: Box<dyn DeviceWeights>,
    ) -> Result<Self, TraceError> {
        runner.warm_up(device)?;
        Ok(Self {
            weights,
            runner,
            variants: variants.into(),
            inputs: inputs.iter().map(|(id, _)| *id).collect(),
            input_specs: inputs.iter().map(|(_, spec)| *spec).collect(),
            output_spec,
        })
    }

    /// Captures the network.
    ///
    /// # Errors
    /// [`TraceError`].
    pub fn capture(&mut self, device: &mut dyn Device) -> Result<(), TraceError> {
        self.runner.capture(device)
    }

    /// The inputs, in their order.
    #[must_use]
    pub fn input_specs(&self) -> &[TensorSpec] {
        &self.input_specs
    }

    /// Bytes of one output.
    #[must_use]
    pub fn output_bytes(&self) -> usize {
        self.output_spec.bytes()
    }

    /// Enqueues upload and replay of a variant, with one slot for each input. The event completes when the slots are
    /// free again.
    ///
    /// # Errors
    /// [`TraceError`].
    pub fn submit<'s>(
        &mut self,
        device: &mut dyn Device,
        variant: usize,
        slots: impl IntoIterator<Item = &'s HostSlot>,
    ) -> Result<(EventId, Pending), TraceError> {
        let inputs: SmallVec<[(InputId, &HostSlot); 2]> = self.inputs.iter().copied().zip(slots).collect();
        let uploaded = self.runner.upload(device, &inputs)?;
        let pending = self.runner.replay(device, self.variants[variant])?;
        Ok((uploaded, pending))
    }

    /// Whether an event has completed.
    ///
    /// # Errors
    /// [`TraceError`] if the device is lost.
    pub fn completed(&self, device: &dyn Device, event: EventId) -> Result<bool, TraceError> {
        self.runner.completed(device, event)
    }

    /// Enqueues the read of a replay's output.
    ///
    /// # Errors
    /// [`TraceError`].
    pub fn read(
        &mut self,
        device: &mut dyn Device,
        pending: Pending,
        output: &mut HostSlot,
    ) -> Result<EventId, TraceError> {
        self.runner.read(device, pending, 0, output)
    }

    /// The trace runner with its variants and inputs, for tests and benches.
    pub fn runner(&mut self) -> (&mut TraceRunner, &[VariantId], &[InputId]) {
        (&mut self.runner, &self.variants, &self.inputs)
    }

    /// What the trace holds, for reports.
    #[must_use]
    pub fn describe(&self) -> serde_json::Value {
        self.runner.describe()
    }

    /// Releases the traces and the weights.
    ///
    /// # Errors
    /// The first device error; everything is tried.
    pub fn release(&mut self, device: &mut dyn Device) -> Result<(), TraceError> {
        let released = self.runner.release(device);
        self.weights.release(device);
        released
    }
}
