//! Setting up a trace: registration, warm-up, capture, release.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use super::tables::{
    Captured, Input, InputId, Output, OutputInfo, Param, ParamId, Tables, TraceOptions, Variant, VariantFn,
    VariantId,
};
use super::{TraceContext, TraceError};
use crate::device::{BufferClass, BufferId, Cq, Device, DeviceError, EventId, MissPolicy};
use crate::ops::{DeviceTensor, OpContext};
use crate::tensor::{DType, HostTensor, TensorSpec};

/// Warm-up, capture and replay of one model's traces. See the [module](super).
#[derive(Debug)]
pub struct TraceRunner {
    pub(super) name: String,
    pub(super) options: TraceOptions,
    pub(super) tables: Tables,
    pub(super) variants: Vec<Variant>,
    released: bool,
    /// Phase of the next replay.
    pub(super) next_phase: usize,
    /// Uploads up to here are on the device.
    pub(super) uploaded: Option<EventId>,
    /// The staging copies were consumed.
    pub(super) staging_free: Option<EventId>,
    /// The last replay is done.
    pub(super) replayed: Option<EventId>,
    /// Last replay of each phase, of whatever variant: it wrote the persistent outputs.
    pub(super) written: [Option<EventId>; 2],
    /// The outputs of each phase were read.
    pub(super) read_done: [Option<EventId>; 2],
    warmup_time: Duration,
    capture_time: Duration,
}

impl TraceRunner {
    /// A runner without tensors. `name` appears in errors and reports.
    ///
    /// # Errors
    /// [`TraceError::Options`].
    pub fn new(name: &str, options: TraceOptions) -> Result<Self, TraceError> {
        let reason = match &options {
            o if !(1..=2).contains(&o.queues) => Some(format!("queues must be 1 or 2, not {}", o.queues)),
            o if o.stage_inputs && o.queues < 2 => Some("staged inputs need two command queues".into()),
            o if !(1..=2).contains(&o.output_phases) => {
                Some(format!("output phases must be 1 or 2, not {}", o.output_phases))
            }
            o if o.warmup_runs == 0 => Some("at least one warm-up run is needed before a capture".into()),
            _ => None,
        };
        if let Some(reason) = reason {
            return Err(TraceError::Options {
                runner: name.into(),
                reason,
            });
        }
        Ok(Self {
            name: name.into(),
            options,
            tables: Tables::default(),
            variants: Vec::new(),
            released: false,
            next_phase: 0,
            uploaded: None,
            staging_free: None,
            replayed: None,
            written: [None; 2],
            read_done: [None; 2],
            warmup_time: Duration::ZERO,
            capture_time: Duration::ZERO,
        })
    }

    /// Registers an input with the data that warm-up runs see (zeros if absent).
    ///
    /// # Errors
    /// [`TraceError::Duplicate`], [`TraceError::AfterCapture`], [`TraceError::WrongInput`], device errors.
    pub fn add_input(
        &mut self,
        device: &mut dyn Device,
        name: &str,
        spec: TensorSpec,
        init: Option<&HostTensor>,
    ) -> Result<InputId, TraceError> {
        self.may_register(name, self.tables.inputs.iter().any(|input| input.name == name))?;
        if let Some(init) = init
            && *init.spec() != spec
        {
            return Err(TraceError::WrongInput {
                runner: self.name.clone(),
                name: name.into(),
                expected: spec_text(&spec),
                found: init.spec().to_string(),
            });
        }
        let tensor = self.alloc(device, &spec, BufferClass::Input)?;
        let staging = match self.options.stage_inputs {
            true => Some(
                device
                    .alloc(&spec, BufferClass::Staging)
                    .map_err(|e| self.device_error(e))?,
            ),
            false => None,
        };
        let zeros;
        let init = match init {
            Some(init) => init,
            None => {
                zeros = HostTensor::zeros(spec);
                &zeros
            }
        };
        self.fill(device, tensor.buffer, init.bytes())?;
        self.tables.inputs.push(Input {
            name: name.into(),
            spec,
            tensor,
            staging,
            staged: false,
        });
        Ok(InputId(self.tables.inputs.len() - 1))
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
        self.may_register(name, self.tables.params.iter().any(|param| param.name == name))?;
        let spec = TensorSpec::new(&[1], DType::F32)?;
        let tensor = self.alloc(device, &spec, BufferClass::Param)?;
        self.fill(device, tensor.buffer, &value.to_ne_bytes())?;
        let slot = device.host_slot(4).map_err(|e| self.device_error(e))?;
        self.tables.params.push(Param {
            name: name.into(),
            tensor,
            value,
            uploaded: Some(value),
            slot,
        });
        Ok(ParamId(self.tables.params.len() - 1))
    }

    /// Registers a persistent output: it exists before any capture, so no replay of another trace ever
    /// overwrites it. Variants write it through [`TraceContext::output`].
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
        let mut tensors = Vec::with_capacity(self.options.output_phases);
        for _ in 0..self.options.output_phases {
            let tensor = self.alloc(device, &spec, BufferClass::Output)?;
            self.fill(device, tensor.buffer, HostTensor::zeros(spec).bytes())?;
            tensors.push(tensor);
        }
        self.tables.outputs.push(Output {
            name: name.into(),
            tensors,
        });
        Ok(())
    }

    /// Registers a variant. After a capture, all traces are released; the next [`TraceRunner::capture`]
    /// warms the new variant and captures all of them again.
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
            return Err(TraceError::Duplicate {
                runner: self.name.clone(),
                name: name.into(),
            });
        }
        self.release_traces(device)?;
        self.variants.push(Variant {
            name: name.into(),
            forward,
            warm: false,
            captured: Vec::new(),
            last: None,
            written: [None; 2],
        });
        Ok(VariantId(self.variants.len() - 1))
    }

    /// Runs every variant that is not warm yet eagerly, so that each program is compiled. Where several
    /// runners share a device, warm all of them before the first capture: what is allocated after a capture
    /// makes its replays unsafe.
    ///
    /// # Errors
    /// Device and variant errors; the runner stays usable.
    pub fn warm_up(&mut self, device: &mut dyn Device) -> Result<(), TraceError> {
        self.alive()?;
        let start = Instant::now();
        device.set_misses(MissPolicy::Allow);
        for index in 0..self.variants.len() {
            if self.variants[index].warm {
                continue;
            }
            for _ in 0..self.options.warmup_runs {
                for phase in 0..self.options.output_phases {
                    let outputs = self.forward(device, index, phase, false)?;
                    self.drain(device)?;
                    self.free_owned(device, &outputs)?;
                }
            }
            self.variants[index].warm = true;
        }
        self.warmup_time += start.elapsed();
        Ok(())
    }

    /// Warms what is cold and captures every variant, strictly: a program that would have to be compiled is
    /// an error naming the operation. Idempotent. Afterwards compiling stays forbidden on this device.
    ///
    /// # Errors
    /// Device and variant errors. A failed capture is given up, its buffers freed; the device stays usable.
    pub fn capture(&mut self, device: &mut dyn Device) -> Result<(), TraceError> {
        self.warm_up(device)?;
        let start = Instant::now();
        device.set_misses(MissPolicy::Forbid);
        for index in 0..self.variants.len() {
            for phase in self.variants[index].captured.len()..self.options.output_phases {
                let captured = self.capture_one(device, index, phase)?;
                self.variants[index].captured.push(captured);
            }
        }
        self.capture_time += start.elapsed();
        Ok(())
    }

    /// Whether every variant has its traces.
    #[must_use]
    pub fn captured(&self) -> bool {
        !self.variants.is_empty()
            && self
                .variants
                .iter()
                .all(|variant| variant.captured.len() == self.options.output_phases)
    }

    /// The outputs of a captured variant.
    ///
    /// # Errors
    /// [`TraceError::NotCaptured`].
    pub fn outputs(&self, variant: VariantId) -> Result<&[OutputInfo], TraceError> {
        match self.variants[variant.0].captured.first() {
            Some(captured) => Ok(&captured.outputs),
            None => Err(TraceError::NotCaptured {
                runner: self.name.clone(),
            }),
        }
    }

    /// What the runner holds, for reports.
    #[must_use]
    pub fn describe(&self) -> serde_json::Value {
        serde_json::json!({
            "name": self.name,
            "queues": self.options.queues,
            "stage_inputs": self.options.stage_inputs,
            "output_phases": self.options.output_phases,
            "inputs": self.tables.inputs.iter()
                .map(|input| (input.name.clone(), input.spec.to_string().into()))
                .collect::<serde_json::Map<_, _>>(),
            "params": self.tables.params.iter()
                .map(|param| (param.name.clone(), param.value.into()))
                .collect::<serde_json::Map<_, _>>(),
            "variants": self.variants.iter().map(|variant| serde_json::json!({
                "name": variant.name,
                "captured": variant.captured.len(),
                "outputs": variant.captured.first().map_or(&[][..], |c| &c.outputs).iter()
                    .map(|output| (output.name.clone(), output.spec.to_string().into()))
                    .collect::<serde_json::Map<_, _>>(),
            })).collect::<Vec<_>>(),
            "timings_ms": {
                "warm_up": self.warmup_time.as_secs_f64() * 1e3,
                "capture": self.capture_time.as_secs_f64() * 1e3,
            },
        })
    }

    /// Releases traces, then persistent tensors. Idempotent.
    ///
    /// # Errors
    /// The first device error; everything is tried.
    pub fn release(&mut self, device: &mut dyn Device) -> Result<(), TraceError> {
        if self.released {
            return Ok(());
        }
        self.released = true;
        let mut outcome = self.release_traces(device);
        let tables = std::mem::take(&mut self.tables);
        let buffers = (tables
            .inputs
            .iter()
            .flat_map(|input| [Some(input.tensor.buffer), input.staging]))
        .chain(tables.params.iter().map(|param| Some(param.tensor.buffer)))
        .chain(
            tables
                .outputs
                .iter()
                .flat_map(|output| output.tensors.iter().map(|t| Some(t.buffer))),
        );
        for buffer in buffers.flatten() {
            outcome = outcome.and(device.free(buffer).map_err(|e| self.device_error(e)));
        }
        outcome
    }

    /// Runs a variant's function eagerly or while capturing, and checks what it returns.
    pub(super) fn forward(
        &mut self,
        device: &mut dyn Device,
        index: usize,
        phase: usize,
        capturing: bool,
    ) -> Result<Vec<OutputInfo>, TraceError> {
        let variant = &mut self.variants[index];
        let mut context = TraceContext {
            ops: OpContext::new(device, Cq::COMPUTE),
            tables: &self.tables,
            runner: &self.name,
            phase,
            capturing,
        };
        let tensors = (variant.forward)(&mut context).map_err(|source| TraceError::Forward {
            runner: self.name.clone(),
            variant: variant.name.clone(),
            source,
        })?;
        let outputs: Vec<OutputInfo> = tensors
            .iter()
            .map(|(name, tensor)| OutputInfo {
                name: name.clone(),
                spec: TensorSpec {
                    shape: tensor.view.shape,
                    dtype: tensor.dtype,
                    layout: Default::default(),
                },
                buffer: tensor.buffer,
                owned: !self.is_persistent(tensor.buffer),
            })
            .collect();
        let problem = if outputs.is_empty() {
            Some(TraceError::NoOutput {
                runner: self.name.clone(),
                variant: self.variants[index].name.clone(),
            })
        } else {
            tensors
                .iter()
                .find(|(_, t)| !t.view.is_contiguous() || t.view.offset != 0)
                .map(|(name, _)| TraceError::StridedOutput {
                    runner: self.name.clone(),
                    variant: self.variants[index].name.clone(),
                    output: name.clone(),
                })
        };
        match problem {
            None => Ok(outputs),
            Some(problem) => {
                self.free_owned(device, &outputs)?;
                Err(problem)
            }
        }
    }

    pub(super) fn free_owned(
        &self,
        device: &mut dyn Device,
        outputs: &[OutputInfo],
    ) -> Result<(), TraceError> {
        for output in outputs.iter().filter(|output| output.owned) {
            device.free(output.buffer).map_err(|e| self.device_error(e))?;
        }
        Ok(())
    }

    pub(super) fn drain(&self, device: &mut dyn Device) -> Result<(), TraceError> {
        device
            .drain(self.options.deadline)
            .map_err(|e| self.device_error(e))
    }

    pub(super) fn device_error(&self, source: DeviceError) -> TraceError {
        TraceError::Device {
            runner: self.name.clone(),
            source: Box::new(source),
        }
    }

    pub(super) fn alive(&self) -> Result<(), TraceError> {
        if self.released {
            Err(TraceError::Released {
                runner: self.name.clone(),
            })
        } else {
            Ok(())
        }
    }

    fn capture_one(
        &mut self,
        device: &mut dyn Device,
        index: usize,
        phase: usize,
    ) -> Result<Captured, TraceError> {
        let programs = device.program_count();
        device
            .begin_capture(Cq::COMPUTE)
            .map_err(|e| self.device_error(e))?;
        // The capture must end whatever the variant's function does.
        let forward = catch_unwind(AssertUnwindSafe(|| self.forward(device, index, phase, true)));
        let outputs = match forward {
            Ok(Ok(outputs)) => outputs,
            Ok(Err(error)) => {
                device.abort_capture().map_err(|e| self.device_error(e))?;
                return Err(error);
            }
            Err(panic) => {
                // The panic is the better report than a failing abort behind it.
                let _ = device.abort_capture();
                resume_unwind(panic);
            }
        };
        let trace = device.end_capture().map_err(|e| self.device_error(e))?;
        let compiled = device.program_count() - programs;
        if compiled > 0 {
            device.release_trace(trace).map_err(|e| self.device_error(e))?;
            self.free_owned(device, &outputs)?;
            let variant = self.variants[index].name.clone();
            return Err(TraceError::CompiledInCapture {
                runner: self.name.clone(),
                variant,
                compiled,
            });
        }
        for output in outputs.iter().filter(|output| output.owned) {
            // Documented: read them before another variant replays.
            device
                .acknowledge(output.buffer)
                .map_err(|e| self.device_error(e))?;
        }
        Ok(Captured { trace, outputs })
    }

    fn release_traces(&mut self, device: &mut dyn Device) -> Result<(), TraceError> {
        let mut outcome = Ok(());
        for index in 0..self.variants.len() {
            self.variants[index].last = None;
            self.variants[index].written = [None; 2];
            for captured in std::mem::take(&mut self.variants[index].captured) {
                let released = device
                    .release_trace(captured.trace)
                    .map_err(|e| self.device_error(e));
                outcome = outcome
                    .and(released)
                    .and(self.free_owned(device, &captured.outputs));
            }
        }
        outcome
    }

    fn is_persistent(&self, buffer: BufferId) -> bool {
        self.tables
            .outputs
            .iter()
            .any(|output| output.tensors.iter().any(|t| t.buffer == buffer))
            || self
                .tables
                .inputs
                .iter()
                .any(|input| input.tensor.buffer == buffer)
            || self
                .tables
                .params
                .iter()
                .any(|param| param.tensor.buffer == buffer)
    }

    fn may_register(&self, name: &str, taken: bool) -> Result<(), TraceError> {
        self.alive()?;
        if taken {
            return Err(TraceError::Duplicate {
                runner: self.name.clone(),
                name: name.into(),
            });
        }
        if self.variants.iter().any(|variant| !variant.captured.is_empty()) {
            return Err(TraceError::AfterCapture {
                runner: self.name.clone(),
                name: name.into(),
            });
        }
        Ok(())
    }

    fn alloc(
        &self,
        device: &mut dyn Device,
        spec: &TensorSpec,
        class: BufferClass,
    ) -> Result<DeviceTensor, TraceError> {
        let buffer = device.alloc(spec, class).map_err(|e| self.device_error(e))?;
        Ok(DeviceTensor::whole(buffer, spec))
    }

    fn fill(&self, device: &mut dyn Device, buffer: BufferId, bytes: &[u8]) -> Result<(), TraceError> {
        let mut slot = device.host_slot(bytes.len()).map_err(|e| self.device_error(e))?;
        slot.bytes_mut()?.copy_from_slice(bytes);
        device
            .write(Cq::COMPUTE, buffer, 0, &slot, bytes.len())
            .map_err(|e| self.device_error(e))?;
        self.drain(device)
    }
}

/// A tensor's type, shape and size for error texts.
pub(super) fn spec_text(spec: &TensorSpec) -> String {
    format!("{spec} ({} bytes)", spec.bytes())
}
