//! `diagnostic_msgs/DiagnosticArray`.

use super::HeaderMsg;
use crate::io::cdr::{CdrError, CdrReader, CdrWriter};

/// Numbers of `diagnostic_msgs/DiagnosticStatus.level`.
pub mod diagnostic_level {
    /// All is well.
    pub const OK: u8 = 0;
    /// Worse than it should be.
    pub const WARN: u8 = 1;
    /// Broken.
    pub const ERROR: u8 = 2;
    /// Nothing was heard of it for too long.
    pub const STALE: u8 = 3;
}

/// `diagnostic_msgs/KeyValue`: a value by its name, both as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KeyValueMsg<'a> {
    /// Name.
    pub key: &'a str,
    /// Value.
    pub value: &'a str,
}

/// `diagnostic_msgs/DiagnosticStatus`: how one component is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DiagnosticStatusMsg<'a> {
    /// One of [`diagnostic_level`].
    pub level: u8,
    /// Name of the test, such as `node: part`.
    pub name: &'a str,
    /// What is the matter.
    pub message: &'a str,
    /// The piece of hardware, or the node.
    pub hardware_id: &'a str,
    /// Measured values.
    pub values: Vec<KeyValueMsg<'a>>,
}

/// `diagnostic_msgs/DiagnosticArray`: how some components are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DiagnosticArrayMsg<'a> {
    /// When it was found out.
    pub header: HeaderMsg<'a>,
    /// The components.
    pub status: Vec<DiagnosticStatusMsg<'a>>,
}

/// Least bytes of a key with its value: two lengths.
const VALUE_MIN_BYTES: usize = 4 + 4;
/// Least bytes of a status: its level and four lengths.
const STATUS_MIN_BYTES: usize = 1 + 4 * 4;

impl<'a> DiagnosticArrayMsg<'a> {
    /// Decodes one message.
    ///
    /// # Errors
    /// Any [`CdrError`] of its fields.
    pub fn decode(message: &'a [u8]) -> Result<Self, CdrError> {
        let reader = &mut CdrReader::new(message)?;
        let header = HeaderMsg::read(reader)?;
        let count = reader.sequence_len(STATUS_MIN_BYTES)?;
        let mut status = Vec::with_capacity(count);
        for _ in 0..count {
            status.push(DiagnosticStatusMsg::read(reader)?);
        }
        Ok(Self { header, status })
    }

    /// Encodes the message, little-endian.
    ///
    /// # Errors
    /// [`CdrError::TooLong`].
    pub fn encode(&self) -> Result<Vec<u8>, CdrError> {
        let values: usize = self.status.iter().map(|status| status.values.len()).sum();
        let mut writer = CdrWriter::with_capacity(64 + 128 * self.status.len() + 64 * values);
        self.header.write(&mut writer)?;
        writer.len_prefix(self.status.len())?;
        for status in &self.status {
            status.write(&mut writer)?;
        }
        Ok(writer.finish())
    }
}

impl<'a> DiagnosticStatusMsg<'a> {
    fn read(reader: &mut CdrReader<'a>) -> Result<Self, CdrError> {
        let level = reader.u8()?;
        let [name, message, hardware_id] = [reader.string()?, reader.string()?, reader.string()?];
        let count = reader.sequence_len(VALUE_MIN_BYTES)?;
        let mut values = Vec::with_capacity(count);
        for _ in 0..count {
            values.push(KeyValueMsg {
                key: reader.string()?,
                value: reader.string()?,
            });
        }
        Ok(Self {
            level,
            name,
            message,
            hardware_id,
            values,
        })
    }

    fn write(&self, writer: &mut CdrWriter) -> Result<(), CdrError> {
        writer.u8(self.level);
        writer.string(self.name)?;
        writer.string(self.message)?;
        writer.string(self.hardware_id)?;
        writer.len_prefix(self.values.len())?;
        for value in &self.values {
            writer.string(value.key)?;
            writer.string(value.value)?;
        }
        Ok(())
    }
}
