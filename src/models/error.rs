//! Why a graph cannot be lowered.

use crate::tensor::{Shape, TensorError};
use crate::weights::{AttributeError, FoldError, Node, OnnxModel, StoreError};

/// Why a model cannot be lowered. Every variant names the model and, where one is concerned, node and
/// operation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// An operation that the importer does not know.
    #[error("{model}: node `{node}`: operation {op} is not supported")]
    UnsupportedOp {
        /// The operation.
        op: String,
        /// The node.
        node: String,
        /// The model.
        model: String,
    },
    /// A known operation in a form that the importer does not know.
    #[error("{model}: node `{node}`: {op}: {reason} is not supported")]
    UnsupportedForm {
        /// The operation.
        op: String,
        /// The node.
        node: String,
        /// The model.
        model: String,
        /// The form.
        reason: String,
    },
    /// A node that contradicts itself or its inputs.
    #[error("{model}: node `{node}`: {op}: {reason}")]
    Invalid {
        /// The operation.
        op: String,
        /// The node.
        node: String,
        /// The model.
        model: String,
        /// The contradiction.
        reason: String,
    },
    /// An input whose size is neither in the file nor in the options.
    #[error("{model}: input `{input}` has the open shape {dims}: give sizes for it")]
    OpenShape {
        /// The model.
        model: String,
        /// The input.
        input: String,
        /// The declared dimensions in words.
        dims: String,
    },
    /// Options that contradict the model.
    #[error("{model}: {reason}")]
    Options {
        /// The model.
        model: String,
        /// The contradiction.
        reason: String,
    },
}

/// What is wrong with one node; the model and the node's name are added by whoever walks the graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NodeError {
    /// The operation is not known.
    UnknownOp,
    /// The operation is known, this form of it is not.
    Form(String),
    /// The node contradicts itself.
    Invalid(String),
}

impl NodeError {
    pub(super) fn at(self, node: &Node, model: &OnnxModel) -> ImportError {
        let (op, node, model) = (node.op_type.clone(), node.name.clone(), model.name().to_owned());
        match self {
            Self::UnknownOp => ImportError::UnsupportedOp { op, node, model },
            Self::Form(reason) => ImportError::UnsupportedForm {
                op,
                node,
                model,
                reason,
            },
            Self::Invalid(reason) => ImportError::Invalid {
                op,
                node,
                model,
                reason,
            },
        }
    }
}

impl From<TensorError> for NodeError {
    fn from(error: TensorError) -> Self {
        Self::Invalid(error.to_string())
    }
}

impl From<AttributeError> for NodeError {
    fn from(error: AttributeError) -> Self {
        Self::Invalid(error.to_string())
    }
}

impl From<FoldError> for NodeError {
    fn from(error: FoldError) -> Self {
        Self::Invalid(error.to_string())
    }
}

impl From<StoreError> for NodeError {
    fn from(error: StoreError) -> Self {
        Self::Invalid(error.to_string())
    }
}

pub(super) fn form<T>(reason: impl Into<String>) -> Result<T, NodeError> {
    Err(NodeError::Form(reason.into()))
}

pub(super) fn invalid<T>(reason: impl Into<String>) -> Result<T, NodeError> {
    Err(NodeError::Invalid(reason.into()))
}

/// A shape as the broadcast of several, or why there is none.
pub(super) fn broadcast(shapes: &[Shape]) -> Result<Shape, NodeError> {
    let rank = shapes.iter().map(Shape::rank).max().unwrap_or(0);
    let mut dims = vec![1; rank];
    for shape in shapes {
        for (dim, &size) in dims[rank - shape.rank()..].iter_mut().zip(shape.iter()) {
            match (*dim, size) {
                (d, s) if d == s || s == 1 => {}
                (1, s) => *dim = s,
                _ => return invalid(format!("shapes {shapes:?} do not fit each other")),
            }
        }
    }
    Ok(Shape::new(&dims)?)
}
