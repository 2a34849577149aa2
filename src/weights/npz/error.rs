//! What can be wrong with a NumPy archive.

use std::path::PathBuf;

use crate::tensor::TensorError;
use crate::weights::ElementType;

use super::header::MAX_HEADER_BYTES;

/// Why a NumPy archive, or an array of it, was refused. Every variant names the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NpzError {
    /// The file could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file could not be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The bytes are no ZIP archive.
    #[error("{file}: not a NumPy archive, or cut short: {reason}")]
    Archive {
        /// The file.
        file: String,
        /// What the reader said.
        reason: String,
    },
    /// All that the archive holds takes more than is allowed.
    #[error("{file}: the arrays unpack to {declared} bytes, {allowed} are allowed")]
    TooLarge {
        /// The file.
        file: String,
        /// Bytes that the archive claims.
        declared: u64,
        /// Bytes that are allowed.
        allowed: u64,
    },
    /// The text about the archive is no JSON.
    #[error("{file}: its `__meta__` is no JSON")]
    Meta {
        /// The file.
        file: String,
        /// What the reader said.
        source: serde_json::Error,
    },
    /// One array is wrong, or cannot be written.
    #[error("{file}: array `{array}`: {fault}")]
    Array {
        /// The file.
        file: String,
        /// The array.
        array: String,
        /// What is wrong with it.
        fault: Box<NpzFault>,
    },
}

/// What is wrong with one array of a NumPy archive.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NpzFault {
    /// A member that the archive cannot give.
    #[error("it cannot be unpacked: {0}")]
    Unpack(String),
    /// A member that claims to grow more than its compression can make it.
    #[error("it is to unpack from {packed} to {declared} bytes, which its compression cannot do")]
    Ratio {
        /// Bytes in the archive.
        packed: u64,
        /// Bytes that it claims to have.
        declared: u64,
    },
    /// An array whose values take more memory than is left of what is allowed.
    #[error("its values take {needed} bytes of memory, of what is allowed {left} are left")]
    Room {
        /// Bytes that its values take.
        needed: u64,
        /// Bytes that are left.
        left: u64,
    },
    /// A member that does not start as arrays do.
    #[error("it does not start as a NumPy array does")]
    NoArray,
    /// A version of the format that is not known.
    #[error("it is of version {found} of the array format; 1, 2 and 3 are read")]
    Version {
        /// The version.
        found: u8,
    },
    /// A header longer than any is.
    #[error("its header claims {found} bytes; at most {MAX_HEADER_BYTES} are expected")]
    HeaderLength {
        /// Bytes that it claims.
        found: usize,
    },
    /// A header that cannot be read.
    #[error("its header cannot be read: {0}")]
    Header(String),
    /// A type that is not read.
    #[error(
        "its type is {found}; bool, whole numbers of 8 to 64 bits, float16, bfloat16 (`V2`), float32 and float64 are \
         read"
    )]
    Type {
        /// The type as the file spells it, cut to 64 characters.
        found: String,
    },
    /// Text where numbers are expected.
    #[error("it holds text; only `__meta__` may")]
    Text,
    /// A `__meta__` that is not one text.
    #[error("`__meta__` is one text, this is something else")]
    NoText,
    /// A shape that is refused.
    #[error(transparent)]
    Shape(#[from] TensorError),
    /// Another number of bytes than the shape needs.
    #[error("its shape needs {needed} bytes, there are {found}")]
    Length {
        /// Bytes that the shape needs.
        needed: u64,
        /// Bytes that there are.
        found: u64,
    },
    /// A value that cannot be carried.
    #[error("{value} cannot be carried as {element}")]
    ValueRange {
        /// The value in words.
        value: String,
        /// The type.
        element: ElementType,
    },
    /// A type that NumPy does not have.
    #[error("NumPy has no type for {element}; widen it to float32 first")]
    NoNumpyType {
        /// The type.
        element: ElementType,
    },
    /// A name that cannot stand in an archive.
    #[error(
        "a name is not empty, is not `__meta__`, and has neither control characters nor a leading `/` or `..`"
    )]
    Name,
}
