//! Framing and fields of MCAP records, as the format's specification lays them out (<https://mcap.dev/spec>).
//!
//! Every length is checked against what is there before anything is allocated or read.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::io::bag::{BagError, TypeDefinition};

/// First and last bytes of a file.
pub(super) const MAGIC: [u8; 8] = [0x89, b'M', b'C', b'A', b'P', 0x30, b'\r', b'\n'];

/// Bytes of a record's opcode and length.
pub(super) const RECORD_HEADER_LEN: u64 = 9;

/// Bytes of a message record before its payload: channel, sequence, log time, publish time.
pub(super) const MESSAGE_HEADER_LEN: usize = 2 + 4 + 8 + 8;

/// Opcodes of the records that reading needs.
pub(super) mod op {
    pub(in super::super) const FOOTER: u8 = 0x02;
    pub(in super::super) const SCHEMA: u8 = 0x03;
    pub(in super::super) const CHANNEL: u8 = 0x04;
    pub(in super::super) const MESSAGE: u8 = 0x05;
    pub(in super::super) const CHUNK: u8 = 0x06;
    pub(in super::super) const MESSAGE_INDEX: u8 = 0x07;
    pub(in super::super) const STATISTICS: u8 = 0x0b;
    pub(in super::super) const DATA_END: u8 = 0x0f;
}

/// Reads little-endian fields from a record's content; `None` where the content is too short.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*head)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn text(&mut self) -> Option<&'a str> {
        let len = self.u32()?;
        std::str::from_utf8(self.take(len as usize)?).ok()
    }

    /// The next record inside a chunk: opcode and content.
    pub(super) fn record(&mut self) -> Option<(u8, &'a [u8])> {
        let mut ahead = *self;
        let [opcode] = ahead.array()?;
        let len = usize::try_from(ahead.u64()?).ok()?;
        let content = ahead.take(len)?;
        *self = ahead;
        Some((opcode, content))
    }
}

/// The fields of a message record before its payload.
#[derive(Debug, Clone, Copy)]
pub(super) struct MessageHeader {
    pub channel: u16,
    pub log_time_ns: u64,
    pub publish_time_ns: u64,
}

impl MessageHeader {
    pub(super) fn parse(fields: &mut Fields<'_>) -> Option<Self> {
        let channel = fields.u16()?;
        let _sequence = fields.u32()?;
        Some(Self {
            channel,
            log_time_ns: fields.u64()?,
            publish_time_ns: fields.u64()?,
        })
    }
}

/// A channel record: which topic, in which encoding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ChannelRecord {
    pub id: u16,
    pub schema: u16,
    pub topic: String,
    pub encoding: String,
    /// `offered_qos_profiles` and `topic_type_hash` of its metadata, where rosbag2 keeps them; empty for none.
    pub offered_qos: String,
    pub type_hash: String,
}

impl ChannelRecord {
    pub(super) fn parse(content: &[u8]) -> Option<Self> {
        let mut fields = Fields(content);
        let mut channel = Self {
            id: fields.u16()?,
            schema: fields.u16()?,
            topic: fields.text()?.to_owned(),
            encoding: fields.text()?.to_owned(),
            offered_qos: String::new(),
            type_hash: String::new(),
        };
        // Its messages can be read without the metadata: what is not whole there is left out.
        let metadata_len = fields.u32().unwrap_or(0) as usize;
        let mut metadata = Fields(fields.take(metadata_len).unwrap_or_default());
        while let (Some(key), Some(value)) = (metadata.text(), metadata.text()) {
            match key {
                "offered_qos_profiles" => value.clone_into(&mut channel.offered_qos),
                "topic_type_hash" => value.clone_into(&mut channel.type_hash),
                _ => {}
            }
        }
        Some(channel)
    }
}

/// A schema record: a type and its definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SchemaRecord {
    pub id: u16,
    pub name: String,
    /// `None` where the definition is no text.
    pub definition: Option<TypeDefinition>,
}

impl SchemaRecord {
    pub(super) fn parse(content: &[u8]) -> Option<Self> {
        let mut fields = Fields(content);
        let (id, name) = (fields.u16()?, fields.text()?.to_owned());
        let definition = fields
            .text()
            .zip(fields.text())
            .map(|(encoding, text)| TypeDefinition {
                encoding: encoding.to_owned(),
                text: text.to_owned(),
            });
        // A schema of no language and no text is how a file says that it has none.
        let definition = definition.filter(|d| !d.encoding.is_empty() || !d.text.is_empty());
        Some(Self { id, name, definition })
    }
}

/// A file read record by record, with its position known.
#[derive(Debug)]
pub(super) struct RecordFile {
    pub path: PathBuf,
    reader: BufReader<File>,
    at: u64,
    len: u64,
}

impl RecordFile {
    /// Opens `file`; `shown` is the name that errors give.
    pub(super) fn open(file: &Path, shown: &Path) -> Result<Self, BagError> {
        let opened = File::open(file).map_err(BagError::io(shown))?;
        let len = opened.metadata().map_err(BagError::io(shown))?.len();
        Ok(Self {
            path: shown.to_owned(),
            reader: BufReader::with_capacity(1 << 16, opened),
            at: 0,
            len,
        })
    }

    /// Offset of the next byte.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// Bytes from the next one to the end of the file.
    pub(super) fn left(&self) -> u64 {
        self.len.saturating_sub(self.at)
    }

    /// Moves to an offset; within the buffer this costs nothing.
    pub(super) fn seek(&mut self, to: u64) -> Result<(), BagError> {
        let moved = match i64::try_from(i128::from(to) - i128::from(self.at)) {
            Ok(0) => Ok(()),
            Ok(by) => self.reader.seek_relative(by),
            Err(_) => self.reader.seek(SeekFrom::Start(to)).map(|_| ()),
        };
        moved.map_err(BagError::io(&self.path))?;
        self.at = to;
        Ok(())
    }

    /// Opcode and content length of the next record; `None` where the file ends before the record's header
    /// does. The length may be more than is left.
    pub(super) fn record_header(&mut self) -> Result<Option<(u8, u64)>, BagError> {
        let Some(header) = self.bytes::<9>()? else {
            return Ok(None);
        };
        let [opcode, len @ ..] = header;
        Ok(Some((opcode, u64::from_le_bytes(len))))
    }

    /// The next `N` bytes, or `None` where fewer are left.
    pub(super) fn bytes<const N: usize>(&mut self) -> Result<Option<[u8; N]>, BagError> {
        if self.left() < N as u64 {
            return Ok(None);
        }
        let mut bytes = [0; N];
        self.reader
            .read_exact(&mut bytes)
            .map_err(BagError::io(&self.path))?;
        self.at += N as u64;
        Ok(Some(bytes))
    }

    /// The next `len` bytes, which must not be more than are left and than `limit`.
    pub(super) fn content(&mut self, len: u64, limit: u64) -> Result<Vec<u8>, BagError> {
        self.content_into(Vec::new(), len, limit)
    }

    /// As [`content`](Self::content), in memory that was used before.
    pub(super) fn content_into(
        &mut self,
        mut content: Vec<u8>,
        len: u64,
        limit: u64,
    ) -> Result<Vec<u8>, BagError> {
        if len > limit {
            return Err(BagError::TooLarge {
                path: self.path.clone(),
                what: format!(
                    "the record at offset {}",
                    self.at.saturating_sub(RECORD_HEADER_LEN)
                ),
                limit,
            });
        }
        // No more than the file has and the limit allows, whatever the length says.
        let here = len.min(self.left());
        content.clear();
        content.reserve_exact(here as usize);
        let read = (&mut self.reader).take(here).read_to_end(&mut content);
        self.at += read.map_err(BagError::io(&self.path))? as u64;
        if (content.len() as u64) < len {
            return Err(BagError::Io {
                path: self.path.clone(),
                source: io::ErrorKind::UnexpectedEof.into(),
            });
        }
        Ok(content)
    }

    pub(super) fn bad(&self, offset: u64, reason: impl Into<String>) -> BagError {
        BagError::BadRecord {
            path: self.path.clone(),
            offset,
            reason: reason.into(),
        }
    }
}
