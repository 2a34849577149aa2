//! Why a pipeline does not work as it should.

use std::fmt;

use serde::Serialize;

/// Why a pipeline is degraded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reason {
    /// The device was lost and is not open again yet.
    DeviceDown {
        /// What was wrong with it.
        cause: String,
    },
    /// An actor failed and is started again after a pause.
    Restarting {
        /// The actor.
        actor: String,
        /// What was wrong with it.
        cause: String,
    },
    /// An actor failed more often than it may and is not started again.
    GivenUp {
        /// The actor.
        actor: String,
        /// What was wrong with it.
        cause: String,
    },
    /// An actor has been at one frame for too long.
    Stalled {
        /// The actor.
        actor: String,
    },
    /// Nothing has come on a stream for too long.
    SourceSilent {
        /// The stream.
        stream: String,
    },
    /// A sink cannot write; its results are dropped until it can.
    SinkFailing {
        /// The sink.
        sink: String,
        /// What is wrong.
        cause: String,
    },
    /// Too many results of a stream came after their deadline.
    DeadlineMisses {
        /// The stream.
        stream: String,
        /// Share of the last results that were late, in percent.
        percent: u32,
    },
    /// A model has no room for a stream.
    StreamRejected {
        /// The stream.
        stream: String,
    },
    /// The stamps of a stream jumped against the time at which its messages came.
    ClockJump {
        /// The stream.
        stream: String,
        /// Stamp before the jump, in nanoseconds.
        from_ns: i64,
        /// Stamp after it, in nanoseconds.
        to_ns: i64,
    },
}

/// What sort of reason it is. With what it is about, it tells reasons apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReasonKind {
    /// [`Reason::DeviceDown`], about `device`.
    DeviceDown,
    /// [`Reason::Restarting`], about an actor.
    Restarting,
    /// [`Reason::GivenUp`], about an actor.
    GivenUp,
    /// [`Reason::Stalled`], about an actor.
    Stalled,
    /// [`Reason::SourceSilent`], about a stream.
    SourceSilent,
    /// [`Reason::SinkFailing`], about a sink.
    SinkFailing,
    /// [`Reason::DeadlineMisses`], about a stream.
    DeadlineMisses,
    /// [`Reason::StreamRejected`], about a stream.
    StreamRejected,
    /// [`Reason::ClockJump`], about a stream.
    ClockJump,
}

impl Reason {
    /// Which sort it is, and the actor, sink or stream that it is about.
    #[must_use]
    pub fn about(&self) -> (ReasonKind, &str) {
        match self {
            Self::DeviceDown { .. } => (ReasonKind::DeviceDown, "device"),
            Self::Restarting { actor, .. } => (ReasonKind::Restarting, actor),
            Self::GivenUp { actor, .. } => (ReasonKind::GivenUp, actor),
            Self::Stalled { actor } => (ReasonKind::Stalled, actor),
            Self::SourceSilent { stream } => (ReasonKind::SourceSilent, stream),
            Self::SinkFailing { sink, .. } => (ReasonKind::SinkFailing, sink),
            Self::DeadlineMisses { stream, .. } => (ReasonKind::DeadlineMisses, stream),
            Self::StreamRejected { stream } => (ReasonKind::StreamRejected, stream),
            Self::ClockJump { stream, .. } => (ReasonKind::ClockJump, stream),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DeviceDown { cause } => write!(f, "the device is down: {cause}"),
            Self::Restarting { actor, cause } => write!(f, "{actor} is started again: {cause}"),
            Self::GivenUp { actor, cause } => write!(f, "{actor} is not started again: {cause}"),
            Self::Stalled { actor } => write!(f, "{actor} is stalled"),
            Self::SourceSilent { stream } => write!(f, "nothing comes on {stream}"),
            Self::SinkFailing { sink, cause } => write!(f, "sink {sink} cannot write: {cause}"),
            Self::DeadlineMisses { stream, percent } => {
                write!(f, "{percent} % of the results of {stream} are late")
            }
            Self::StreamRejected { stream } => write!(f, "there is no room for the stream {stream}"),
            Self::ClockJump {
                stream,
                from_ns,
                to_ns,
            } => write!(f, "stamps of {stream} jumped from {from_ns} ns to {to_ns} ns"),
        }
    }
}
