//! The steady state: upload, replay, read. Nothing here allocates, looks up a name or hashes.

use super::error::variant_text;
use super::pass::PassDevice;
use super::protocol::ProtocolStep;
use super::runner::{TraceRunner, spec_text};
use super::tables::ReadMark;
use super::variant::{Captured, OutputSource};
use super::{InputId, OutputInfo, ParamId, Phase, TraceError, VariantId};
use crate::device::{Cq, Device, DeviceError, EventId, HostSlot, TraceId, moment_after};
use crate::ops::OpContext;

/// A replay that was enqueued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pending {
    /// The variant that runs.
    pub variant: VariantId,
    /// Outputs that it writes, states that it reads.
    pub phase: Phase,
    /// Completes when the outputs are there.
    pub done: EventId,
    /// Number of the run.
    pub(super) number: u64,
}

impl TraceRunner {
    /// Sets every element of a parameter for the following replays. Nothing is uploaded if the value is the same.
    ///
    /// # Errors
    /// [`TraceError::ForeignId`], [`TraceError::Released`].
    pub fn set_param(&mut self, param: ParamId, value: f32) -> Result<(), TraceError> {
        let index = param.of(self)?;
        self.tables.params[index].values.fill(value);
        Ok(())
    }

    /// Sets several parameters as [`TraceRunner::set_param`] does, or none.
    ///
    /// # Errors
    /// As [`TraceRunner::set_param`].
    pub fn set_params(&mut self, params: &[(ParamId, f32)]) -> Result<(), TraceError> {
        for (param, _) in params {
            param.of(self)?;
        }
        params
            .iter()
            .try_for_each(|&(param, value)| self.set_param(param, value))
    }

    /// Sets the elements of a parameter, in row-major order, for the following replays.
    ///
    /// # Errors
    /// [`TraceError::WrongInput`] for another number of elements; as [`TraceRunner::set_param`].
    pub fn set_param_values(&mut self, param: ParamId, values: &[f32]) -> Result<(), TraceError> {
        let index = param.of(self)?;
        let param = &mut self.tables.params[index];
        if param.values.len() != values.len() {
            return Err(TraceError::WrongInput {
                runner: self.name.clone(),
                name: param.name.clone(),
                expected: spec_text(&param.spec),
                found: format!("{} values", values.len()),
            });
        }
        param.values.copy_from_slice(values);
        Ok(())
    }

    /// Enqueues the upload of inputs, each from the start of its slot. The event completes when the slots
    /// are free again. With staging, the upload runs beside the previous replay and the data moves into the
    /// trace's input at the head of the next one.
    ///
    /// # Errors
    /// [`TraceError::WrongInput`] for a slot smaller than the input, [`TraceError::ForeignId`],
    /// [`TraceError::Released`]: nothing was uploaded. A device error may leave some of the inputs uploaded.
    pub fn upload(
        &mut self,
        device: &mut dyn Device,
        inputs: &[(InputId, &HostSlot)],
    ) -> Result<EventId, TraceError> {
        self.alive()?;
        let (mut staged, mut direct) = (false, false);
        for &(id, slot) in inputs {
            let input = &self.tables.inputs[id.of(self)?];
            if slot.len() < input.spec.bytes() {
                return Err(TraceError::WrongInput {
                    runner: self.name.clone(),
                    name: input.name.clone(),
                    expected: spec_text(&input.spec),
                    found: format!("a slot of {} bytes", slot.len()),
                });
            }
            staged |= input.staging.is_some();
            direct |= input.staging.is_none();
        }
        let cq = self.transfer_queue();
        if direct {
            let step = ProtocolStep::UploadWaitsForReplay;
            let waited = self.replayed.wait(&mut self.protocol, device, step, cq);
            waited.map_err(|e| self.device_error(e))?;
        }
        if staged {
            let step = ProtocolStep::UploadWaitsForStaging;
            let waited = self.staging_free.wait(&mut self.protocol, device, step, cq);
            waited.map_err(|e| self.device_error(e))?;
        }
        let opened = self
            .uploaded
            .open(&self.protocol, device, ProtocolStep::UploadRecorded);
        opened.map_err(|e| self.device_error(e))?;
        for &(id, slot) in inputs {
            let index = id.of(self)?;
            let input = &self.tables.inputs[index];
            device
                .write(cq, input.target(), 0, slot, input.spec.bytes())
                .map_err(|e| self.device_error(e).about(|| format!("input {}", input.name)))?;
            if let Some(staging) = &mut self.tables.inputs[index].staging {
                staging.fresh = true;
            }
        }
        let uploaded = self.uploaded.close(&mut self.protocol, device);
        uploaded.map_err(|e| self.device_error(e))
    }

    /// Enqueues a replay behind the uploads and parameter changes before it.
    ///
    /// # Errors
    /// [`TraceError::NotCaptured`], [`TraceError::ForeignId`], [`TraceError::Released`], device errors. Phases change only
    /// if the device accepted the replay.
    pub fn replay(&mut self, device: &mut dyn Device, variant: VariantId) -> Result<Pending, TraceError> {
        let enqueue = |device: &mut dyn Device, trace| device.replay(Cq::COMPUTE, trace);
        let ((), pending) = self.replay_by(device, variant, enqueue)?;
        Ok(pending)
    }

    /// A replay that `enqueue` brings onto queue 0.
    pub(super) fn replay_by<T>(
        &mut self,
        device: &mut dyn Device,
        variant: VariantId,
        enqueue: impl FnOnce(&mut dyn Device, TraceId) -> Result<T, DeviceError>,
    ) -> Result<(T, Pending), TraceError> {
        let (index, place) = self.next_trace(variant)?;
        self.settle(device)?;
        if cfg!(debug_assertions) {
            self.check_addresses(device)?;
        }
        let step = ProtocolStep::ReplayWaitsForUpload;
        let waited = self
            .uploaded
            .wait_once(&mut self.protocol, device, step, Cq::COMPUTE);
        waited.map_err(|e| self.device_error(e))?;
        self.unstage(device)?;
        self.upload_params(device)?;
        self.await_reads(device, index, place)?;
        let opened = self
            .replayed
            .open(&self.protocol, device, ProtocolStep::ReplayRecorded);
        opened.map_err(|e| self.device_error(e))?;
        let phase = self.phases.next();
        let trace = self.variants[index].captured[place].trace;
        let told = enqueue(device, trace).map_err(|e| self.device_error(e))?;
        // Accepted: it will run, whatever else is refused.
        self.runs += 1;
        self.variants[index].last = None;
        let captured = &mut self.variants[index].captured[place];
        captured.last = self.runs;
        for &output in &captured.pass.writes {
            self.tables.outputs[output].sets[phase.output].written = self.runs;
        }
        self.phases.stepped(captured.pass.stepping);
        let done = self.replayed.close(&mut self.protocol, device);
        let pending = Pending {
            variant,
            phase,
            done: done.map_err(|e| self.device_error(e))?,
            number: self.runs,
        };
        // Nobody holds the outputs of a replay that was told as refused: the next one may write them, and those of
        // the replay before it stay.
        self.phases.outputs_taken();
        self.variants[index].last = Some(pending);
        Ok((told, pending))
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
        self.next_trace(variant)?;
        self.upload(device, inputs)?;
        self.replay(device, variant)
    }

    /// Enqueues the read of one output of a replay into a slot; the event completes when it is there. With
    /// two queues the read runs on queue 1 behind the replay's event, while queue 0 may already run the next replay:
    /// enqueue it once that event has completed, or uploads behind it wait as well.
    ///
    /// # Errors
    /// [`TraceError::Overtaken`] if a later run may have overwritten the output: one that writes the same persistent
    /// output in the same phase, or, for an output that the variant allocated itself, a replay of a trace that was
    /// captured no later. [`TraceError::WrongInput`] for a slot smaller than the output, device errors.
    pub fn read(
        &mut self,
        device: &mut dyn Device,
        pending: Pending,
        output: usize,
        slot: &mut HostSlot,
    ) -> Result<EventId, TraceError> {
        let (index, place) = self.trace_of(pending)?;
        let cq = self.transfer_queue();
        let outputs = &self.variants[index].captured[place].pass.outputs;
        let info = outputs.get(output).ok_or_else(|| TraceError::Unknown {
            runner: variant_text(&self.name, &self.variants[index].name),
            kind: "output",
            name: output.to_string(),
            known: outputs.iter().map(|output| output.name.clone()).collect(),
        })?;
        self.still_there(pending, index, place, info)?;
        let (buffer, bytes, source) = (info.buffer, info.spec.bytes(), info.source);
        if slot.len() < bytes {
            return Err(TraceError::WrongInput {
                runner: self.name.clone(),
                name: self.output_text(index, info),
                expected: spec_text(&info.spec),
                found: format!("a slot of {} bytes", slot.len()),
            });
        }
        if cq != Cq::COMPUTE {
            let step = ProtocolStep::ReadWaitsForReplay;
            let waited = self.protocol.wait(device, step, cq, pending.done);
            waited.map_err(|e| self.device_error(e))?;
        }
        let opened = self
            .read_done
            .open(&self.protocol, device, ProtocolStep::ReadRecorded);
        opened.map_err(|e| self.device_error(e))?;
        device.read(cq, buffer, 0, slot, bytes).map_err(|e| {
            let info = &self.variants[index].captured[place].pass.outputs[output];
            self.device_error(e).about(|| self.output_text(index, info))
        })?;
        // Recorded after the read, so that waiting for it protects the buffer.
        let event = self.read_done.close(&mut self.protocol, device);
        let event = event.map_err(|e| self.device_error(e))?;
        self.reads += 1;
        let mark = Some(ReadMark {
            number: self.reads,
            event,
        });
        match source {
            OutputSource::Own => self.variants[index].captured[place].read = mark,
            OutputSource::Persistent(output) => {
                self.tables.outputs[output].sets[pending.phase.output].read = mark;
            }
        }
        Ok(event)
    }

    /// Waits on the host for an event, up to the runner's deadline.
    ///
    /// # Errors
    /// Device errors, among them the time-out; [`TraceError::Released`].
    pub fn wait(&self, device: &mut dyn Device, event: EventId) -> Result<(), TraceError> {
        self.alive()?;
        device
            .sync_event(event, moment_after(self.options.deadline))
            .map_err(|e| self.device_error(e))
    }

    /// Whether an event has completed, without waiting.
    ///
    /// # Errors
    /// Device errors; [`TraceError::Released`].
    pub fn completed(&self, device: &dyn Device, event: EventId) -> Result<bool, TraceError> {
        self.alive()?;
        device.poll_event(event).map_err(|e| self.device_error(e))
    }

    pub(super) const fn transfer_queue(&self) -> Cq {
        if self.options.queues == 2 {
            Cq::IO
        } else {
            Cq::COMPUTE
        }
    }

    /// Moves freshly staged inputs into the trace's inputs, in order with the replays.
    pub(super) fn unstage(&mut self, device: &mut dyn Device) -> Result<(), TraceError> {
        let mut moved = false;
        for index in 0..self.tables.inputs.len() {
            let staging = self.tables.inputs[index].staging.as_ref();
            if staging.is_some_and(|staging| staging.fresh) {
                if !moved {
                    let step = ProtocolStep::StagingRecorded;
                    let opened = self.staging_free.open(&self.protocol, device, step);
                    opened.map_err(|e| self.device_error(e))?;
                    moved = true;
                }
                self.unstage_one(device, index)?;
            }
        }
        if moved {
            let closed = self.staging_free.close(&mut self.protocol, device);
            closed.map_err(|e| self.device_error(e))?;
        }
        Ok(())
    }

    /// Moves one input from its staging copy into the trace's input.
    pub(super) fn unstage_one(&mut self, device: &mut dyn Device, index: usize) -> Result<(), TraceError> {
        let input = &self.tables.inputs[index];
        if input
            .staging
            .as_ref()
            .is_some_and(|staging| staging.stage.is_some())
        {
            self.forbid_compiling(device);
        }
        let input = &mut self.tables.inputs[index];
        let Some(staging) = &mut input.staging else {
            return Ok(());
        };
        let (source, target) = (staging.tensor, input.tensor);
        match &mut staging.stage {
            None => {
                let copied = device.copy(Cq::COMPUTE, source.buffer, target.buffer);
                copied.map_err(|source| TraceError::Device {
                    runner: self.name.clone(),
                    tensor: Some(format!("input {}", input.name)),
                    source: Box::new(source),
                })?;
            }
            Some(stage) => {
                let mut pass = PassDevice::new(device, &self.tables.held);
                let staged = stage(&mut OpContext::new(&mut pass, Cq::COMPUTE), source, target);
                drop(pass);
                if let Err(source) = staged {
                    let work = format!("staging of input {}", input.name);
                    let error = TraceError::Work {
                        runner: self.name.clone(),
                        work: work.clone(),
                        source,
                    };
                    return Err(self.eager_error(&work, error));
                }
            }
        }
        staging.fresh = false;
        Ok(())
    }

    pub(super) fn upload_params(&mut self, device: &mut dyn Device) -> Result<(), TraceError> {
        for index in 0..self.tables.params.len() {
            let param = &self.tables.params[index];
            if !param.changed() {
                continue;
            }
            if param.slot.is_busy()
                && let Some(replayed) = self.replayed.event()
            {
                // The slot's last upload lies before the last replay on the same queue.
                self.wait(device, replayed)?;
            }
            if self.tables.params[index].slot.is_busy() {
                // Unless that replay was refused.
                self.drain(device)?;
            }
            let param = &mut self.tables.params[index];
            let bytes: &[u8] = bytemuck::cast_slice(&param.values);
            param.slot.bytes_mut()?[..bytes.len()].copy_from_slice(bytes);
            let written = device.write(Cq::COMPUTE, param.tensor.buffer, 0, &param.slot, bytes.len());
            written.map_err(|source| TraceError::Device {
                runner: self.name.clone(),
                tensor: Some(format!("parameter {}", param.name)),
                source: Box::new(source),
            })?;
            param.uploaded.copy_from_slice(&param.values);
        }
        Ok(())
    }

    /// Makes queue 0 wait for the reads of everything that a replay may overwrite.
    fn await_reads(&mut self, device: &mut dyn Device, index: usize, place: usize) -> Result<(), TraceError> {
        if self.transfer_queue() == Cq::COMPUTE {
            return Ok(());
        }
        let step = ProtocolStep::ReplayWaitsForRead;
        if self.read_done.is_open() {
            // A read whose event the device refused: which output it was does not matter.
            let waited = self.read_done.wait(&mut self.protocol, device, step, Cq::COMPUTE);
            waited.map_err(|e| self.device_error(e))?;
        }
        let captured = &self.variants[index].captured[place];
        let set = self.phases.next().output;
        let persistent = captured
            .pass
            .writes
            .iter()
            .filter_map(|&output| self.tables.outputs[output].sets[set].read);
        let later = self
            .variants
            .iter()
            .flat_map(|variant| &variant.captured)
            .filter(|other| other.serial >= captured.serial)
            .filter_map(|other| other.read);
        // Reads are in order: the last one stands for all.
        let last = persistent.chain(later).max_by_key(|read| read.number);
        match last {
            Some(read) if read.number > self.reads_awaited => {
                let waited = self.protocol.wait(device, step, Cq::COMPUTE, read.event);
                waited.map_err(|e| self.device_error(e))?;
                self.reads_awaited = read.number;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The variant and, among its traces, the one of the next phase.
    pub(super) fn next_trace(&self, variant: VariantId) -> Result<(usize, usize), TraceError> {
        self.trace_at(variant, self.phases.next())
    }

    /// The variant and the trace of an enqueued replay.
    pub(super) fn trace_of(&self, pending: Pending) -> Result<(usize, usize), TraceError> {
        self.trace_at(pending.variant, pending.phase)
    }

    fn trace_at(&self, variant: VariantId, phase: Phase) -> Result<(usize, usize), TraceError> {
        let index = variant.of(self)?;
        let place = self.phases.index(phase);
        match self.variants[index].captured.get(place) {
            Some(_) => Ok((index, place)),
            None => Err(self.not_captured(index)),
        }
    }

    /// How an output is called in errors.
    fn output_text(&self, variant: usize, output: &OutputInfo) -> String {
        format!(
            "output {} of variant {}",
            output.name, self.variants[variant].name
        )
    }

    pub(super) fn not_captured(&self, index: usize) -> TraceError {
        TraceError::NotCaptured {
            runner: self.name.clone(),
            variant: self.variants[index].name.clone(),
        }
    }

    /// Whether an output still holds what a replay wrote.
    fn still_there(
        &self,
        pending: Pending,
        index: usize,
        place: usize,
        output: &OutputInfo,
    ) -> Result<(), TraceError> {
        let own = &self.variants[index].captured[place];
        let intact = match output.source {
            OutputSource::Persistent(index) => {
                let set = &self.tables.outputs[index].sets[pending.phase.output];
                set.written == pending.number
            }
            OutputSource::Own => {
                let overwrites = |other: &Captured| other.serial < own.serial && other.last > pending.number;
                let mut traces = self.variants.iter().flat_map(|variant| &variant.captured);
                own.last == pending.number && !traces.any(overwrites)
            }
        };
        if intact {
            return Ok(());
        }
        Err(TraceError::Overtaken {
            runner: self.name.clone(),
            variant: self.variants[index].name.clone(),
            output: output.name.clone(),
        })
    }

    /// Whether every persistent buffer is where the traces expect it.
    fn check_addresses(&self, device: &dyn Device) -> Result<(), TraceError> {
        for held in &self.tables.held {
            if device.address(held.buffer).ok() != Some(held.address) {
                return Err(TraceError::Moved {
                    runner: self.name.clone(),
                    buffer: held.buffer,
                    expected: held.address,
                });
            }
        }
        Ok(())
    }
}
