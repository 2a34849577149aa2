//! What is refused about gates.

use std::io;
use std::path::PathBuf;

use super::{Gate, GateResult};
use crate::accuracy::metrics::Direction;

/// Errors of gates and their files.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GateError {
    /// A bare number for a metric whose good side is not known.
    #[error(
        "gate {threshold} of metric {metric}: which side is good is not known; say min or max (known without: {known})"
    )]
    UnknownDirection {
        /// The threshold.
        threshold: f64,
        /// The metric.
        metric: String,
        /// Metrics that need no direction.
        known: String,
    },
    /// A direction that is wrong for the metric.
    #[error("gate {direction} {threshold} of metric {metric}: the good side of {metric} is {right}")]
    Contradiction {
        /// The threshold.
        threshold: f64,
        /// The metric.
        metric: String,
        /// The direction given.
        direction: Direction,
        /// The one that the metric has.
        right: Direction,
    },
    /// A threshold that is no number.
    #[error("gate of metric {metric}: the threshold is {threshold}; it must be a finite number")]
    Threshold {
        /// The metric.
        metric: String,
        /// What was given.
        threshold: f64,
    },
    /// A declaration that would let more pass than what is frozen.
    #[error(
        "gate {name}: {declared} is looser than {frozen}, which is frozen in {}: keep it, or edit the file and say why",
        file.display()
    )]
    Loosened {
        /// The gate.
        name: String,
        /// As it is declared now.
        declared: Box<Gate>,
        /// As it is frozen.
        frozen: Box<Gate>,
        /// Where.
        file: PathBuf,
    },
    /// A check of a gate that was never declared.
    #[error("gate {name} is not declared; there are: {}", if known.is_empty() { "none".into() } else { known.join(", ") })]
    Undeclared {
        /// The name.
        name: String,
        /// The declared ones.
        known: Vec<String>,
    },
    /// A value that a gate does not let pass.
    #[error("{0}")]
    Failed(Box<GateResult>),
    /// A file that cannot be read.
    #[error("{} cannot be read: {cause}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// What the system said.
        #[source]
        cause: io::Error,
    },
    /// A file that holds no gates.
    #[error("{} holds no gates: {reason}", file.display())]
    Form {
        /// The file.
        file: PathBuf,
        /// Why not.
        reason: String,
    },
    /// A file that cannot be written.
    #[error("{} cannot be written: {cause}", file.display())]
    Write {
        /// The file.
        file: PathBuf,
        /// What the system said.
        #[source]
        cause: io::Error,
    },
}
