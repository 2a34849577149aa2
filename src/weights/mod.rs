//! Model files read as data: ONNX graphs with their constants, tensors in safetensors files, what can be folded
//! into them, and the formats in which they are kept.
//!
//! Files are untrusted: sizes are checked before memory is reserved, external data stays inside the model's
//! folder, and every refusal names the model and the tensor or node. Nothing here runs a model.
//!
//! May be called by every room below it; calls `numeric` and `tensor`.

mod array;
mod error;
mod external;
mod fold;
mod graph;
mod node;
mod npz;
mod onnx;
pub mod proto;
mod safetensors;
mod safetensors_error;
mod stored;
mod tensor;
mod widen;

pub use array::{Array, ElementType, Values};
pub use error::OnnxError;
pub use fold::{BatchNorm, FoldError, fold_bn_conv};
pub use node::{Attribute, AttributeError, Node};
pub use npz::{DEFAULT_NPZ_BYTES, Npz, NpzCompression, NpzError, NpzFault};
pub use onnx::{Dim, OnnxModel, ValueInfo};
pub use safetensors::{Safetensors, SafetensorsEntry};
pub use safetensors_error::{SafetensorsError, TensorFault};
pub use stored::{StoreError, StoredWeights, UnknownWeightFormat, WeightFormat};
