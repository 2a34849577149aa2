//! The part of the crate that is fuzzed.

#[path = "../../../src/numeric/mod.rs"]
pub mod numeric;
