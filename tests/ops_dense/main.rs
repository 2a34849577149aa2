//! The builders of dense layers against their definitions in f64, and every one of them captured and replayed with the bits
//! of an eager run.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

#[path = "../support/graphs.rs"]
mod graphs;
#[path = "../support/mod.rs"]
mod support;

mod convolutions;
mod joined;
mod reference;
mod resizing;
mod traced;
