//! Calls that wait for the device and allocate: for tests, tools, and single frames.

use super::runner::TraceRunner;
use super::variant::{Pass, PassKind};
use super::{InputId, OutputInfo, Pending, ProtocolStep, TraceError, VariantId};
use crate::device::{Cq, Device, HostSlot, LaunchTime};
use crate::tensor::HostTensor;

/// Named host tensors, in the order of the variant's outputs.
pub type TensorMap = Vec<(String, HostTensor)>;

impl TraceRunner {
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
        self.next_trace(variant)?;
        self.upload_tensors(device, inputs)?;
        let pending = self.replay(device, variant)?;
        self.read_all(device, pending)
    }

    /// Reads the outputs of a variant's last replay.
    ///
    /// # Errors
    /// [`TraceError::NotRun`], [`TraceError::Overtaken`], device errors.
    pub fn read_last(
        &mut self,
        device: &mut dyn Device,
        variant: VariantId,
    ) -> Result<TensorMap, TraceError> {
        let index = variant.of(self)?;
        let Some(pending) = self.variants[index].last else {
            return Err(TraceError::NotRun {
                runner: self.name.clone(),
                variant: self.variants[index].name.clone(),
            });
        };
        self.read_all(device, pending)
    }

    /// Waits for a replay and reads all its outputs.
    ///
    /// # Errors
    /// Those of [`TraceRunner::read`].
    pub fn read_all(&mut self, device: &mut dyn Device, pending: Pending) -> Result<TensorMap, TraceError> {
        let (index, place) = self.trace_of(pending)?;
        let outputs = self.variants[index].captured[place].pass.outputs.clone();
        let mut tensors = TensorMap::with_capacity(outputs.len());
        for (number, output) in outputs.into_iter().enumerate() {
            let bytes = output.spec.bytes();
            let slot = device.host_slot(bytes);
            let mut slot = slot.map_err(|e| self.device_error(e))?;
            let read = self.read(device, pending, number, &mut slot)?;
            self.wait(device, read)?;
            let mut tensor = HostTensor::zeros(output.spec);
            tensor.bytes_mut().copy_from_slice(&slot.bytes()?[..bytes]);
            tensors.push((output.name, tensor));
        }
        Ok(tensors)
    }

    /// Runs a variant's function without a trace and waits for its outputs: the other side of a
    /// replay-equals-eager comparison. It is a run like any other: states are written, and ping-pong states change places.
    ///
    /// # Errors
    /// As [`TraceRunner::call`]; [`TraceError::CompilesAfterCapture`] for an operation that was never run before. A
    /// function that fails halfway may have written in-place states.
    pub fn run_eager(
        &mut self,
        device: &mut dyn Device,
        variant: VariantId,
        inputs: &[(InputId, &HostTensor)],
    ) -> Result<TensorMap, TraceError> {
        let index = variant.of(self)?;
        self.settle(device)?;
        self.upload_tensors(device, inputs)?;
        // Nothing else is under way, so no event has to be waited for below.
        self.drain(device)?;
        self.unstage(device)?;
        self.upload_params(device)?;
        self.forbid_compiling(device);
        let phase = self.phases.next();
        let pass = self.forward(device, index, phase, PassKind::Eager);
        let drained = self.drain(device);
        let pass = pass.map_err(|error| {
            let work = format!("an eager run of variant {}", self.variants[index].name);
            self.eager_error(&work, error)
        })?;
        self.runs += 1;
        for &output in &pass.writes {
            self.tables.outputs[output].sets[phase.output].written = self.runs;
        }
        self.phases.stepped(pass.stepping);
        let tensors = drained.and_then(|()| self.download(device, &pass));
        self.free_owned(device, &pass.outputs)?;
        tensors
    }

    /// A replay like any other that is waited for and tells when each launch ran. For looking at a variant: it allocates.
    ///
    /// # Errors
    /// As [`TraceRunner::replay`]; a device that cannot time its launches refuses.
    pub fn profile(
        &mut self,
        device: &mut dyn Device,
        variant: VariantId,
    ) -> Result<(Vec<LaunchTime>, Pending), TraceError> {
        let deadline = self.options.deadline;
        self.replay_by(device, variant, |device, trace| {
            device.profile(Cq::COMPUTE, trace, deadline)
        })
    }

    /// Writes an input now, on queue 0 behind the replays so far and before the next one, also where it has a staging
    /// copy. With two queues, later uploads come after it.
    ///
    /// # Errors
    /// [`TraceError::WrongInput`] for a tensor of another spec. A device error, or one of a staging function, may leave the
    /// value to the next replay.
    pub fn write_input(
        &mut self,
        device: &mut dyn Device,
        input: InputId,
        value: &HostTensor,
    ) -> Result<(), TraceError> {
        let index = input.of(self)?;
        let entry = &self.tables.inputs[index];
        self.check_spec(&entry.name, &entry.spec, value.spec())?;
        let (target, staged) = (entry.target(), entry.staging.is_some());
        let slot = self.slot_for(device, index, value)?;
        let step = ProtocolStep::WriteInputWaitsForUpload;
        let waited = self
            .uploaded
            .wait_once(&mut self.protocol, device, step, Cq::COMPUTE);
        waited.map_err(|e| self.device_error(e))?;
        let step = ProtocolStep::WriteInputRecorded;
        let fence = match staged {
            true => &mut self.staging_free,
            false => &mut self.replayed,
        };
        let opened = fence.open(&self.protocol, device, step);
        opened.map_err(|e| self.device_error(e))?;
        let written = device.write(Cq::COMPUTE, target, 0, &slot, value.bytes().len());
        written.map_err(|e| {
            let name = &self.tables.inputs[index].name;
            self.device_error(e).about(|| format!("input {name}"))
        })?;
        if let Some(staging) = &mut self.tables.inputs[index].staging {
            staging.fresh = true;
        }
        self.unstage_one(device, index)?;
        let fence = match staged {
            true => &mut self.staging_free,
            false => &mut self.replayed,
        };
        let closed = fence.close(&mut self.protocol, device);
        closed.map(drop).map_err(|e| self.device_error(e))
    }

    fn upload_tensors(
        &mut self,
        device: &mut dyn Device,
        inputs: &[(InputId, &HostTensor)],
    ) -> Result<(), TraceError> {
        let mut slots = Vec::with_capacity(inputs.len());
        for &(id, tensor) in inputs {
            let input = &self.tables.inputs[id.of(self)?];
            self.check_spec(&input.name, &input.spec, tensor.spec())?;
            slots.push((id, self.slot_for(device, id.of(self)?, tensor)?));
        }
        let uploads: Vec<_> = slots.iter().map(|(id, slot)| (*id, slot)).collect();
        // The device keeps the slots for as long as it reads them.
        self.upload(device, &uploads).map(drop)
    }

    /// A slot with the next value of an input.
    fn slot_for(
        &self,
        device: &mut dyn Device,
        input: usize,
        value: &HostTensor,
    ) -> Result<HostSlot, TraceError> {
        let slot = self.slot_with(device, value.bytes());
        slot.map_err(|error| error.about(|| format!("input {}", self.tables.inputs[input].name)))
    }

    /// The outputs of an eager run.
    fn download(&self, device: &mut dyn Device, pass: &Pass) -> Result<TensorMap, TraceError> {
        let mut tensors = TensorMap::with_capacity(pass.outputs.len());
        for OutputInfo {
            name, spec, buffer, ..
        } in &pass.outputs
        {
            let bytes = spec.bytes();
            let mut slot = device.host_slot(bytes).map_err(|e| self.device_error(e))?;
            device
                .read(Cq::COMPUTE, *buffer, 0, &mut slot, bytes)
                .map_err(|e| self.device_error(e))?;
            self.drain(device)?;
            let mut tensor = HostTensor::zeros(*spec);
            tensor.bytes_mut().copy_from_slice(&slot.bytes()?[..bytes]);
            tensors.push((name.clone(), tensor));
        }
        Ok(tensors)
    }
}
