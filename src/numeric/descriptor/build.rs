//! Making a descriptor from sizes and an address, checked.

use super::arg_tensor::ArgTensor;
use super::shape::{FrameworkShape, ShapeType};
use super::storage::{HbmStorage, SbufStorage, TensorStorage};
use crate::numeric::{DtypeError, IsaDtype, Kind, Numbering};

/// A form whose sizes are in the descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum InlineForm {
    /// Up to eight sizes of 16 bits.
    Shape8d,
    /// Up to four sizes of 32 bits.
    Shape4d,
}

/// Why a descriptor cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// No sizes at all, or more than the form holds.
    #[error("{shape_type} holds 1 to {limit} sizes, not {sizes}")]
    SizeCount {
        /// The form.
        shape_type: ShapeType,
        /// How many sizes were given.
        sizes: usize,
        /// How many it holds.
        limit: usize,
    },
    /// A size that is too wide for its field.
    #[error("size {size} of dimension {dimension} is above {limit}, the largest that {shape_type} holds")]
    SizeWidth {
        /// The form.
        shape_type: ShapeType,
        /// Which dimension, from 0.
        dimension: usize,
        /// Its size.
        size: u32,
        /// The largest that fits.
        limit: u32,
    },
    /// The element count does not fit its field.
    #[error(
        "{elements} elements are more than the {} that a descriptor can count",
        u32::MAX
    )]
    ElementCount {
        /// Product of the sizes.
        elements: u128,
    },
    /// The elements reach beyond the last address.
    #[error("{bytes} bytes from address {address:#x} reach beyond 64 bits")]
    AddressRange {
        /// Where they start.
        address: u64,
        /// How long they are.
        bytes: u64,
    },
    /// The data type has no elements.
    #[error(transparent)]
    Dtype(#[from] DtypeError),
}

impl FrameworkShape {
    /// Sizes in the descriptor. The fields beyond them are zero: what should stand there is in no source.
    ///
    /// # Errors
    ///
    /// [`BuildError::SizeCount`] or [`BuildError::SizeWidth`].
    pub fn inline(form: InlineForm, sizes: &[u32]) -> Result<Self, BuildError> {
        let (shape_type, limit) = match form {
            InlineForm::Shape8d => (ShapeType::Inline8d, 8),
            InlineForm::Shape4d => (ShapeType::Inline4d, 4),
        };
        if sizes.is_empty() || sizes.len() > limit {
            return Err(BuildError::SizeCount {
                shape_type,
                sizes: sizes.len(),
                limit,
            });
        }
        match form {
            InlineForm::Shape8d => {
                let mut dims = [0; 8];
                for (dimension, (&size, dim)) in sizes.iter().zip(&mut dims).enumerate() {
                    *dim = u16::try_from(size).map_err(|_| BuildError::SizeWidth {
                        shape_type,
                        dimension,
                        size,
                        limit: u16::MAX.into(),
                    })?;
                }
                Ok(Self::Inline8d(dims))
            }
            InlineForm::Shape4d => {
                let mut dims = [0; 4];
                dims[..sizes.len()].copy_from_slice(sizes);
                Ok(Self::Inline4d(dims))
            }
        }
    }
}

impl ArgTensor {
    /// A descriptor of elements in the device's memory, their number being the product of `sizes`. Reserved
    /// bytes are zero.
    ///
    /// # Errors
    ///
    /// [`BuildError`], whatever the reason.
    pub fn in_hbm(
        dtype: IsaDtype,
        form: InlineForm,
        sizes: &[u32],
        address: u64,
    ) -> Result<Self, BuildError> {
        let (shape, elements) = counted(dtype, form, sizes)?;
        // At most 2^32 elements of 64 bits.
        let bytes = (u64::from(elements) * u64::from(dtype.row().bits)).div_ceil(8);
        if address.checked_add(bytes).is_none() {
            return Err(BuildError::AddressRange { address, bytes });
        }
        let storage = TensorStorage::Hbm(HbmStorage {
            address,
            elements,
            reserved: 0,
        });
        Ok(Self::zero_reserved(dtype, shape, storage))
    }

    /// A descriptor of elements in the state buffer, their number being the product of `sizes`. Reserved bytes
    /// are zero. `partitions` and `elements_per_block` are taken as given: no source says what they must
    /// satisfy.
    ///
    /// # Errors
    ///
    /// [`BuildError`], whatever the reason.
    pub fn in_sbuf(
        dtype: IsaDtype,
        form: InlineForm,
        sizes: &[u32],
        address: u32,
        partitions: u8,
        elements_per_block: u32,
    ) -> Result<Self, BuildError> {
        let (shape, elements) = counted(dtype, form, sizes)?;
        let storage = TensorStorage::Sbuf(SbufStorage {
            address,
            elements,
            partitions,
            reserved: [0; 3],
            elements_per_block,
        });
        Ok(Self::zero_reserved(dtype, shape, storage))
    }

    const fn zero_reserved(dtype: IsaDtype, shape: FrameworkShape, storage: TensorStorage) -> Self {
        Self {
            dtype,
            reserved0: [0; 5],
            shape,
            storage,
            reserved1: [0; 8],
        }
    }
}

fn counted(dtype: IsaDtype, form: InlineForm, sizes: &[u32]) -> Result<(FrameworkShape, u32), BuildError> {
    if dtype.row().kind == Kind::Nothing {
        return Err(BuildError::Dtype(DtypeError::Invalid {
            numbering: Numbering::Isa,
        }));
    }
    let shape = FrameworkShape::inline(form, sizes)?;
    let elements = product(sizes);
    let elements = u32::try_from(elements).map_err(|_| BuildError::ElementCount { elements })?;
    Ok((shape, elements))
}

/// Product of the sizes of one descriptor. Eight of 16 bits or four of 32 bits stay below 2^128.
pub(super) fn product(sizes: &[u32]) -> u128 {
    sizes.iter().map(|&size| u128::from(size)).product()
}
