//! The parts of the crate that are fuzzed, under the paths that they have there.

pub mod io;
pub mod lidar;
#[path = "../../../src/numeric/mod.rs"]
pub mod numeric;
#[path = "../../../src/outputs/mod.rs"]
pub mod outputs;
