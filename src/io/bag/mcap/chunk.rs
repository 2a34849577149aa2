//! Chunks: many records compressed together. One chunk is decompressed whole, checked, then cut into records.

use std::io::Read;

use super::record::{ChannelRecord, Fields, MESSAGE_HEADER_LEN, MessageHeader, RecordFile, SchemaRecord, op};
use crate::io::bag::{BagError, BagLimits};

/// How a chunk's records are compressed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Compression {
    None,
    Zstd,
    Lz4,
    Other(String),
}

/// Where a chunk lies in its file and what its header says.
#[derive(Debug, Clone)]
pub(super) struct ChunkSpan {
    /// Offset of the chunk record.
    pub offset: u64,
    /// Offset of the (compressed) records.
    pub data_offset: u64,
    /// Length of the (compressed) records as far as the file holds them.
    pub stored_len: u64,
    pub uncompressed_size: u64,
    /// CRC-32 of the decompressed records; zero where none was made.
    pub crc: u32,
    pub compression: Compression,
    pub start_ns: u64,
    pub end_ns: u64,
    /// The file holds the chunk to its end.
    pub whole: bool,
    /// Channels of its messages, where the file's indexes are known to name them all.
    pub channels: Option<Box<[u16]>>,
}

impl ChunkSpan {
    /// Reads the header of the chunk record of `len` content bytes whose content starts at `file`'s position.
    ///
    /// `Ok(None)` where the file ends within that header.
    pub(super) fn read(file: &mut RecordFile, offset: u64, len: u64) -> Result<Option<Self>, BagError> {
        let content_offset = file.at();
        let whole = len <= file.left();
        let Some(fixed) = file.bytes::<32>()? else {
            return Ok(None);
        };
        let mut fields = Fields(&fixed);
        let (Some(start_ns), Some(end_ns), Some(uncompressed_size), Some(crc), Some(name_len)) = (
            fields.u64(),
            fields.u64(),
            fields.u64(),
            fields.u32(),
            fields.u32(),
        ) else {
            return Ok(None);
        };
        // The longest name in use has four letters; a long one is damage.
        if name_len > 64 {
            return Err(file.bad(offset, format!("compression name of {name_len} bytes")));
        }
        if u64::from(name_len) + 8 > file.left() {
            return Ok(None);
        }
        let name = file.content(u64::from(name_len), 64)?;
        let compression = match name.as_slice() {
            b"" => Compression::None,
            b"zstd" => Compression::Zstd,
            b"lz4" => Compression::Lz4,
            other => Compression::Other(String::from_utf8_lossy(other).into_owned()),
        };
        let Some(size) = file.bytes::<8>()? else {
            return Ok(None);
        };
        let compressed_size = u64::from_le_bytes(size);
        let data_offset = file.at();
        let header_len = data_offset - content_offset;
        let stored_len = if whole {
            let room = len.checked_sub(header_len);
            if room.is_none_or(|room| compressed_size > room) {
                return Err(file.bad(offset, "the chunk is smaller than what it says to hold"));
            }
            compressed_size
        } else {
            // A writer that was cut off has not filled in the sizes; what is there is what counts.
            file.left()
        };
        Ok(Some(Self {
            offset,
            data_offset,
            stored_len,
            uncompressed_size,
            crc,
            compression,
            start_ns,
            end_ns,
            whole,
            channels: None,
        }))
    }
}

/// One message in a decompressed chunk.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub header: MessageHeader,
    /// Payload in [`LoadedChunk::records`].
    pub start: usize,
    pub len: usize,
}

/// A decompressed chunk.
#[derive(Debug)]
pub(super) struct LoadedChunk {
    pub records: Vec<u8>,
    /// Its messages, in file order.
    pub entries: Vec<Entry>,
    pub channels: Vec<ChannelRecord>,
    pub schemas: Vec<SchemaRecord>,
    /// Damage behind the last message delivered.
    pub problem: Option<BagError>,
}

/// Memory of chunks that are done with, for those to come: asking the system for it again and again takes longer than
/// filling it.
#[derive(Debug, Default)]
pub(super) struct Spare(Vec<Vec<u8>>);

impl Spare {
    /// One for what is stored and one for what that decompresses to.
    const MOST: usize = 2;
    /// Larger ones are given back to the system.
    const MOST_BYTES: usize = 16 << 20;

    fn take(&mut self) -> Vec<u8> {
        let mut buffer = self.0.pop().unwrap_or_default();
        buffer.clear();
        buffer
    }

    pub(super) fn put(&mut self, buffer: Vec<u8>) {
        if self.0.len() < Self::MOST && buffer.capacity() <= Self::MOST_BYTES {
            self.0.push(buffer);
        }
    }
}

/// Decompresses a chunk, checks it and cuts it into records.
///
/// Of a chunk that the file does not hold to its end, every whole message is delivered unchecked.
///
/// # Errors
/// Damage that makes all of a whole chunk doubtful: bad compression, size or checksum.
pub(super) fn load(
    file: &mut RecordFile,
    span: &ChunkSpan,
    limits: &BagLimits,
    spare: &mut Spare,
) -> Result<LoadedChunk, BagError> {
    let records = records_of(file, span, limits, spare)?;
    let mut chunk = LoadedChunk {
        records: Vec::new(),
        entries: Vec::new(),
        channels: Vec::new(),
        schemas: Vec::new(),
        problem: None,
    };
    let mut fields = Fields(&records);
    while let Some((opcode, content)) = fields.record() {
        let record_end = records.len() - fields.0.len();
        match opcode {
            op::MESSAGE => match MessageHeader::parse(&mut Fields(content)) {
                Some(header) => chunk.entries.push(Entry {
                    header,
                    start: record_end - content.len() + MESSAGE_HEADER_LEN,
                    len: content.len() - MESSAGE_HEADER_LEN,
                }),
                None => chunk.problem = Some(file.bad(span.offset, "a message shorter than its header")),
            },
            op::CHANNEL => match ChannelRecord::parse(content) {
                Some(channel) => chunk.channels.push(channel),
                None => chunk.problem = Some(file.bad(span.offset, "a channel that cannot be read")),
            },
            op::SCHEMA => match SchemaRecord::parse(content) {
                Some(schema) => chunk.schemas.push(schema),
                None => chunk.problem = Some(file.bad(span.offset, "a schema that cannot be read")),
            },
            _ => {}
        }
    }
    if span.whole && !fields.0.is_empty() {
        chunk.problem = Some(file.bad(span.offset, "the chunk ends within a record"));
    }
    chunk.records = records;
    Ok(chunk)
}

fn records_of(
    file: &mut RecordFile,
    span: &ChunkSpan,
    limits: &BagLimits,
    spare: &mut Spare,
) -> Result<Vec<u8>, BagError> {
    if span.uncompressed_size > limits.max_chunk_bytes && span.whole {
        return Err(BagError::TooLarge {
            path: file.path.clone(),
            what: format!("the chunk at offset {}", span.offset),
            limit: limits.max_chunk_bytes,
        });
    }
    file.seek(span.data_offset)?;
    let stored = file.content_into(spare.take(), span.stored_len, limits.max_chunk_bytes)?;
    // Padding may follow the last frame, so a whole chunk stops at the size it says.
    let limit = if span.whole {
        span.uncompressed_size
    } else {
        limits.max_chunk_bytes
    };
    let (records, result) = match &span.compression {
        Compression::None => (stored, Ok(())),
        Compression::Other(name) => {
            return Err(file.bad(span.offset, format!("compression {name:?} is not known")));
        }
        known => {
            let decompress = match known {
                Compression::Zstd => zstd,
                _ => lz4,
            };
            let decompressed = decompress(&stored, limit, spare.take());
            spare.put(stored);
            decompressed
        }
    };
    if !span.whole {
        return Ok(records);
    }
    if let Err(source) = result {
        return Err(BagError::Decompress {
            path: file.path.clone(),
            what: format!("the chunk at offset {}", span.offset),
            source,
        });
    }
    if records.len() as u64 != span.uncompressed_size {
        let (actual, said) = (records.len(), span.uncompressed_size);
        return Err(file.bad(
            span.offset,
            format!("the chunk holds {actual} bytes and says {said}"),
        ));
    }
    let actual = if span.crc == 0 {
        0
    } else {
        crc32fast::hash(&records)
    };
    if actual != span.crc {
        return Err(BagError::ChunkChecksum {
            path: file.path.clone(),
            offset: span.offset,
            recorded: span.crc,
            actual,
        });
    }
    Ok(records)
}

/// Decompresses up to `limit` bytes into an empty buffer; what came out before an error is kept.
fn zstd(stored: &[u8], limit: u64, mut out: Vec<u8>) -> (Vec<u8>, std::io::Result<()>) {
    let result = zstd::stream::read::Decoder::with_buffer(stored)
        .and_then(|decoder| decoder.take(limit).read_to_end(&mut out).map(|_| ()));
    (out, result)
}

/// As [`zstd`], over any number of frames.
fn lz4(stored: &[u8], limit: u64, mut out: Vec<u8>) -> (Vec<u8>, std::io::Result<()>) {
    let mut rest = stored;
    while !rest.is_empty() && (out.len() as u64) < limit {
        let room = limit - out.len() as u64;
        let before = (rest.len(), out.len());
        let result =
            lz4::Decoder::new(&mut rest).and_then(|decoder| decoder.take(room).read_to_end(&mut out));
        if let Err(error) = result {
            return (out, Err(error));
        }
        if before == (rest.len(), out.len()) {
            break;
        }
    }
    (out, Ok(()))
}
