//! Why a definition cannot be read.

use thiserror::Error;

/// Why a message definition cannot be read or hashed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DefinitionError {
    /// The name of a type is not one of a message.
    #[error("{0:?} is no name of a message; package/msg/Name is expected")]
    TypeName(String),
    /// A line of a definition cannot be read.
    #[error("definition of {type_name}, line {line}: {reason}: {text:?}")]
    Line {
        /// The message that is defined.
        type_name: String,
        /// Line of the whole text, from 1.
        line: usize,
        /// The line, as far as it is shown.
        text: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Two fields have one name.
    #[error("definition of {type_name}: two fields are named {field}")]
    FieldTwice {
        /// The message that is defined.
        type_name: String,
        /// The field.
        field: String,
    },
    /// A message is defined twice, in two ways.
    #[error("the text defines {0} in two ways")]
    DefinedTwice(String),
    /// A message is used and not defined.
    #[error(
        "{used_by} uses {missing}, which the text does not define; add its definition after a line of 80 '='"
    )]
    Missing {
        /// The message that is not defined.
        missing: String,
        /// A message that uses it.
        used_by: String,
    },
    /// The text is in the interface definition language of OMG.
    #[error(
        "the definition of {0} is IDL (ros2idl), which is not read; record with a .msg definition (ros2msg)"
    )]
    Idl(String),
}
