//! The pre-processing kernels that deployed nodes run on the GPU, held bit for bit against plain
//! transcriptions that compute every value from its definition and share nothing with the library.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod autoware_letterbox;
mod frames;
mod nearest_crop;
mod numpy;
#[path = "../support/mod.rs"]
mod support;
mod triangle;
