//! What can go wrong with nodes and endpoints.

/// Why an endpoint cannot be made or used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RosError {
    /// A name that ROS 2 does not allow.
    #[error("{what} {name:?}: {reason}")]
    Name {
        /// What the name is for: a topic, a node, a namespace.
        what: &'static str,
        /// The name.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The middleware cannot be joined.
    #[error("cannot join the network: {0}")]
    Open(String),
    /// An endpoint cannot be made.
    #[error("topic {topic}: {reason}")]
    Endpoint {
        /// The topic.
        topic: String,
        /// What the middleware says.
        reason: String,
    },
    /// A message cannot be sent.
    #[error("cannot publish on {topic}: {reason}")]
    Publish {
        /// The topic.
        topic: String,
        /// What the middleware says.
        reason: String,
    },
    /// The node cannot be taken down in order.
    #[error("cannot leave the network: {0}")]
    Close(String),
}
