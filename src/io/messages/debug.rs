//! What Autoware's nodes publish about themselves: measured values and times of publication.

use super::{HeaderMsg, TimeMsg};
use crate::io::cdr::{CdrError, CdrReader, CdrWriter};

/// `autoware_internal_debug_msgs/Float64Stamped`: a value that was measured, such as a processing time.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Float64StampedMsg {
    /// When it was measured.
    pub stamp: TimeMsg,
    /// The value, in the unit that the topic's name says.
    pub data: f64,
}

impl Float64StampedMsg {
    /// Decodes one message.
    ///
    /// # Errors
    /// Any [`CdrError`] of its fields.
    pub fn decode(message: &[u8]) -> Result<Self, CdrError> {
        let reader = &mut CdrReader::new(message)?;
        Ok(Self {
            stamp: TimeMsg::read(reader)?,
            data: reader.f64()?,
        })
    }

    /// Encodes the message, little-endian.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = CdrWriter::with_capacity(16);
        self.stamp.write(&mut writer);
        writer.f64(self.data);
        writer.finish()
    }
}

/// `autoware_internal_msgs/PublishedTime`: when a message was published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PublishedTimeMsg<'a> {
    /// Header of the message.
    pub header: HeaderMsg<'a>,
    /// When it was published.
    pub published_stamp: TimeMsg,
}

impl<'a> PublishedTimeMsg<'a> {
    /// Decodes one message.
    ///
    /// # Errors
    /// Any [`CdrError`] of its fields.
    pub fn decode(message: &'a [u8]) -> Result<Self, CdrError> {
        let reader = &mut CdrReader::new(message)?;
        Ok(Self {
            header: HeaderMsg::read(reader)?,
            published_stamp: TimeMsg::read(reader)?,
        })
    }

    /// Encodes the message, little-endian.
    ///
    /// # Errors
    /// [`CdrError::TooLong`].
    pub fn encode(&self) -> Result<Vec<u8>, CdrError> {
        let mut writer = CdrWriter::with_capacity(self.header.frame_id.len() + 32);
        self.header.write(&mut writer)?;
        self.published_stamp.write(&mut writer);
        Ok(writer.finish())
    }
}
