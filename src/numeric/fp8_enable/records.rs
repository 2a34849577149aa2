//! The two 64-byte records of the list, and where they hold what.

use std::ops::Range;

/// Size of a record in bytes.
pub const RECORD_BYTES: usize = 64;

/// Low word of a register write: opcode 0xA5, length 16 words.
const WRITE_WORD: u16 = 0x10A5;
/// Low word of a dummy read: opcode 0xAA, length 16 words.
const READ_WORD: u16 = 0x10AA;
/// Where the byte stands that tells how much is written, or what kind of read it is.
const MODE: usize = 12;
/// A write of four bytes.
const WRITE_MODE: u8 = 4;
/// What the dummy read has there.
const READ_MODE: u8 = 9;
/// Says that the read's address is in register form.
const READ_MARKER: u8 = 0x80;

/// Bytes of every record that belong to something else: header (0 to 3), events (4 to 11) and the mode byte.
const TAKEN: Range<usize> = 0..MODE + 1;

/// Why fields cannot be where they are said to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordFieldError {
    /// A field starts in bytes that belong to something else.
    #[error("the {field} starts at byte {offset}; bytes 0 to {MODE} hold header, events and mode")]
    Taken {
        /// The field.
        field: &'static str,
        /// Where it was to start.
        offset: usize,
    },
    /// A field ends outside.
    #[error("the {field} of {bytes} byte(s) at byte {offset} leaves the record of {RECORD_BYTES}")]
    Leaves {
        /// The field.
        field: &'static str,
        /// Where it was to start.
        offset: usize,
        /// Its size in bytes.
        bytes: usize,
    },
    /// Two fields of one record share bytes.
    #[error("the {first} and the {second} overlap")]
    Overlap {
        /// One field.
        first: &'static str,
        /// The other.
        second: &'static str,
    },
}

/// Where records hold what no source places: offsets that are known to fit and not to overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RecordFields {
    write_address: usize,
    write_value: usize,
    read_address: usize,
    read_marker: usize,
}

const ADDRESS_BYTES: usize = 8;
const VALUE_BYTES: usize = 4;

impl RecordFields {
    /// Checks four offsets: of the write's 8-byte address and 4-byte value, of the dummy read's 8-byte address
    /// and of its one marker byte.
    ///
    /// # Errors
    ///
    /// [`RecordFieldError`].
    pub fn new(
        write_address: usize,
        write_value: usize,
        read_address: usize,
        read_marker: usize,
    ) -> Result<Self, RecordFieldError> {
        disjoint(
            ("write's address", write_address, ADDRESS_BYTES),
            ("write's value", write_value, VALUE_BYTES),
        )?;
        disjoint(
            ("read's address", read_address, ADDRESS_BYTES),
            ("read's marker", read_marker, 1),
        )?;
        Ok(Self {
            write_address,
            write_value,
            read_address,
            read_marker,
        })
    }
}

impl Default for RecordFields {
    /// Addresses at 16, the write's value and the read's marker at 24. Made up; only that bytes 0 to 12 are
    /// taken is published.
    fn default() -> Self {
        Self {
            write_address: 16,
            write_value: 24,
            read_address: 16,
            read_marker: 24,
        }
    }
}

type Field = (&'static str, usize, usize);

fn disjoint(first: Field, second: Field) -> Result<(), RecordFieldError> {
    for (field, offset, bytes) in [first, second] {
        if offset < TAKEN.end {
            return Err(RecordFieldError::Taken { field, offset });
        }
        if offset > RECORD_BYTES - bytes {
            return Err(RecordFieldError::Leaves { field, offset, bytes });
        }
    }
    if first.1 < second.1 + second.2 && second.1 < first.1 + first.2 {
        return Err(RecordFieldError::Overlap {
            first: first.0,
            second: second.0,
        });
    }
    Ok(())
}

/// One record of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PreambleRecord {
    /// Writes a register.
    Write {
        /// Address of the register.
        address: u64,
        /// What is written.
        value: u32,
    },
    /// Reads a register only to be sure that writes before it are done.
    DummyRead {
        /// Address of the register.
        address: u64,
    },
}

impl PreambleRecord {
    /// The record's bytes, numbers little-endian; those that are no field are zero.
    #[must_use]
    pub fn to_bytes(&self, fields: &RecordFields) -> [u8; RECORD_BYTES] {
        let mut bytes = [0; RECORD_BYTES];
        let mut put =
            |offset: usize, field: &[u8]| bytes[offset..offset + field.len()].copy_from_slice(field);
        match *self {
            Self::Write { address, value } => {
                put(0, &WRITE_WORD.to_le_bytes());
                put(MODE, &[WRITE_MODE]);
                put(fields.write_address, &address.to_le_bytes());
                put(fields.write_value, &value.to_le_bytes());
            }
            Self::DummyRead { address } => {
                put(0, &READ_WORD.to_le_bytes());
                put(MODE, &[READ_MODE]);
                put(fields.read_address, &address.to_le_bytes());
                put(fields.read_marker, &[READ_MARKER]);
            }
        }
        bytes
    }
}
