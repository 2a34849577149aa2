//! The HTTP face: a model behind `POST /predict`, the client that checks such a service, and what a run tells whoever
//! watches it.
//!
//! A request's body is read within limits of bytes and time, parsed and decoded beside the event loop, admitted to a bounded
//! number of places, and handed to an [`Engine`], which owns the model. Nothing waits without a deadline: whoever cannot be
//! served in time is told 503 and when to come again.
//!
//! - [`Server`]: listener, routes, drain
//! - [`Engine`], [`ModelEngine`]: who runs a request; a model with its device on a thread of its own
//! - [`PredictRequest`]: what `/predict` takes, [`openapi`] the document made of it
//! - [`client`]: `sensorium smoke`
//! - [`observe`]: metrics, health and status of a run, and changes to it
//!
//! Called by `cli`; calls every room above it.

mod accept;
mod answers;
pub mod client;
mod decode;
mod engine;
mod host;
mod listen;
mod metrics;
mod model_engine;
pub mod observe;
mod openapi;
mod options;
mod patient;
mod problem;
mod receive;
mod request;
mod routes;
mod token;

pub use answers::{
    HealthAnswer, InfoAnswer, InputAnswer, ModelAnswer, ModelsAnswer, ProblemAnswer, ProblemDetail,
    ProblemPlace, RoutesAnswer, ServiceStatus,
};
pub use engine::{Engine, EngineError, Frame, Job, ModelFacts, PastSweep, Phase, Refused, SweepFrame};
pub use listen::{ServeError, Server};
pub use model_engine::{LoadedModel, ModelEngine, ModelEngineOptions};
pub use openapi::openapi;
pub use options::{ServeOptions, ServiceFacts};
pub use request::{PredictRequest, StreamForm, SweepForm};
pub use token::{Token, TokenError};
