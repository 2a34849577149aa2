//! The CPU device's kernels against plain transcriptions of their formulas.

mod activations;
mod attention;
mod bf16_dot;
mod convolution;
mod gather_conv;
mod gather_rows;
mod harness;
mod matrix;
mod matrix_engine;
mod moves;
mod normalisation;
mod picks;
mod pillars;
mod queries;
mod reductions;
mod refusals;
