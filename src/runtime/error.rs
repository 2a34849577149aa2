//! What ends a run.

use std::path::PathBuf;

/// Errors of a run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuntimeError {
    /// A source cannot be opened or has not what was asked for.
    #[error("source {node}: {reason}")]
    Source {
        /// The node.
        node: String,
        /// What is wrong and what would work.
        reason: String,
    },
    /// A model cannot be loaded.
    #[error("model {model}: {reason}")]
    Model {
        /// The model.
        model: String,
        /// What is wrong.
        reason: String,
    },
    /// The device cannot be opened or failed.
    #[error("device: {0}")]
    Device(String),
    /// A sink cannot be opened or failed.
    #[error("sink {node}: {reason}")]
    Sink {
        /// The node.
        node: String,
        /// What is wrong.
        reason: String,
    },
    /// A file that cannot be written.
    #[error("cannot write {}: {reason}", path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        reason: String,
    },
    /// An actor died.
    #[error("actor {actor} stopped: {reason}")]
    ActorDied {
        /// The actor.
        actor: String,
        /// Why.
        reason: String,
    },
    /// Something that a run needs and the pipeline file leaves open.
    #[error("{0}")]
    Incomplete(String),
}
