//! Slices of values in plain order: exponents in one buffer, mantissas in another.

use super::format::NOT_FINITE;
use super::{BLOCK_VALUES, BlockFloatError, BlockFormat, Kernels};

/// Encodes values in order, sixteen a block; the last block is filled up with zeros.
///
/// `exponents` takes one byte a block, `mantissas` [`BlockFormat::mantissa_bytes`] a block: Bfp8 one byte a
/// value, Bfp4 two values a byte with the first in the low half.
///
/// # Errors
/// [`BlockFloatError::ExponentBytes`] or [`BlockFloatError::MantissaBytes`] for a buffer of another length.
pub fn encode_into(
    format: BlockFormat,
    values: &[f32],
    exponents: &mut [u8],
    mantissas: &mut [u8],
) -> Result<(), BlockFloatError> {
    Kernels::detect().encode_into(format, values, exponents, mantissas)
}

/// [`encode_into`] for values that must be finite.
///
/// # Errors
/// As [`encode_into`]; [`BlockFloatError::NotFinite`] for the first infinity or NaN, with the buffers written.
pub fn encode_finite_into(
    format: BlockFormat,
    values: &[f32],
    exponents: &mut [u8],
    mantissas: &mut [u8],
) -> Result<(), BlockFloatError> {
    encode_into(format, values, exponents, mantissas)?;
    if !exponents.contains(&NOT_FINITE) {
        return Ok(());
    }
    match values.iter().position(|value| !value.is_finite()) {
        Some(index) => Err(BlockFloatError::NotFinite {
            index,
            value: values[index],
        }),
        None => Ok(()),
    }
}

/// Decodes what [`encode_into`] wrote. Any bytes decode to something; see the [module](super).
///
/// # Errors
/// [`BlockFloatError::ExponentBytes`] or [`BlockFloatError::MantissaBytes`] for a buffer of another length
/// than `values` asks for.
pub fn decode_into(
    format: BlockFormat,
    exponents: &[u8],
    mantissas: &[u8],
    values: &mut [f32],
) -> Result<(), BlockFloatError> {
    Kernels::detect().decode_into(format, exponents, mantissas, values)
}

impl Kernels {
    /// [`encode_into`] on these kernels.
    ///
    /// # Errors
    /// As [`encode_into`].
    pub fn encode_into(
        self,
        format: BlockFormat,
        values: &[f32],
        exponents: &mut [u8],
        mantissas: &mut [u8],
    ) -> Result<(), BlockFloatError> {
        check_lengths(format, values.len(), exponents.len(), mantissas.len())?;
        let (whole, rest) = values.as_chunks();
        let (exponents, last_exponent) = exponents.split_at_mut(whole.len());
        let (mantissas, last_mantissas) = mantissas.split_at_mut(whole.len() * format.mantissa_bytes());
        self.encode_blocks(format, whole, exponents, mantissas);
        if !rest.is_empty() {
            let mut block = [0.0; BLOCK_VALUES];
            block[..rest.len()].copy_from_slice(rest);
            self.encode_blocks(format, &[block], last_exponent, last_mantissas);
        }
        Ok(())
    }

    /// [`decode_into`] on these kernels.
    ///
    /// # Errors
    /// As [`decode_into`].
    pub fn decode_into(
        self,
        format: BlockFormat,
        exponents: &[u8],
        mantissas: &[u8],
        values: &mut [f32],
    ) -> Result<(), BlockFloatError> {
        check_lengths(format, values.len(), exponents.len(), mantissas.len())?;
        self.decode_values(format, exponents, mantissas, values);
        Ok(())
    }

    /// [`Self::decode_into`] where the lengths are known to fit.
    pub(super) fn decode_values(
        self,
        format: BlockFormat,
        exponents: &[u8],
        mantissas: &[u8],
        values: &mut [f32],
    ) {
        let (whole, rest) = values.as_chunks_mut();
        let (exponents, last_exponent) = exponents.split_at(whole.len());
        let (mantissas, last_mantissas) = mantissas.split_at(whole.len() * format.mantissa_bytes());
        self.decode_blocks(format, exponents, mantissas, whole);
        if !rest.is_empty() {
            let mut block = [[0.0; BLOCK_VALUES]];
            self.decode_blocks(format, last_exponent, last_mantissas, &mut block);
            rest.copy_from_slice(&block[0][..rest.len()]);
        }
    }
}

/// `values` is the length of a slice of fp32, so the products fit.
fn check_lengths(
    format: BlockFormat,
    values: usize,
    exponents: usize,
    mantissas: usize,
) -> Result<(), BlockFloatError> {
    let blocks = values.div_ceil(BLOCK_VALUES);
    if exponents != blocks {
        return Err(BlockFloatError::ExponentBytes {
            found: exponents,
            expected: blocks,
            values,
        });
    }
    let expected = blocks * format.mantissa_bytes();
    if mantissas != expected {
        return Err(BlockFloatError::MantissaBytes {
            format,
            found: mantissas,
            expected,
            values,
        });
    }
    Ok(())
}
