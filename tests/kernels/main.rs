//! The CPU device's kernels against plain transcriptions of their formulas.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod activations;
mod convolution;
mod gather_rows;
mod harness;
mod moves;
mod pillars;
mod queries;
mod reductions;
mod refusals;
