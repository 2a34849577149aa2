//! What a client can get wrong.

use crate::image::{DecodeError, ImageError};
use crate::io::cloud_file::CloudFileError;
use crate::weights::NpzError;

/// What a client sent that cannot be used: the field by its path, and what is wrong with it.
#[derive(Debug, thiserror::Error)]
#[error("{field}: {fault}")]
pub struct InputError {
    /// Path of the field, such as `images[0].intrinsics`.
    pub field: String,
    /// What is wrong with it.
    #[source]
    pub fault: InputFault,
}

/// What is wrong with a field.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InputFault {
    /// Text that is no base64.
    #[error("no base64: {0}; expected the standard alphabet with padding")]
    Base64(::base64::DecodeError),
    /// More bytes than are taken.
    #[error("{found} bytes; at most {allowed} are taken")]
    TooManyBytes {
        /// Bytes given.
        found: usize,
        /// Bytes that are taken.
        allowed: usize,
    },
    /// More of something than is taken.
    #[error("{found} {what}; at most {allowed} are taken")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many.
        found: usize,
        /// How many are taken.
        allowed: usize,
    },
    /// Something that has to be there.
    #[error("missing: expected {expected}")]
    Missing {
        /// What is expected, in words.
        expected: String,
    },
    /// Something that cannot be there.
    #[error("{0}")]
    Unexpected(String),
    /// A value that is not what is expected.
    #[error("{found}; expected {expected}")]
    Value {
        /// The value, in words and short.
        found: String,
        /// What is expected, in words.
        expected: String,
    },
    /// Rows that differ in length.
    #[error("row {row} has {found} values, the first one has {expected}")]
    Ragged {
        /// The row, counted from 0.
        row: usize,
        /// Its values.
        found: usize,
        /// Values of the first row.
        expected: usize,
    },
    /// NaN, or infinite.
    #[error("element {at} is not finite")]
    NotFinite {
        /// Position in row-major order.
        at: usize,
    },
    /// A file of points that cannot be read.
    #[error(transparent)]
    Cloud(#[from] CloudFileError),
    /// A NumPy archive that cannot be read.
    #[error(transparent)]
    Npz(#[from] NpzError),
    /// An image that cannot be decoded.
    #[error(transparent)]
    Image(#[from] DecodeError),
    /// Pixels whose size cannot be.
    #[error(transparent)]
    Pixels(#[from] ImageError),
}

impl InputError {
    /// A fault in a field.
    pub fn new(field: impl Into<String>, fault: impl Into<InputFault>) -> Self {
        Self {
            field: field.into(),
            fault: fault.into(),
        }
    }

    /// Something that has to be there.
    pub(super) fn missing(field: impl Into<String>, expected: impl Into<String>) -> Self {
        let expected = expected.into();
        Self::new(field, InputFault::Missing { expected })
    }

    /// A value that is not what is expected.
    pub(super) fn value(
        field: impl Into<String>,
        found: impl Into<String>,
        expected: impl Into<String>,
    ) -> Self {
        let (found, expected) = (found.into(), expected.into());
        Self::new(field, InputFault::Value { found, expected })
    }

    /// Something that cannot be there.
    pub(super) fn unexpected(field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::new(field, InputFault::Unexpected(reason.into()))
    }
}

/// Text from outside as messages show it: short, and without control characters.
pub(crate) fn shown(text: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().take(64).map(plain).collect()
}

/// A JSON value as messages show it: short.
pub(super) fn shown_json(value: &serde_json::Value) -> String {
    use serde_json::Value;
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(value) => value.to_string(),
        Value::String(text) => format!("the text {:?}", shown(text)),
        Value::Array(items) => format!("a list of {}", items.len()),
        Value::Object(entries) => format!("an object of {} entries", entries.len()),
    }
}
