//! What can be wrong with a safetensors file.

use std::path::PathBuf;

use super::ElementType;
use crate::tensor::{Shape, TensorError};

/// Why a safetensors file, or a tensor of it, was refused. Every variant names the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SafetensorsError {
    /// The file could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Fewer bytes than the length of a header takes.
    #[error("{file}: not a safetensors file: it has {bytes} bytes, the length of its header alone takes 8")]
    TooShort {
        /// The file.
        file: String,
        /// Its bytes.
        bytes: usize,
    },
    /// A header that is longer than what follows, or than any header is.
    #[error(
        "{file}: not a safetensors file, or cut short: its header is to be {length} bytes long; {available} follow, and \
         no header has more than 100000000"
    )]
    HeaderLength {
        /// The file.
        file: String,
        /// Length that the file gives.
        length: u64,
        /// Bytes after that number.
        available: usize,
    },
    /// A header that is no map in JSON.
    #[error("{file}: not a safetensors file: its header is no JSON map of tensors")]
    Header {
        /// The file.
        file: String,
        /// What the reader said.
        source: serde_json::Error,
    },
    /// Bytes after the last tensor that belong to none.
    #[error("{file}: damaged: the tensors cover {covered} of {bytes} bytes")]
    Uncovered {
        /// The file.
        file: String,
        /// Bytes after the header.
        bytes: usize,
        /// Bytes of all tensors.
        covered: usize,
    },
    /// One tensor is wrong, or cannot be had.
    #[error("{file}: tensor `{tensor}`: {fault}")]
    Tensor {
        /// The file.
        file: String,
        /// The tensor.
        tensor: String,
        /// What is wrong with it.
        fault: Box<TensorFault>,
    },
}

/// What is wrong with one tensor of a safetensors file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TensorFault {
    /// An entry without type, shape and offsets, or with others than it may have.
    #[error("its entry cannot be read: {0}")]
    Entry(String),
    /// A type that the format does not have.
    #[error("the type `{stored_type}` is not known")]
    UnknownType {
        /// The type, cut to 64 characters.
        stored_type: String,
    },
    /// A shape that is refused.
    #[error(transparent)]
    Shape(#[from] TensorError),
    /// Offsets that run backwards or beyond the file.
    #[error("its bytes {start}..{end} lie outside the {data_len} bytes of the tensors")]
    Offsets {
        /// First byte.
        start: usize,
        /// Byte after the last.
        end: usize,
        /// Bytes after the header.
        data_len: usize,
    },
    /// Another number of bytes than the shape needs.
    #[error("{stored_type} of shape {shape} needs {needed} bytes, its offsets give {found}")]
    Length {
        /// The shape.
        shape: Shape,
        /// The type.
        stored_type: &'static str,
        /// Bytes that the shape needs.
        needed: u128,
        /// Bytes that there are.
        found: usize,
    },
    /// A tensor that overlaps another, or leaves a gap.
    #[error(
        "it begins at byte {start}, the tensors before it end at {expected}: tensors may neither overlap nor leave gaps"
    )]
    Place {
        /// Where it begins.
        start: usize,
        /// Where it should.
        expected: usize,
    },
    /// Two entries with one name.
    #[error("it is there twice")]
    Twice,
    /// No such tensor.
    #[error("there is none of this name")]
    Missing,
    /// A type whose values cannot be read.
    #[error("values of type {stored_type} cannot be read")]
    Unread {
        /// The type.
        stored_type: &'static str,
    },
    /// A type that host tensors do not have.
    #[error("{stored_type} is no element type of host tensors; read it as an array")]
    NoHostType {
        /// The type.
        stored_type: &'static str,
    },
    /// A value that cannot be carried.
    #[error("{value} cannot be carried as {element}")]
    ValueRange {
        /// The value in words.
        value: String,
        /// The type.
        element: ElementType,
    },
}
