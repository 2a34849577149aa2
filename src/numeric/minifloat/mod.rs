//! Floating-point numbers of eight and of four bits.
//!
//! FP8 comes in three layouts ([`Fp8Format`]); what a layout's largest codes mean and what happens beyond the
//! largest value is a matter of a run-time [`Fp8Policy`]. FP4 is E2M1 alone, without infinity and NaN.
//!
//! `codec.rs` says what a code is, one value at a time; `simd*.rs` does the same for whole vectors.

mod codec;
mod format;
mod fp4;
mod policy;
mod simd;
#[cfg(target_arch = "x86_64")]
mod simd_avx2;
#[cfg(target_arch = "x86_64")]
mod simd_avx512;

pub use codec::{fp8_decode, fp8_decode_into, fp8_encode, fp8_encode_into, fp8_fields};
pub use format::{Fp8Fields, Fp8Format, UnknownFp8Format};
pub use fp4::{fp4_decode, fp4_decode_into, fp4_encode, fp4_encode_into, fp4_packed_bytes};
pub use policy::{Fp8Knobs, Fp8Policy, Fp8PolicyError};
