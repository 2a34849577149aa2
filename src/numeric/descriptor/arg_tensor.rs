//! The 48-byte descriptor and a stream of them.

use super::shape::{FrameworkShape, ShapeType};
use super::storage::{ArgLocation, TensorStorage};
use crate::numeric::{DtypeError, IsaDtype};

/// Size of a descriptor in bytes.
pub const ARG_TENSOR_BYTES: usize = 48;

/// Most arguments that one call of an operation takes.
pub const MAX_ARGUMENTS: usize = 10;

const SHAPE_TYPE: usize = 1;
const DTYPE: usize = 2;
const RESERVED0: usize = 3;
const SHAPE: usize = 8;
const STORAGE: usize = 24;
const RESERVED1: usize = 40;

/// Why bytes are no descriptor. Offsets count from the first byte of what was to be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArgTensorError {
    /// Too few or too many bytes.
    #[error("{what} has {expected} bytes, not {actual}")]
    Length {
        /// What was to be read.
        what: &'static str,
        /// Its size in bytes.
        expected: usize,
        /// Bytes given.
        actual: usize,
    },
    /// The location is no member.
    #[error("byte {offset}: location {code} ({code:#04x}) is none of INVALID 0, SBUF 1, HBM 2")]
    Location {
        /// Where it stands.
        offset: usize,
        /// The code.
        code: u8,
    },
    /// The shape type is no member.
    #[error(
        "byte {offset}: shape type {code} ({code:#04x}) is none of INLINE_SHAPE8D 0, OUT_OF_LINE_SHAPE 1, \
         INLINE_SHAPE4D 2"
    )]
    ShapeType {
        /// Where it stands.
        offset: usize,
        /// The code.
        code: u8,
    },
    /// The data type is no member.
    #[error("byte {offset}: {source}")]
    Dtype {
        /// Where it stands.
        offset: usize,
        /// What the table says of it.
        source: DtypeError,
    },
    /// A stream that ends inside a descriptor.
    #[error(
        "{bytes} bytes of arguments are no whole number of descriptors of {ARG_TENSOR_BYTES} bytes: the last \
         one has {}",
        .bytes % ARG_TENSOR_BYTES
    )]
    CutOff {
        /// Bytes given.
        bytes: usize,
    },
    /// More descriptors than a call takes.
    #[error("{arguments} arguments; a custom operation takes at most {MAX_ARGUMENTS}")]
    TooManyArguments {
        /// How many there are.
        arguments: usize,
    },
}

/// The descriptor of one argument. Its [location](ArgLocation) is that of `storage`, its
/// [shape type](ShapeType) that of `shape`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ArgTensor {
    /// Data type of the elements: any that the table names, whatever the architecture.
    pub dtype: IsaDtype,
    /// Bytes 3 to 7, kept as read.
    pub reserved0: [u8; 5],
    /// The sizes.
    pub shape: FrameworkShape,
    /// Where the elements lie.
    pub storage: TensorStorage,
    /// Bytes 40 to 47, kept as read.
    pub reserved1: [u8; 8],
}

impl ArgTensor {
    /// Reads a descriptor.
    ///
    /// # Errors
    ///
    /// [`ArgTensorError::Length`] for anything but 48 bytes; [`ArgTensorError::Location`],
    /// [`ArgTensorError::ShapeType`] or [`ArgTensorError::Dtype`], in that order, for a code that is no
    /// member.
    pub fn parse(bytes: &[u8]) -> Result<Self, ArgTensorError> {
        let descriptor = bytes.try_into().map_err(|_| ArgTensorError::Length {
            what: "a tensor descriptor",
            expected: ARG_TENSOR_BYTES,
            actual: bytes.len(),
        })?;
        Self::parse_at(descriptor, 0)
    }

    /// Reads a descriptor that starts `start` bytes into what the caller was given.
    pub(super) fn parse_at(bytes: &[u8; ARG_TENSOR_BYTES], start: usize) -> Result<Self, ArgTensorError> {
        let location = ArgLocation::from_code(bytes[0]).ok_or(ArgTensorError::Location {
            offset: start,
            code: bytes[0],
        })?;
        let shape_type = ShapeType::from_code(bytes[SHAPE_TYPE]).ok_or(ArgTensorError::ShapeType {
            offset: start + SHAPE_TYPE,
            code: bytes[SHAPE_TYPE],
        })?;
        let dtype = IsaDtype::try_from(bytes[DTYPE]).map_err(|source| ArgTensorError::Dtype {
            offset: start + DTYPE,
            source,
        })?;
        Ok(Self {
            dtype,
            reserved0: std::array::from_fn(|i| bytes[RESERVED0 + i]),
            shape: FrameworkShape::parse(shape_type, std::array::from_fn(|i| bytes[SHAPE + i])),
            storage: TensorStorage::parse(location, std::array::from_fn(|i| bytes[STORAGE + i])),
            reserved1: std::array::from_fn(|i| bytes[RESERVED1 + i]),
        })
    }

    /// The descriptor's bytes: the exact inverse of [`parse`](Self::parse).
    #[must_use]
    pub fn to_bytes(&self) -> [u8; ARG_TENSOR_BYTES] {
        let mut bytes = [0; ARG_TENSOR_BYTES];
        bytes[0] = self.storage.location().code();
        bytes[SHAPE_TYPE] = self.shape.shape_type().code();
        bytes[DTYPE] = self.dtype.code();
        bytes[RESERVED0..SHAPE].copy_from_slice(&self.reserved0);
        bytes[SHAPE..STORAGE].copy_from_slice(&self.shape.to_bytes());
        bytes[STORAGE..RESERVED1].copy_from_slice(&self.storage.to_bytes());
        bytes[RESERVED1..].copy_from_slice(&self.reserved1);
        bytes
    }
}

/// Reads the arguments of a call: descriptors one after the other, at most [`MAX_ARGUMENTS`].
///
/// # Errors
///
/// [`ArgTensorError::CutOff`], [`ArgTensorError::TooManyArguments`], then those of [`ArgTensor::parse`], with
/// offsets that count from the start of the stream.
pub fn parse_arguments(bytes: &[u8]) -> Result<Vec<ArgTensor>, ArgTensorError> {
    let (descriptors, rest) = bytes.as_chunks::<ARG_TENSOR_BYTES>();
    if !rest.is_empty() {
        return Err(ArgTensorError::CutOff { bytes: bytes.len() });
    }
    if descriptors.len() > MAX_ARGUMENTS {
        return Err(ArgTensorError::TooManyArguments {
            arguments: descriptors.len(),
        });
    }
    descriptors
        .iter()
        .enumerate()
        .map(|(index, descriptor)| ArgTensor::parse_at(descriptor, index * ARG_TENSOR_BYTES))
        .collect()
}
