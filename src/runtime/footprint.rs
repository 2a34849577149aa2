//! What the models of a pipeline take of a device, found by putting them there.

use std::error::Error;

use serde::Serialize;

use super::error::{RuntimeError, told};
use super::models::{self, trace_options};
use crate::device::{Backends, Device, DeviceConfig, DeviceError, DeviceLayer};
use crate::perception::DeviceModel;
use crate::pipeline::{NodeKind, Pipeline};

/// Largest arena that is tried, in bytes, where the one of the file is too small.
const LARGEST_ARENA: usize = 64 << 30;

/// Smallest arena that is tried, in bytes.
const SMALLEST_ARENA: usize = 16 << 20;

/// What a pipeline takes of a device.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Footprint {
    /// Bytes of device memory that the pipeline asks for.
    pub arena_bytes: usize,
    /// Bytes of the trace region that the pipeline asks for.
    pub trace_region_bytes: usize,
    /// An arena in which everything has room, in bytes, also what is freed again while the models are built: less than
    /// twice as much as is needed.
    pub enough_bytes: usize,
    /// Bytes in use when everything is captured: weights, inputs, activations and states.
    pub used_bytes: usize,
    /// Bytes of the trace region in use.
    pub trace_bytes: usize,
    /// Each detector, in the order of the pipeline.
    pub models: Vec<ModelFootprint>,
}

/// What one detector takes of a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ModelFootprint {
    /// The detector's node.
    pub detector: String,
    /// Name of its model.
    pub model: String,
    /// Bytes of device memory: weights, inputs, activations and states.
    pub device_bytes: usize,
    /// Bytes that one frame uploads.
    pub input_bytes: usize,
    /// Bytes that one frame reads back.
    pub output_bytes: usize,
}

impl Footprint {
    /// Loads the models of a pipeline, builds and captures them on the device that it asks for, and counts. Where its arena
    /// is too small, one that is enough is looked for.
    ///
    /// # Errors
    /// A model or a device that cannot be opened, or a model that no arena is large enough for.
    pub fn measure(pipeline: &Pipeline, environment: &DeviceLayer) -> Result<Self, RuntimeError> {
        let asked = pipeline.device.config(environment);
        let mut config = asked;
        let mut found = loop {
            match built(pipeline, &config)? {
                Ok(footprint) => break footprint,
                Err(error) if is_too_small(&*error) && config.arena_bytes < LARGEST_ARENA => {
                    config.arena_bytes *= 2;
                }
                Err(error) => return Err(RuntimeError::Device(told(&*error))),
            }
        };
        // What is freed again while a model is built needs room as well, so half of the arena is tried, and half of that.
        while config.arena_bytes <= asked.arena_bytes
            && config.arena_bytes / 2 >= found.used_bytes.max(SMALLEST_ARENA)
        {
            config.arena_bytes /= 2;
            match built(pipeline, &config)? {
                Ok(footprint) => found = footprint,
                Err(error) if is_too_small(&*error) => break,
                Err(error) => return Err(RuntimeError::Device(told(&*error))),
            }
        }
        found.arena_bytes = asked.arena_bytes;
        found.trace_region_bytes = asked.trace_region_bytes;
        Ok(found)
    }
}

type BoxError = Box<dyn Error + Send + Sync>;

/// The models of a pipeline on a device of this configuration, or why they cannot be there.
fn built(pipeline: &Pipeline, config: &DeviceConfig) -> Result<Result<Footprint, BoxError>, RuntimeError> {
    // Loaded anew each time: what a build leaves behind that failed in the middle belongs to its device.
    let loaded = models::load_all(pipeline)?;
    let builders: Vec<Box<dyn DeviceModel>> = loaded.into_iter().map(|parts| parts.device).collect();
    let mut opened = match Backends::builtin().open_for_run(config) {
        Ok(opened) => opened,
        Err(error) => return Ok(Err(error.into())),
    };
    let counted = count(pipeline, opened.device.as_mut(), &builders);
    opened.device.close();
    Ok(counted.map(|footprint| Footprint {
        enough_bytes: config.arena_bytes,
        ..footprint
    }))
}

fn count(
    pipeline: &Pipeline,
    device: &mut dyn Device,
    builders: &[Box<dyn DeviceModel>],
) -> Result<Footprint, BoxError> {
    let detectors = pipeline.nodes.iter().filter_map(|node| match &node.kind {
        NodeKind::Detector(settings) => Some((&node.name, &settings.model)),
        _ => None,
    });
    let options = trace_options(device, pipeline.device.frame_deadline_ms);
    let mut traces = Vec::with_capacity(builders.len());
    let mut models = Vec::with_capacity(builders.len());
    for (builder, (detector, model)) in builders.iter().zip(detectors) {
        let before = device.memory().used_bytes;
        let trace = builder.build(device, options.clone())?;
        models.push(ModelFootprint {
            detector: detector.clone(),
            model: model.clone(),
            device_bytes: device.memory().used_bytes.saturating_sub(before),
            input_bytes: trace.input_specs().iter().map(|spec| spec.bytes()).sum(),
            output_bytes: trace.output_bytes(),
        });
        traces.push(trace);
    }
    for (trace, model) in traces.iter_mut().zip(&mut models) {
        let before = device.memory().used_bytes;
        trace.capture(device)?;
        model.device_bytes += device.memory().used_bytes.saturating_sub(before);
    }
    let memory = device.memory();
    for trace in &mut traces {
        trace.release(device)?;
    }
    Ok(Footprint {
        arena_bytes: 0,
        trace_region_bytes: 0,
        enough_bytes: 0,
        used_bytes: memory.used_bytes,
        trace_bytes: memory.trace_bytes,
        models,
    })
}

/// Whether an error says that the arena has no room.
fn is_too_small(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let device = error
            .downcast_ref::<DeviceError>()
            .or_else(|| error.downcast_ref::<Box<DeviceError>>().map(|boxed| &**boxed));
        if matches!(device, Some(DeviceError::OutOfMemory { .. })) {
            return true;
        }
        cause = error.source();
    }
    false
}
