//! What can go wrong while tracing.

use crate::device::{DeviceError, SlotError};
use crate::tensor::TensorError;

/// Errors of a [`super::TraceRunner`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The device refused or failed.
    #[error("{runner}: {source}")]
    Device {
        /// Name of the runner.
        runner: String,
        /// What the device answered.
        source: Box<DeviceError>,
    },
    /// The variant's own function failed.
    #[error("{runner}: variant {variant}: {source}")]
    Forward {
        /// Name of the runner.
        runner: String,
        /// Name of the variant.
        variant: String,
        /// What its function answered.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A name that is taken.
    #[error("{runner}: {name} is registered already")]
    Duplicate {
        /// Name of the runner.
        runner: String,
        /// The name.
        name: String,
    },
    /// A name that is not registered.
    #[error("{runner}: no {kind} is called {name}; there are {known:?}")]
    Unknown {
        /// Name of the runner.
        runner: String,
        /// Input, parameter or output.
        kind: &'static str,
        /// The name asked for.
        name: String,
        /// The names that exist.
        known: Vec<String>,
    },
    /// A persistent tensor registered after the capture.
    #[error(
        "{runner}: {name} cannot be added after the capture: persistent tensors must exist before any trace"
    )]
    AfterCapture {
        /// Name of the runner.
        runner: String,
        /// The tensor.
        name: String,
    },
    /// A replay before the capture.
    #[error("{runner}: not captured yet")]
    NotCaptured {
        /// Name of the runner.
        runner: String,
    },
    /// Use after release.
    #[error("{runner}: released")]
    Released {
        /// Name of the runner.
        runner: String,
    },
    /// A read before any replay.
    #[error("{runner}: variant {variant} has not run yet")]
    NotRun {
        /// Name of the runner.
        runner: String,
        /// The variant.
        variant: String,
    },
    /// A read of a replay whose outputs a later replay may have overwritten.
    #[error("{runner}: the outputs of this replay of variant {variant} were overwritten by a later one")]
    Overtaken {
        /// Name of the runner.
        runner: String,
        /// The variant.
        variant: String,
    },
    /// A variant that returns no tensor.
    #[error("{runner}: variant {variant} returns no output")]
    NoOutput {
        /// Name of the runner.
        runner: String,
        /// The variant.
        variant: String,
    },
    /// A variant that returns a tensor which is no dense row-major whole.
    #[error("{runner}: output {output} of variant {variant} is not dense and row-major")]
    StridedOutput {
        /// Name of the runner.
        runner: String,
        /// The variant.
        variant: String,
        /// The output.
        output: String,
    },
    /// Programs were compiled during a capture although misses are forbidden.
    #[error("{runner}: variant {variant} compiled {compiled} program(s) during its capture")]
    CompiledInCapture {
        /// Name of the runner.
        runner: String,
        /// The variant.
        variant: String,
        /// How many.
        compiled: usize,
    },
    /// Input data of another size or type than registered.
    #[error("{runner}: {name} expects {expected}, found {found}")]
    WrongInput {
        /// Name of the runner.
        runner: String,
        /// The input.
        name: String,
        /// What was registered.
        expected: String,
        /// What was given.
        found: String,
    },
    /// A configuration that makes no sense.
    #[error("{runner}: {reason}")]
    Options {
        /// Name of the runner.
        runner: String,
        /// What is wrong.
        reason: String,
    },
    /// Host memory that the device has not given back.
    #[error(transparent)]
    Slot(#[from] SlotError),
    /// A shape that is refused.
    #[error(transparent)]
    Tensor(Box<TensorError>),
}

impl From<TensorError> for TraceError {
    fn from(error: TensorError) -> Self {
        Self::Tensor(Box::new(error))
    }
}
