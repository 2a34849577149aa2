//! Networks lowered to device operations.
//!
//! [`lower()`] turns an ONNX graph into a [`LoweredGraph`]: plain data that names buffers, constants and
//! launches in order. Every value of the graph is a strided view of a planned buffer, so transposes, slices,
//! splits and most reshapes cost nothing, and a concatenation is written in place by whoever makes its
//! parts. [`LoadedGraph`] is such a graph with its constants on a device.
//!
//! May be called by the rooms below it; calls `tensor`, `device`, `ops` and `weights`.

mod emit;
mod error;
mod facts;
mod fold;
mod fuse;
mod infer;
mod launches;
mod loaded;
mod lower;
mod movement;
mod place;
mod plan;
mod resize;
mod survey;
mod window;

pub use error::ImportError;
pub use loaded::{ForwardError, LoadedGraph};
pub use lower::lower;
pub use plan::{
    BufferPlan, InputFormat, InputPlan, Launch, LowerOptions, LowerStats, LoweredGraph, OutputPlan, Slot,
    Step, WeightPlan,
};
pub use survey::{Survey, SurveyedDim, SurveyedValue, survey};
