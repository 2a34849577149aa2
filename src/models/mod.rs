//! Networks lowered to device operations.
//!
//! [`lower()`] turns an ONNX graph into a [`LoweredGraph`]: plain data that names buffers, constants and
//! launches in order. Every value of the graph is a strided view of a planned buffer, so transposes, slices,
//! splits and most reshapes cost nothing, and a concatenation is written in place by whoever makes its
//! parts. [`LoadedGraph`] is such a graph with its constants on a device.
//!
//! The blocks of pillar detectors are there to be put together in the function of a trace's variant: the feature net
//! ([`pillars`]), the scatter to a canvas ([`crate::ops::gather`]), backbone and neck ([`second`]), the heads
//! ([`centerhead`], [`transfusion_head`]). Each is built from host weights, brings them to the device in its first run,
//! and computes into device tensors.
//!
//! May be called by the rooms below it; calls `numeric`, `tensor`, `device`, `ops` and `weights`.

mod block_error;
pub mod centerhead;
mod emit;
mod error;
mod facts;
mod fold;
mod fuse;
mod fuse_pillars;
mod infer;
mod launches;
mod layers;
mod loaded;
mod lower;
mod movement;
pub mod pillar_terms;
pub mod pillars;
mod place;
mod plan;
mod resize;
pub mod resnet;
pub mod second;
mod survey;
pub mod transfusion_head;
mod transposed;
pub mod two_term;
mod window;

pub use block_error::BlockError;
pub use error::ImportError;
pub use layers::{ConvKind, ConvSpec, RowLinear, as_feature_map};
pub use loaded::{ForwardError, LoadedGraph};
pub use lower::lower;
pub use plan::{
    BufferPlan, DensePlan, InputFormat, InputPlan, Launch, LowerOptions, LowerStats, LoweredGraph,
    OutputPlan, Slot, Step, WeightPlan,
};
pub use survey::{Survey, SurveyedDim, SurveyedValue, survey};
