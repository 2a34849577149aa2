//! Warm-up, capture and replay through `TraceRunner`, on every device.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

#[path = "../support/spy.rs"]
mod spy;
#[path = "../support/temporal.rs"]
mod temporal;

mod failures;
mod inputs;
mod misuse;
mod order;
mod outputs;
mod random;
mod refusals;
mod replay;
mod states;
