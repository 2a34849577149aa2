//! The CPU device's kernels against plain transcriptions of their formulas.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod activations;
mod attention;
mod convolution;
mod gather_rows;
mod harness;
mod matrix;
mod moves;
mod normalisation;
mod pillars;
mod queries;
mod reductions;
mod refusals;
