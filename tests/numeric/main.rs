//! Number formats, held against their definitions and independent references.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod blockfloat;
mod descriptor;
mod minifloat;
#[path = "../support/mod.rs"]
mod support;
