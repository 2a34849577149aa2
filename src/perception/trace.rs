//! A model on a device: its variants as captured traces, and the states of its streams.

use std::sync::Arc;

use smallvec::SmallVec;

use super::DeviceWeights;
use super::submit::{BankUse, FrameKey, SubmitError, Submitted};
use crate::device::{Device, EventId, HostSlot};
use crate::tensor::TensorSpec;
use crate::trace::{
    BankError, BankOptions, InputId, Pending, StateId, StreamBanks, TraceError, TraceRunner, VariantId,
};

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
    /// The states of each stream; `None` for a network without states.
    streams: Option<Streams>,
}

/// The streams that a network's states belong to.
#[derive(Debug)]
struct Streams {
    banks: StreamBanks<Arc<str>>,
    max: usize,
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
            streams: None,
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

    /// Gives every stream states of its own: `states` are those of the runner that go on from frame to frame, each with
    /// as many banks as there may be streams.
    ///
    /// # Errors
    /// [`BankError::Options`] for options that make no sense or states with too few banks, [`BankError::Trace`] for
    /// states of another runner.
    pub fn with_streams(mut self, states: &[StateId], options: BankOptions) -> Result<Self, BankError> {
        self.streams = Some(Streams {
            banks: StreamBanks::new(&self.runner, states, options)?,
            max: options.max_streams,
        });
        Ok(self)
    }

    /// The streams whose states are kept, most recent first; `None` for a network without states.
    #[must_use]
    pub fn banks(&self) -> Option<BankUse> {
        let streams = self.streams.as_ref()?;
        let known: Vec<String> = streams.banks.streams().map(|stream| stream.to_string()).collect();
        Some(BankUse {
            used: known.len(),
            max: streams.max,
            streams: known,
        })
    }

    /// Gives up the states of a stream that ended: its place is free, and it starts afresh if it comes back. Whether it
    /// was known.
    pub fn forget_stream(&mut self, stream: &str) -> bool {
        match &mut self.streams {
            Some(streams) => streams.banks.forget(&Arc::from(stream)),
            None => false,
        }
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
    /// Of a network with states the stream's own are brought into use first. A network without states does not look at
    /// the key.
    ///
    /// # Errors
    /// [`SubmitError::StreamRejected`] for a stream that there is no room for: nothing was enqueued, and no stream
    /// changed. [`SubmitError::Trace`]: the device refused. What the stream's states hold is not known then, so it
    /// starts afresh with its next frame.
    pub fn submit<'s>(
        &mut self,
        device: &mut dyn Device,
        variant: usize,
        slots: impl IntoIterator<Item = &'s HostSlot>,
        key: &FrameKey<'_>,
    ) -> Result<Submitted, SubmitError> {
        let inputs: SmallVec<[(InputId, &HostSlot); 2]> = self.inputs.iter().copied().zip(slots).collect();
        let Some(streams) = &mut self.streams else {
            let uploaded = self.runner.upload(device, &inputs)?;
            return Ok(Submitted {
                uploaded,
                pending: self.runner.replay(device, self.variants[variant])?,
                freshness: None,
            });
        };
        let stream: Arc<str> = match streams.banks.streams().find(|known| ***known == *key.stream) {
            Some(known) => Arc::clone(known),
            None => key.stream.into(),
        };
        let freshness = streams
            .banks
            .select(device, &mut self.runner, &stream, key.select())?;
        let runner = &mut self.runner;
        let enqueued = runner
            .upload(device, &inputs)
            .and_then(|uploaded| Ok((uploaded, runner.replay(device, self.variants[variant])?)));
        match enqueued {
            Ok((uploaded, pending)) => Ok(Submitted {
                uploaded,
                pending,
                freshness: Some(freshness),
            }),
            Err(error) => {
                streams.banks.forget(&stream);
                Err(error.into())
            }
        }
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
    ) -> Result<Submitted, SubmitError> {
        let wanted = frames.len();
        let Some(&(_, variant)) = self.batches.iter().find(|&&(most, _)| most >= wanted) else {
            let told = self.runner.describe();
            return Err(SubmitError::Trace(TraceError::Unknown {
                runner: told["name"].as_str().unwrap_or_default().to_owned(),
                kind: "batch",
                name: wanted.to_string(),
                known: self.batches.iter().map(|(most, _)| most.to_string()).collect(),
            }));
        };
        let slots = self.places.iter().zip(frames);
        let inputs: SmallVec<[(InputId, &HostSlot); 8]> = slots
            .flat_map(|(ids, slots)| ids.iter().copied().zip(slots))
            .collect();
        let uploaded = self.runner.upload(device, &inputs)?;
        Ok(Submitted {
            uploaded,
            pending: self.runner.replay(device, variant)?,
            freshness: None,
        })
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
        let mut described = self.runner.describe();
        if let Some(streams) = &self.streams {
            described["banks"] = streams.banks.describe();
        }
        described
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
