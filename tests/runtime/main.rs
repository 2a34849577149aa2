//! The runtime: channels, scheduling, sets, supervision, determinism, faults.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

#[path = "../support/live.rs"]
mod live;
#[path = "../support/resident.rs"]
mod resident;
#[path = "../support/ros.rs"]
mod ros;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/tiny.rs"]
mod tiny;
#[path = "../support/watched.rs"]
mod watched;

mod batches;
mod channels;
mod compute_nodes;
mod determinism;
mod fault_campaign;
mod live_changes;
mod live_sinks;
mod live_streams;
mod merged_clouds;
mod run_device_loss;
mod run_faults;
mod run_foxglove;
mod run_scheduling;
mod run_sets;
mod run_stop;
mod run_streams;
mod run_trace;
mod scheduling;
mod sets;
mod slow_stages;
mod stages;
mod supervision;
mod telemetry_metrics;
mod temporal_run;
mod watching;
