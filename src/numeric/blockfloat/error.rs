//! What can be wrong with a buffer of block floats.

use super::{BlockFormat, TILE_SIDE};

/// Buffers or values that cannot be encoded or decoded.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum BlockFloatError {
    /// A buffer of exponents that does not have one byte a block.
    #[error("{found} exponent bytes for {values} values; give one for each 16 or part of 16: {expected}")]
    ExponentBytes {
        /// Bytes given.
        found: usize,
        /// Blocks of the values.
        expected: usize,
        /// Values to encode or decode.
        values: usize,
    },
    /// A buffer of mantissas that does not hold whole blocks for all values.
    #[error(
        "{found} mantissa bytes for {values} {format} values; \
         give {} for each 16 or part of 16: {expected}", format.mantissa_bytes()
    )]
    MantissaBytes {
        /// Format of the values.
        format: BlockFormat,
        /// Bytes given.
        found: usize,
        /// Bytes of all blocks.
        expected: usize,
        /// Values to encode or decode.
        values: usize,
    },
    /// Packed bytes of another length than the count of values asks for.
    #[error("{found} bytes for {values} {format} values; {} needed", expected_text(*expected))]
    PackedBytes {
        /// Format of the values.
        format: BlockFormat,
        /// Bytes given.
        found: usize,
        /// Bytes of all blocks; `None` where no memory could hold them.
        expected: Option<usize>,
        /// Values that the bytes are said to hold.
        values: usize,
    },
    /// A target slice that is not as long as the tensor.
    #[error("a slice of {found} values cannot take the {expected} values of the tensor; give one as long")]
    ValueCount {
        /// Length of the slice.
        found: usize,
        /// Values of the tensor.
        expected: usize,
    },
    /// A matrix whose size in bytes is beyond what can be addressed.
    #[error(
        "a matrix of {rows} x {cols} in tiles of {TILE_SIDE} x {TILE_SIDE} has more bytes than memory can"
    )]
    TooLarge {
        /// Rows as given.
        rows: usize,
        /// Columns as given.
        cols: usize,
    },
    /// A slice that does not hold `rows * cols` values.
    #[error("{found} values for a matrix of {rows} x {cols}; give them row by row, without padding")]
    MatrixValues {
        /// Values given.
        found: usize,
        /// Rows of the matrix.
        rows: usize,
        /// Columns of the matrix.
        cols: usize,
    },
    /// Bytes that are not the tiles of the matrix.
    #[error("{found} bytes of {format} tiles for a matrix of {rows} x {cols}; {expected} needed")]
    TileBytes {
        /// Format of the tiles.
        format: BlockFormat,
        /// Bytes given.
        found: usize,
        /// Bytes of all tiles.
        expected: usize,
        /// Rows of the matrix.
        rows: usize,
        /// Columns of the matrix.
        cols: usize,
    },
    /// An infinity or NaN where only finite values make sense.
    #[error("value {index} is {value}; block floats of weights must be finite, so check where it comes from")]
    NotFinite {
        /// Place of the first such value.
        index: usize,
        /// The value.
        value: f32,
    },
    /// Packed bytes with the exponent of infinities and NaN.
    #[error(
        "block {block} has the exponent 255, which only an infinity or NaN gives; the bytes are damaged or of \
         another format"
    )]
    BlockNotFinite {
        /// The first such block.
        block: usize,
    },
}

fn expected_text(bytes: Option<usize>) -> String {
    bytes.map_or_else(|| "more than memory can hold".into(), |bytes| bytes.to_string())
}
