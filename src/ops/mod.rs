//! Checked builders that turn tensor operations into device programs.
//!
//! Called by `trace`, `models` and whoever builds a graph; calls `device` and `tensor`.

mod context;

pub use context::{DeviceTensor, OpContext};
