//! `std_msgs/Header`.

use crate::io::cdr::{CdrError, CdrReader, CdrWriter};

/// `std_msgs/Header`: when and in which frame something was sensed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HeaderMsg<'a> {
    /// Whole seconds of the sensor stamp.
    pub stamp_sec: i32,
    /// Nanoseconds on top of `stamp_sec`.
    pub stamp_nanosec: u32,
    /// Coordinate frame of the sensor.
    pub frame_id: &'a str,
}

impl<'a> HeaderMsg<'a> {
    /// Header with a stamp in nanoseconds since the epoch.
    ///
    /// `None` where the seconds do not fit ROS 2's 32 bits (before 1901 or after January 2038).
    #[must_use]
    pub fn new(stamp_ns: i64, frame_id: &'a str) -> Option<Self> {
        Some(Self {
            stamp_sec: i32::try_from(stamp_ns.div_euclid(1_000_000_000)).ok()?,
            stamp_nanosec: stamp_ns.rem_euclid(1_000_000_000) as u32,
            frame_id,
        })
    }

    /// The stamp in nanoseconds since the epoch.
    #[must_use]
    pub fn stamp_ns(&self) -> i64 {
        i64::from(self.stamp_sec) * 1_000_000_000 + i64::from(self.stamp_nanosec)
    }

    /// Reads a header in the middle of a message.
    ///
    /// # Errors
    /// Any [`CdrError`] of its fields.
    pub fn read(reader: &mut CdrReader<'a>) -> Result<Self, CdrError> {
        Ok(Self {
            stamp_sec: reader.i32()?,
            stamp_nanosec: reader.u32()?,
            frame_id: reader.string()?,
        })
    }

    /// Writes the header in the middle of a message.
    ///
    /// # Errors
    /// [`CdrError::TooLong`].
    pub fn write(&self, writer: &mut CdrWriter) -> Result<(), CdrError> {
        writer.i32(self.stamp_sec);
        writer.u32(self.stamp_nanosec);
        writer.string(self.frame_id)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn stamps_before_the_epoch_and_beyond_32_bits_are_handled() {
        let header = HeaderMsg::new(-1, "f").unwrap();
        assert_eq!(
            (header.stamp_sec, header.stamp_nanosec, header.stamp_ns()),
            (-1, 999_999_999, -1)
        );
        assert_eq!(HeaderMsg::new(i64::MAX, "f"), None);
    }
}
