//! Messages of `geometry_msgs` that are one value with a header.

use super::{HeaderMsg, PoseMsg, PoseWithCovarianceMsg, TwistMsg, TwistWithCovarianceMsg};
use crate::io::cdr::{CdrError, CdrReader, CdrWriter};

macro_rules! stamped {
    ($(#[$doc:meta])* $name:ident, $(#[$field_doc:meta])* $field:ident: $part:ty, $bytes:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Default)]
        pub struct $name<'a> {
            /// Stamp, and the frame of the value.
            pub header: HeaderMsg<'a>,
            $(#[$field_doc])*
            pub $field: $part,
        }

        impl<'a> $name<'a> {
            /// Decodes one message.
            ///
            /// # Errors
            /// Any [`CdrError`] of its fields.
            pub fn decode(message: &'a [u8]) -> Result<Self, CdrError> {
                let reader = &mut CdrReader::new(message)?;
                Ok(Self {
                    header: HeaderMsg::read(reader)?,
                    $field: <$part>::read(reader)?,
                })
            }

            /// Encodes the message, little-endian.
            ///
            /// # Errors
            /// [`CdrError::TooLong`].
            pub fn encode(&self) -> Result<Vec<u8>, CdrError> {
                let mut writer = CdrWriter::with_capacity(self.header.frame_id.len() + 32 + $bytes);
                self.header.write(&mut writer)?;
                self.$field.write(&mut writer);
                Ok(writer.finish())
            }
        }
    };
}

stamped!(
    /// `geometry_msgs/PoseStamped`.
    PoseStampedMsg,
    /// The pose in the header's frame.
    pose: PoseMsg,
    56
);
stamped!(
    /// `geometry_msgs/PoseWithCovarianceStamped`.
    PoseWithCovarianceStampedMsg,
    /// The pose in the header's frame.
    pose: PoseWithCovarianceMsg,
    344
);
stamped!(
    /// `geometry_msgs/TwistStamped`.
    TwistStampedMsg,
    /// The velocities of the header's frame.
    twist: TwistMsg,
    48
);
stamped!(
    /// `geometry_msgs/TwistWithCovarianceStamped`.
    TwistWithCovarianceStampedMsg,
    /// The velocities of the header's frame.
    twist: TwistWithCovarianceMsg,
    336
);
