//! Why something is not found in a model.

use super::{AttributeError, FoldError};

/// Why a node, or what belongs to it, cannot be had. Every variant names the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LookupError {
    /// No node of this name.
    #[error("{model}: no node is called `{name}`{advice}")]
    NoNode {
        /// The model.
        model: String,
        /// The name.
        name: String,
        /// The nearest name, in words; empty where none is near.
        advice: String,
    },
    /// A name that several nodes have.
    #[error("{model}: {count} nodes are called `{name}`")]
    NameTwice {
        /// The model.
        model: String,
        /// The name.
        name: String,
        /// How many have it.
        count: usize,
    },
    /// A pattern that fits no node, or several where one is wanted.
    #[error("{model}: {count} nodes fit `{pattern}`, one is wanted{which}")]
    NotOne {
        /// The model.
        model: String,
        /// The pattern, and the operation where one was asked for.
        pattern: String,
        /// How many fit.
        count: usize,
        /// The first of them, in words.
        which: String,
    },
    /// An operation that has no such record.
    #[error("{model}: node `{node}` is a {found}, {expected} is wanted")]
    Operation {
        /// The model.
        model: String,
        /// The node.
        node: String,
        /// Its operation.
        found: String,
        /// What is wanted.
        expected: &'static str,
    },
    /// An input that was left out.
    #[error("{model}: node `{node}` has no input {slot}")]
    NoInput {
        /// The model.
        model: String,
        /// The node.
        node: String,
        /// Position of the input.
        slot: usize,
    },
    /// An input that is only known when the network runs.
    #[error("{model}: input {slot} of node `{node}`, `{value}`, is no constant")]
    NotConstant {
        /// The model.
        model: String,
        /// The node.
        node: String,
        /// Position of the input.
        slot: usize,
        /// The value.
        value: String,
    },
    /// A node whose settings or constants do not hold together.
    #[error("{model}: node `{node}`: {reason}")]
    Node {
        /// The model.
        model: String,
        /// The node.
        node: String,
        /// What is wrong.
        reason: String,
    },
    /// A convolution whose result is read by another node than one batch normalisation.
    #[error("{model}: a batch normalisation cannot be folded into node `{node}`: {reason}")]
    NotFoldable {
        /// The model.
        model: String,
        /// The convolution.
        node: String,
        /// Why not.
        reason: String,
    },
}

/// What is wrong with a node, before the model and the node are named.
pub(super) struct Reason(pub(super) String);

impl From<AttributeError> for Reason {
    fn from(error: AttributeError) -> Self {
        Self(error.to_string())
    }
}

impl From<FoldError> for Reason {
    fn from(error: FoldError) -> Self {
        Self(error.to_string())
    }
}
