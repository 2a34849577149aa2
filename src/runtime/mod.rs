//! Running a pipeline: actors, bounded channels, clock and shutdown.
//!
//! A source hands frames to the prepare stage of each detector; prepared frames go to the one device owner,
//! network outputs to the finish stage, results to the sinks. Control travels as kameo messages, data through
//! bounded channels. Every frame is settled once in the ledger: it comes out, or it is dropped for a reason.
//!
//! Called by `cli`; calls every room above it.

mod admission;
mod bag_feed;
mod budget;
pub mod channel;
mod compute;
mod control;
mod detectors;
mod drive;
mod ending;
mod error;
mod finish;
mod footprint;
mod frame;
mod gallery;
mod health;
mod inputs;
mod load;
mod meter;
mod models;
mod outlets;
mod owner;
mod playback;
mod poses;
mod prepare;
mod ros;
mod run;
pub mod sets;
mod shutdown;
mod sink_desk;
mod sinks;
mod slots;
mod source;
mod stage;
mod supervision;
mod topics;
mod turns;

pub use budget::{Budget, DetectorLoad, Finding};
pub use control::{
    Control, ControlError, DeviceStatus, FailedStep, PipelineStatus, QueueStatus, ReloadReport, RunPhase,
    StageStatus, StreamFlow, StreamStatus,
};
pub use drive::{TruthFrame, TruthImage};
pub use error::RuntimeError;
pub use footprint::{Footprint, ModelFootprint};
pub use frame::{Detected, FrameMeta, Message, Part, SET_TYPE, Sample};
pub use health::{ActiveReason, Health, HealthReport, PipelineState, Reason, ReasonKind, StateChange};
pub use load::{Arrivals, Load, LoadTally, Loaded, Until};
pub use models::load_model;
pub use owner::schedule;
pub use run::{Progress, RunOptions, RunOutput, run};
pub use shutdown::Shutdown;
pub use slots::{PooledSlot, SlotPool};
pub use stage::{Stage, StageError, StageLogic};
pub use turns::Turn;
