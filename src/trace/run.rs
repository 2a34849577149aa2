//! The steady state: upload, replay, read. Nothing here allocates except the blocking conveniences at the
//! end.

use std::time::Instant;

use super::runner::{TraceRunner, spec_text};
use super::tables::{InputId, ParamId, VariantId};
use super::{OutputInfo, TraceError};
use crate::device::{Cq, Device, EventId, HostSlot};
use crate::tensor::HostTensor;

/// Named host tensors, in the order of the variant's outputs.
pub type TensorMap = Vec<(String, HostTensor)>;

/// A replay that was enqueued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pending {
    /// The variant that runs.
    pub variant: VariantId,
    /// Set of outputs that it writes.
    pub phase: usize,
    /// Completes when the outputs are there.
    pub done: EventId,
}

impl TraceRunner {
    /// Sets a parameter for the following replays. Nothing is uploaded if the value is the same; after a release
    /// nothing happens at all.
    pub fn set_param(&mut self, param: ParamId, value: f32) {
        if let Some(param) = self.tables.params.get_mut(param.0) {
            param.value = value;
        }
    }

    /// Enqueues the upload of inputs, each from the start of its slot. The event completes when the slots
    /// are free again. With staging, the upload runs beside the previous replay and the data moves into the
    /// trace's input at the head of the next one.
    ///
    /// # Errors
    /// [`TraceError::WrongInput`] for a slot smaller than the input, [`TraceError::Released`], device errors.
    pub fn upload(
        &mut self,
        device: &mut dyn Device,
        inputs: &[(InputId, &HostSlot)],
    ) -> Result<EventId, TraceError> {
        self.alive()?;
        for &(input, slot) in inputs {
            let input = &self.tables.inputs[input.0];
            if slot.len() < input.spec.bytes() {
                return Err(TraceError::WrongInput {
                    runner: self.name.clone(),
                    name: input.name.clone(),
                    expected: spec_text(&input.spec),
                    found: format!("a slot of {} bytes", slot.len()),
                });
            }
        }
        let cq = self.transfer_queue();
        let consumed = if self.options.stage_inputs {
            self.staging_free
        } else {
            self.replayed
        };
        if let (2, Some(consumed)) = (self.options.queues, consumed) {
            device
                .wait_event(cq, consumed)
                .map_err(|e| self.device_error(e))?;
        }
        for &(id, slot) in inputs {
            let input = &self.tables.inputs[id.0];
            let (bytes, target) = (input.spec.bytes(), input.staging.unwrap_or(input.tensor.buffer));
            device
                .write(cq, target, 0, slot, bytes)
                .map_err(|e| self.device_error(e))?;
            let input = &mut self.tables.inputs[id.0];
            input.staged = input.staging.is_some();
        }
        let uploaded = device.record_event(cq).map_err(|e| self.device_error(e))?;
        self.uploaded = Some(uploaded);
        Ok(uploaded)
    }

    /// Enqueues a replay behind the uploads and parameter changes before it.
    ///
    /// # Errors
    /// [`TraceError::NotCaptured`], [`TraceError::Released`], device errors.
    pub fn replay(&mut self, device: &mut dyn Device, variant: VariantId) -> Result<Pending, TraceError> {
        self.alive()?;
        let phase = self.next_phase;
        let Some(trace) = self.variants[variant.0]
            .captured
            .get(phase)
            .map(|captured| captured.trace)
        else {
            return Err(TraceError::NotCaptured {
                runner: self.name.clone(),
            });
        };
        let cq = Cq::COMPUTE;
        // What is waited for is forgotten only once the wait is enqueued: a refused call changes nothing.
        if let (2, Some(uploaded)) = (self.options.queues, self.uploaded) {
            device
                .wait_event(cq, uploaded)
                .map_err(|e| self.device_error(e))?;
            self.uploaded = None;
        }
        self.unstage(device)?;
        self.upload_params(device)?;
        if let (2, Some(read)) = (self.options.queues, self.read_done[phase]) {
            device.wait_event(cq, read).map_err(|e| self.device_error(e))?;
            self.read_done[phase] = None;
        }
        device.replay(cq, trace).map_err(|e| self.device_error(e))?;
        let done = device.record_event(cq).map_err(|e| self.device_error(e))?;
        self.replayed = Some(done);
        self.written[phase] = Some(done);
        self.variants[variant.0].written[phase] = Some(done);
        self.variants[variant.0].last = Some((phase, done));
        self.next_phase = (phase + 1) % self.options.output_phases;
        Ok(Pending { variant, phase, done })
    }

    /// Upload and replay in one call.
    ///
    /// # Errors
    /// Those of [`TraceRunner::upload`] and [`TraceRunner::replay`].
    pub fn run(
        &mut self,
        device: &mut dyn Device,
        variant: VariantId,
        inputs: &[(InputId, &HostSlot)],
    ) -> Result<Pending, TraceError> {
        self.upload(device, inputs)?;
        self.replay(device, variant)
    }

    /// Enqueues the read of one output of a replay into a slot; the event completes when it is there. With
    /// two queues the read runs on queue 1 behind the replay's event: enqueue it once that event has
    /// completed, or uploads behind it wait as well.
    ///
    /// # Errors
    /// [`TraceError::Overtaken`] if a later replay writes the same outputs, [`TraceError::WrongInput`] for a slot
    /// smaller than the output, device errors.
    pub fn read(
        &mut self,
        device: &mut dyn Device,
        pending: Pending,
        output: usize,
        slot: &mut HostSlot,
    ) -> Result<EventId, TraceError> {
        self.alive()?;
        let cq = self.transfer_queue();
        let info = self
            .outputs_of(pending)?
            .get(output)
            .ok_or_else(|| TraceError::Unknown {
                runner: self.name.clone(),
                kind: "output",
                name: output.to_string(),
                known: Vec::new(),
            })?;
        self.still_there(pending, info)?;
        let OutputInfo { spec, buffer, .. } = info;
        if slot.len() < spec.bytes() {
            return Err(TraceError::WrongInput {
                runner: self.name.clone(),
                name: format!("output {output}"),
                expected: spec_text(spec),
                found: format!("a slot of {} bytes", slot.len()),
            });
        }
        if self.options.queues == 2 {
            device
                .wait_event(cq, pending.done)
                .map_err(|e| self.device_error(e))?;
        }
        device
            .read(cq, *buffer, 0, slot, spec.bytes())
            .map_err(|e| self.device_error(e))?;
        // Recorded after the read, so that waiting for it protects the buffer.
        let read = device.record_event(cq).map_err(|e| self.device_error(e))?;
        self.read_done[pending.phase] = Some(read);
        Ok(read)
    }

    /// Runs a variant and waits for its outputs.
    ///
    /// # Errors
    /// Those of [`TraceRunner::run`] and [`TraceRunner::read`]; [`TraceError::WrongInput`] for a tensor of
    /// another spec.
    pub fn call(
        &mut self,
        device: &mut dyn Device,
        variant: VariantId,
        inputs: &[(InputId, &HostTensor)],
    ) -> Result<TensorMap, TraceError> {
        self.alive()?;
        let slots = self.slots_for(device, inputs)?;
        let uploads: Vec<_> = slots.iter().map(|(input, slot)| (*input, slot)).collect();
        let pending = self.run(device, variant, &uploads)?;
        self.read_all(device, pending)
    }

    /// Waits for a variant's last replay and reads its outputs.
    ///
    /// # Errors
    /// [`TraceError::NotRun`], device errors.
    pub fn read_last(
        &mut self,
        device: &mut dyn Device,
        variant: VariantId,
    ) -> Result<TensorMap, TraceError> {
        self.alive()?;
        let Some((phase, done)) = self.variants[variant.0].last else {
            let variant = self.variants[variant.0].name.clone();
            return Err(TraceError::NotRun {
                runner: self.name.clone(),
                variant,
            });
        };
        self.read_all(device, Pending { variant, phase, done })
    }

    /// Runs a variant's function without a trace and waits for its outputs: the other side of a
    /// replay-equals-eager comparison.
    ///
    /// # Errors
    /// As [`TraceRunner::call`].
    pub fn run_eager(
        &mut self,
        device: &mut dyn Device,
        variant: VariantId,
        inputs: &[(InputId, &HostTensor)],
    ) -> Result<TensorMap, TraceError> {
        self.alive()?;
        let slots = self.slots_for(device, inputs)?;
        let uploads: Vec<_> = slots.iter().map(|(input, slot)| (*input, slot)).collect();
        let uploaded = self.upload(device, &uploads)?;
        self.wait(device, uploaded)?;
        self.unstage(device)?;
        self.upload_params(device)?;
        let outputs = self.forward(device, variant.0, 0, false)?;
        self.drain(device)?;
        let tensors = outputs
            .iter()
            .map(|output| self.download(device, output))
            .collect();
        self.free_owned(device, &outputs)?;
        tensors
    }

    /// Waits on the host for an event, up to the runner's deadline.
    ///
    /// # Errors
    /// Device errors, among them the time-out.
    pub fn wait(&self, device: &mut dyn Device, event: EventId) -> Result<(), TraceError> {
        let deadline = Instant::now() + self.options.deadline;
        device
            .sync_event(event, deadline)
            .map_err(|e| self.device_error(e))
    }

    /// Whether an event has completed, without waiting.
    ///
    /// # Errors
    /// Device errors.
    pub fn completed(&self, device: &dyn Device, event: EventId) -> Result<bool, TraceError> {
        device.poll_event(event).map_err(|e| self.device_error(e))
    }

    const fn transfer_queue(&self) -> Cq {
        if self.options.queues == 2 {
            Cq::IO
        } else {
            Cq::COMPUTE
        }
    }

    /// Moves freshly staged inputs into the trace's inputs, in order with the replays.
    fn unstage(&mut self, device: &mut dyn Device) -> Result<(), TraceError> {
        let mut moved = false;
        for index in 0..self.tables.inputs.len() {
            let input = &self.tables.inputs[index];
            if let (true, Some(staging)) = (input.staged, input.staging) {
                let target = input.tensor.buffer;
                device
                    .copy(Cq::COMPUTE, staging, target)
                    .map_err(|e| self.device_error(e))?;
                self.tables.inputs[index].staged = false;
                moved = true;
            }
        }
        if moved {
            let consumed = device.record_event(Cq::COMPUTE);
            self.staging_free = Some(consumed.map_err(|e| self.device_error(e))?);
        }
        Ok(())
    }

    /// The outputs of a replay's trace.
    fn outputs_of(&self, pending: Pending) -> Result<&[OutputInfo], TraceError> {
        match self.variants[pending.variant.0].captured.get(pending.phase) {
            Some(captured) => Ok(&captured.outputs),
            None => Err(TraceError::NotCaptured {
                runner: self.name.clone(),
            }),
        }
    }

    /// Whether an output still holds what a replay wrote.
    fn still_there(&self, pending: Pending, output: &OutputInfo) -> Result<(), TraceError> {
        let variant = &self.variants[pending.variant.0];
        let written = if output.owned {
            &variant.written
        } else {
            &self.written
        };
        if written[pending.phase] == Some(pending.done) {
            return Ok(());
        }
        Err(TraceError::Overtaken {
            runner: self.name.clone(),
            variant: variant.name.clone(),
        })
    }

    fn upload_params(&mut self, device: &mut dyn Device) -> Result<(), TraceError> {
        let deadline = Instant::now() + self.options.deadline;
        for index in 0..self.tables.params.len() {
            let param = &mut self.tables.params[index];
            if param.uploaded == Some(param.value) {
                continue;
            }
            if param.slot.is_busy()
                && let Some(replayed) = self.replayed
            {
                // The slot's last upload lies before the last replay on the same queue.
                device
                    .sync_event(replayed, deadline)
                    .map_err(|source| TraceError::Device {
                        runner: self.name.clone(),
                        source: Box::new(source),
                    })?;
            }
            param
                .slot
                .bytes_mut()?
                .copy_from_slice(&param.value.to_ne_bytes());
            let written = device.write(Cq::COMPUTE, param.tensor.buffer, 0, &param.slot, 4);
            written.map_err(|e| self.device_error(e))?;
            let param = &mut self.tables.params[index];
            param.uploaded = Some(param.value);
        }
        Ok(())
    }

    fn slots_for(
        &self,
        device: &mut dyn Device,
        inputs: &[(InputId, &HostTensor)],
    ) -> Result<Vec<(InputId, HostSlot)>, TraceError> {
        inputs
            .iter()
            .map(|&(id, tensor)| {
                let input = &self.tables.inputs[id.0];
                if *tensor.spec() != input.spec {
                    return Err(TraceError::WrongInput {
                        runner: self.name.clone(),
                        name: input.name.clone(),
                        expected: spec_text(&input.spec),
                        found: tensor.spec().to_string(),
                    });
                }
                let mut slot = device
                    .host_slot(input.spec.bytes())
                    .map_err(|e| self.device_error(e))?;
                slot.bytes_mut()?.copy_from_slice(tensor.bytes());
                Ok((id, slot))
            })
            .collect()
    }

    fn read_all(&mut self, device: &mut dyn Device, pending: Pending) -> Result<TensorMap, TraceError> {
        self.wait(device, pending.done)?;
        let outputs = self.outputs_of(pending)?.to_vec();
        outputs
            .iter()
            .map(|output| {
                self.still_there(pending, output)?;
                self.download(device, output)
            })
            .collect()
    }

    fn download(
        &self,
        device: &mut dyn Device,
        output: &OutputInfo,
    ) -> Result<(String, HostTensor), TraceError> {
        let bytes = output.spec.bytes();
        let mut slot = device.host_slot(bytes).map_err(|e| self.device_error(e))?;
        let cq = self.transfer_queue();
        device
            .read(cq, output.buffer, 0, &mut slot, bytes)
            .map_err(|e| self.device_error(e))?;
        let read = device.record_event(cq).map_err(|e| self.device_error(e))?;
        self.wait(device, read)?;
        let mut tensor = HostTensor::zeros(output.spec);
        tensor.bytes_mut().copy_from_slice(&slot.bytes()?[..bytes]);
        Ok((output.name.clone(), tensor))
    }
}
