//! The CPU device's kernels against plain transcriptions of their formulas.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod activations;
mod convolution;
mod gather_rows;
mod harness;
mod matrix;
mod moves;
mod normalisation;
mod picks;
mod pillars;
mod reductions;
mod refusals;
