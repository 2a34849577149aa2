//! Warm-up, capture and replay of device work, independent of the backend.
//!
//! A [`TraceRunner`] owns the persistent tensors of one model (inputs, parameters, outputs), warms its
//! variants, captures them strictly (no program may be compiled in a capture) and replays them on one or two
//! command queues. It does not own the device: the device's owner passes it to every call. [`pack_outputs`] makes one
//! output of several, so that a frame is read with one transfer.
//!
//! Called by `models`, `perception` and `runtime`; calls `device` and `ops`.

mod context;
mod error;
mod pack;
mod run;
mod runner;
mod tables;

pub use context::TraceContext;
pub use error::TraceError;
pub use pack::{PackOutputsError, Packed, pack_outputs, pack_outputs_into};
pub use run::{Pending, TensorMap};
pub use runner::TraceRunner;
pub use tables::{InputId, OutputInfo, ParamId, TraceOptions, VariantFn, VariantId};
