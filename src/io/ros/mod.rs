//! ROS 2 nodes without ROS 2: endpoints that carry serialised messages, over whatever middleware.
//!
//! [`RosNode`] is what a middleware has to do; the rest of the program knows no more of it. Messages travel as CDR
//! bytes with their four-byte header, exactly as a bag keeps them, so that one of a bag can be published unchanged.

#[cfg(feature = "dds")]
pub mod dds;
mod endpoint;
mod error;
mod names;
mod qos;
mod type_hash;
pub mod wire;
pub mod zenoh;

use std::fmt;
use std::sync::Arc;

pub use endpoint::Endpoint;
pub use error::RosError;
pub use names::{NodeName, Remaps};
pub use qos::{Durability, History, Qos, Reliability};
pub use type_hash::{TypeHash, TypeHashError};

/// A message as it arrived.
#[derive(Debug, Clone)]
pub struct Received {
    /// CDR bytes with their four-byte header.
    pub data: Vec<u8>,
    /// When the publisher says that it sent it, in nanoseconds since the epoch.
    pub source_time_ns: Option<i64>,
    /// Messages of this publisher that were sent before this one and did not arrive, as far as the middleware tells:
    /// 0 where it does not number its messages.
    pub missed_before: u64,
}

/// Called for every message, on a thread of the middleware: it must not wait.
pub type OnMessage = Box<dyn Fn(Received) + Send + Sync>;

/// A node of the ROS 2 graph. Every call may wait for the network and belongs on a thread that may.
pub trait RosNode: Send + Sync + fmt::Debug {
    /// Fully qualified name, such as `/perception/lidar_centerpoint`.
    fn name(&self) -> &str;

    /// Starts to publish.
    ///
    /// # Errors
    /// [`RosError::Endpoint`], [`RosError::Name`].
    fn publisher(&self, endpoint: &Endpoint) -> Result<Arc<dyn RosPublisher>, RosError>;

    /// Subscribes until the subscription is dropped.
    ///
    /// # Errors
    /// [`RosError::Endpoint`], [`RosError::Name`].
    fn subscribe(
        &self,
        endpoint: &Endpoint,
        on_message: OnMessage,
    ) -> Result<Box<dyn RosSubscription>, RosError>;

    /// Takes the node off the graph. Its publishers and subscriptions are of no use afterwards.
    ///
    /// # Errors
    /// [`RosError::Close`].
    fn close(&self) -> Result<(), RosError>;
}

/// A publisher of one topic.
pub trait RosPublisher: Send + Sync + fmt::Debug {
    /// The topic and what is said of it.
    fn endpoint(&self) -> &Endpoint;

    /// Sends one message: CDR bytes with their four-byte header. Waits for a slow subscription only if the publisher
    /// is reliable and keeps all.
    ///
    /// # Errors
    /// [`RosError::Publish`].
    fn publish(&self, data: Vec<u8>) -> Result<(), RosError>;

    /// Whether anybody is known to subscribe.
    fn has_subscribers(&self) -> bool;
}

/// A subscription; it ends when dropped.
pub trait RosSubscription: Send + Sync + fmt::Debug {
    /// The topic and what is said of it.
    fn endpoint(&self) -> &Endpoint;

    /// Whether anybody is known to publish.
    fn has_publishers(&self) -> bool;
}
