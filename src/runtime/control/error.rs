//! Why something cannot be done to a run.

use crate::perception::CallParamError;

/// Why a control call is refused. Nothing was changed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// There is no run, or it is over.
    #[error("the pipeline is not running")]
    NotRunning,
    /// A node that the pipeline does not have, or not as one of this kind.
    #[error("there is no {kind} `{name}`; there is {}", list(known))]
    Node {
        /// What was looked for: a detector, a source.
        kind: &'static str,
        /// The name.
        name: String,
        /// The names that there are.
        known: Vec<String>,
    },
    /// A parameter that the model does not have, or a value that it does not take.
    #[error(transparent)]
    Param(#[from] CallParamError),
    /// A stream that the run does not have.
    #[error("there is no stream `{name}`; there is {}", list(known))]
    Stream {
        /// The name.
        name: String,
        /// The names that there are.
        known: Vec<String>,
    },
    /// A topic that is a stream of several detectors or sources.
    #[error("`{name}` is the topic of several streams: name one of {}", list(streams))]
    Ambiguous {
        /// The topic.
        name: String,
        /// The streams.
        streams: Vec<String>,
    },
    /// The stream is already what it should become, or cannot become it.
    #[error("the stream `{stream}` {reason}")]
    Flow {
        /// The stream.
        stream: String,
        /// What is in the way.
        reason: String,
    },
    /// A source that cannot take a stream up.
    #[error("source `{source_node}` cannot take up {topic}: {reason}")]
    Topic {
        /// The source.
        source_node: String,
        /// The topic.
        topic: String,
        /// What is in the way, and what would work.
        reason: String,
    },
    /// Frames under way did not come out in time.
    #[error(
        "{left} frame(s) of the stream `{stream}` are still under way after {waited_s} s; it takes no new ones"
    )]
    StillUnderWay {
        /// The stream.
        stream: String,
        /// Frames that are left.
        left: u64,
        /// Seconds that were waited.
        waited_s: u64,
    },
    /// A deterministic run cannot be changed.
    #[error("a deterministic run repeats what it did, so it cannot be changed while it lasts")]
    Deterministic,
}

fn list(names: &[String]) -> String {
    match names {
        [] => "none".to_owned(),
        names => names.join(", "),
    }
}
