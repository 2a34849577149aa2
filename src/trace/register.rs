//! Registration: all persistent tensors exist, with defined contents, before the first capture.

use super::runner::{TraceRunner, spec_text};
use super::tables::{Held, Input, Output, OutputSet, Param, Staging, State};
use super::variant::{EagerFn, StageFn, Variant, VariantFn};
use super::{InputId, ParamId, StateId, StateOptions, TraceError, VariantId};
use crate::device::{BufferClass, Device, HostSlot};
use crate::ops::DeviceTensor;
use crate::tensor::{DType, HostTensor, TensorSpec};

impl TraceRunner {
    /// Registers an input with the data that warm-up runs see (zeros if absent).
    ///
    /// # Errors
    /// [`TraceError::Duplicate`], [`TraceError::AfterCapture`], [`TraceError::WrongInput`], [`TraceError::Options`] for a
    /// device with fewer queues than the runner uses, device errors. A refused registration leaves nothing behind; so do
    /// all others.
    pub fn add_input(
        &mut self,
        device: &mut dyn Device,
        name: &str,
        spec: TensorSpec,
        init: Option<&HostTensor>,
    ) -> Result<InputId, TraceError> {
        self.register_input(device, name, [spec; 2], init, None)
    }

    /// Registers an input that is uploaded in another form than traces read it: `upload` is the spec of what the host
    /// writes (and of `init`), `stage` turns it into the input. With or without
    /// [`stage_inputs`](super::TraceOptions::stage_inputs), uploads go to a staging copy, and `stage` runs at the head of
    /// the next replay.
    ///
    /// # Errors
    /// As [`TraceRunner::add_input`].
    pub fn add_input_with(
        &mut self,
        device: &mut dyn Device,
        name: &str,
        spec: TensorSpec,
        upload: TensorSpec,
        init: Option<&HostTensor>,
        stage: StageFn,
    ) -> Result<InputId, TraceError> {
        self.register_input(device, name, [spec, upload], init, Some(stage))
    }

    fn register_input(
        &mut self,
        device: &mut dyn Device,
        name: &str,
        [spec, upload]: [TensorSpec; 2],
        init: Option<&HostTensor>,
        stage: Option<StageFn>,
    ) -> Result<InputId, TraceError> {
        self.may_register(name, self.tables.inputs.iter().any(|input| input.name == name))?;
        let zeros;
        let init = match init {
            Some(init) => init,
            None => {
                zeros = HostTensor::zeros(upload);
                &zeros
            }
        };
        self.check_spec(name, &upload, init.spec())?;
        let staged = stage.is_some() || self.options.stage_inputs;
        let input = self.or_give_back(device, ["input", name], |runner, device| {
            let slot = runner.slot_with(device, init.bytes())?;
            let tensor = runner.hold(device, &spec, BufferClass::Input)?;
            // What a function makes of the data is seen only after the first warm-up.
            let zeros;
            let first = match stage {
                None => &slot,
                Some(_) => {
                    zeros = runner.slot_with(device, HostTensor::zeros(spec).bytes())?;
                    &zeros
                }
            };
            runner.write_now(device, &tensor, &spec, first)?;
            let staging = match staged {
                true => {
                    let copy = runner.hold(device, &upload, BufferClass::Staging)?;
                    runner.write_now(device, &copy, &upload, &slot)?;
                    Some(Staging {
                        tensor: copy,
                        fresh: stage.is_some(),
                        stage,
                    })
                }
                false => None,
            };
            Ok(Input {
                name: name.into(),
                spec: upload,
                tensor,
                staging,
            })
        })?;
        self.tables.inputs.push(input);
        Ok(InputId::new(self.key, self.tables.inputs.len() - 1))
    }

    /// Registers a run-time parameter: one fp32 value of shape `[1]`, uploaded only when it changes.
    ///
    /// # Errors
    /// As [`TraceRunner::add_input`].
    pub fn add_param(
        &mut self,
        device: &mut dyn Device,
        name: &str,
        value: f32,
    ) -> Result<ParamId, TraceError> {
        self.add_param_with(device, name, &HostTensor::from_slice(&[1], &[value])?)
    }

    /// Registers a run-time parameter of any shape, fp32, with its first values.
    ///
    /// # Errors
    /// As [`TraceRunner::add_input`].
    pub fn add_param_with(
        &mut self,
        device: &mut dyn Device,
        name: &str,
        values: &HostTensor,
    ) -> Result<ParamId, TraceError> {
        self.may_register(name, self.tables.params.iter().any(|param| param.name == name))?;
        let spec = *values.spec();
        let expected = TensorSpec {
            dtype: DType::F32,
            ..spec
        };
        self.check_spec(name, &expected, &spec)?;
        let floats: Box<[f32]> = values.as_slice()?.into();
        let param = self.or_give_back(device, ["parameter", name], |runner, device| {
            let slot = runner.slot_with(device, values.bytes())?;
            let tensor = runner.hold(device, &spec, BufferClass::Param)?;
            runner.write_now(device, &tensor, &spec, &slot)?;
            Ok(Param {
                name: name.into(),
                spec,
                tensor,
                values: floats.clone(),
                uploaded: floats,
                slot,
            })
        })?;
        self.tables.params.push(param);
        Ok(ParamId::new(self.key, self.tables.params.len() - 1))
    }

    /// Registers a state: what one replay hands to the next. It starts as `init` (zeros if absent), whatever warm-up runs
    /// do to it.
    ///
    /// In place, a state is one buffer that is read and written. A ping-pong state has two, which change places after
    /// every replay of a variant that writes it: such a variant writes all ping-pong states. Where there is one, every
    /// variant is captured in both directions.
    ///
    /// # Errors
    /// As [`TraceRunner::add_input`].
    pub fn add_state(
        &mut self,
        device: &mut dyn Device,
        name: &str,
        spec: TensorSpec,
        init: Option<&HostTensor>,
        options: StateOptions,
    ) -> Result<StateId, TraceError> {
        self.may_register(name, self.tables.states.iter().any(|state| state.name == name))?;
        let zeros;
        let init = match init {
            Some(init) => init,
            None => {
                zeros = HostTensor::zeros(spec);
                &zeros
            }
        };
        self.check_spec(name, &spec, init.spec())?;
        let state = self.or_give_back(device, ["state", name], |runner, device| {
            let slot = runner.slot_with(device, init.bytes())?;
            let mut filled = |class| {
                let tensor = runner.hold(device, &spec, class)?;
                runner.write_now(device, &tensor, &spec, &slot)?;
                Ok::<_, TraceError>(tensor)
            };
            let first = filled(BufferClass::State)?;
            let second = match options.pingpong {
                true => filled(BufferClass::State)?,
                false => first,
            };
            let banks = (0..options.banks)
                .map(|_| filled(BufferClass::Bank).map(|tensor| tensor.buffer))
                .collect::<Result<_, _>>()?;
            Ok(State {
                name: name.into(),
                spec,
                options,
                tensors: [first, second],
                banks,
                init: slot,
            })
        })?;
        self.tables.states.push(state);
        if options.pingpong {
            self.phases.ping_pong();
        }
        Ok(StateId::new(self.key, self.tables.states.len() - 1))
    }

    /// Registers a persistent output: it exists before any capture, so no replay of another trace ever
    /// overwrites it, it keeps its address when all is captured again, and several variants may write it. Variants write
    /// it through [`output`](super::TraceContext::output) or [`write_output`](super::TraceContext::write_output).
    ///
    /// # Errors
    /// As [`TraceRunner::add_input`].
    pub fn add_output(
        &mut self,
        device: &mut dyn Device,
        name: &str,
        spec: TensorSpec,
    ) -> Result<(), TraceError> {
        self.may_register(name, self.tables.outputs.iter().any(|output| output.name == name))?;
        let output = self.or_give_back(device, ["output", name], |runner, device| {
            let zeros = runner.slot_with(device, HostTensor::zeros(spec).bytes())?;
            let sets = (0..runner.options.output_phases)
                .map(|_| {
                    let tensor = runner.hold(device, &spec, BufferClass::Output)?;
                    runner.write_now(device, &tensor, &spec, &zeros)?;
                    Ok(OutputSet {
                        tensor,
                        written: 0,
                        read: None,
                    })
                })
                .collect::<Result<_, TraceError>>()?;
            Ok(Output {
                name: name.into(),
                spec,
                sets,
            })
        })?;
        self.tables.outputs.push(output);
        Ok(())
    }

    /// Registers a variant. After a capture, all traces are released; the next [`TraceRunner::capture`]
    /// warms the new variant and captures all of them again, and all states start again.
    ///
    /// # Errors
    /// [`TraceError::Duplicate`], device errors.
    pub fn add_variant(
        &mut self,
        device: &mut dyn Device,
        name: &str,
        forward: VariantFn,
    ) -> Result<VariantId, TraceError> {
        self.alive()?;
        if self.variants.iter().any(|variant| variant.name == name) {
            return Err(self.duplicate(name));
        }
        self.release_traces(device)?;
        self.variants.push(Variant {
            name: name.into(),
            forward,
            warm: false,
            captured: Vec::new(),
            last: None,
        });
        Ok(VariantId::new(self.key, self.variants.len() - 1))
    }

    /// Registers eager device work that the model does between its replays. It runs once in the first warm-up, before
    /// any capture, so that its programs exist: what is compiled after a capture may be overwritten by a replay.
    ///
    /// # Errors
    /// [`TraceError::AfterWarmUp`], [`TraceError::Duplicate`].
    pub fn add_eager_warmup(&mut self, name: &str, work: EagerFn) -> Result<(), TraceError> {
        self.alive()?;
        if self.eager_done {
            return Err(TraceError::AfterWarmUp {
                runner: self.name.clone(),
                name: name.into(),
            });
        }
        if self.eager.iter().any(|(known, _)| known == name) {
            return Err(self.duplicate(name));
        }
        self.eager.push((name.into(), work));
        Ok(())
    }

    /// The id of a registered state.
    ///
    /// # Errors
    /// [`TraceError::Unknown`] naming the states that exist, [`TraceError::Released`].
    pub fn state(&self, name: &str) -> Result<StateId, TraceError> {
        self.alive()?;
        let states = &self.tables.states;
        match states.iter().position(|state| state.name == name) {
            Some(index) => Ok(StateId::new(self.key, index)),
            None => Err(TraceError::Unknown {
                runner: self.name.clone(),
                kind: "state",
                name: name.into(),
                known: states.iter().map(|state| state.name.clone()).collect(),
            }),
        }
    }

    fn may_register(&mut self, name: &str, taken: bool) -> Result<(), TraceError> {
        self.alive()?;
        if taken {
            return Err(self.duplicate(name));
        }
        if self.variants.iter().any(|variant| !variant.captured.is_empty()) {
            return Err(TraceError::AfterCapture {
                runner: self.name.clone(),
                name: name.into(),
            });
        }
        Ok(())
    }

    fn duplicate(&self, name: &str) -> TraceError {
        TraceError::Duplicate {
            runner: self.name.clone(),
            name: name.into(),
        }
    }

    pub(super) fn check_spec(
        &self,
        name: &str,
        expected: &TensorSpec,
        found: &TensorSpec,
    ) -> Result<(), TraceError> {
        if expected == found {
            return Ok(());
        }
        Err(TraceError::WrongInput {
            runner: self.name.clone(),
            name: name.into(),
            expected: spec_text(expected),
            found: found.to_string(),
        })
    }

    /// Runs a registration and frees its buffers if it fails. Variants that were warm without the new tensor are cold.
    fn or_give_back<T>(
        &mut self,
        device: &mut dyn Device,
        [kind, name]: [&str; 2],
        register: impl FnOnce(&mut Self, &mut dyn Device) -> Result<T, TraceError>,
    ) -> Result<T, TraceError> {
        self.check_queues(device)?;
        let keep = self.tables.held.len();
        let outcome = register(self, device).and_then(|entry| {
            // The slots that were just uploaded go out of use.
            self.drain(device)?;
            Ok(entry)
        });
        match outcome {
            Ok(_) => self.variants.iter_mut().for_each(|variant| variant.warm = false),
            Err(_) => self.give_back(device, keep),
        }
        outcome.map_err(|error| error.about(|| format!("{kind} {name}")))
    }

    /// Reserves a persistent tensor.
    fn hold(
        &mut self,
        device: &mut dyn Device,
        spec: &TensorSpec,
        class: BufferClass,
    ) -> Result<DeviceTensor, TraceError> {
        let buffer = device.alloc(spec, class).map_err(|e| self.device_error(e))?;
        let address = device.address(buffer);
        self.tables.held.push(Held {
            buffer,
            address: address.as_ref().copied().unwrap_or_default(),
            bytes: spec.bytes(),
            class,
        });
        address.map_err(|e| self.device_error(e))?;
        Ok(DeviceTensor::whole(buffer, spec))
    }

    /// Host memory for a transfer, with its contents.
    pub(super) fn slot_with(&self, device: &mut dyn Device, bytes: &[u8]) -> Result<HostSlot, TraceError> {
        let mut slot = device.host_slot(bytes.len()).map_err(|e| self.device_error(e))?;
        slot.bytes_mut()?[..bytes.len()].copy_from_slice(bytes);
        Ok(slot)
    }
}
