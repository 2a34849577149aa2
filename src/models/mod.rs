//! Networks lowered to device operations.
//!
//! [`lower`] turns an ONNX graph into a [`LoweredGraph`]: plain data that names buffers, constants and
//! launches in order. Every value of the graph is a strided view of a planned buffer, so transposes, slices,
//! splits and most reshapes cost nothing, and a concatenation is written in place by whoever makes its
//! parts. [`LoadedGraph`] is such a graph with its constants on a device.
//!
//! May be called by the rooms below it; calls `tensor`, `device`, `ops` and `weights`.

mod error;
mod facts;
mod fold;
mod infer;
mod movement;
mod resize;
mod survey;
mod window;

pub use error::ImportError;
pub use survey::{Survey, SurveyedValue, survey};
