//! What can be wrong with a network's blocks.

use crate::device::DeviceError;
use crate::ops::OpRefusal;
use crate::ops::attention::AttentionError;
use crate::tensor::{DType, Shape, TensorError};

/// Why a block was not built or did not run. Each names the block or layer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BlockError {
    /// Weights that do not fit each other, or a form that a block does not have.
    #[error("{block}: {reason}")]
    Weights {
        /// The block or layer.
        block: String,
        /// What does not fit.
        reason: String,
    },
    /// An input or output of another shape.
    #[error("{block}: {tensor} has shape {found}, expected {expected}")]
    Shape {
        /// The block or layer.
        block: String,
        /// Which tensor.
        tensor: String,
        /// Its shape.
        found: Box<Shape>,
        /// What was expected, in words.
        expected: String,
    },
    /// An input or output of another type.
    #[error("{block}: {tensor} holds {found}, expected {expected}")]
    DType {
        /// The block or layer.
        block: String,
        /// Which tensor.
        tensor: String,
        /// Its type.
        found: DType,
        /// What was expected.
        expected: DType,
    },
    /// Another number of inputs.
    #[error("{block}: {found} inputs were given, expected {expected}")]
    Count {
        /// The block.
        block: String,
        /// How many were given.
        found: usize,
        /// How many the block has.
        expected: usize,
    },
    /// A shape that cannot be.
    #[error("{block}: {source}")]
    Tensor {
        /// The block or layer.
        block: String,
        /// What is wrong.
        source: Box<TensorError>,
    },
    /// The device refused.
    #[error("{block}: {source}")]
    Device {
        /// The block or layer.
        block: String,
        /// What the device said.
        source: Box<DeviceError>,
    },
    /// Attention was refused.
    #[error("{block}: {source}")]
    Attention {
        /// The block or layer.
        block: String,
        /// What is wrong.
        source: Box<AttentionError>,
    },
    /// An operation that a block is made of refused.
    #[error(transparent)]
    Op(#[from] OpRefusal),
}

impl BlockError {
    pub(super) fn weights(block: &str, reason: impl Into<String>) -> Self {
        Self::Weights {
            block: block.into(),
            reason: reason.into(),
        }
    }

    pub(super) fn shape(block: &str, tensor: &str, found: Shape, expected: impl Into<String>) -> Self {
        Self::Shape {
            block: block.into(),
            tensor: tensor.into(),
            found: Box::new(found),
            expected: expected.into(),
        }
    }

    /// Names the block in which the device refused.
    pub(super) fn device(block: &str) -> impl Fn(DeviceError) -> Self + '_ {
        move |source| Self::Device {
            block: block.into(),
            source: Box::new(source),
        }
    }

    /// Names the block whose shape cannot be.
    pub(super) fn tensor(block: &str) -> impl Fn(TensorError) -> Self + '_ {
        move |source| Self::Tensor {
            block: block.into(),
            source: Box::new(source),
        }
    }
}
