//! A model with its device, for programs that have no pipeline.

mod error;
mod parts;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

pub use error::ModelError;
pub use parts::{ModelOptions, ModelParts};

use super::{
    CallParam, CallParams, CallValue, FrameKey, HostModel, ModelTrace, PrepareError, Sensor, SensorData,
    SubmitError, Submitted, Sweep,
};
use crate::device::{Backends, Device, DeviceConfig, DeviceHealth, HostSlot, describe};
use crate::image::{ImageRef, PixelFormat};
use crate::lidar::Columns;
use crate::outputs::Detections;
use crate::tensor::HostTensor;
use crate::trace::Freshness;
use parts::{build, positions};

/// How long the parts of a frame took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunTiming {
    /// From the sensor's data to the network's input.
    pub prepare: Duration,
    /// Upload, replay, and reading of the output.
    pub device: Duration,
    /// From the output to detections.
    pub finish: Duration,
    /// All of it.
    pub total: Duration,
}

/// What a model makes of a frame.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// What was found.
    pub detections: Detections,
    /// How long it took.
    pub timing: RunTiming,
    /// Position of the variant that the frame was prepared for.
    pub variant: usize,
    /// Whether all that the sensor saw fits into the network's input; `None` where nothing can be too much.
    pub within_capacity: Option<bool>,
    /// Whether the stream's states went on or started afresh; `None` for models without states.
    pub freshness: Option<Freshness>,
}

/// Where and when a frame was taken. Models that look at one frame alone do not ask.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Taken<'a> {
    /// The stream: models keep earlier frames, or states, of each.
    pub stream: &'a str,
    /// Sensor stamp in nanoseconds.
    pub stamp_ns: i64,
    /// Rigid transform from the sensor's frame to the world's, row by row; `None` where it is not known.
    pub world_from_sensor: Option<[f64; 16]>,
    /// The stream starts afresh with this frame.
    pub reset: bool,
}

/// A model with its device: the one owner of both, so that a frame takes no lock of the owner's. It is used by one thread
/// at a time and may be given to another.
///
/// ```no_run
/// use std::path::Path;
/// use sensorium::device::DeviceConfig;
/// use sensorium::perception::centerpoint::CenterPointSource;
/// use sensorium::perception::{Model, ModelOptions, SensorData};
///
/// # fn show(data: &SensorData<'_>) -> Result<(), Box<dyn std::error::Error>> {
/// let parts = CenterPointSource::new("centerpoint", Path::new("centerpoint.safetensors")).load()?;
/// let mut model = Model::open(parts, &DeviceConfig::default(), ModelOptions::default())?;
/// let outcome = model.run(data, "base_link", [("score_threshold", 0.4.into())])?;
/// println!("{} objects in {:?}", outcome.detections.len(), outcome.timing.total);
/// model.close()?;
/// # Ok(())
/// # }
/// ```
pub struct Model {
    parts: ModelParts,
    options: ModelOptions,
    params: Vec<CallParam>,
    variants: Vec<String>,
    /// `None` once closed.
    bench: Option<Bench>,
}

/// What a model has on a device.
struct Bench {
    device: Box<dyn Device>,
    trace: ModelTrace,
    warm: BTreeSet<usize>,
    inputs: Vec<HostSlot>,
    output: HostSlot,
    /// The output as numbers.
    floats: Vec<f32>,
}

impl Model {
    /// Opens a device, builds the model on it, warms it up and captures it.
    ///
    /// # Errors
    /// [`ModelError::Open`], [`ModelError::Variant`], [`ModelError::Build`]; nothing stays open.
    pub fn open(
        parts: impl Into<ModelParts>,
        device: &DeviceConfig,
        options: ModelOptions,
    ) -> Result<Self, ModelError> {
        let parts = parts.into();
        // A wrong name is told before a device is touched.
        positions(&parts, options.variants.as_deref())?;
        let opened = Backends::builtin().open(device)?;
        Self::open_on(parts, opened.device, options)
    }

    /// As [`Self::open`] on a device that is open and that nothing else uses; [`Self::into_device`] gives it back.
    ///
    /// # Errors
    /// As [`Self::open`]; the device is closed then.
    pub fn open_on(
        parts: impl Into<ModelParts>,
        mut device: Box<dyn Device>,
        options: ModelOptions,
    ) -> Result<Self, ModelError> {
        let parts = parts.into();
        let built = positions(&parts, options.variants.as_deref()).and_then(|warm| {
            let (trace, inputs, output) = build(&parts, device.as_mut(), &options, &warm)?;
            Ok((warm, trace, inputs, output))
        });
        let (warm, trace, inputs, output) = built.inspect_err(|_| device.close())?;
        Ok(Self {
            params: parts.host.call_params(),
            variants: parts.device.variants(),
            bench: Some(Bench {
                floats: vec![0.0; trace.output_bytes() / size_of::<f32>()],
                device,
                trace,
                warm,
                inputs,
                output,
            }),
            parts,
            options,
        })
    }

    /// Name of the model.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        self.parts.host.name()
    }

    /// Whether the model was closed, or its device was lost.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        self.bench.is_none()
    }

    /// Parameters that a call takes.
    #[must_use]
    pub fn params(&self) -> &[CallParam] {
        &self.params
    }

    /// Warms up variants beside those that are warm; `None`: all. Says whether there was anything to do. All traces are
    /// captured anew then, because nothing may be allocated after the first capture.
    ///
    /// # Errors
    /// [`ModelError::Variant`], [`ModelError::Closed`]; [`ModelError::Build`], after which everything is closed.
    pub fn warm_up(&mut self, variants: Option<&[String]>) -> Result<bool, ModelError> {
        let asked = positions(&self.parts, variants)?;
        let closed = self.closed();
        let bench = self.bench.as_mut().ok_or(closed)?;
        if asked.is_subset(&bench.warm) {
            return Ok(false);
        }
        let warm: BTreeSet<usize> = asked.union(&bench.warm).copied().collect();
        let device = bench.device.as_mut();
        let released = bench.trace.release(device).map_err(|error| ModelError::Build {
            model: Arc::clone(self.parts.host.name()),
            source: error.into(),
        });
        match released.and_then(|()| build(&self.parts, device, &self.options, &warm)) {
            Ok((trace, inputs, output)) => {
                (bench.trace, bench.inputs, bench.output, bench.warm) = (trace, inputs, output, warm);
                Ok(true)
            }
            Err(error) => {
                // What failed is the better report.
                let _ = self.close();
                Err(error)
            }
        }
    }

    /// What the model makes of one frame, in the coordinate frame `frame_id`. Parameters hold for this frame alone.
    ///
    /// # Errors
    /// [`ModelError`]; the model takes the next frame, unless the device was lost.
    pub fn run<'p>(
        &mut self,
        data: &SensorData<'_>,
        frame_id: &str,
        params: impl IntoIterator<Item = (&'p str, CallValue)>,
    ) -> Result<Outcome, ModelError> {
        let taken = match data {
            SensorData::Sweep(sweep) => Taken {
                stream: sweep.stream,
                stamp_ns: sweep.stamp_ns,
                world_from_sensor: sweep.world_from_sensor,
                reset: false,
            },
            SensorData::Image(_) => Taken::default(),
            SensorData::Set(set) => Taken {
                stream: set.stream,
                stamp_ns: set.stamp_ns,
                ..Taken::default()
            },
        };
        self.run_taken(data, &taken, frame_id, params)
    }

    /// As [`Self::run`] for data that does not say itself where and when it was taken, or in place of what it says: images
    /// for models that keep states of their stream.
    ///
    /// # Errors
    /// As [`Self::run`]; [`ModelError::Stream`] for a stream that there is no room for.
    pub fn run_taken<'p>(
        &mut self,
        data: &SensorData<'_>,
        taken: &Taken<'_>,
        frame_id: &str,
        params: impl IntoIterator<Item = (&'p str, CallValue)>,
    ) -> Result<Outcome, ModelError> {
        let closed = self.closed();
        let bench = self.bench.as_mut().ok_or(closed)?;
        let params = CallParams::check(&self.params, params)?;
        let host = self.parts.host.as_ref();
        let began = Instant::now();
        let mut inputs = Vec::with_capacity(bench.inputs.len());
        for slot in &mut bench.inputs {
            inputs.push(slot.bytes_mut()?);
        }
        let frame = host.prepare_taken(data, taken, &mut inputs)?;
        let prepared = Instant::now();
        let key = FrameKey {
            stream: taken.stream,
            stamp_ns: taken.stamp_ns,
            reset: taken.reset,
        };
        let freshness = match bench.forward(host, frame.variant, &key, self.options.deadline) {
            Ok(freshness) => freshness,
            Err(error) => {
                if matches!(bench.device.health(), DeviceHealth::Lost { .. }) {
                    // The loss is the better report.
                    let _ = self.close();
                }
                return Err(error);
            }
        };
        let forwarded = Instant::now();
        let frame_id: Arc<str> = frame_id.into();
        let detections = host.finish_with(&bench.floats, &frame.placement, &frame_id, &params)?;
        let finished = Instant::now();
        Ok(Outcome {
            detections,
            timing: RunTiming {
                prepare: prepared - began,
                device: forwarded - prepared,
                finish: finished - forwarded,
                total: finished - began,
            },
            variant: frame.variant,
            within_capacity: frame.within_capacity,
            freshness,
        })
    }

    /// Takes a frame into what the model keeps of its stream, and runs nothing.
    ///
    /// # Errors
    /// [`ModelError::Closed`], [`ModelError::Prepare`], [`ModelError::Slot`].
    pub fn remember(&mut self, data: &SensorData<'_>) -> Result<(), ModelError> {
        let closed = self.closed();
        let bench = self.bench.as_mut().ok_or(closed)?;
        let mut inputs = Vec::with_capacity(bench.inputs.len());
        for slot in &mut bench.inputs {
            inputs.push(slot.bytes_mut()?);
        }
        self.parts.host.prepare(data, &mut inputs)?;
        Ok(())
    }

    /// Gives up earlier frames and states of a stream: it starts afresh if it comes back, and its place is free.
    pub fn forget_stream(&mut self, stream: &str) {
        self.parts.host.forget(stream);
        if let Some(bench) = &mut self.bench {
            bench.trace.forget_stream(stream);
        }
    }

    /// The half on the host.
    #[must_use]
    pub fn host(&self) -> &Arc<dyn HostModel> {
        &self.parts.host
    }

    /// As [`Self::run`] on plain arrays by name, as [`HostModel::input_schema`](super::HostModel::input_schema) says.
    ///
    /// # Errors
    /// As [`Self::run`]; [`ModelError::Input`] for arrays that the model does not take.
    pub fn run_arrays<'p>(
        &mut self,
        arrays: &BTreeMap<String, HostTensor>,
        taken: &Taken<'_>,
        frame_id: &str,
        params: impl IntoIterator<Item = (&'p str, CallValue)>,
    ) -> Result<Outcome, ModelError> {
        if self.is_closed() {
            return Err(self.closed());
        }
        let schema = self.parts.host.input_schema();
        schema.check(arrays)?;
        // The schema has one array, and it is there.
        let Some(array) = schema.0.first().and_then(|input| arrays.get(input.name)) else {
            return Err(ModelError::Prepare(PrepareError::WrongSensor {
                expected: self.parts.host.sensor(),
            }));
        };
        match self.parts.host.sensor() {
            Sensor::Camera => {
                let (rows, columns) = (array.shape()[0], array.shape()[1]);
                let step = columns.saturating_mul(3);
                let image = ImageRef::new(array.bytes(), columns, rows, step, PixelFormat::Rgb8)?;
                self.run_taken(&SensorData::Image(image.into()), taken, frame_id, params)
            }
            Sensor::Lidar => {
                let values: &[f32] = bytemuck::cast_slice(array.bytes());
                let column = |axis: usize| {
                    values
                        .chunks_exact(4)
                        .map(|point| point[axis])
                        .collect::<Vec<_>>()
                };
                let [x, y, z, intensity] = [column(0), column(1), column(2), column(3)];
                let sweep = Sweep {
                    stream: taken.stream,
                    stamp_ns: taken.stamp_ns,
                    points: Columns {
                        x: &x,
                        y: &y,
                        z: &z,
                        intensity: &intensity,
                    },
                    world_from_sensor: taken.world_from_sensor,
                };
                self.run_taken(&SensorData::Sweep(sweep), taken, frame_id, params)
            }
            Sensor::Set => Err(ModelError::Prepare(PrepareError::WrongSensor {
                expected: Sensor::Set,
            })),
        }
    }

    /// What the model is, takes and has, for reports.
    #[must_use]
    pub fn info(&self) -> Value {
        let host = self.parts.host.as_ref();
        let params = self
            .params
            .iter()
            .map(|param| (param.name.to_owned(), param.describe()));
        let weights = self.parts.weights.as_ref().map(|found| {
            json!({
                "path": found.path.display().to_string(),
                "origin": found.origin.to_string(),
            })
        });
        let mut info = json!({
            "model": host.name().as_ref(),
            "sensor": host.sensor().to_string(),
            "closed": self.is_closed(),
            "weights": weights,
            "variants": self.variants,
            "params": Value::Object(params.collect()),
            "inputs": host.input_schema().describe(),
        });
        if let Some(bench) = &self.bench {
            let warm: Vec<&str> = bench.warm.iter().map(|&i| self.variants[i].as_str()).collect();
            info["warm"] = json!(warm);
            info["device"] = describe(bench.device.as_ref());
            info["trace"] = bench.trace.describe();
        }
        info
    }

    /// Releases traces and weights and closes the device. Idempotent; also done on drop.
    ///
    /// # Errors
    /// The first device error; everything is tried, and the model is closed whatever it was.
    pub fn close(&mut self) -> Result<(), ModelError> {
        let Some(mut bench) = self.bench.take() else {
            return Ok(());
        };
        let released = bench.trace.release(bench.device.as_mut());
        bench.device.close();
        Ok(released?)
    }

    /// Releases traces and weights and gives the device back, open.
    ///
    /// # Errors
    /// [`ModelError::Closed`]; device errors, after which the device is closed.
    pub fn into_device(mut self) -> Result<Box<dyn Device>, ModelError> {
        let closed = self.closed();
        let mut bench = self.bench.take().ok_or(closed)?;
        match bench.trace.release(bench.device.as_mut()) {
            Ok(()) => Ok(bench.device),
            Err(error) => {
                bench.device.close();
                Err(error.into())
            }
        }
    }

    fn closed(&self) -> ModelError {
        ModelError::Closed {
            model: Arc::clone(self.parts.host.name()),
        }
    }
}

impl Bench {
    /// Runs a variant on the inputs as they are; the output is in [`Self::floats`]. Whether the stream's states went on.
    fn forward(
        &mut self,
        host: &dyn HostModel,
        variant: usize,
        key: &FrameKey<'_>,
        deadline: Duration,
    ) -> Result<Option<Freshness>, ModelError> {
        let device = self.device.as_mut();
        let ran = self.trace.submit(device, variant, &self.inputs, key);
        let ran = ran.map_err(|error| match error {
            SubmitError::Trace(error) => ModelError::Trace(error),
            source => ModelError::Stream {
                model: Arc::clone(host.name()),
                source: Box::new(source),
            },
        });
        let done = ran.and_then(
            |Submitted {
                 pending, freshness, ..
             }| {
                let event = self.trace.read(device, pending, &mut self.output)?;
                let until = Instant::now() + deadline;
                device.sync_event(event, until)?;
                Ok(freshness)
            },
        );
        if done.is_err() {
            // An upload may be under way though what follows it was refused: the slots come back before the next
            // frame. That this may fail, too, is told by that frame.
            let _ = device.drain(deadline);
            return done;
        }
        bytemuck::cast_slice_mut(&mut self.floats).copy_from_slice(self.output.bytes()?);
        done
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::debug!(model = %self.parts.host.name(), "closing: {error}");
        }
    }
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Model")
            .field("parts", &self.parts)
            .field("options", &self.options)
            .field("closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}
