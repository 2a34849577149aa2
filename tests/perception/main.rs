//! Detections, their suppression, and how good they are.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

#[path = "../support/mod.rs"]
mod support;
#[path = "../support/tiny.rs"]
mod tiny;

mod accuracy;
mod detection;
mod metrics;
mod regression;
mod report;
mod simulator;
mod suppression;
