//! Data types, shapes, strided views and host tensors.
//!
//! Plain data: nothing here knows a device, a file or a thread. Every room after it may use it; calls
//! `numeric`.

mod capacity;
mod cast;
mod convert;
mod dtype;
mod host;
mod names;
pub mod pack;
mod shape;
pub mod tile;
mod view;

pub use capacity::{CapacityError, pad_to_capacity};
pub use cast::CastError;
pub(crate) use cast::cast_into;
pub use dtype::{DType, Element, F8E3M4, F8E4M3, F8E5M2, NoElementType};
pub use host::HostTensor;
pub use names::UnknownDType;
pub use pack::{PackEntry, PackError, PackLayout, PackOptions};
pub use shape::{Layout, MAX_RANK, Shape, TensorSpec};
pub use tile::{LaidOut, TILE, TiledTensor, as_4d, pad_to_tile, round_up, tile_padded_shape};
pub use view::View;

/// What can be wrong with a shape, a view or a host tensor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TensorError {
    /// More dimensions than [`MAX_RANK`].
    #[error("rank {rank} is above the supported {MAX_RANK}")]
    RankTooHigh {
        /// The refused rank.
        rank: usize,
    },
    /// The element or byte count does not fit the address space.
    #[error("shape {dims:?} of {dtype_bytes}-byte elements is larger than the address space")]
    TooLarge {
        /// The refused dimensions.
        dims: Vec<usize>,
        /// Bytes per element (1 where only elements were counted).
        dtype_bytes: usize,
    },
    /// Two shapes that had to be equal (or broadcastable) are not.
    #[error("shape {found} does not fit {expected}")]
    ShapeMismatch {
        /// What was required.
        expected: Shape,
        /// What was given.
        found: Shape,
    },
    /// The data type is another one than required.
    #[error("expected {expected} elements, found {found}")]
    DTypeMismatch {
        /// What was required.
        expected: DType,
        /// What was given.
        found: DType,
    },
    /// A buffer length does not match the shape.
    #[error("expected {expected} bytes, found {found}")]
    LengthMismatch {
        /// Bytes that the spec needs.
        expected: usize,
        /// Bytes that were given.
        found: usize,
    },
    /// A number of values that the shape does not have.
    #[error("shape {shape} has {} elements, {found} values were given", shape.elements())]
    ValueCount {
        /// The shape.
        shape: Shape,
        /// Values that were given.
        found: usize,
    },
    /// An axis, range or permutation that the view does not have.
    #[error("{what} does not fit shape {shape}")]
    BadAxis {
        /// The refused axis, range or permutation in words.
        what: String,
        /// The shape that it was applied to.
        shape: Shape,
    },
}
