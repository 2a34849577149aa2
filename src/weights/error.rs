//! What can be wrong with an ONNX file.

use std::path::PathBuf;

use crate::tensor::TensorError;

/// Why an ONNX file was refused. Every variant names the model; most name the tensor or node.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OnnxError {
    /// The file could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The bytes are not a protobuf message of the ONNX form.
    #[error("{model}: not an ONNX file, or cut short")]
    Decode {
        /// The model.
        model: String,
        /// What the decoder said.
        source: prost::DecodeError,
    },
    /// The message holds no graph: not an ONNX model.
    #[error("{model}: not an ONNX file: it holds no graph")]
    NoGraph {
        /// The model.
        model: String,
    },
    /// The file does not say which version of the operators it uses.
    #[error("{model}: no version of the ONNX operator set is given")]
    NoOpset {
        /// The model.
        model: String,
    },
    /// A negative dimension.
    #[error("{model}: tensor `{tensor}`: negative dimension in {dims:?}")]
    NegativeDim {
        /// The model.
        model: String,
        /// The tensor.
        tensor: String,
        /// The declared dimensions.
        dims: Vec<i64>,
    },
    /// A shape of too many dimensions or too many elements.
    #[error("{model}: tensor `{tensor}`")]
    Shape {
        /// The model.
        model: String,
        /// The tensor.
        tensor: String,
        /// What is wrong with the shape.
        source: Box<TensorError>,
    },
    /// The data is longer or shorter than the declared shape.
    #[error("{model}: tensor `{tensor}` of shape {shape} needs {expected} {unit}, the file holds {found}")]
    Length {
        /// The model.
        model: String,
        /// The tensor.
        tensor: String,
        /// Its shape in words.
        shape: String,
        /// What the shape needs.
        expected: usize,
        /// What there is.
        found: usize,
        /// `bytes` or `elements`.
        unit: &'static str,
    },
    /// An element type that is not read.
    #[error("{model}: tensor `{tensor}`: element type {code} is not supported")]
    ElementType {
        /// The model.
        model: String,
        /// The tensor.
        tensor: String,
        /// The code in the file.
        code: i32,
    },
    /// A value outside its declared type, such as 300 in a uint8 tensor.
    #[error("{model}: tensor `{tensor}`: {value} is no {element}")]
    ValueRange {
        /// The model.
        model: String,
        /// The tensor.
        tensor: String,
        /// The value in words.
        value: String,
        /// The declared type.
        element: String,
    },
    /// External data that is outside the model's folder, missing or badly described.
    #[error("{model}: tensor `{tensor}`: external data `{location}`: {reason}")]
    External {
        /// The model.
        model: String,
        /// The tensor.
        tensor: String,
        /// The path in the file.
        location: String,
        /// What is wrong.
        reason: String,
    },
    /// Constants in sparse form.
    #[error("{model}: sparse constants are not supported")]
    Sparse {
        /// The model.
        model: String,
    },
    /// Two things make one value.
    #[error("{model}: value `{value}` is defined twice")]
    DefinedTwice {
        /// The model.
        model: String,
        /// The value.
        value: String,
    },
    /// A value that nothing makes.
    #[error("{model}: value `{value}`, used by {user}, is defined nowhere")]
    Undefined {
        /// The model.
        model: String,
        /// The value.
        value: String,
        /// The node or output that uses it.
        user: String,
    },
    /// Nodes that depend on themselves.
    #[error("{model}: the graph has a cycle through node `{node}`")]
    Cycle {
        /// The model.
        model: String,
        /// One node of the cycle.
        node: String,
    },
    /// An attribute of a kind that its node cannot have.
    #[error("{model}: node `{node}`: attribute `{attribute}`: {reason}")]
    Attribute {
        /// The model.
        model: String,
        /// The node.
        node: String,
        /// The attribute.
        attribute: String,
        /// What is wrong.
        reason: String,
    },
}
