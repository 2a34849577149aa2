//! What can be wrong with an operation on tensors.

use crate::device::DeviceError;
use crate::tensor::{DType, Shape, TensorError};

/// Why an operation was not built or not launched. Each names the operation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpRefusal {
    /// Sizes or options that an operation does not have.
    #[error("{op}: {reason}")]
    Invalid {
        /// The operation.
        op: &'static str,
        /// What is wrong, and what is allowed.
        reason: String,
    },
    /// A tensor of another shape.
    #[error("{op}: {tensor} has shape {found}, expected {expected}")]
    Shape {
        /// The operation.
        op: &'static str,
        /// Which tensor.
        tensor: &'static str,
        /// Its shape.
        found: Box<Shape>,
        /// What was expected, in words.
        expected: String,
    },
    /// A tensor of another type.
    #[error("{op}: {tensor} holds {found}, expected {expected}")]
    DType {
        /// The operation.
        op: &'static str,
        /// Which tensor.
        tensor: &'static str,
        /// Its type.
        found: DType,
        /// What was expected, in words.
        expected: String,
    },
    /// Something that this device computes and the accelerator of a [`super::PortRule::Accelerator`] does not.
    #[error("{op}: {reason}; the rule of the accelerator is asked for, which this device does not need")]
    Unportable {
        /// The operation.
        op: &'static str,
        /// What the accelerator needs.
        reason: String,
    },
    /// A shape that cannot be.
    #[error("{op}: {source}")]
    Tensor {
        /// The operation.
        op: &'static str,
        /// What is wrong.
        source: Box<TensorError>,
    },
    /// The device refused.
    #[error("{op}: {source}")]
    Device {
        /// The operation.
        op: &'static str,
        /// What the device said.
        source: Box<DeviceError>,
    },
}

impl OpRefusal {
    pub(super) fn invalid(op: &'static str, reason: impl Into<String>) -> Self {
        Self::Invalid {
            op,
            reason: reason.into(),
        }
    }

    pub(super) fn shape(
        op: &'static str,
        tensor: &'static str,
        found: Shape,
        expected: impl Into<String>,
    ) -> Self {
        Self::Shape {
            op,
            tensor,
            found: Box::new(found),
            expected: expected.into(),
        }
    }

    /// Names the operation that the device refused.
    pub(super) fn device(op: &'static str) -> impl Fn(DeviceError) -> Self {
        move |source| Self::Device {
            op,
            source: Box::new(source),
        }
    }

    /// Names the operation whose shape cannot be.
    pub(super) fn tensor(op: &'static str) -> impl Fn(TensorError) -> Self {
        move |source| Self::Tensor {
            op,
            source: Box::new(source),
        }
    }
}
