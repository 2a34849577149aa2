//! Warm-up, capture and replay of device work, independent of the backend.
//!
//! A [`TraceRunner`] owns the persistent tensors of one model (inputs, parameters, states, outputs), warms its
//! variants, captures them strictly (no program may be compiled in a capture) and replays them on one or two
//! command queues. [`StreamBanks`] lets several streams share its states. Neither owns the device: the device's owner
//! passes it to every call. [`pack_outputs`] makes one output of several, so that a frame is read with one transfer.
//!
//! - registration: inputs, parameters, states, outputs, variants, eager warm-ups
//! - warm-up and capture: every variant once in every [`Phase`]
//! - the steady state: upload, replay, read; in it nothing allocates
//! - states on queue 0, in order with the replays; banks, one for each stream
//! - looking inside: [`Taps`] see values of eager runs, [`TraceRunner::profile`] times the launches of a replay
//!
//! # Long graphs
//!
//! A graph that is cut into variants hands values from one to the next through an in-place state
//! ([`TraceContext::write_state`] in the first, [`TraceContext::state`] in the second): a variant cannot see what
//! another one allocated. Give a segment that is read while the next one runs a persistent output.
//!
//! Called by `models`, `perception` and `runtime`; calls `device` and `ops`.

mod banks;
mod blocking;
mod capture;
mod context;
mod describe;
mod error;
mod ids;
mod options;
mod pack;
mod pass;
mod phase;
mod protocol;
mod register;
mod run;
mod runner;
mod states;
mod tables;
mod taps;
mod variant;

pub use banks::{BankError, BankOptions, FreshReason, Freshness, OnFull, Select, StreamBanks};
pub use blocking::TensorMap;
pub use context::TraceContext;
pub use describe::TraceTimings;
pub use error::{OutputProblem, TraceError};
pub use ids::{BankIndex, InputId, ParamId, StateId, VariantId};
pub use options::{StateOptions, TraceOptions};
pub use pack::{PackOutputsError, Packed, pack_outputs, pack_outputs_into};
pub use phase::Phase;
pub use protocol::ProtocolStep;
pub use run::Pending;
pub use runner::TraceRunner;
pub use states::ResetValue;
pub use taps::Taps;
pub use variant::{EagerFn, OutputInfo, StageFn, VariantFn, WorkError};
