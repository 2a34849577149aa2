//! `rosgraph_msgs/Clock`.

use crate::io::cdr::{CdrError, CdrReader, CdrWriter};

/// `rosgraph_msgs/Clock`: the time of a simulation or of a bag that is played.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockMsg {
    /// Whole seconds.
    pub clock_sec: i32,
    /// Nanoseconds on top of `clock_sec`.
    pub clock_nanosec: u32,
}

impl ClockMsg {
    /// Clock at a time in nanoseconds since the epoch.
    ///
    /// `None` where the seconds do not fit ROS 2's 32 bits (before 1901 or after January 2038).
    #[must_use]
    pub fn new(time_ns: i64) -> Option<Self> {
        Some(Self {
            clock_sec: i32::try_from(time_ns.div_euclid(1_000_000_000)).ok()?,
            clock_nanosec: time_ns.rem_euclid(1_000_000_000) as u32,
        })
    }

    /// The time in nanoseconds since the epoch.
    #[must_use]
    pub fn time_ns(&self) -> i64 {
        i64::from(self.clock_sec) * 1_000_000_000 + i64::from(self.clock_nanosec)
    }

    /// Decodes one message.
    ///
    /// # Errors
    /// Any [`CdrError`] of its fields.
    pub fn decode(message: &[u8]) -> Result<Self, CdrError> {
        let reader = &mut CdrReader::new(message)?;
        Ok(Self {
            clock_sec: reader.i32()?,
            clock_nanosec: reader.u32()?,
        })
    }

    /// Encodes the message, little-endian.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut writer = CdrWriter::with_capacity(8);
        writer.i32(self.clock_sec);
        writer.u32(self.clock_nanosec);
        writer.finish()
    }
}
