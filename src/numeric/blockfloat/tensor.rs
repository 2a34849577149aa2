//! Values stored as block floats.

use super::format::NOT_FINITE;
use super::{BLOCK_VALUES, BlockFloatError, BlockFormat, Kernels, encode_finite_into};

/// Finite values as block floats: the exponents of all blocks, then their mantissas.
///
/// Blocks run along the innermost axis of what the values are: sixteen values that follow each other in memory.
/// Where rows are no multiple of 16 long, a block reaches into the next row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockTensor {
    format: BlockFormat,
    values: usize,
    bytes: Vec<u8>,
}

impl BlockTensor {
    /// Encodes values.
    ///
    /// # Errors
    /// [`BlockFloatError::NotFinite`] for an infinity or NaN.
    pub fn encode(format: BlockFormat, values: &[f32]) -> Result<Self, BlockFloatError> {
        let blocks = values.len().div_ceil(BLOCK_VALUES);
        let mut bytes = vec![0; blocks * format.block_bytes()];
        let (exponents, mantissas) = bytes.split_at_mut(blocks);
        encode_finite_into(format, values, exponents, mantissas)?;
        Ok(Self {
            format,
            values: values.len(),
            bytes,
        })
    }

    /// Takes the bytes of [`Self::as_bytes`] back.
    ///
    /// # Errors
    /// [`BlockFloatError::PackedBytes`] where they are not as many as so many values take;
    /// [`BlockFloatError::BlockNotFinite`] for an exponent of 255.
    pub fn from_bytes(format: BlockFormat, values: usize, bytes: Vec<u8>) -> Result<Self, BlockFloatError> {
        let blocks = values.div_ceil(BLOCK_VALUES);
        let expected = blocks.checked_mul(format.block_bytes());
        if expected != Some(bytes.len()) {
            return Err(BlockFloatError::PackedBytes {
                format,
                found: bytes.len(),
                expected,
                values,
            });
        }
        if let Some(block) = bytes[..blocks].iter().position(|&e| e == NOT_FINITE) {
            return Err(BlockFloatError::BlockNotFinite { block });
        }
        Ok(Self {
            format,
            values,
            bytes,
        })
    }

    /// Format of the values.
    #[must_use]
    pub const fn format(&self) -> BlockFormat {
        self.format
    }

    /// Count of values, without padding.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.values
    }

    /// Whether there are no values.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.values == 0
    }

    /// All bytes: exponents, then mantissas.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The shared exponents, one a block.
    #[must_use]
    pub fn exponents(&self) -> &[u8] {
        &self.bytes[..self.blocks()]
    }

    /// The mantissas, [`BlockFormat::mantissa_bytes`] a block.
    #[must_use]
    pub fn mantissas(&self) -> &[u8] {
        &self.bytes[self.blocks()..]
    }

    /// All values. Every one is finite.
    #[must_use]
    pub fn decode(&self) -> Vec<f32> {
        let mut values = vec![0.0; self.values];
        Kernels::detect().decode_values(self.format, self.exponents(), self.mantissas(), &mut values);
        values
    }

    /// All values, into a slice of [`Self::len`].
    ///
    /// # Errors
    /// [`BlockFloatError::ValueCount`] for a slice of another length.
    pub fn decode_into(&self, values: &mut [f32]) -> Result<(), BlockFloatError> {
        if values.len() != self.values {
            return Err(BlockFloatError::ValueCount {
                found: values.len(),
                expected: self.values,
            });
        }
        Kernels::detect().decode_values(self.format, self.exponents(), self.mantissas(), values);
        Ok(())
    }

    const fn blocks(&self) -> usize {
        self.values.div_ceil(BLOCK_VALUES)
    }
}
