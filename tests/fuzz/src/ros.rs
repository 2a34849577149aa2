//! Names, quality of service and the protocol of rmw_zenoh, without the network.

#[path = "../../../src/io/ros/endpoint.rs"]
mod endpoint;
#[path = "../../../src/io/ros/error.rs"]
mod error;
#[path = "../../../src/io/ros/names.rs"]
mod names;
#[path = "../../../src/io/ros/qos.rs"]
mod qos;
#[path = "../../../src/io/ros/type_hash.rs"]
mod type_hash;
#[path = "../../../src/io/ros/wire/mod.rs"]
pub mod wire;

pub use endpoint::Endpoint;
pub use error::RosError;
pub use names::{NodeName, Remaps};
pub use qos::{Durability, History, Qos, Reliability};
pub use type_hash::{TypeHash, TypeHashError};
