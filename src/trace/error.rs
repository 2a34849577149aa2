//! What can go wrong while tracing.

use std::error::Error;

use super::{BankIndex, WorkError};
use crate::device::{BufferId, DeviceError, SlotError};
use crate::tensor::{TensorError, TensorSpec};

/// Errors of a [`super::TraceRunner`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The device refused or failed.
    #[error("{runner}: {}{source}", about_text(.tensor))]
    Device {
        /// Name of the runner.
        runner: String,
        /// The tensor that it was about, if it was about one.
        tensor: Option<String>,
        /// What the device answered.
        source: Box<DeviceError>,
    },
    /// The device refused to copy a value to what a variant writes: for example, a value whose buffer is gone.
    #[error("{runner}: variant {variant}: writing {kind} {name}: {source}")]
    Write {
        /// Name of the runner.
        runner: String,
        /// The variant.
        variant: String,
        /// State or output.
        kind: &'static str,
        /// What is written.
        name: String,
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
        source: WorkError,
    },
    /// A value that the taps want, shown while launches are recorded: it does not exist then.
    #[error(
        "{runner}: variant {variant}: {name} cannot be tapped in a capture, which runs nothing: take the taps away before \
         capturing, and look in an eager run"
    )]
    TapInCapture {
        /// Name of the runner.
        runner: String,
        /// The variant.
        variant: String,
        /// Name of the value, with its scopes.
        name: String,
    },
    /// A tapped value that cannot be read, or that the taps refused.
    #[error("{runner}: variant {variant}: tapping {name}: {source}")]
    Tap {
        /// Name of the runner.
        runner: String,
        /// The variant.
        variant: String,
        /// Name of the value, with its scopes.
        name: String,
        /// What went wrong.
        source: WorkError,
    },
    /// A staging function or eager warm-up failed.
    #[error("{runner}: {work}: {source}")]
    Work {
        /// Name of the runner.
        runner: String,
        /// Which work.
        work: String,
        /// What it answered.
        source: WorkError,
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
        /// Name of the runner, and of the variant that asks.
        runner: String,
        /// Input, parameter, state or output.
        kind: &'static str,
        /// The name asked for.
        name: String,
        /// The names that exist.
        known: Vec<String>,
    },
    /// An id that another runner handed out.
    #[error("{runner}: this {kind} belongs to another runner")]
    ForeignId {
        /// Name of the runner.
        runner: String,
        /// Input, parameter, state or variant.
        kind: &'static str,
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
    /// Eager work registered after the first warm-up.
    #[error(
        "{runner}: {name} comes after the first warm-up, so its programs might be compiled after a capture"
    )]
    AfterWarmUp {
        /// Name of the runner.
        runner: String,
        /// The work.
        name: String,
    },
    /// Eager work that needs a program which does not exist.
    #[error(
        "{runner}: {work} would compile a program after a capture, where a replay may overwrite it: run it once in an \
         eager warm-up ({op})"
    )]
    CompilesAfterCapture {
        /// Name of the runner.
        runner: String,
        /// Which work.
        work: String,
        /// The operation that has no program.
        op: String,
    },
    /// A replay before the capture.
    #[error("{runner}: variant {variant} is not captured yet")]
    NotCaptured {
        /// Name of the runner.
        runner: String,
        /// The variant.
        variant: String,
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
    /// A read of a replay whose outputs a later one may have overwritten.
    #[error("{runner}: output {output} of this replay of variant {variant} was overwritten by a later one")]
    Overtaken {
        /// Name of the runner.
        runner: String,
        /// The variant.
        variant: String,
        /// The output.
        output: String,
    },
    /// A variant that returns no tensor.
    #[error("{runner}: variant {variant} returns no output")]
    NoOutput {
        /// Name of the runner.
        runner: String,
        /// The variant.
        variant: String,
    },
    /// A variant that returns a tensor which cannot be read after a replay.
    #[error("{runner}: output {output} of variant {variant} {problem}")]
    Output {
        /// Name of the runner.
        runner: String,
        /// The variant.
        variant: String,
        /// The output.
        output: String,
        /// What is wrong with it.
        problem: OutputProblem,
    },
    /// A variant that writes some of the ping-pong states but not all.
    #[error(
        "{runner}: variant {variant} writes ping-pong states ({}) but not {}: all change places at once, so write all \
         or none with write_state",
        .written.join(", "),
        .missing.join(", ")
    )]
    StatesNotWritten {
        /// Name of the runner.
        runner: String,
        /// The variant.
        variant: String,
        /// States that it writes, or whose write target it took.
        written: Vec<String>,
        /// States that it does not write.
        missing: Vec<String>,
    },
    /// A variant that behaves differently in another phase.
    #[error("{runner}: variant {variant} has other outputs or steps in another phase than in the first")]
    PhasesDiffer {
        /// Name of the runner.
        runner: String,
        /// The variant.
        variant: String,
    },
    /// A tensor of another shape or type than what a variant writes it to.
    #[error("{runner}: variant {variant}: {kind} {name} is {}, the value written to it {}", .specs[0], .specs[1])]
    WrongTensor {
        /// Name of the runner.
        runner: String,
        /// The variant.
        variant: String,
        /// State or output.
        kind: &'static str,
        /// What is written.
        name: String,
        /// Spec of the registered tensor, spec of the value.
        specs: Box<[TensorSpec; 2]>,
    },
    /// A value that lies in the buffer that it is written to, in another order.
    #[error("{runner}: variant {variant}: the value written to {kind} {name} is a view of its own buffer")]
    Overlap {
        /// Name of the runner.
        runner: String,
        /// The variant.
        variant: String,
        /// State or output.
        kind: &'static str,
        /// What is written.
        name: String,
    },
    /// The device refused the capture itself.
    #[error("{runner}: variant {variant}: the capture failed: {source}")]
    Capture {
        /// Name of the runner.
        runner: String,
        /// The variant.
        variant: String,
        /// What the device answered.
        source: Box<DeviceError>,
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
    /// Data of another size or type than registered.
    #[error("{runner}: {name} expects {expected}, found {found}")]
    WrongInput {
        /// Name of the runner.
        runner: String,
        /// Input, parameter, state or output.
        name: String,
        /// What was registered.
        expected: String,
        /// What was given.
        found: String,
    },
    /// A bank that the state does not have.
    #[error("{runner}: state {state} has {banks} bank(s), there is no bank {}", .bank.0)]
    NoBank {
        /// Name of the runner.
        runner: String,
        /// The state.
        state: String,
        /// The bank asked for.
        bank: BankIndex,
        /// Banks that exist.
        banks: usize,
    },
    /// A buffer that traces use is gone or elsewhere.
    #[error("{runner}: {buffer} was at {expected:#x} when the traces were captured and is not any more")]
    Moved {
        /// Name of the runner.
        runner: String,
        /// The buffer.
        buffer: BufferId,
        /// Where traces look for it.
        expected: u64,
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

impl TraceError {
    /// The error with the tensor that the device was told to do something with.
    pub(super) fn about(mut self, text: impl FnOnce() -> String) -> Self {
        if let Self::Device { tensor, .. } = &mut self {
            tensor.get_or_insert_with(text);
        }
        self
    }

    /// Whether the context of this variant answered it, so that it names runner and variant.
    pub(super) fn is_of(&self, [of_runner, of_variant]: [&str; 2]) -> bool {
        match self {
            Self::WrongTensor { runner, variant, .. }
            | Self::Overlap { runner, variant, .. }
            | Self::TapInCapture { runner, variant, .. }
            | Self::Tap { runner, variant, .. }
            | Self::Write { runner, variant, .. } => runner == of_runner && variant == of_variant,
            Self::Unknown { runner, .. } => *runner == variant_text(of_runner, of_variant),
            _ => false,
        }
    }
}

fn about_text(tensor: &Option<String>) -> String {
    tensor
        .as_ref()
        .map_or_else(String::new, |tensor| format!("{tensor}: "))
}

/// How a variant of a runner is called where an error has one name for both.
pub(super) fn variant_text(runner: &str, variant: &str) -> String {
    format!("{runner}: variant {variant}")
}

impl From<TensorError> for TraceError {
    fn from(error: TensorError) -> Self {
        Self::Tensor(Box::new(error))
    }
}

/// Why a tensor cannot be an output of a variant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OutputProblem {
    /// A window, or another order of elements.
    #[error("is not dense and row-major")]
    Strided,
    /// The buffer does not exist.
    #[error("lies in {0}, which was freed or never existed")]
    Freed(BufferId),
    /// Neither registered nor allocated by this run of the variant's function.
    #[error("lies in {0}, which neither the runner registered nor this run of the variant allocated")]
    Foreign(BufferId),
    /// A persistent tensor of another kind.
    #[error("is the {0}: the next replay may change it before it is read, so copy it with write_output")]
    Kept(String),
    /// A persistent output of another phase.
    #[error("is the {0} of another phase: ask the context for it in every run")]
    OtherPhase(String),
    /// A name or buffer that was returned before.
    #[error("is returned twice")]
    Repeated,
    /// More bytes than the buffer has.
    #[error("reaches {needed} bytes, its buffer has {bytes}")]
    BeyondBuffer {
        /// Bytes of the output.
        needed: usize,
        /// Bytes of the buffer.
        bytes: usize,
    },
}

/// The operation whose program is missing, if that is the cause of an error.
pub(super) fn missing_program<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a str> {
    let mut next = Some(error);
    while let Some(error) = next {
        let device = error
            .downcast_ref::<DeviceError>()
            .or_else(|| error.downcast_ref::<Box<DeviceError>>().map(|boxed| &**boxed));
        if let Some(DeviceError::CacheMissForbidden { op }) = device {
            return Some(op);
        }
        next = error.source();
    }
    None
}
