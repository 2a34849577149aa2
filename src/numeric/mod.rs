//! Number formats and their exact conversions: plain functions on plain values.
//!
//! May be called by every room; calls none.

mod halves;
mod isa;
mod length;
mod minifloat;
mod simd_chunks;
mod simd_halves;

pub use halves::{
    bf16_decode_into, bf16_encode_into, bf16_to_f32, f16_decode_into, f16_encode_into, f16_to_f32,
    round_to_bf16, round_to_f16,
};
pub use isa::Isa;
pub use length::LengthError;
pub use minifloat::{
    Fp8Fields, Fp8Format, Fp8Knobs, Fp8Policy, Fp8PolicyError, UnknownFp8Format, fp4_decode, fp4_decode_into,
    fp4_encode, fp4_encode_into, fp4_packed_bytes, fp8_decode, fp8_decode_into, fp8_encode, fp8_encode_into,
    fp8_fields,
};
