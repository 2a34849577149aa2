//! The table of contents of one MCAP file, made by walking over its top-level records once.
//!
//! The walk reads headers and skips contents. It does not depend on the summary that a closed file ends with:
//! indexed, unindexed, half-indexed and unclosed files all come out the same. Chunks are decompressed here
//! only where nothing else tells which topics they hold.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::chunk::{self, ChunkSpan, Spare};
use super::record::{
    ChannelRecord, Fields, MAGIC, MESSAGE_HEADER_LEN, MessageHeader, RECORD_HEADER_LEN, RecordFile,
    SchemaRecord, op,
};
use crate::io::bag::{BagError, BagLimits, TypeDefinition};
use crate::io::messages::normalise_type;

/// Largest schema, channel, or statistics record that is read.
const MAX_DEFINITION_BYTES: u64 = 64 << 20;

/// A channel with its type resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Channel {
    pub topic: std::sync::Arc<str>,
    pub type_name: std::sync::Arc<str>,
    pub encoding: String,
    /// Offered profiles and type hash as the file has them; empty for none.
    pub offered_qos: String,
    pub type_hash: String,
    pub definition: Option<TypeDefinition>,
}

/// Messages outside chunks, one after the other in log-time order.
#[derive(Debug, Clone, Copy)]
pub(super) struct RunSpan {
    /// Offset of the first message record.
    pub offset: u64,
    /// Offset behind the last message record.
    pub end_offset: u64,
    pub start_ns: u64,
    pub end_ns: u64,
}

/// A stretch of the file that holds messages.
#[derive(Debug, Clone)]
pub(super) enum Span {
    Chunk(ChunkSpan),
    Run(RunSpan),
}

impl Span {
    /// No message in the span is earlier.
    pub(super) fn start_ns(&self) -> u64 {
        match self {
            // The times of a chunk that was cut off may not have been filled in.
            Self::Chunk(chunk) if !chunk.whole => 0,
            Self::Chunk(chunk) => chunk.start_ns,
            Self::Run(run) => run.start_ns,
        }
    }
}

/// The table of contents.
#[derive(Debug)]
pub(super) struct Index {
    pub spans: Vec<Span>,
    pub channels: BTreeMap<u16, Channel>,
    /// Messages of each channel.
    pub counts: BTreeMap<u16, u64>,
    /// First and last log time.
    pub range_ns: Option<(u64, u64)>,
    /// Where the file stops being whole.
    pub truncated_at: Option<u64>,
    /// Log times go backwards somewhere in the file.
    pub out_of_order: bool,
    /// The first damaged record found on the way; what can be read around it is in the index.
    pub damage: Option<Damage>,
}

/// A record that contradicts itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Damage {
    pub offset: u64,
    pub reason: String,
}

#[derive(Debug, Default)]
struct Statistics {
    messages: u64,
    chunks: u32,
    start_ns: u64,
    end_ns: u64,
    counts: BTreeMap<u16, u64>,
}

/// What the walk collects.
struct Walk<'a> {
    file: RecordFile,
    limits: &'a BagLimits,
    spans: Vec<Span>,
    /// Channels that the message indexes behind a chunk name, with counts; one set per chunk, in span order.
    indexed: BTreeMap<usize, BTreeMap<u16, u64>>,
    records: BTreeMap<u16, ChannelRecord>,
    schemas: BTreeMap<u16, SchemaRecord>,
    /// Bytes of definitions kept.
    definition_bytes: u64,
    /// Messages outside chunks.
    loose: BTreeMap<u16, u64>,
    statistics: Option<Statistics>,
    truncated_at: Option<u64>,
    damage: Option<Damage>,
    /// A run may only grow until a chunk comes between.
    run_open: bool,
}

impl Index {
    /// Walks over a file. `shown` is the name that errors give.
    pub(super) fn build(path: &Path, shown: &Path, limits: &BagLimits) -> Result<Self, BagError> {
        let mut file = RecordFile::open(path, shown)?;
        match file.bytes::<8>()? {
            Some(MAGIC) => {}
            Some(_) => {
                return Err(BagError::UnknownFormat {
                    path: shown.to_owned(),
                });
            }
            None => {
                return Err(BagError::Truncated {
                    path: shown.to_owned(),
                    offset: 0,
                });
            }
        }
        let mut walk = Walk {
            file,
            limits,
            spans: Vec::new(),
            indexed: BTreeMap::new(),
            records: BTreeMap::new(),
            schemas: BTreeMap::new(),
            definition_bytes: 0,
            loose: BTreeMap::new(),
            statistics: None,
            truncated_at: None,
            damage: None,
            run_open: false,
        };
        walk.walk()?;
        walk.finish()
    }
}

impl Walk<'_> {
    fn walk(&mut self) -> Result<(), BagError> {
        let mut in_data = true;
        loop {
            let offset = self.file.at();
            let Some((opcode, len)) = self.file.record_header()? else {
                self.truncated_at = Some(offset);
                return Ok(());
            };
            // No record has opcode zero: this is the unwritten tail of a file whose recorder was cut off.
            let whole = len <= self.file.left() && opcode != 0;
            if !whole {
                self.truncated_at = Some(offset);
                if opcode == op::CHUNK && in_data {
                    self.chunk(offset, len)?;
                }
                return Ok(());
            }
            let next = self.file.at() + len;
            let understood = match opcode {
                op::MESSAGE if in_data => self.message(offset, len),
                op::CHUNK if in_data => self.chunk(offset, len),
                op::MESSAGE_INDEX if in_data => self.message_index(offset, len),
                op::CHANNEL | op::SCHEMA | op::STATISTICS => self.definition(opcode, offset, len),
                _ => Ok(()),
            };
            match understood {
                Ok(()) => {}
                Err(error @ BagError::Io { .. }) => return Err(error),
                // The record is damaged but says where the next one starts.
                Err(error) => {
                    let reason = match error {
                        BagError::BadRecord { reason, .. } => reason,
                        other => other.to_string(),
                    };
                    self.damage.get_or_insert(Damage { offset, reason });
                }
            }
            in_data &= opcode != op::DATA_END;
            self.file.seek(next)?;
            if opcode == op::FOOTER {
                if self.file.bytes::<8>()? != Some(MAGIC) {
                    self.truncated_at = Some(next);
                }
                return Ok(());
            }
        }
    }

    fn message(&mut self, offset: u64, len: u64) -> Result<(), BagError> {
        let header = match self.file.bytes::<MESSAGE_HEADER_LEN>()? {
            Some(bytes) if len >= MESSAGE_HEADER_LEN as u64 => MessageHeader::parse(&mut Fields(&bytes)),
            _ => None,
        };
        let Some(header) = header else {
            return Err(self.file.bad(offset, "a message shorter than its header"));
        };
        *self.loose.entry(header.channel).or_default() += 1;
        let end_offset = offset + RECORD_HEADER_LEN + len;
        match self.spans.last_mut() {
            Some(Span::Run(run)) if self.run_open && header.log_time_ns >= run.end_ns => {
                run.end_ns = header.log_time_ns;
                run.end_offset = end_offset;
            }
            _ => {
                self.spans.push(Span::Run(RunSpan {
                    offset,
                    end_offset,
                    start_ns: header.log_time_ns,
                    end_ns: header.log_time_ns,
                }));
                self.run_open = true;
            }
        }
        Ok(())
    }

    fn chunk(&mut self, offset: u64, len: u64) -> Result<(), BagError> {
        self.run_open = false;
        let whole = len <= self.file.left();
        match ChunkSpan::read(&mut self.file, offset, len)? {
            Some(chunk) => self.spans.push(Span::Chunk(chunk)),
            None if whole => return Err(self.file.bad(offset, "a chunk shorter than its header")),
            None => {}
        }
        Ok(())
    }

    fn message_index(&mut self, offset: u64, len: u64) -> Result<(), BagError> {
        let Some(bytes) = self.file.bytes::<6>()? else {
            return Err(self.file.bad(offset, "a message index without fields"));
        };
        let mut fields = Fields(&bytes);
        if let (Some(channel), Some(array_len)) = (fields.u16(), fields.u32())
            && matches!(self.spans.last(), Some(Span::Chunk(_)))
            && len >= 6 + u64::from(array_len)
        {
            let counts = self.indexed.entry(self.spans.len() - 1).or_default();
            // An entry is a log time and an offset.
            *counts.entry(channel).or_default() += u64::from(array_len / 16);
        }
        Ok(())
    }

    fn definition(&mut self, opcode: u8, offset: u64, len: u64) -> Result<(), BagError> {
        let content = self.file.content(len, MAX_DEFINITION_BYTES)?;
        let understood = match opcode {
            op::CHANNEL => ChannelRecord::parse(&content).map(|channel| {
                self.records.insert(channel.id, channel);
            }),
            op::SCHEMA => SchemaRecord::parse(&content).map(|schema| self.schema(schema)),
            _ => statistics(&content).map(|statistics| self.statistics = Some(statistics)),
        };
        understood.ok_or_else(|| self.file.bad(offset, "a record shorter than its fields"))
    }

    /// Keeps a schema, without its text where all texts together would grow beyond reason.
    fn schema(&mut self, mut schema: SchemaRecord) {
        if self.schemas.contains_key(&schema.id) {
            return;
        }
        let bytes = schema.definition.as_ref().map_or(0, |d| d.text.len() as u64);
        if self.definition_bytes.saturating_add(bytes) > MAX_DEFINITION_BYTES {
            schema.definition = None;
        } else {
            self.definition_bytes += bytes;
        }
        self.schemas.insert(schema.id, schema);
    }

    /// Whether a channel is known with its type.
    fn knows(&self, channel: u16) -> bool {
        let record = self.records.get(&channel);
        record.is_some_and(|record| record.schema == 0 || self.schemas.contains_key(&record.schema))
    }

    /// Channels and counts of the whole file, from the cheapest record that tells them.
    fn finish(mut self) -> Result<Index, BagError> {
        let mut range_ns = None;
        let closed = self.truncated_at.is_none() && self.damage.is_none();
        let statistics = self.statistics.take().filter(|s| closed && self.complete(s));
        let mut spans = std::mem::take(&mut self.spans);
        if statistics
            .as_ref()
            .is_some_and(|statistics| self.indexes_all(statistics))
        {
            for (number, span) in spans.iter_mut().enumerate() {
                if let Span::Chunk(chunk) = span {
                    let channels = self.indexed.get(&number).into_iter().flat_map(BTreeMap::keys);
                    chunk.channels = Some(channels.copied().collect());
                }
            }
        }
        let mut counts = std::mem::take(&mut self.loose);
        let mut spare = Spare::default();
        for (number, span) in spans.iter().enumerate() {
            let chunk = match span {
                Span::Run(run) => {
                    widen(&mut range_ns, run.start_ns, run.end_ns);
                    continue;
                }
                Span::Chunk(chunk) => chunk,
            };
            let indexed = self.indexed.remove(&number).unwrap_or_default();
            let known = indexed.keys().all(|id| self.knows(*id));
            if chunk.whole && known && (statistics.is_some() || !indexed.is_empty()) {
                if indexed.values().any(|n| *n > 0) {
                    widen(&mut range_ns, chunk.start_ns, chunk.end_ns);
                }
                for (channel, n) in indexed {
                    *counts.entry(channel).or_default() += n;
                }
                continue;
            }
            // A damaged chunk is reported when its messages are asked for.
            let Ok(loaded) = chunk::load(&mut self.file, chunk, self.limits, &mut spare) else {
                continue;
            };
            for entry in &loaded.entries {
                widen(&mut range_ns, entry.header.log_time_ns, entry.header.log_time_ns);
                *counts.entry(entry.header.channel).or_default() += 1;
            }
            loaded.schemas.into_iter().for_each(|schema| self.schema(schema));
            self.records
                .extend(loaded.channels.into_iter().map(|channel| (channel.id, channel)));
            spare.put(loaded.records);
        }
        if let Some(statistics) = statistics {
            range_ns = (statistics.messages > 0).then_some((statistics.start_ns, statistics.end_ns));
            counts = statistics.counts;
        }
        Ok(Index {
            out_of_order: out_of_order(&spans),
            spans,
            channels: self.channels(&counts),
            counts,
            range_ns,
            truncated_at: self.truncated_at,
            damage: self.damage,
        })
    }

    /// Whether statistics count every message of the file, by channels that are all known.
    fn complete(&self, statistics: &Statistics) -> bool {
        let chunks = self
            .spans
            .iter()
            .filter(|span| matches!(span, Span::Chunk(_)))
            .count();
        let counted: BTreeSet<&u16> = statistics.counts.keys().collect();
        statistics.chunks as usize == chunks
            && statistics
                .counts
                .values()
                .fold(0u64, |sum, n| sum.saturating_add(*n))
                == statistics.messages
            && counted.iter().all(|id| self.records.contains_key(id))
    }

    /// Whether the message indexes name every message of the file's chunks.
    fn indexes_all(&self, statistics: &Statistics) -> bool {
        let indexed = self.indexed.values().flat_map(BTreeMap::values);
        let counted = indexed.chain(self.loose.values());
        counted.fold(0u64, |sum, n| sum.saturating_add(*n)) == statistics.messages
    }

    /// Known channels. One that only messages name keeps its number as its topic, so that its messages are
    /// not lost.
    fn channels(&self, counts: &BTreeMap<u16, u64>) -> BTreeMap<u16, Channel> {
        let known = self.records.values().map(|record| {
            let schema = self.schemas.get(&record.schema);
            let channel = Channel {
                topic: record.topic.as_str().into(),
                type_name: normalise_type(schema.map_or("", |schema| &schema.name)).into(),
                encoding: record.encoding.clone(),
                offered_qos: record.offered_qos.clone(),
                type_hash: record.type_hash.clone(),
                definition: schema.and_then(|schema| schema.definition.clone()),
            };
            (record.id, channel)
        });
        let mut channels: BTreeMap<u16, Channel> = known.collect();
        for id in counts.keys() {
            channels.entry(*id).or_insert_with(|| Channel {
                topic: format!("<channel {id}>").into(),
                type_name: "".into(),
                encoding: String::new(),
                offered_qos: String::new(),
                type_hash: String::new(),
                definition: None,
            });
        }
        channels
    }
}

fn widen(range: &mut Option<(u64, u64)>, start: u64, end: u64) {
    *range = Some(range.map_or((start, end), |(first, last)| (first.min(start), last.max(end))));
}

fn out_of_order(spans: &[Span]) -> bool {
    let mut latest = 0;
    spans.iter().any(|span| {
        let (start, end) = match span {
            Span::Chunk(chunk) if !chunk.whole => return false,
            Span::Chunk(chunk) => (chunk.start_ns, chunk.end_ns),
            Span::Run(run) => (run.start_ns, run.end_ns),
        };
        let backwards = start < latest && end > 0;
        latest = latest.max(end);
        backwards
    })
}

fn statistics(content: &[u8]) -> Option<Statistics> {
    let mut fields = Fields(content);
    let messages = fields.u64()?;
    let (_schemas, _channels) = (fields.u16()?, fields.u32()?);
    let (_attachments, _metadata) = (fields.u32()?, fields.u32()?);
    let chunks = fields.u32()?;
    let (start_ns, end_ns) = (fields.u64()?, fields.u64()?);
    let len = fields.u32()?;
    let mut map = Fields(fields.take(len as usize)?);
    let mut counts = BTreeMap::new();
    while !map.0.is_empty() {
        counts.insert(map.u16()?, map.u64()?);
    }
    Some(Statistics {
        messages,
        chunks,
        start_ns,
        end_ns,
        counts,
    })
}
