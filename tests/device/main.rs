//! The device contract, its two devices, traces and stream banks.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

#[path = "../support/graphs.rs"]
mod graphs;
#[path = "../support/spy.rs"]
mod spy;
#[path = "../support/streaming.rs"]
mod streaming;
#[path = "../support/temporal_model.rs"]
mod temporal_model;

mod cpu_device;
mod device_conformance;
mod executor_scenarios;
mod fault_device;
mod kernels;
mod overlap;
mod protocol_mutations;
mod replay_equals_eager;
mod sim_device;
mod stream_banks;
mod temporal;
mod trace_faults;
mod trace_runner;
