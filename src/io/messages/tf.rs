//! `tf2_msgs/TFMessage`.

use super::{HeaderMsg, TransformMsg};
use crate::io::cdr::{CdrError, CdrReader, CdrWriter};

/// `geometry_msgs/TransformStamped`: where a child frame is in its parent at one time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TransformStampedMsg<'a> {
    /// Time, and the parent frame.
    pub header: HeaderMsg<'a>,
    /// The child frame.
    pub child_frame_id: &'a str,
    /// Takes points of the child to the parent.
    pub transform: TransformMsg,
}

/// `tf2_msgs/TFMessage`: some transforms.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TfMsg<'a> {
    /// The transforms.
    pub transforms: Vec<TransformStampedMsg<'a>>,
}

/// Least bytes of a transform: a stamp, two lengths, seven float64.
const TRANSFORM_MIN_BYTES: usize = 8 + 4 + 4 + 56;

impl<'a> TfMsg<'a> {
    /// Decodes one message.
    ///
    /// # Errors
    /// Any [`CdrError`] of its fields.
    pub fn decode(message: &'a [u8]) -> Result<Self, CdrError> {
        let reader = &mut CdrReader::new(message)?;
        let count = reader.sequence_len(TRANSFORM_MIN_BYTES)?;
        let mut transforms = Vec::with_capacity(count);
        for _ in 0..count {
            transforms.push(TransformStampedMsg {
                header: HeaderMsg::read(reader)?,
                child_frame_id: reader.string()?,
                transform: TransformMsg::read(reader)?,
            });
        }
        Ok(Self { transforms })
    }

    /// Encodes the message, little-endian.
    ///
    /// # Errors
    /// [`CdrError::TooLong`].
    pub fn encode(&self) -> Result<Vec<u8>, CdrError> {
        let mut writer = CdrWriter::with_capacity(8 + 128 * self.transforms.len());
        writer.len_prefix(self.transforms.len())?;
        for transform in &self.transforms {
            transform.header.write(&mut writer)?;
            writer.string(transform.child_frame_id)?;
            transform.transform.write(&mut writer);
        }
        Ok(writer.finish())
    }
}
