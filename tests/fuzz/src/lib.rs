//! The parts of the crate that are fuzzed, under the paths that they have there.

#[path = "../../../src/image/mod.rs"]
pub mod image;
pub mod io;
pub mod lidar;
#[path = "../../../src/numeric/mod.rs"]
pub mod numeric;
#[path = "../../../src/outputs/mod.rs"]
pub mod outputs;
