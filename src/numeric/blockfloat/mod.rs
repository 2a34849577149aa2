//! Block floats: sixteen values share one exponent byte, each keeps a sign and a few magnitude bits.
//!
//! The two formats are `bfloat8_b` and `bfloat4_b` of Tenstorrent accelerators, with the arithmetic of their
//! host library (tt-metal, `tt_metal/impl/data_format`) and emulator, bit for bit. The exponent byte is the largest fp32 exponent field of the
//! sixteen values, so it has the bias 127 of fp32. One step of the grid is `2^(exponent - 126 - M)` for `M`
//! magnitude bits: 1/64 of the block's largest power of two for Bfp8, 1/4 for Bfp4.
//!
//! - [`encode_block`], [`decode_block`]: one block, the definition of the arithmetic
//! - [`encode_into`], [`encode_finite_into`], [`decode_into`]: slices in plain order
//! - [`encode_tiles`], [`decode_tiles`]: matrices in the byte layout of ttnn tiles
//! - [`BlockTensor`]: owned bytes of finite values, as weights are stored
//!
//! # Values outside the ordinary
//! - Zeros and subnormals become zero (older releases of tt-metal encoded subnormals as if they had a leading
//!   one). A value that rounds to zero loses its sign.
//! - An infinity or NaN gives its block the exponent 255. What then happens is what the arithmetic gives: an
//!   infinity stays one, with its sign; a NaN keeps the top bits of its payload and becomes an infinity where
//!   they round to zero; finite values that round up to `2^128` become infinite. [`encode_finite_into`] and
//!   [`BlockTensor`] refuse infinities and NaN instead.
//! - Encoding never writes a code that decodes to a subnormal. Foreign bytes may hold some: where the
//!   exponent field of an element would be negative, it decodes to `+0.0`; where it would be 0, the fraction
//!   stands behind a field of 0, so that the leading one is lost, as in the arithmetic that is followed here.
//! - A sign without a magnitude decodes to `+0.0`. Encoding never writes one: the accelerator would read it as
//!   an infinity.
//!
//! Encoding what was decoded gives the same bytes again, if an encoder wrote them: the largest magnitude of a
//! block has its top bit set and saturates below the next power of two, so the exponent stays; the others
//! are whole numbers of steps, so alignment and rounding drop nothing.

mod block;
mod error;
mod format;
mod simd;
#[cfg(target_arch = "x86_64")]
mod simd_avx2;
#[cfg(target_arch = "x86_64")]
mod simd_avx512;
mod slices;
mod tensor;
mod tile;

pub use block::{Block, decode_block, encode_block};
pub use error::BlockFloatError;
pub use format::{BLOCK_VALUES, BlockFormat, TILE_SIDE};
pub use simd::Kernels;
pub use slices::{decode_into, encode_finite_into, encode_into};
pub use tensor::BlockTensor;
pub use tile::{decode_tiles, encode_tiles};
