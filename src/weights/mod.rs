//! Model files read as data: ONNX graphs with their constants, tensors in safetensors files, NumPy archives and PyTorch
//! checkpoints, what can be folded into them, and the formats in which they are kept.
//!
//! Files are untrusted: sizes are checked before memory is reserved, external data stays inside the model's
//! folder, and every refusal names the model and the tensor or node. Nothing here runs a model.
//!
//! May be called by every room below it; calls `numeric` and `tensor`.

mod array;
mod batchnorm;
mod cache;
mod cache_file;
mod digest;
mod error;
mod external;
mod fold;
mod graph;
mod lookup;
mod lookup_error;
mod node;
mod npz;
mod onnx;
mod pattern;
pub mod proto;
mod records;
mod safetensors;
mod safetensors_error;
mod search;
mod state_dict;
mod stored;
mod tensor;
mod torch;
mod whole_file;
mod widen;

pub use array::{Array, ElementType, Values};
pub use batchnorm::BatchNorm;
pub use cache::{WeightCache, WeightCacheError, cache_root};
pub use digest::file_sha256;
pub(crate) use digest::hex;
pub use error::OnnxError;
pub use fold::{FoldError, LinearLayout, fold_bn, fold_bn_conv, fold_bn_conv_transpose, fold_bn_linear};
pub use lookup_error::LookupError;
pub use node::{Attribute, AttributeError, Node};
pub use npz::{DEFAULT_NPZ_BYTES, Npz, NpzCompression, NpzError, NpzFault};
pub use onnx::{Dim, OnnxModel, ValueInfo};
pub use pattern::{Pattern, PatternError};
pub use records::{AutoPad, ConvParams, GemmParams};
pub use safetensors::{Safetensors, SafetensorsEntry};
pub use safetensors_error::{SafetensorsError, TensorFault};
pub use search::{FoundWeights, WeightOrigin, WeightSearch, WeightSearchError};
pub use state_dict::{StateDict, StateDictError, load_state_dict, load_torch_checkpoint};
pub use stored::{StoreError, StoredWeights, UnknownWeightFormat, WeightFormat};
pub use torch::{PickleFault, TorchError, TorchTensorFault};
