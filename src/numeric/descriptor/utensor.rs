//! The wrapper library's own object around a descriptor.

use super::arg_tensor::{ARG_TENSOR_BYTES, ArgTensor, ArgTensorError};
use super::materialise::MaterialiseError;
use crate::numeric::{Scalar, ScalarType, WrapperError, match_gate, scalar};

/// Size of the wrapper's object in bytes: 8 of its own, then the descriptor. So its shape type is byte 9 and
/// its data type byte 10.
pub const UTENSOR_BYTES: usize = HEADER_BYTES + ARG_TENSOR_BYTES;

const HEADER_BYTES: usize = 8;

/// The wrapper's object (`UTensor`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct UTensor {
    /// The storage handle, which starts at byte 0 of the eight before the descriptor. Its width is in no
    /// source, so all eight are kept.
    pub header: [u8; HEADER_BYTES],
    /// The descriptor.
    pub tensor: ArgTensor,
}

impl UTensor {
    /// Reads an object.
    ///
    /// # Errors
    ///
    /// [`ArgTensorError::Length`] for anything but 56 bytes, then as [`ArgTensor::parse`], with offsets that
    /// count from the start of the object.
    pub fn parse(bytes: &[u8]) -> Result<Self, ArgTensorError> {
        let wrong_length = || ArgTensorError::Length {
            what: "a wrapped tensor (UTensor)",
            expected: UTENSOR_BYTES,
            actual: bytes.len(),
        };
        let (header, descriptor) = bytes
            .split_first_chunk::<HEADER_BYTES>()
            .ok_or_else(wrong_length)?;
        let descriptor = descriptor.try_into().map_err(|_| wrong_length())?;
        Ok(Self {
            header: *header,
            tensor: ArgTensor::parse_at(descriptor, HEADER_BYTES)?,
        })
    }

    /// The object's bytes: the exact inverse of [`parse`](Self::parse).
    #[must_use]
    pub fn to_bytes(&self) -> [u8; UTENSOR_BYTES] {
        let mut bytes = [0; UTENSOR_BYTES];
        bytes[..HEADER_BYTES].copy_from_slice(&self.header);
        bytes[HEADER_BYTES..].copy_from_slice(&self.tensor.to_bytes());
        bytes
    }

    /// The data type code: byte 10 of the object.
    #[must_use]
    pub const fn dtype_code(&self) -> u8 {
        self.tensor.dtype.code()
    }

    /// Whether there is a storage handle. That eight zero bytes stand for none is our reading.
    #[must_use]
    pub fn has_storage(&self) -> bool {
        self.header != [0; HEADER_BYTES]
    }

    /// Whether a torch tensor of that type may be bound back: the storage handle must be there, then the type
    /// must be the one to which the data type code translates.
    ///
    /// # Errors
    ///
    /// Those of [`match_gate`].
    pub fn bind(&self, declared: ScalarType) -> Result<(), WrapperError> {
        match_gate(self.has_storage(), declared, self.dtype_code())
    }

    /// The scalar that a tensor of one element stands for; `element` holds the little-endian bytes of that
    /// element. The storage says how many elements there are, so an out-of-line shape does no harm.
    ///
    /// # Errors
    ///
    /// [`MaterialiseError::NoLocation`], then those of [`scalar`](crate::numeric::scalar()).
    pub fn scalar(&self, element: &[u8]) -> Result<Scalar, MaterialiseError> {
        let elements = self
            .tensor
            .storage
            .elements()
            .ok_or(MaterialiseError::NoLocation)?;
        Ok(scalar(self.dtype_code(), elements.into(), element)?)
    }
}
