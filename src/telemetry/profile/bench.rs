//! A captured variant, measured.

use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::{BenchStage, CpuSampler, CpuSensors, CpuSummary, OpsProfile, StageBench, StageRow, table};
use crate::device::cpu::MachinePeak;
use crate::device::{Device, HostSlot};
use crate::tensor::HostTensor;
use crate::trace::{InputId, TraceError, TraceRunner, VariantId};

/// What the host does with the outputs of a frame, in the order of the variant's outputs.
pub type PostFn<'a> = &'a mut dyn FnMut(&[HostSlot]);

/// How much is measured.
#[derive(Debug, Clone, PartialEq)]
pub struct ProfileOptions {
    /// Frames that are measured, at least 1.
    pub frames: usize,
    /// Frames before them that are not.
    pub warmup: usize,
    /// Replays in a row for the back-to-back time, at most `frames`; all frames are measured in such rows once more.
    pub row: usize,
    /// Gaps between launches that are told.
    pub top_gaps: usize,
    /// How often the processor is looked at.
    pub cpu_interval: Duration,
}

impl Default for ProfileOptions {
    /// 100 frames after 10, rows of 10, 10 gaps, the processor every 50 ms.
    fn default() -> Self {
        Self {
            frames: 100,
            warmup: 10,
            row: 10,
            top_gaps: 10,
            cpu_interval: Duration::from_millis(50),
        }
    }
}

/// Where the time of a model goes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ModelProfile {
    /// Name of the model.
    pub model: String,
    /// What it ran on.
    pub device: String,
    /// Type of weights and intermediates on the device.
    pub storage: String,
    /// The stages of a frame.
    pub stages: Vec<StageRow>,
    /// The launches of its trace.
    pub ops: OpsProfile,
    /// What the processor did meanwhile.
    pub cpu: CpuSummary,
}

impl ModelProfile {
    /// Names the launches, in their order; other names than there are launches are left out.
    #[must_use]
    pub fn named(mut self, names: &[String]) -> Self {
        if names.len() == self.ops.launches.len() {
            for (row, name) in self.ops.launches.iter_mut().zip(names) {
                row.name = Some(name.clone());
            }
        }
        self
    }

    /// The profile as tables, with the `top` longest launches.
    #[must_use]
    pub fn table(&self, top: usize) -> String {
        table::render(self, top)
    }
}

/// Measures the stages of a captured variant with these inputs: frame after frame, each stage waited for before the next
/// one begins, then rows of replays that are not.
///
/// # Errors
/// Those of [`TraceRunner::upload`], [`TraceRunner::replay`] and [`TraceRunner::read`].
pub fn bench_trace_runner(
    runner: &mut TraceRunner,
    device: &mut dyn Device,
    variant: VariantId,
    inputs: &[(InputId, &HostTensor)],
    mut post: Option<PostFn<'_>>,
    options: &ProfileOptions,
) -> Result<StageBench, TraceError> {
    let mut slots = Vec::with_capacity(inputs.len());
    for (id, tensor) in inputs {
        slots.push((*id, HostSlot::new(tensor.bytes().len())));
    }
    let outputs = runner.outputs(variant)?;
    let mut results: Vec<HostSlot> = outputs
        .iter()
        .map(|output| HostSlot::new(output.spec.bytes()))
        .collect();
    let mut bench = StageBench::default();
    for frame in 0..options.warmup + options.frames.max(1) {
        let mut times = Vec::with_capacity(BenchStage::ALL.len());
        let begin = Instant::now();
        let mut last = begin;
        let mut done = |stage| {
            let now = Instant::now();
            times.push((stage, now - last));
            last = now;
        };
        for ((_, slot), (_, tensor)) in slots.iter_mut().zip(inputs) {
            slot.bytes_mut()?.copy_from_slice(tensor.bytes());
        }
        done(BenchStage::HostIn);
        let uploads: Vec<(InputId, &HostSlot)> = slots.iter().map(|(id, slot)| (*id, slot)).collect();
        let uploaded = runner.upload(device, &uploads)?;
        runner.wait(device, uploaded)?;
        done(BenchStage::H2d);
        let pending = runner.replay(device, variant)?;
        runner.wait(device, pending.done)?;
        done(BenchStage::Trace);
        let mut read = pending.done;
        for (number, slot) in results.iter_mut().enumerate() {
            read = runner.read(device, pending, number, slot)?;
        }
        runner.wait(device, read)?;
        done(BenchStage::D2h);
        if let Some(post) = &mut post {
            post(&results);
            done(BenchStage::Post);
        }
        let whole = begin.elapsed();
        if frame >= options.warmup {
            times.into_iter().for_each(|(stage, time)| bench.add(stage, time));
            bench.add(BenchStage::EndToEnd, whole);
        }
    }
    let frames = options.frames.max(1);
    let row = options.row.clamp(1, frames);
    for _ in 0..frames.div_ceil(row) {
        let begin = Instant::now();
        let mut last = runner.replay(device, variant)?;
        for _ in 1..row {
            last = runner.replay(device, variant)?;
        }
        runner.wait(device, last.done)?;
        bench.add(BenchStage::BackToBack, begin.elapsed() / row as u32);
    }
    Ok(bench)
}

/// Measures stages and launches of a captured variant, and looks at the processor meanwhile. `model` and `storage` are told
/// as they are.
///
/// # Errors
/// Those of [`bench_trace_runner`]; a device that cannot time its launches; [`ProfileError`].
#[expect(clippy::too_many_arguments, reason = "one call measures everything")]
pub fn profile_variant(
    runner: &mut TraceRunner,
    device: &mut dyn Device,
    variant: VariantId,
    inputs: &[(InputId, &HostTensor)],
    post: Option<PostFn<'_>>,
    peak: Option<MachinePeak>,
    [model, storage]: [&str; 2],
    options: &ProfileOptions,
) -> Result<ModelProfile, ProfileError> {
    let sensors = CpuSensors::find(Path::new("/sys"));
    let sampler = CpuSampler::start(sensors, options.cpu_interval).map_err(ProfileError::Thread)?;
    let stages = bench_trace_runner(runner, device, variant, inputs, post, options)?;
    let mut replays = Vec::new();
    for _ in 0..options.frames.max(1) {
        let (times, _) = runner.profile(device, variant)?;
        replays.push(times);
    }
    let cpu = sampler.stop();
    Ok(ModelProfile {
        model: model.to_owned(),
        device: device.caps().description.clone(),
        storage: storage.to_owned(),
        stages: stages.rows(),
        ops: OpsProfile::of(&replays, peak, options.top_gaps).ok_or(ProfileError::Differ)?,
        cpu,
    })
}

/// What cannot be profiled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// The trace cannot run.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The system has no thread to look at the processor with.
    #[error("no thread to watch the processor can be started: {0}")]
    Thread(#[source] std::io::Error),
    /// Phases of one variant whose launches differ: their times have nothing in common.
    #[error("the replays of this variant do not run the same launches, so they have no common profile")]
    Differ,
}
