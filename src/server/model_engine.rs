//! A model with its device on a thread of its own.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::engine::{Engine, EngineError, Frame, Job, ModelFacts, Phase, Refused, SweepFrame};
use crate::device::DeviceConfig;
use crate::lidar::Columns;
use crate::perception::bundle::Pinned;
use crate::perception::{
    CallValue, Model, ModelError, ModelOptions, ModelParts, Outcome, Sensor, SensorData, Sweep, Taken,
};
use crate::pipeline::RestartSettings;

/// Longest pause between attempts to open a model again.
const MAX_PAUSE: Duration = Duration::from_secs(30);
const IDENTITY: [f64; 16] = [
    1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0,
];

/// A model as it is loaded, at every call anew.
pub struct LoadedModel {
    /// Both halves.
    pub parts: ModelParts,
    /// What is known of its weights, such as file and SHA-256.
    pub weights: serde_json::Value,
    /// What the bundle pins that it comes from; `None`: it comes from no bundle.
    pub bundle: Option<Pinned>,
}

impl fmt::Debug for LoadedModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadedModel")
            .field("parts", &self.parts)
            .finish_non_exhaustive()
    }
}

/// How a model is run.
#[derive(Debug, Clone, Default)]
pub struct ModelEngineOptions {
    /// The device.
    pub device: DeviceConfig,
    /// How it is opened.
    pub model: ModelOptions,
    /// How often a model whose device was lost, or that panicked, is opened again.
    pub restart: RestartSettings,
    /// Jobs that may wait.
    pub max_waiting: usize,
}

/// [`Engine`] of one model with a device of its own.
#[derive(Debug)]
pub struct ModelEngine {
    /// `None` once closed.
    jobs: Mutex<Option<flume::Sender<Job>>>,
    phase: watch::Receiver<Phase>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Loads a model, or says why that cannot be.
type Load = Box<dyn FnMut() -> Result<LoadedModel, String> + Send>;

impl ModelEngine {
    /// Starts a thread that loads the model and then runs jobs. [`Engine::phase`] says how far it is.
    ///
    /// # Errors
    /// The system has no thread.
    pub fn start(
        load: impl FnMut() -> Result<LoadedModel, String> + Send + 'static,
        options: ModelEngineOptions,
    ) -> std::io::Result<Self> {
        let (jobs, queue) = flume::bounded(options.max_waiting.max(1));
        let (told, phase) = watch::channel(Phase::Starting);
        let worker = Worker {
            load: Box::new(load),
            options,
            queue,
            told,
            losses: Vec::new(),
        };
        let thread = std::thread::Builder::new()
            .name("serve-model".to_owned())
            .spawn(move || worker.run())?;
        Ok(Self {
            jobs: Mutex::new(Some(jobs)),
            phase,
            thread: Mutex::new(Some(thread)),
        })
    }
}

impl Engine for ModelEngine {
    fn phase(&self) -> watch::Receiver<Phase> {
        self.phase.clone()
    }

    fn submit(&self, job: Job) -> Result<(), Refused> {
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        let jobs = jobs.as_ref().ok_or(Refused::NotReady)?;
        jobs.try_send(job).map_err(|error| match error {
            flume::TrySendError::Full(_) => Refused::Busy,
            flume::TrySendError::Disconnected(_) => Refused::NotReady,
        })
    }

    fn close(&self) {
        drop(self.jobs.lock().unwrap_or_else(PoisonError::into_inner).take());
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the model's thread panicked");
        }
    }
}

impl Drop for ModelEngine {
    fn drop(&mut self) {
        self.close();
    }
}

struct Worker {
    load: Load,
    options: ModelEngineOptions,
    queue: flume::Receiver<Job>,
    told: watch::Sender<Phase>,
    /// When the model went away, within the time that counts.
    losses: Vec<Instant>,
}

impl Worker {
    fn run(mut self) {
        let mut model = match self.open() {
            Ok(model) => model,
            Err(reason) => return self.fail(reason),
        };
        while let Ok(job) = self.queue.recv() {
            // A client that is gone costs nothing more.
            if job.reply.is_closed() {
                continue;
            }
            if Instant::now() >= job.deadline {
                // Whoever waited may have gone meanwhile.
                let _ = job.reply.send(Err(EngineError::Late));
                continue;
            }
            let Job {
                frame,
                stream,
                stamp_ns,
                world_from_sensor,
                reset,
                last,
                frame_id,
                params,
                reply,
                ..
            } = job;
            let taken = Taken {
                stream: &stream,
                stamp_ns,
                world_from_sensor,
                reset,
            };
            let ran = catch_unwind(AssertUnwindSafe(|| {
                predict(&mut model, frame, taken, last, &frame_id, params)
            }));
            let (answer, panicked) = match ran {
                Ok(answer) => (answer.map_err(EngineError::from), false),
                Err(panic) => (Err(EngineError::Panic(words(&*panic))), true),
            };
            let lost = panicked || model.is_closed();
            let cause = answer.as_ref().err().map(ToString::to_string);
            let _ = reply.send(answer);
            if lost {
                match self.reopen(model, cause.unwrap_or_default()) {
                    Ok(opened) => model = opened,
                    Err(reason) => return self.fail(reason),
                }
            }
        }
        if let Err(error) = model.close() {
            tracing::warn!("closing the model: {error}");
        }
    }

    /// Loads the model and opens it on its device.
    fn open(&mut self) -> Result<Model, String> {
        let began = Instant::now();
        let opened = catch_unwind(AssertUnwindSafe(|| {
            let LoadedModel {
                parts,
                weights,
                bundle,
            } = (self.load)()?;
            let sensor = parts.host.sensor();
            if !matches!(sensor, Sensor::Camera | Sensor::Lidar) {
                return Err(format!(
                    "the model takes {sensor}, and models of images or point clouds are served"
                ));
            }
            let model = Model::open(parts, &self.options.device, self.options.model.clone());
            Ok((model.map_err(|error| error.to_string())?, weights, bundle))
        }));
        let (model, weights, bundle) = opened.unwrap_or_else(|panic| Err(words(&*panic)))?;
        let host = model.host();
        let facts = ModelFacts {
            name: Arc::clone(model.name()),
            sensor: host.sensor(),
            past_sweeps: host.past_sweeps(),
            labels: host.labels(),
            params: model.params().to_vec(),
            schema: host.input_schema(),
            info: model.info(),
            weights,
            bundle,
            boot: began.elapsed(),
        };
        tracing::info!(model = %facts.name, boot_s = facts.boot.as_secs_f64(), "ready");
        self.told.send_replace(Phase::Ready(Arc::new(facts)));
        Ok(model)
    }

    /// Opens the model again, as often as the settings allow. Jobs that come meanwhile are told so.
    fn reopen(&mut self, lost: Model, cause: String) -> Result<Model, String> {
        tracing::warn!("the model is opened again: {cause}");
        self.told.send_replace(Phase::Starting);
        // What is left of it may panic once more.
        if catch_unwind(AssertUnwindSafe(|| drop(lost))).is_err() {
            tracing::warn!("the model panicked while it was closed");
        }
        let settings = self.options.restart;
        let within = Duration::from_secs(settings.within_s.into());
        self.losses.retain(|at| at.elapsed() < within);
        self.losses.push(Instant::now());
        if self.losses.len() > settings.limit as usize {
            return Err(format!(
                "the model went away more than {} times in {within:?}: {cause}",
                settings.limit
            ));
        }
        let mut pause = Duration::from_millis(settings.backoff_ms.into());
        let mut attempt = 1;
        loop {
            let until = Instant::now() + pause;
            loop {
                match self.queue.recv_deadline(until) {
                    // Whoever waited may have gone meanwhile.
                    Ok(job) => drop(job.reply.send(Err(EngineError::Reopening))),
                    Err(flume::RecvTimeoutError::Timeout) => break,
                    Err(flume::RecvTimeoutError::Disconnected) => return Err("the service ends".to_owned()),
                }
            }
            match self.open() {
                Ok(model) => return Ok(model),
                Err(reason) if attempt >= settings.limit => {
                    return Err(format!(
                        "{cause}; not opened again in {attempt} attempts: {reason}"
                    ));
                }
                Err(reason) => tracing::warn!(attempt, "the model cannot be opened: {reason}"),
            }
            attempt += 1;
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }

    /// Tells everyone that there will be no model. The queue's end goes with this thread.
    fn fail(self, reason: String) {
        tracing::error!("no model: {reason}");
        self.told.send_replace(Phase::Failed(reason));
    }
}

/// What a panic says.
fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "without a word".to_owned())
}

fn predict(
    model: &mut Model,
    frame: Frame,
    mut taken: Taken<'_>,
    last: bool,
    frame_id: &str,
    params: Vec<(&'static str, CallValue)>,
) -> Result<Outcome, ModelError> {
    // A frame without a stream stands alone: nothing is kept of those before it, nor of it.
    let alone = taken.stream.is_empty();
    if alone && model.host().sensor() == Sensor::Lidar {
        // Its own frame may be the world's.
        taken.world_from_sensor = taken.world_from_sensor.or(Some(IDENTITY));
    }
    if taken.reset {
        model.forget_stream(taken.stream);
    }
    let outcome = match frame {
        Frame::Image(image) => {
            model.run_taken(&SensorData::Image(image.view().into()), &taken, frame_id, params)
        }
        Frame::Arrays(arrays) => model.run_arrays(&arrays, &taken, frame_id, params),
        Frame::Sweep(sweep) => run_sweep(model, &sweep, &taken, frame_id, params),
    };
    if alone || last {
        model.forget_stream(taken.stream);
    }
    outcome
}

fn run_sweep(
    model: &mut Model,
    frame: &SweepFrame,
    taken: &Taken<'_>,
    frame_id: &str,
    params: Vec<(&'static str, CallValue)>,
) -> Result<Outcome, ModelError> {
    for past in &frame.past {
        let earlier = Taken {
            stamp_ns: taken.stamp_ns.saturating_sub(past.lag_ns),
            world_from_sensor: Some(past.ref_from_sweep),
            ..*taken
        };
        model.remember(&SensorData::Sweep(as_sweep(&past.columns, &earlier)))?;
    }
    let current = as_sweep(&frame.columns, taken);
    model.run_taken(&SensorData::Sweep(current), taken, frame_id, params)
}

fn as_sweep<'a>(columns: &'a [Vec<f32>; 4], taken: &Taken<'a>) -> Sweep<'a> {
    let [x, y, z, intensity] = columns;
    Sweep {
        stream: taken.stream,
        stamp_ns: taken.stamp_ns,
        points: Columns { x, y, z, intensity },
        world_from_sensor: taken.world_from_sensor,
    }
}
