//! `builtin_interfaces/Time`.

use crate::io::cdr::{CdrError, CdrReader, CdrWriter};

/// `builtin_interfaces/Time`: a time since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TimeMsg {
    /// Whole seconds.
    pub sec: i32,
    /// Nanoseconds on top of `sec`.
    pub nanosec: u32,
}

impl TimeMsg {
    /// A time in nanoseconds since the epoch.
    ///
    /// `None` where the seconds do not fit ROS 2's 32 bits (before 1901 or after January 2038).
    #[must_use]
    pub fn new(time_ns: i64) -> Option<Self> {
        Some(Self {
            sec: i32::try_from(time_ns.div_euclid(1_000_000_000)).ok()?,
            nanosec: time_ns.rem_euclid(1_000_000_000) as u32,
        })
    }

    /// The time in nanoseconds since the epoch.
    #[must_use]
    pub fn ns(&self) -> i64 {
        i64::from(self.sec) * 1_000_000_000 + i64::from(self.nanosec)
    }

    pub(super) fn read(reader: &mut CdrReader<'_>) -> Result<Self, CdrError> {
        Ok(Self {
            sec: reader.i32()?,
            nanosec: reader.u32()?,
        })
    }

    pub(super) fn write(&self, writer: &mut CdrWriter) {
        writer.i32(self.sec);
        writer.u32(self.nanosec);
    }
}
