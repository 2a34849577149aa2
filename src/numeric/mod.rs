//! Number formats and their exact conversions: plain functions on plain values.
//!
//! May be called by every room; calls none.

mod halves;
mod isa;

pub use halves::{bf16_to_f32, f16_to_f32, round_to_bf16, round_to_f16};
pub use isa::Isa;
