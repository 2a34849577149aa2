//! `nav_msgs/Odometry`.

use super::{HeaderMsg, PoseWithCovarianceMsg, TwistWithCovarianceMsg};
use crate::io::cdr::{CdrError, CdrReader, CdrWriter};

/// `nav_msgs/Odometry`: where the vehicle is and how it moves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OdometryMsg<'a> {
    /// Stamp, and the frame of `pose`.
    pub header: HeaderMsg<'a>,
    /// Frame of `twist`.
    pub child_frame_id: &'a str,
    /// Pose of the child frame in the header's frame.
    pub pose: PoseWithCovarianceMsg,
    /// Velocity in the child frame.
    pub twist: TwistWithCovarianceMsg,
}

impl<'a> OdometryMsg<'a> {
    /// Decodes one message.
    ///
    /// # Errors
    /// Any [`CdrError`] of its fields.
    pub fn decode(message: &'a [u8]) -> Result<Self, CdrError> {
        let reader = &mut CdrReader::new(message)?;
        Ok(Self {
            header: HeaderMsg::read(reader)?,
            child_frame_id: reader.string()?,
            pose: PoseWithCovarianceMsg::read(reader)?,
            twist: TwistWithCovarianceMsg::read(reader)?,
        })
    }

    /// Encodes the message, little-endian.
    ///
    /// # Errors
    /// [`CdrError::TooLong`].
    pub fn encode(&self) -> Result<Vec<u8>, CdrError> {
        let texts = self.header.frame_id.len() + self.child_frame_id.len();
        let mut writer = CdrWriter::with_capacity(texts + 720);
        self.header.write(&mut writer)?;
        writer.string(self.child_frame_id)?;
        self.pose.write(&mut writer);
        self.twist.write(&mut writer);
        Ok(writer.finish())
    }
}
