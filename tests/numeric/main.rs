//! Number formats against independent implementations and against their definitions.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod blockfloat;
mod descriptor;
mod minifloat;
#[path = "../support/mod.rs"]
mod support;
