//! `std_msgs/String`.

use crate::io::cdr::{CdrError, CdrReader, CdrWriter};

/// `std_msgs/String`: a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StringMsg<'a> {
    /// The text.
    pub data: &'a str,
}

impl<'a> StringMsg<'a> {
    /// Decodes one message.
    ///
    /// # Errors
    /// Any [`CdrError`] of its field.
    pub fn decode(message: &'a [u8]) -> Result<Self, CdrError> {
        let reader = &mut CdrReader::new(message)?;
        Ok(Self {
            data: reader.string()?,
        })
    }

    /// Encodes the message, little-endian.
    ///
    /// # Errors
    /// [`CdrError::TooLong`].
    pub fn encode(&self) -> Result<Vec<u8>, CdrError> {
        let mut writer = CdrWriter::with_capacity(self.data.len() + 5);
        writer.string(self.data)?;
        Ok(writer.finish())
    }
}
