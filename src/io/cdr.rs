//! The Common Data Representation of ROS 2 messages: plain CDR, version 1 (OMG DDS-XTypes, "XCDR1").
//!
//! A message starts with a four-byte header (two bytes naming the representation, two of options); every
//! primitive is aligned to its own size, counted from the first byte after that header. Strings carry a
//! `u32` length that includes a closing zero byte; sequences carry a `u32` element count.
//!
//! Reading borrows from the message and checks every length against the bytes that are left, so a lying
//! length is an error and never an allocation. Writing is always little-endian.

use thiserror::Error;

/// Bytes of the header in front of every message.
pub const HEADER_LEN: usize = 4;

/// Why bytes are not a CDR message. Offsets count from the start of the message, its header included.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CdrError {
    /// The message is shorter than its four-byte header.
    #[error("{len} bytes are too few for a CDR message (its header alone is 4)")]
    NoHeader {
        /// Bytes given.
        len: usize,
    },
    /// The header names another representation, such as parameter lists or XCDR2.
    #[error("CDR representation {representation:#06x} is not plain CDR (0x0000 or 0x0001)")]
    Representation {
        /// The first two bytes of the message, big-endian.
        representation: u16,
    },
    /// A value or sequence needs more bytes than are left.
    #[error("CDR ends at offset {offset}: {needed} bytes needed, {left} left")]
    TooShort {
        /// Where the value would start.
        offset: usize,
        /// Bytes that the value needs, or that its length claims.
        needed: u64,
        /// Bytes left in the message.
        left: usize,
    },
    /// A string is not UTF-8.
    #[error("the string at CDR offset {offset} is not UTF-8")]
    NotUtf8 {
        /// Where the characters start.
        offset: usize,
    },
    /// A string or sequence is longer than a `u32` can say.
    #[error("{len} elements do not fit a CDR length (32 bits)")]
    TooLong {
        /// Length of what was to be written.
        len: usize,
    },
}

/// Reads values in order from one message.
#[derive(Debug, Clone)]
pub struct CdrReader<'a> {
    message: &'a [u8],
    /// Next byte to read; never beyond `message.len()`.
    at: usize,
    big_endian: bool,
}

macro_rules! read_number {
    ($(#[$doc:meta])* $name:ident, $type:ty) => {
        $(#[$doc])*
        ///
        /// # Errors
        /// [`CdrError::TooShort`] where the message ends first.
        pub fn $name(&mut self) -> Result<$type, CdrError> {
            const SIZE: usize = size_of::<$type>();
            self.align(SIZE);
            let bytes = self.take(SIZE as u64)?;
            let mut raw = [0; SIZE];
            raw.copy_from_slice(bytes);
            Ok(if self.big_endian { <$type>::from_be_bytes(raw) } else { <$type>::from_le_bytes(raw) })
        }
    };
}

impl<'a> CdrReader<'a> {
    /// Reads the header of a message.
    ///
    /// # Errors
    /// [`CdrError::NoHeader`] or [`CdrError::Representation`].
    pub fn new(message: &'a [u8]) -> Result<Self, CdrError> {
        let [high, low, _, _, ..] = *message else {
            return Err(CdrError::NoHeader { len: message.len() });
        };
        match (high, low) {
            (0, 0 | 1) => Ok(Self {
                message,
                at: HEADER_LEN,
                big_endian: low == 0,
            }),
            _ => Err(CdrError::Representation {
                representation: u16::from_be_bytes([high, low]),
            }),
        }
    }

    read_number!(
        /// Reads a `uint8` (also `byte` and `char`).
        u8,
        u8
    );
    read_number!(
        /// Reads a `uint16`.
        u16,
        u16
    );
    read_number!(
        /// Reads an `int16`.
        i16,
        i16
    );
    read_number!(
        /// Reads an `int32`.
        i32,
        i32
    );
    read_number!(
        /// Reads a `uint32`.
        u32,
        u32
    );
    read_number!(
        /// Reads a `uint64`.
        u64,
        u64
    );
    read_number!(
        /// Reads an `int64`.
        i64,
        i64
    );
    read_number!(
        /// Reads a `float32`.
        f32,
        f32
    );
    read_number!(
        /// Reads a `float64`.
        f64,
        f64
    );

    /// Reads a `bool`: any byte but 0 is true.
    ///
    /// # Errors
    /// [`CdrError::TooShort`] where the message ends first.
    pub fn bool(&mut self) -> Result<bool, CdrError> {
        Ok(self.u8()? != 0)
    }

    /// Reads a fixed array `float64[N]`.
    ///
    /// # Errors
    /// [`CdrError::TooShort`] where the message ends first.
    pub fn f64_array<const N: usize>(&mut self) -> Result<[f64; N], CdrError> {
        let mut values = [0.0; N];
        for value in &mut values {
            *value = self.f64()?;
        }
        Ok(values)
    }

    /// Reads a `string`; its closing zero byte is not part of the result.
    ///
    /// A length of zero is read as the empty string, as some DDS implementations write it.
    ///
    /// # Errors
    /// [`CdrError::TooShort`] or [`CdrError::NotUtf8`].
    pub fn string(&mut self) -> Result<&'a str, CdrError> {
        let len = self.u32()?;
        let offset = self.at;
        let bytes = self.take(u64::from(len))?;
        let text = bytes.strip_suffix(&[0]).unwrap_or(bytes);
        std::str::from_utf8(text).map_err(|_| CdrError::NotUtf8 { offset })
    }

    /// Reads a `sequence<uint8>`.
    ///
    /// # Errors
    /// [`CdrError::TooShort`] where the length claims more than is left.
    pub fn bytes(&mut self) -> Result<&'a [u8], CdrError> {
        let len = self.u32()?;
        self.take(u64::from(len))
    }

    /// Reads the element count of a sequence whose elements take at least `min_element_bytes` each.
    ///
    /// The count is safe to allocate for: that many elements fit what is left of the message.
    ///
    /// # Errors
    /// [`CdrError::TooShort`] where the count claims more than is left.
    pub fn sequence_len(&mut self, min_element_bytes: usize) -> Result<usize, CdrError> {
        let count = self.u32()?;
        let needed = u64::from(count).saturating_mul(min_element_bytes.max(1) as u64);
        if needed > self.left() as u64 {
            return Err(self.too_short(needed));
        }
        Ok(count as usize)
    }

    /// Bytes not read yet.
    #[must_use]
    pub fn left(&self) -> usize {
        self.message.len() - self.at
    }

    /// Offset of the next byte from the start of the message, its header included.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.at
    }

    fn align(&mut self, size: usize) {
        let body = self.at - HEADER_LEN;
        // Padding may be cut off at the very end of a message; the read that follows reports it.
        self.at = (HEADER_LEN + body.next_multiple_of(size)).min(self.message.len());
    }

    fn take(&mut self, len: u64) -> Result<&'a [u8], CdrError> {
        if len > self.left() as u64 {
            return Err(self.too_short(len));
        }
        let start = self.at;
        // Fits: not more than what is left of a slice.
        self.at += len as usize;
        Ok(&self.message[start..self.at])
    }

    fn too_short(&self, needed: u64) -> CdrError {
        CdrError::TooShort {
            offset: self.at,
            needed,
            left: self.left(),
        }
    }
}

/// Writes one little-endian message.
#[derive(Debug, Clone)]
pub struct CdrWriter {
    message: Vec<u8>,
}

macro_rules! write_number {
    ($(#[$doc:meta])* $name:ident, $type:ty) => {
        $(#[$doc])*
        pub fn $name(&mut self, value: $type) {
            self.align(size_of::<$type>());
            self.message.extend_from_slice(&value.to_le_bytes());
        }
    };
}

impl CdrWriter {
    /// Starts a message with room for `body_bytes` after its header.
    #[must_use]
    pub fn with_capacity(body_bytes: usize) -> Self {
        let mut message = Vec::with_capacity(HEADER_LEN + body_bytes);
        message.extend_from_slice(&[0, 1, 0, 0]);
        Self { message }
    }

    write_number!(
        /// Writes a `uint8`.
        u8,
        u8
    );
    write_number!(
        /// Writes a `uint16`.
        u16,
        u16
    );
    write_number!(
        /// Writes an `int16`.
        i16,
        i16
    );
    write_number!(
        /// Writes an `int32`.
        i32,
        i32
    );
    write_number!(
        /// Writes a `uint32`.
        u32,
        u32
    );
    write_number!(
        /// Writes a `uint64`.
        u64,
        u64
    );
    write_number!(
        /// Writes an `int64`.
        i64,
        i64
    );
    write_number!(
        /// Writes a `float32`.
        f32,
        f32
    );
    write_number!(
        /// Writes a `float64`.
        f64,
        f64
    );

    /// Writes a `bool`.
    pub fn bool(&mut self, value: bool) {
        self.u8(u8::from(value));
    }

    /// Writes a fixed array `float64[N]`.
    pub fn f64_array<const N: usize>(&mut self, values: &[f64; N]) {
        values.iter().for_each(|&value| self.f64(value));
    }

    /// Writes a `string` with its closing zero byte.
    ///
    /// # Errors
    /// [`CdrError::TooLong`] above 4 GiB.
    pub fn string(&mut self, text: &str) -> Result<(), CdrError> {
        self.len_prefix(text.len() + 1)?;
        self.message.extend_from_slice(text.as_bytes());
        self.message.push(0);
        Ok(())
    }

    /// Writes a `sequence<uint8>`.
    ///
    /// # Errors
    /// [`CdrError::TooLong`] above 4 GiB.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), CdrError> {
        self.len_prefix(bytes.len())?;
        self.message.extend_from_slice(bytes);
        Ok(())
    }

    /// Writes the element count of a sequence.
    ///
    /// # Errors
    /// [`CdrError::TooLong`] above 2^32 - 1 elements.
    pub fn len_prefix(&mut self, len: usize) -> Result<(), CdrError> {
        self.u32(u32::try_from(len).map_err(|_| CdrError::TooLong { len })?);
        Ok(())
    }

    /// The finished message, header included.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        self.message
    }

    fn align(&mut self, size: usize) {
        let body = self.message.len() - HEADER_LEN;
        self.message.resize(HEADER_LEN + body.next_multiple_of(size), 0);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn values_are_aligned_from_after_the_header() {
        let mut w = CdrWriter::with_capacity(0);
        w.u8(7);
        w.f64(1.5);
        w.string("ab").unwrap();
        w.u16(3);
        let bytes = w.finish();
        // Laid out by hand: u8 at body 0, f64 at body 8, length at 16, "ab\0" at 20, u16 at 24.
        let mut expected = vec![0, 1, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0];
        expected.extend_from_slice(&1.5f64.to_le_bytes());
        expected.extend_from_slice(&[3, 0, 0, 0, b'a', b'b', 0, 0, 3, 0]);
        assert_eq!(bytes, expected);
        let mut r = CdrReader::new(&bytes).unwrap();
        assert_eq!(
            (r.u8(), r.f64(), r.string(), r.u16()),
            (Ok(7), Ok(1.5), Ok("ab"), Ok(3))
        );
        assert_eq!(r.left(), 0);
    }

    #[test]
    fn big_endian_messages_are_read() {
        let bytes = [0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 2, b'z', 0];
        let mut r = CdrReader::new(&bytes).unwrap();
        assert_eq!((r.u32(), r.string()), (Ok(0x0102), Ok("z")));
    }

    #[test]
    fn a_lying_length_is_an_error_with_its_offset() {
        let bytes = [0, 1, 0, 0, 0xff, 0xff, 0xff, 0xff, 1, 2];
        let expected = CdrError::TooShort {
            offset: 8,
            needed: 0xffff_ffff,
            left: 2,
        };
        assert_eq!(CdrReader::new(&bytes).unwrap().bytes(), Err(expected.clone()));
        assert_eq!(CdrReader::new(&bytes).unwrap().string(), Err(expected));
        let elements = CdrReader::new(&bytes).unwrap().sequence_len(8);
        assert!(matches!(elements, Err(CdrError::TooShort { needed, .. }) if needed == 8 * 0xffff_ffff));
    }

    #[test]
    fn other_representations_are_refused() {
        assert_eq!(
            CdrReader::new(&[0, 1, 0]).unwrap_err(),
            CdrError::NoHeader { len: 3 }
        );
        let error = CdrReader::new(&[0, 7, 0, 0]).unwrap_err();
        assert_eq!(error, CdrError::Representation { representation: 7 });
    }

    #[test]
    fn padding_cut_off_at_the_end_is_an_error_not_a_panic() {
        let mut r = CdrReader::new(&[0, 1, 0, 0, 9]).unwrap();
        assert_eq!(r.u8(), Ok(9));
        assert!(matches!(
            r.f64(),
            Err(CdrError::TooShort {
                needed: 8,
                left: 0,
                ..
            })
        ));
    }
}
