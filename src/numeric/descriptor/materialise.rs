//! From a descriptor to a tensor, refused where the wrapper refuses.

use super::arg_tensor::ArgTensor;
use super::build::product;
use super::shape::ShapeType;
use super::storage::{ArgLocation, TensorStorage};
use crate::numeric::{ScalarType, WrapperError, element_size, isa_to_torch};

/// Why no tensor can be made of a descriptor. The first three are the wrapper's own refusals, the others ours.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MaterialiseError {
    /// The sizes are not in the descriptor.
    #[error(
        "OUT_OF_LINE_SHAPE: the sizes are not in the descriptor, and a tensor is made of inline sizes only"
    )]
    OutOfLine,
    /// No dimensions, or more than the form holds.
    #[error("rank {rank}: a tensor described by {shape_type} has 1 to {limit} dimensions")]
    Rank {
        /// What was asked for.
        rank: usize,
        /// The form.
        shape_type: ShapeType,
        /// How many it holds.
        limit: usize,
    },
    /// The wrapper has no torch type for the data type, or no scalar for the tensor.
    #[error(transparent)]
    Wrapper(#[from] WrapperError),
    /// The location is INVALID: there are no elements to look at.
    #[error("location INVALID: the descriptor says neither where the elements are nor how many")]
    NoLocation,
    /// Sizes and storage disagree on the number of elements.
    #[error("the sizes {sizes:?} make {product} elements, but the storage has {stored}")]
    ElementCount {
        /// The sizes.
        sizes: Vec<u32>,
        /// Their product.
        product: u128,
        /// What the storage says.
        stored: u32,
    },
    /// The elements reach beyond the last address.
    #[error("{bytes} bytes from address {address:#x} reach beyond 64 bits")]
    AddressRange {
        /// Where they start.
        address: u64,
        /// How long they are.
        bytes: u64,
    },
}

/// What the wrapper makes a torch tensor of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorView {
    /// Torch type of the elements.
    pub scalar_type: ScalarType,
    /// Size of each dimension; elements are contiguous, the last dimension fastest.
    pub sizes: Vec<u32>,
    /// Number of elements.
    pub elements: u32,
    /// Size of the elements in bytes.
    pub bytes: u64,
    /// In which memory they lie; never [`ArgLocation::Invalid`].
    pub location: ArgLocation,
    /// Where they start: in HBM as the whole chip sees it, in SBUF inside the state buffer's window.
    pub address: u64,
}

impl ArgTensor {
    /// The tensor that the descriptor describes, with `rank` dimensions (see
    /// [`FrameworkShape::sizes`](super::FrameworkShape::sizes)).
    ///
    /// The product of the sizes must be the storage's element count. The wrapper is not known to compare
    /// them; but a tensor of more elements than its storage reads what is not its own, and the comparison is
    /// the only one in the bytes that can tell a wrong rank.
    ///
    /// # Errors
    ///
    /// [`MaterialiseError`], in the order of its members.
    pub fn materialise(&self, rank: usize) -> Result<TensorView, MaterialiseError> {
        let sizes = self.shape.sizes(rank)?;
        let scalar_type = isa_to_torch(self.dtype.code())?;
        let element_bytes = element_size(self.dtype.code())?;
        let (address, elements) = match self.storage {
            TensorStorage::Invalid(_) => return Err(MaterialiseError::NoLocation),
            TensorStorage::Sbuf(sbuf) => (sbuf.address.into(), sbuf.elements),
            TensorStorage::Hbm(hbm) => (hbm.address, hbm.elements),
        };
        let product = product(&sizes);
        if product != u128::from(elements) {
            return Err(MaterialiseError::ElementCount {
                sizes,
                product,
                stored: elements,
            });
        }
        // At most 2^32 elements of 8 bytes.
        let bytes = u64::from(elements) * element_bytes as u64;
        if address.checked_add(bytes).is_none() {
            return Err(MaterialiseError::AddressRange { address, bytes });
        }
        Ok(TensorView {
            scalar_type,
            sizes,
            elements,
            bytes,
            location: self.storage.location(),
            address,
        })
    }
}
