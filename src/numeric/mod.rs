//! Number formats and their exact conversions: plain functions on plain values.
//!
//! May be called by every room; calls none.

mod halves;
mod isa;
mod simd_halves;
mod slices;

pub use halves::{
    bf16_decode_into, bf16_encode_into, bf16_to_f32, f16_decode_into, f16_encode_into, f16_to_f32,
    round_to_bf16, round_to_f16,
};
pub use isa::Isa;
pub use slices::LengthError;
