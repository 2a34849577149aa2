//! Where the time of a model goes: stage by stage, launch by launch, and how far that is from what the machine can do.
//!
//! [`profile_variant`] runs a captured variant and measures: the stages of a frame ([`StageBench`]), the launches of its
//! trace ([`OpsProfile`]), and what the processor did meanwhile ([`CpuSampler`]). The result, a [`ModelProfile`], is a table,
//! a JSON document and a picture ([`profile_svg`](super::report::profile_svg)).

mod bench;
mod cpu;
mod ops;
mod stages;
mod table;

pub use bench::{ModelProfile, PostFn, ProfileError, ProfileOptions, bench_trace_runner, profile_variant};
pub use cpu::{CpuSampler, CpuSensors, CpuSummary, Spread};
pub use ops::{LaunchGap, LaunchRow, OpKindRow, OpsProfile, PeakShare};
pub use stages::{BenchStage, StageBench, StageRow};
