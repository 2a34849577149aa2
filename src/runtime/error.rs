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
    /// The device was lost, and more often than a run survives.
    #[error("device: {}", lost_text(causes, *within_s))]
    DeviceLost {
        /// Why, for each time, oldest first.
        causes: Vec<String>,
        /// Seconds within which that happened.
        within_s: u32,
    },
    /// The device was lost and cannot be opened any more.
    #[error("device: lost ({cause}) and not opened again in {attempts} attempt(s): {reason}")]
    DeviceGone {
        /// Why it was lost.
        cause: String,
        /// How often it was tried to open it.
        attempts: u32,
        /// Why the last attempt failed.
        reason: String,
    },
    /// A sink cannot be opened or failed.
    #[error("sink {node}: {reason}")]
    Sink {
        /// The node.
        node: String,
        /// What is wrong.
        reason: String,
    },
    /// The ROS 2 graph cannot be joined, or an endpoint cannot be made.
    #[error("ROS 2: {0}")]
    Ros2(#[from] crate::io::ros::RosError),
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
    /// An actor failed more often than it may.
    #[error("actor {actor} failed {failures} time(s) within {within_s} s and is given up: {cause}")]
    GivenUp {
        /// The actor.
        actor: String,
        /// Failures that count.
        failures: usize,
        /// Seconds within which they happened.
        within_s: u32,
        /// What went wrong at last.
        cause: String,
    },
    /// Something that a run needs and the pipeline file leaves open.
    #[error("{0}")]
    Incomplete(String),
}

fn lost_text(causes: &[String], within_s: u32) -> String {
    match causes {
        [first, .., last] if first == last => {
            format!("lost {} times within {within_s} s: {first}", causes.len())
        }
        [first, .., last] => format!(
            "lost {} times within {within_s} s: at first {first}; at last {last}",
            causes.len()
        ),
        _ => format!("lost: {}", causes.concat()),
    }
}

/// An error with its causes, each said once.
pub(crate) fn told(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}
