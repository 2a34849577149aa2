//! Who runs a request.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::sync::{oneshot, watch};

use crate::image::Image;
use crate::perception::HeadError;
use crate::perception::bundle::Pinned;
use crate::perception::{
    CallParam, CallValue, InputSchema, ModelError, Outcome, PrepareError, Sensor, SubmitError,
};
use crate::tensor::HostTensor;

/// What a model is, once it runs.
#[derive(Debug, Clone)]
pub struct ModelFacts {
    /// Its name.
    pub name: Arc<str>,
    /// What it takes.
    pub sensor: Sensor,
    /// Earlier sweeps that it adds to each.
    pub past_sweeps: usize,
    /// Class names by number.
    pub labels: Vec<String>,
    /// Parameters of a call.
    pub params: Vec<CallParam>,
    /// What it takes as plain arrays.
    pub schema: InputSchema,
    /// What it says of itself: device, weights, variants, traces.
    pub info: Value,
    /// What is known of the weights, such as file and SHA-256.
    pub weights: Value,
    /// What the bundle pins that it comes from; `None`: it comes from no bundle.
    pub bundle: Option<Pinned>,
    /// How long loading, warming up and capturing took.
    pub boot: Duration,
}

/// What an engine is doing.
#[derive(Debug, Clone)]
pub enum Phase {
    /// The model is loaded, warmed up and captured.
    Starting,
    /// Requests are run.
    Ready(Arc<ModelFacts>),
    /// The model cannot be had, and why.
    Failed(String),
}

/// A frame of a request, decoded.
#[derive(Debug)]
pub enum Frame {
    /// An image in red, green, blue.
    Image(Image),
    /// A sweep.
    Sweep(SweepFrame),
    /// Plain arrays by name.
    Arrays(BTreeMap<String, HostTensor>),
}

/// A sweep of a request.
#[derive(Debug)]
pub struct SweepFrame {
    /// Columns x, y, z, intensity.
    pub columns: [Vec<f32>; 4],
    /// Earlier sweeps that came with it, oldest first.
    pub past: Vec<PastSweep>,
}

/// A sweep before that of a request.
#[derive(Debug)]
pub struct PastSweep {
    /// Columns x, y, z, intensity.
    pub columns: [Vec<f32>; 4],
    /// Nanoseconds before the sweep of the request.
    pub lag_ns: i64,
    /// From its frame to that of the request's sweep, row by row.
    pub ref_from_sweep: [f64; 16],
}

/// One request for an engine.
#[derive(Debug)]
pub struct Job {
    /// What the sensor saw.
    pub frame: Frame,
    /// The stream; empty for a frame that stands alone.
    pub stream: String,
    /// Sensor stamp in nanoseconds.
    pub stamp_ns: i64,
    /// Rigid transform from the sensor's frame to the world's, row by row.
    pub world_from_sensor: Option<[f64; 16]>,
    /// Whether what is kept of the stream is forgotten first.
    pub reset: bool,
    /// Whether what is kept of the stream is forgotten afterwards.
    pub last: bool,
    /// Coordinate frame of the results.
    pub frame_id: String,
    /// Parameters, checked against [`ModelFacts::params`].
    pub params: Vec<(&'static str, CallValue)>,
    /// After this nobody waits for the answer.
    pub deadline: Instant,
    /// Where the answer goes. Once it is closed, nobody waits for it.
    pub reply: oneshot::Sender<Result<Outcome, EngineError>>,
}

/// Why a job was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// As many jobs wait as may.
    #[error("as many requests wait as may")]
    Busy,
    /// There is no model.
    #[error("there is no model")]
    NotReady,
}

/// Why a job has no outcome.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The model does not take the frame, or fails at it.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The model panicked.
    #[error("the model panicked: {0}")]
    Panic(String),
    /// The model went away, and is opened again.
    #[error("the model is opened again")]
    Reopening,
    /// The job waited until its deadline.
    #[error("the request waited until its time was up")]
    Late,
}

impl EngineError {
    /// Whether the frame or the parameters are to blame, not the model.
    #[must_use]
    pub fn is_callers(&self) -> bool {
        if let Self::Model(ModelError::Stream { source, .. }) = self {
            return matches!(**source, SubmitError::StreamRejected { .. } | SubmitError::Key(_));
        }
        matches!(
            self,
            Self::Model(
                ModelError::Params(_)
                    | ModelError::Input(_)
                    | ModelError::Image(_)
                    | ModelError::Head(HeadError::Params(_))
                    | ModelError::Prepare(
                        PrepareError::Image(_)
                            | PrepareError::WrongSensor { .. }
                            | PrepareError::NoPose { .. }
                            | PrepareError::Cloud(_)
                    )
            )
        )
    }
}

/// Who runs requests: a model on a thread of its own, or whoever owns the device.
pub trait Engine: fmt::Debug + Send + Sync {
    /// What the engine is doing, now and later.
    fn phase(&self) -> watch::Receiver<Phase>;

    /// Hands a job over. Never waits.
    ///
    /// # Errors
    /// [`Refused`]; the job's reply is dropped.
    fn submit(&self, job: Job) -> Result<(), Refused>;

    /// Lets the jobs that are there come to an end, gives everything back, and waits for that.
    fn close(&self);
}
