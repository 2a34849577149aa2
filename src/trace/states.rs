//! States between replays: reset, read, banks. All of it runs on queue 0, behind the replays that were enqueued
//! before and in front of those that come after.

use super::protocol::ProtocolStep;
use super::runner::TraceRunner;
use super::{BankIndex, StateId, TraceError};
use crate::device::{BufferId, Cq, Device, DeviceError, HostSlot};
use crate::ops::{DeviceTensor, OpContext};
use crate::tensor::{HostTensor, Layout, TensorSpec};

/// What a state is set to.
#[derive(Debug, Clone, Copy)]
pub enum ResetValue<'a> {
    /// What it was registered with.
    Init,
    /// Values from the host.
    Host(&'a HostTensor),
    /// Values on the device, written on queue 0 or known to be there. A dense whole is copied without a program; a window
    /// needs one, which must exist where there are traces.
    Device(&'a DeviceTensor),
}

impl TraceRunner {
    /// Sets what the next replay reads as this state. Phases stay as they are.
    ///
    /// # Errors
    /// [`TraceError::WrongInput`] for another shape or type, [`TraceError::CompilesAfterCapture`], device errors.
    pub fn reset_state(
        &mut self,
        device: &mut dyn Device,
        state: StateId,
        value: ResetValue<'_>,
    ) -> Result<(), TraceError> {
        let index = state.of(self)?;
        self.settle(device)?;
        let state = &self.tables.states[index];
        let target = state.read(self.phases.next());
        let about = |error: TraceError| error.about(|| format!("state {}", state.name));
        let set = match value {
            ResetValue::Init => self.write_now(device, &target, &state.spec, &state.init),
            ResetValue::Host(value) => {
                self.check_spec(&state.name, &state.spec, value.spec())?;
                let slot = self.slot_with(device, value.bytes());
                slot.and_then(|slot| self.write_now(device, &target, &state.spec, &slot))
            }
            ResetValue::Device(value) => {
                let found = TensorSpec {
                    shape: value.view.shape,
                    dtype: value.dtype,
                    layout: Layout::default(),
                };
                self.check_spec(&state.name, &state.spec, &found)?;
                self.forbid_compiling(device);
                let copied = copy_tensor(device, value, &target).map_err(|e| self.device_error(e));
                copied.map_err(|error| self.eager_error(&format!("the reset of state {}", state.name), error))
            }
        };
        set.map_err(about)
    }

    /// Sets every state to what it was registered with.
    ///
    /// # Errors
    /// Device errors.
    pub fn reset_states(&mut self, device: &mut dyn Device) -> Result<(), TraceError> {
        self.alive()?;
        (0..self.tables.states.len())
            .try_for_each(|index| self.reset_state(device, StateId::new(self.key, index), ResetValue::Init))
    }

    /// Waits for the replays so far and reads a state as the next replay would.
    ///
    /// # Errors
    /// Device errors.
    pub fn read_state(&mut self, device: &mut dyn Device, state: StateId) -> Result<HostTensor, TraceError> {
        let index = state.of(self)?;
        self.settle(device)?;
        let state = &self.tables.states[index];
        let (spec, buffer) = (state.spec, state.read(self.phases.next()).buffer);
        let bytes = spec.bytes();
        let slot = device.host_slot(bytes);
        let mut slot = slot.map_err(|e| self.state_error(index, e))?;
        let step = ProtocolStep::StateReadRecorded;
        let opened = self.replayed.open(&self.protocol, device, step);
        opened.map_err(|e| self.device_error(e))?;
        let read = device.read(Cq::COMPUTE, buffer, 0, &mut slot, bytes);
        read.map_err(|e| self.state_error(index, e))?;
        let read = self.replayed.close(&mut self.protocol, device);
        self.wait(device, read.map_err(|e| self.device_error(e))?)?;
        let mut tensor = HostTensor::zeros(spec);
        tensor.bytes_mut().copy_from_slice(&slot.bytes()?[..bytes]);
        Ok(tensor)
    }

    /// Where the next replay reads a state.
    ///
    /// # Errors
    /// [`TraceError::ForeignId`], [`TraceError::Released`].
    pub fn state_buffer(&self, state: StateId) -> Result<DeviceTensor, TraceError> {
        let index = state.of(self)?;
        Ok(self.tables.states[index].read(self.phases.next()))
    }

    /// Copies a state, as the replays so far leave it, into one of its banks.
    ///
    /// # Errors
    /// [`TraceError::NoBank`], device errors.
    pub fn save_state(
        &mut self,
        device: &mut dyn Device,
        state: StateId,
        bank: BankIndex,
    ) -> Result<(), TraceError> {
        let index = state.of(self)?;
        let (state, bank) = self.state_and_bank(device, index, bank)?;
        device
            .copy(Cq::COMPUTE, state, bank)
            .map_err(|e| self.state_error(index, e))
    }

    /// Copies one of its banks into a state, where the next replay reads it: whichever phase it was saved in. A bank that
    /// was never saved holds the first value.
    ///
    /// # Errors
    /// [`TraceError::NoBank`], device errors.
    pub fn load_state(
        &mut self,
        device: &mut dyn Device,
        state: StateId,
        bank: BankIndex,
    ) -> Result<(), TraceError> {
        let index = state.of(self)?;
        let (state, bank) = self.state_and_bank(device, index, bank)?;
        device
            .copy(Cq::COMPUTE, bank, state)
            .map_err(|e| self.state_error(index, e))
    }

    /// Undoes what warm-up runs wrote: every buffer of every state has its first value again.
    pub(super) fn settle(&mut self, device: &mut dyn Device) -> Result<(), TraceError> {
        if !self.states_dirty {
            return Ok(());
        }
        for state in &self.tables.states {
            for tensor in state.distinct() {
                self.write_now(device, tensor, &state.spec, &state.init)?;
            }
        }
        self.phases.restart_states();
        self.restarts += 1;
        self.states_dirty = false;
        Ok(())
    }

    /// The buffers of a state and of one of its banks.
    fn state_and_bank(
        &mut self,
        device: &mut dyn Device,
        index: usize,
        bank: BankIndex,
    ) -> Result<(BufferId, BufferId), TraceError> {
        self.settle(device)?;
        let state = &self.tables.states[index];
        match state.banks.get(bank.0) {
            Some(&buffer) => Ok((state.read(self.phases.next()).buffer, buffer)),
            None => Err(TraceError::NoBank {
                runner: self.name.clone(),
                state: state.name.clone(),
                bank,
                banks: state.banks.len(),
            }),
        }
    }

    fn state_error(&self, index: usize, source: DeviceError) -> TraceError {
        let state = &self.tables.states[index];
        self.device_error(source)
            .about(|| format!("state {}", state.name))
    }

    /// Writes a whole tensor from a host slot on queue 0.
    pub(super) fn write_now(
        &self,
        device: &mut dyn Device,
        target: &DeviceTensor,
        spec: &TensorSpec,
        slot: &HostSlot,
    ) -> Result<(), TraceError> {
        device
            .write(Cq::COMPUTE, target.buffer, 0, slot, spec.bytes())
            .map_err(|e| self.device_error(e))
    }
}

/// Copies a tensor into another of its shape and type, without a program where that is possible.
fn copy_tensor(
    device: &mut dyn Device,
    source: &DeviceTensor,
    target: &DeviceTensor,
) -> Result<(), DeviceError> {
    if source.view.is_contiguous() && source.view.offset == 0 {
        match device.copy(Cq::COMPUTE, source.buffer, target.buffer) {
            // The front of a larger buffer.
            Err(DeviceError::OutOfRange { .. }) => {}
            outcome => return outcome,
        }
    }
    OpContext::new(device, Cq::COMPUTE).copy(source, target)
}
