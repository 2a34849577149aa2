//! What an endpoint is.

use super::{Qos, TypeHash};

/// One endpoint of a node: what it publishes or subscribes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Fully qualified topic, such as `/perception/objects`.
    pub topic: String,
    /// Type in its long form, such as `sensor_msgs/msg/PointCloud2`.
    pub type_name: String,
    /// Hash of the type.
    pub type_hash: TypeHash,
    /// Quality of service.
    pub qos: Qos,
}
