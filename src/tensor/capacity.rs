//! Tensors of a varying number of rows in buffers of a fixed one.

use super::tile::resized;
use super::{Element, HostTensor, Shape, TensorError};

/// What does not fit a capacity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CapacityError {
    /// More along the axis than the capacity holds.
    #[error(
        "shape {shape} has {found} along axis {axis}, above the capacity of {capacity}: raise the capacity or allow \
         truncation"
    )]
    Exceeded {
        /// Shape of the tensor.
        shape: Shape,
        /// The axis of the capacity.
        axis: usize,
        /// The tensor's size along it.
        found: usize,
        /// What fits.
        capacity: usize,
    },
    /// An axis that does not exist, a value of another type, a result that is too large.
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

/// A tensor brought to `capacity` along one axis, and how many of its places there are valid. What is missing is filled
/// with `value`; what is too much is an error, or, with `truncate`, cut off at the end.
///
/// # Errors
/// [`CapacityError`].
pub fn pad_to_capacity<T: Element>(
    tensor: &HostTensor,
    capacity: usize,
    axis: usize,
    value: T,
    truncate: bool,
) -> Result<(HostTensor, usize), CapacityError> {
    let shape = *tensor.shape();
    let Some(&found) = shape.get(axis) else {
        return Err(CapacityError::Tensor(TensorError::BadAxis {
            what: format!("axis {axis}"),
            shape,
        }));
    };
    if found > capacity && !truncate {
        return Err(CapacityError::Exceeded {
            shape,
            axis,
            found,
            capacity,
        });
    }
    let mut dims = shape.to_vec();
    dims[axis] = capacity;
    let padded = resized(tensor, Shape::new(&dims)?, value)?;
    Ok((padded, found.min(capacity)))
}
