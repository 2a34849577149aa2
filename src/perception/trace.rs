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
    /// Variants that take several frames, by their number, ascending.
    batches: SmallVec<[(usize, VariantId); 4]>,
    /// The inputs of each frame of a batch.
    places: Vec<SmallVec<[InputId; 2]>>,
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
            batches: SmallVec::new(),
            places: Vec::new(),
        })
    }

    /// The same trace with variants that take several frames at once, by their number, ascending: the inputs of frame `n`
    /// are `places[n]`, and its output is output `n` of the variant. Registered before [`Self::new`] warmed them up.
    #[must_use]
    pub fn with_batches<I: AsRef<[InputId]>>(mut self, places: &[I], batches: &[(usize, VariantId)]) -> Self {
        self.places = places.iter().map(|place| place.as_ref().into()).collect();
        self.batches = batches.into();
        self
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

    /// The most frames that go together; 1 without variants for several.
    #[must_use]
    pub fn largest_batch(&self) -> usize {
        self.batches.last().map_or(1, |&(frames, _)| frames)
    }

    /// As [`Self::submit`] for several frames in the smallest variant that holds them: the slots of each frame. Places
    /// that are left over compute what was in them before, which nobody reads.
    ///
    /// # Errors
    /// [`TraceError::Unknown`] for more frames than [`Self::largest_batch`]; as [`Self::submit`].
    pub fn submit_batch<'s, S: IntoIterator<Item = &'s HostSlot>>(
        &mut self,
        device: &mut dyn Device,
        frames: impl ExactSizeIterator<Item = S>,
    ) -> Result<(EventId, Pending), TraceError> {
        let wanted = frames.len();
        let Some(&(_, variant)) = self.batches.iter().find(|&&(most, _)| most >= wanted) else {
            let told = self.runner.describe();
            return Err(TraceError::Unknown {
                runner: told["name"].as_str().unwrap_or_default().to_owned(),
                kind: "batch",
                name: wanted.to_string(),
                known: self.batches.iter().map(|(most, _)| most.to_string()).collect(),
            });
        };
        let slots = self.places.iter().zip(frames);
        let inputs: SmallVec<[(InputId, &HostSlot); 8]> = slots
            .flat_map(|(ids, slots)| ids.iter().copied().zip(slots))
            .collect();
        let uploaded = self.runner.upload(device, &inputs)?;
        let pending = self.runner.replay(device, variant)?;
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
        self.read_place(device, pending, 0, output)
    }

    /// As [`Self::read`] for one frame of a batch.
    ///
    /// # Errors
    /// [`TraceError`].
    pub fn read_place(
        &mut self,
        device: &mut dyn Device,
        pending: Pending,
        place: usize,
        output: &mut HostSlot,
    ) -> Result<EventId, TraceError> {
        self.runner.read(device, pending, place, output)
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
