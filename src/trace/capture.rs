//! Warm-up and capture: a variant's function is run, recorded, and what it returns is checked.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Instant;

use super::error::{OutputProblem, missing_program};
use super::pass::PassDevice;
use super::runner::TraceRunner;
use super::tables::Tables;
use super::variant::{Captured, OutputSource, Pass, PassKind};
use super::{OutputInfo, Phase, Taps, TraceContext, TraceError, WorkError};
use crate::device::{Cq, Device, DeviceError, MissPolicy};
use crate::ops::{DeviceTensor, OpContext};
use crate::tensor::{Layout, TensorSpec};

impl TraceRunner {
    /// Runs every variant that is not warm yet eagerly in every phase, so that each program is compiled; before them, the
    /// first time, staging functions and eager warm-ups. What that writes to states is undone: they start again.
    /// Where several runners share a device, warm all of them before the first capture: what is allocated after a capture
    /// makes its replays unsafe.
    ///
    /// # Errors
    /// The first device or variant error; the other variants are warmed, and the runner stays usable.
    /// [`TraceError::Options`] for a device with fewer queues than the runner uses.
    pub fn warm_up(&mut self, device: &mut dyn Device) -> Result<(), TraceError> {
        self.alive()?;
        self.check_queues(device)?;
        if self.eager.is_empty() && self.variants.iter().all(|variant| variant.warm) {
            return Ok(());
        }
        let start = Instant::now();
        // Programs must not be younger than a trace.
        let mut outcome = self.release_traces(device);
        device.set_misses(MissPolicy::Allow);
        self.states_dirty = true;
        for set in self.tables.outputs.iter_mut().flat_map(|output| &mut output.sets) {
            set.written = 0;
        }
        outcome = outcome.and_then(|()| self.warm_all(device));
        // Undone in any case: some variants may have run.
        outcome = outcome.and(self.settle(device));
        self.timings.warm_up += start.elapsed();
        outcome
    }

    fn warm_all(&mut self, device: &mut dyn Device) -> Result<(), TraceError> {
        self.drain(device)?;
        // Runs every staging function, for their copies are fresh when they are registered.
        self.unstage(device)?;
        while let Some((name, work)) = self.eager.first_mut() {
            let mut ops = OpContext::new(&mut *device, Cq::COMPUTE);
            work(&mut ops).map_err(|source| TraceError::Work {
                runner: self.name.clone(),
                work: format!("eager warm-up {name}"),
                source,
            })?;
            drop(self.eager.remove(0));
        }
        self.eager_done = true;
        let mut outcome = Ok(());
        for index in 0..self.variants.len() {
            if !self.variants[index].warm {
                outcome = outcome.and(self.warm_variant(device, index));
            }
        }
        outcome
    }

    fn warm_variant(&mut self, device: &mut dyn Device, index: usize) -> Result<(), TraceError> {
        for _ in 0..self.options.warmup_runs {
            for phase in self.phases.all() {
                let pass = self.forward(device, index, phase, PassKind::WarmUp);
                self.drain(device)?;
                self.free_owned(device, &pass?.outputs)?;
            }
        }
        self.variants[index].warm = true;
        Ok(())
    }

    /// Warms what is cold and captures every variant in every phase, strictly: a program that would have to be compiled
    /// is an error naming the operation. Idempotent. Afterwards compiling stays forbidden on this device.
    ///
    /// # Errors
    /// The first device or variant error. A failed capture is given up, its buffers freed; the device stays usable, and
    /// every other variant is captured and can run.
    pub fn capture(&mut self, device: &mut dyn Device) -> Result<(), TraceError> {
        self.alive()?;
        self.check_queues(device)?;
        let mut outcome = self.warm_up(device);
        let start = Instant::now();
        device.set_misses(MissPolicy::Forbid);
        for index in 0..self.variants.len() {
            let variant = &self.variants[index];
            if variant.warm && variant.captured.is_empty() {
                outcome = outcome.and(self.capture_variant(device, index));
            }
        }
        self.timings.capture += start.elapsed();
        outcome
    }

    /// Captures a variant in every phase, or not at all.
    fn capture_variant(&mut self, device: &mut dyn Device, index: usize) -> Result<(), TraceError> {
        for phase in self.phases.all() {
            let captured = self.capture_one(device, index, phase).and_then(|captured| {
                self.variants[index].captured.push(captured);
                self.check_phases(index)
            });
            if let Err(error) = captured {
                // The first error is the better report.
                let _ = self.release_variant(device, index);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Whether the trace captured last does what the first one does.
    fn check_phases(&self, index: usize) -> Result<(), TraceError> {
        let variant = &self.variants[index];
        let [Some(first), Some(last)] = [variant.captured.first(), variant.captured.last()] else {
            return Ok(());
        };
        let form = |output: &OutputInfo| (output.name.clone(), output.spec, output.source);
        let outputs = first.pass.outputs.iter().map(form);
        if first.pass.stepping == last.pass.stepping && outputs.eq(last.pass.outputs.iter().map(form)) {
            return Ok(());
        }
        Err(TraceError::PhasesDiffer {
            runner: self.name.clone(),
            variant: variant.name.clone(),
        })
    }

    fn capture_one(
        &mut self,
        device: &mut dyn Device,
        index: usize,
        phase: Phase,
    ) -> Result<Captured, TraceError> {
        let programs = device.program_count();
        let bytes = device.memory().trace_bytes;
        let begun = device.begin_capture(Cq::COMPUTE);
        begun.map_err(|source| self.capture_error(index, source))?;
        // The capture must end whatever the variant's function does.
        let forward = catch_unwind(AssertUnwindSafe(|| {
            self.forward(device, index, phase, PassKind::Capture)
        }));
        let pass = match forward {
            Ok(Ok(pass)) => pass,
            Ok(Err(error)) => {
                let aborted = device.abort_capture();
                aborted.map_err(|source| self.capture_error(index, source))?;
                return Err(error);
            }
            Err(panic) => {
                // The panic is the better report than a failing abort behind it.
                let _ = device.abort_capture();
                resume_unwind(panic);
            }
        };
        let trace = match device.end_capture() {
            Ok(trace) => trace,
            Err(source) => {
                // Given up already, unless the device could not even do that.
                let _ = device.abort_capture();
                return Err(self.capture_error(index, source));
            }
        };
        let captured = Captured {
            trace,
            serial: self.captures,
            bytes: device.memory().trace_bytes.saturating_sub(bytes),
            pass,
            last: 0,
            read: None,
        };
        self.captures += 1;
        let compiled = device.program_count() - programs;
        let mut outcome = match compiled {
            0 => Ok(()),
            _ => Err(TraceError::CompiledInCapture {
                runner: self.name.clone(),
                variant: self.variants[index].name.clone(),
                compiled,
            }),
        };
        for output in captured.pass.outputs.iter().filter(|output| output.owned()) {
            // `still_there` knows which replays may overwrite it.
            let acknowledged = device.acknowledge(output.buffer);
            outcome = outcome.and(acknowledged.map_err(|e| self.device_error(e)));
        }
        if let Err(error) = outcome {
            // The first error is the better report.
            let _ = device.release_trace(captured.trace);
            let _ = self.free_owned(device, &captured.pass.outputs);
            return Err(error);
        }
        Ok(captured)
    }

    fn capture_error(&self, index: usize, source: DeviceError) -> TraceError {
        TraceError::Capture {
            runner: self.name.clone(),
            variant: self.variants[index].name.clone(),
            source: Box::new(source),
        }
    }

    /// Runs a variant's function eagerly or while capturing, and checks what it returns.
    pub(super) fn forward(
        &mut self,
        device: &mut dyn Device,
        index: usize,
        phase: Phase,
        kind: PassKind,
    ) -> Result<Pass, TraceError> {
        let variant = &mut self.variants[index];
        let names = [&*self.name, &*variant.name];
        let mut device = PassDevice::new(device, &self.tables.held);
        let taps = match kind {
            PassKind::WarmUp => None,
            PassKind::Capture | PassKind::Eager => {
                self.taps.as_mut().map(|taps| &mut **taps as &mut dyn Taps)
            }
        };
        let capturing = kind == PassKind::Capture;
        let mut context = TraceContext::new(&mut device, &self.tables, names, phase, capturing, taps);
        let outcome = (variant.forward)(&mut context);
        let touched = context.finish();
        let tensors = outcome.map_err(|source| forward_error(names, source))?;
        let stepping = touched.steps(&self.tables.states);
        let stepping = stepping.map_err(|[written, missing]| TraceError::StatesNotWritten {
            runner: names[0].into(),
            variant: names[1].into(),
            written,
            missing,
        })?;
        let outputs = check_outputs(&self.tables, &device, phase, &tensors);
        let outputs = outputs.map_err(|problem| match problem {
            None => TraceError::NoOutput {
                runner: names[0].into(),
                variant: names[1].into(),
            },
            Some((output, problem)) => TraceError::Output {
                runner: names[0].into(),
                variant: names[1].into(),
                output,
                problem,
            },
        })?;
        let mut writes = touched.outputs;
        for output in &outputs {
            match output.source {
                OutputSource::Own => device.keep(output.buffer),
                OutputSource::Persistent(index) if writes.contains(&index) => {}
                OutputSource::Persistent(index) => writes.push(index),
            }
        }
        Ok(Pass {
            outputs,
            writes,
            stepping,
        })
    }

    pub(super) fn free_owned(
        &self,
        device: &mut dyn Device,
        outputs: &[OutputInfo],
    ) -> Result<(), TraceError> {
        let mut outcome = Ok(());
        for output in outputs.iter().filter(|output| output.owned()) {
            outcome = outcome.and(device.free(output.buffer).map_err(|e| self.device_error(e)));
        }
        outcome
    }

    /// An error of eager work; one about a missing program says what the work was.
    pub(super) fn eager_error(&self, work: &str, error: TraceError) -> TraceError {
        match missing_program(&error) {
            None => error,
            Some(op) => TraceError::CompilesAfterCapture {
                runner: self.name.clone(),
                work: work.into(),
                op: op.into(),
            },
        }
    }
}

/// An error of a variant's function. What the context answered names runner and variant already.
fn forward_error([runner, variant]: [&str; 2], source: WorkError) -> TraceError {
    let source = match source.downcast::<TraceError>() {
        Ok(error) if error.is_of([runner, variant]) => return *error,
        Ok(error) => error,
        Err(source) => source,
    };
    TraceError::Forward {
        runner: runner.into(),
        variant: variant.into(),
        source,
    }
}

/// What a variant returned, as outputs; `None` as the error stands for nothing at all.
fn check_outputs(
    tables: &Tables,
    device: &PassDevice<'_>,
    phase: Phase,
    tensors: &[(String, DeviceTensor)],
) -> Result<Vec<OutputInfo>, Option<(String, OutputProblem)>> {
    if tensors.is_empty() {
        return Err(None);
    }
    let mut outputs: Vec<OutputInfo> = Vec::with_capacity(tensors.len());
    for (name, tensor) in tensors {
        let problem = |problem| Some((name.clone(), problem));
        let spec = TensorSpec {
            shape: tensor.view.shape,
            dtype: tensor.dtype,
            layout: Layout::default(),
        };
        let (source, bytes) = whose(tables, device, phase, tensor).map_err(problem)?;
        if !tensor.view.is_contiguous() || tensor.view.offset != 0 {
            return Err(problem(OutputProblem::Strided));
        }
        if spec.bytes() > bytes {
            let needed = spec.bytes();
            return Err(problem(OutputProblem::BeyondBuffer { needed, bytes }));
        }
        let repeats = |known: &OutputInfo| known.name == *name || known.buffer == tensor.buffer;
        if outputs.iter().any(repeats) {
            return Err(problem(OutputProblem::Repeated));
        }
        outputs.push(OutputInfo {
            name: name.clone(),
            spec,
            buffer: tensor.buffer,
            source,
        });
    }
    Ok(outputs)
}

/// Whose buffer a returned tensor lies in, and how many bytes that has.
fn whose(
    tables: &Tables,
    device: &PassDevice<'_>,
    phase: Phase,
    tensor: &DeviceTensor,
) -> Result<(OutputSource, usize), OutputProblem> {
    let buffer = tensor.buffer;
    if let Some(bytes) = device.bytes_of(buffer) {
        return Ok((OutputSource::Own, bytes));
    }
    for (index, output) in tables.outputs.iter().enumerate() {
        if let Some(set) = output.sets.iter().position(|set| set.tensor.buffer == buffer) {
            return match set == phase.output {
                true => Ok((OutputSource::Persistent(index), output.spec.bytes())),
                false => Err(OutputProblem::OtherPhase(format!("output {}", output.name))),
            };
        }
    }
    match tables.describe(buffer) {
        Some(kept) => Err(OutputProblem::Kept(kept)),
        None if device.address(buffer).is_err() => Err(OutputProblem::Freed(buffer)),
        None => Err(OutputProblem::Foreign(buffer)),
    }
}
