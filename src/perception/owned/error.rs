//! Why a model with its device fails.

use std::sync::Arc;

use crate::device::{DeviceError, OpenError, SlotError};
use crate::image::ImageError;
use crate::perception::{CallParamError, HeadError, InputError, PrepareError, SubmitError};
use crate::trace::TraceError;

/// Why the device half cannot be built.
pub(super) type BuildError = Box<dyn std::error::Error + Send + Sync>;

/// Why a model cannot be opened, or does not take a frame.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// There is no device.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A variant that the model does not have.
    #[error("model {model} has no variant `{name}`: it has {known}")]
    Variant {
        /// The model.
        model: Arc<str>,
        /// The name.
        name: String,
        /// Its variants, in words.
        known: String,
    },
    /// The device half cannot be built. Everything is closed.
    #[error("model {model} cannot be built: {source}")]
    Build {
        /// The model.
        model: Arc<str>,
        /// Why.
        source: BuildError,
    },
    /// The model was closed.
    #[error("model {model} is closed")]
    Closed {
        /// The model.
        model: Arc<str>,
    },
    /// Parameters of the call.
    #[error(transparent)]
    Params(#[from] CallParamError),
    /// Arrays that the model does not take.
    #[error(transparent)]
    Input(#[from] InputError),
    /// An array of pixels that is no image.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// A frame that cannot be prepared.
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    /// The device's part of a frame failed.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The device itself failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Memory of an earlier frame that the device has not given back.
    #[error(transparent)]
    Slot(#[from] SlotError),
    /// The network's output cannot be decoded.
    #[error(transparent)]
    Head(#[from] HeadError),
    /// A stream that the model has no room for.
    #[error("model {model}: {source}")]
    Stream {
        /// The model.
        model: Arc<str>,
        /// Why, with the streams that it has.
        source: SubmitError,
    },
}
