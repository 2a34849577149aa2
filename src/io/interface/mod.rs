//! Message definitions of ROS 2 as text, and the hash that tells types apart.
//!
//! A definition is what a `.msg` file holds: fields, constants, comments. A bag carries that of a message together with
//! those of the messages that it is made of (`ros2msg`); [`Interface::parse`] reads such a text, and
//! [`Interface::hash`] computes the type's hash, so that two sides know whether they mean the same type.

mod definition;
mod error;
mod hash;
mod line;

pub use definition::{Constant, Element, Field, FieldType, Interface, MessageDefinition, Repeat};
pub use error::DefinitionError;

use crate::io::ros::TypeHash;

/// Hash (RIHS01) of a message type by the `ros2msg` text that defines it, as a bag carries it.
///
/// # Errors
/// Any [`DefinitionError`]: the text cannot be read, or the definition of a message that it uses is missing.
pub fn hash_of_definition(type_name: &str, ros2msg: &str) -> Result<TypeHash, DefinitionError> {
    Interface::parse(type_name, ros2msg)?.hash()
}
