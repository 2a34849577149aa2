//! The tensor descriptors that a custom operation gets its arguments by.
//!
//! An [`ArgTensor`] (`NEURON_ISA_TPB_CUSTOM_OP_ARG_TENSOR`) is 48 bytes, little-endian:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 1 | location: INVALID 0, SBUF 1, HBM 2 |
//! | 1 | 1 | shape type: INLINE_SHAPE8D 0, OUT_OF_LINE_SHAPE 1, INLINE_SHAPE4D 2 |
//! | 2 | 1 | data type, an instruction-word code |
//! | 3 | 5 | reserved |
//! | 8 | 16 | shape: 8 sizes of 16 bits, 4 sizes of 32 bits, or the address of sizes elsewhere |
//! | 24 | 16 | storage in SBUF: u32 address, u32 elements, u8 partitions, 3 reserved, u32 elements a block |
//! | 24 | 16 | storage in HBM: u64 address, u32 elements, u32 reserved |
//! | 40 | 8 | reserved |
//!
//! The header's own comment puts the last field at "39-47"; 24 + 16 is 40, and 8 bytes from 40 end at 47.
//! The widths of inline sizes are derived: the union has 16 bytes, for 8 sizes or for 4. The width of the
//! address in an out-of-line shape is in no source, so those 16 bytes are kept as they are.
//!
//! A [`UTensor`] is what the wrapper library makes of it: 8 bytes of its own, then the descriptor.
//!
//! Reading is lossless: reserved bytes are kept, and what parses comes back byte for byte. Reading accepts
//! every member of the three enumerations; what the wrapper cannot make a tensor of is refused when a tensor
//! is asked for ([`ArgTensor::materialise`]).

mod arg_tensor;
mod build;
mod materialise;
mod shape;
mod storage;
mod utensor;

#[cfg(test)]
mod tests;

pub use arg_tensor::{ARG_TENSOR_BYTES, ArgTensor, ArgTensorError, MAX_ARGUMENTS, parse_arguments};
pub use build::{BuildError, InlineForm};
pub use materialise::{MaterialiseError, TensorView};
pub use shape::{FrameworkShape, ShapeType};
pub use storage::{ArgLocation, HbmStorage, SbufStorage, TensorStorage};
pub use utensor::{UTENSOR_BYTES, UTensor};
