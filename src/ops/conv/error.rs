//! What can be wrong with a layer.

use crate::device::DeviceError;
use crate::tensor::{DType, Shape, TensorError};

/// Why a layer was not built or did not run. Each names the layer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LayerError {
    /// Weights or options that do not fit each other.
    #[error("{layer}: {reason}")]
    Weights {
        /// The layer.
        layer: String,
        /// What does not fit.
        reason: String,
    },
    /// Something that would work, but not as whoever asks for it expects.
    #[error("{layer}: refused: {reason}")]
    Refused {
        /// The layer.
        layer: String,
        /// Why, and what to do instead.
        reason: String,
    },
    /// An input or output of another shape.
    #[error("{layer}: {tensor} has shape {found}, expected {expected}")]
    Shape {
        /// The layer.
        layer: String,
        /// Which tensor.
        tensor: String,
        /// Its shape.
        found: Box<Shape>,
        /// What was expected, in words.
        expected: String,
    },
    /// An input or output of another type.
    #[error("{layer}: {tensor} holds {found}, expected {expected}")]
    DType {
        /// The layer.
        layer: String,
        /// Which tensor.
        tensor: String,
        /// Its type.
        found: DType,
        /// What was expected.
        expected: DType,
    },
    /// Another number of inputs.
    #[error("{layer}: {found} inputs were given, expected {expected}")]
    Count {
        /// The layer.
        layer: String,
        /// How many were given.
        found: usize,
        /// How many the layer has.
        expected: usize,
    },
    /// A shape that cannot be.
    #[error("{layer}: {source}")]
    Tensor {
        /// The layer.
        layer: String,
        /// What is wrong.
        source: Box<TensorError>,
    },
    /// The device refused.
    #[error("{layer}: {source}")]
    Device {
        /// The layer.
        layer: String,
        /// What the device said.
        source: Box<DeviceError>,
    },
}

impl LayerError {
    pub(in crate::ops) fn weights(layer: &str, reason: impl Into<String>) -> Self {
        Self::Weights {
            layer: layer.into(),
            reason: reason.into(),
        }
    }

    pub(in crate::ops) fn refused(layer: &str, reason: impl Into<String>) -> Self {
        Self::Refused {
            layer: layer.into(),
            reason: reason.into(),
        }
    }

    pub(in crate::ops) fn shape(
        layer: &str,
        tensor: &str,
        found: Shape,
        expected: impl Into<String>,
    ) -> Self {
        Self::Shape {
            layer: layer.into(),
            tensor: tensor.into(),
            found: Box::new(found),
            expected: expected.into(),
        }
    }

    pub(in crate::ops) fn dtype(layer: &str, tensor: &str, found: DType, expected: DType) -> Self {
        Self::DType {
            layer: layer.into(),
            tensor: tensor.into(),
            found,
            expected,
        }
    }

    /// Names the layer in which the device refused.
    pub(in crate::ops) fn device(layer: &str) -> impl Fn(DeviceError) -> Self + '_ {
        move |source| Self::Device {
            layer: layer.into(),
            source: Box::new(source),
        }
    }

    /// Names the layer whose shape cannot be.
    pub(in crate::ops) fn tensor(layer: &str) -> impl Fn(TensorError) -> Self + '_ {
        move |source| Self::Tensor {
            layer: layer.into(),
            source: Box::new(source),
        }
    }
}
