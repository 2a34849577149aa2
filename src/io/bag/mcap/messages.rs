//! Messages of one MCAP file in log-time order.
//!
//! Chunks and runs of loose messages are merged by time. A chunk is decompressed when its first message may
//! be due and dropped after its last; where many chunks overlap in time, those needed last give up their
//! bytes and are decompressed again, so memory stays within [`BagLimits::max_resident_bytes`], one chunk, and a
//! little that is kept for the next one.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::chunk::{self, ChunkSpan, Entry, Spare};
use super::index::{Index, RunSpan, Span};
use super::record::{Fields, MESSAGE_HEADER_LEN, MessageHeader, RECORD_HEADER_LEN, RecordFile, op};
use crate::io::bag::{BagError, BagLimits, BagMessage, TimeRange};

/// What was asked for.
#[derive(Debug)]
pub(super) struct Wanted {
    pub channels: BTreeSet<u16>,
    pub range: TimeRange,
}

impl Wanted {
    fn message(&self, header: &MessageHeader) -> bool {
        self.range.contains(header.log_time_ns) && self.channels.contains(&header.channel)
    }

    /// Whether a span may hold such a message. The times of a chunk that was cut off may not have been filled in.
    fn span(&self, span: &Span) -> bool {
        match span {
            Span::Chunk(chunk) => {
                let channels = chunk.channels.as_ref();
                (!chunk.whole || self.range.meets(chunk.start_ns, chunk.end_ns))
                    && channels.is_none_or(|of| of.iter().any(|id| self.channels.contains(id)))
            }
            Span::Run(run) => self.range.meets(run.start_ns, run.end_ns),
        }
    }
}

/// An iterator over the messages of one file.
#[derive(Debug)]
pub(crate) struct Messages {
    index: Arc<Index>,
    file: RecordFile,
    limits: BagLimits,
    wanted: Wanted,
    /// Spans not begun, by falling start time, so that the next one is at the end.
    pending: Vec<usize>,
    /// Begun spans by the log time of their next message; file order among equals.
    due: BinaryHeap<Reverse<(u64, usize)>>,
    active: BTreeMap<usize, Active>,
    /// A begun chunk whose next message is due before all others; it is neither in `due` nor in `active`.
    first: Option<(usize, ChunkCursor)>,
    resident_bytes: usize,
    spare: Spare,
    /// Damage to report before going on.
    problems: VecDeque<BagError>,
    /// Damage to report after the last message.
    last: VecDeque<BagError>,
}

#[derive(Debug)]
enum Active {
    Chunk(ChunkCursor),
    Run {
        header: MessageHeader,
        /// Where the payload of the next message starts.
        payload_offset: u64,
        payload_len: u64,
    },
}

/// A place in a decompressed chunk.
#[derive(Debug)]
struct ChunkCursor {
    /// Messages asked for, in log-time order.
    entries: Vec<Entry>,
    next: usize,
    /// `None` where the bytes were given up for others.
    records: Option<Vec<u8>>,
}

impl Messages {
    /// Messages that are `wanted`. `shown` is the name that errors give.
    pub(super) fn new(
        index: Arc<Index>,
        path: &Path,
        shown: &Path,
        wanted: Wanted,
        limits: BagLimits,
    ) -> Result<Self, BagError> {
        let spans = 0..index.spans.len();
        let mut pending: Vec<usize> = spans
            .filter(|number| wanted.span(&index.spans[*number]))
            .collect();
        pending.sort_by_key(|number| Reverse((index.spans[*number].start_ns(), *number)));
        let truncated = index.truncated_at.map(|offset| BagError::Truncated {
            path: PathBuf::from(shown),
            offset,
        });
        let damaged = index.damage.as_ref().map(|damage| BagError::BadRecord {
            path: PathBuf::from(shown),
            offset: damage.offset,
            reason: damage.reason.clone(),
        });
        Ok(Self {
            file: RecordFile::open(path, shown)?,
            limits,
            wanted,
            pending,
            due: BinaryHeap::new(),
            active: BTreeMap::new(),
            first: None,
            resident_bytes: 0,
            spare: Spare::default(),
            problems: VecDeque::new(),
            last: damaged.into_iter().chain(truncated).collect(),
            index,
        })
    }

    /// Begins the next pending span.
    fn begin(&mut self, number: usize) -> Result<(), BagError> {
        let index = Arc::clone(&self.index);
        match &index.spans[number] {
            Span::Run(run) => self.advance_run(number, run, run.offset),
            Span::Chunk(span) => {
                let mut loaded = chunk::load(&mut self.file, span, &self.limits, &mut self.spare)?;
                self.problems.extend(loaded.problem.take());
                let mut entries = loaded.entries;
                entries.retain(|entry| self.wanted.message(&entry.header));
                entries.sort_by_key(|entry| entry.header.log_time_ns);
                if let Some(first) = entries.first() {
                    self.due.push(Reverse((first.header.log_time_ns, number)));
                    self.resident_bytes += loaded.records.len();
                    let cursor = ChunkCursor {
                        entries,
                        next: 0,
                        records: Some(loaded.records),
                    };
                    self.active.insert(number, Active::Chunk(cursor));
                    self.shed(number);
                } else {
                    self.spare.put(loaded.records);
                }
                Ok(())
            }
        }
    }

    /// Gives up decompressed chunks, the one due last first, until the rest is small enough.
    fn shed(&mut self, keep: usize) {
        if self.resident_bytes as u64 <= self.limits.max_resident_bytes {
            return;
        }
        let mut by_due: Vec<(u64, usize)> = self.due.iter().map(|Reverse(key)| *key).collect();
        by_due.sort_unstable();
        for (_, number) in by_due.into_iter().rev().filter(|(_, number)| *number != keep) {
            if let Some(Active::Chunk(cursor)) = self.active.get_mut(&number) {
                self.resident_bytes -= cursor.records.take().map_or(0, |bytes| bytes.len());
            }
            if self.resident_bytes as u64 <= self.limits.max_resident_bytes {
                break;
            }
        }
    }

    /// Finds the next message of a run that was asked for, from `offset` on.
    fn advance_run(&mut self, number: usize, run: &RunSpan, mut offset: u64) -> Result<(), BagError> {
        while offset < run.end_offset {
            self.file.seek(offset)?;
            let Some((opcode, len)) = self.file.record_header()? else {
                break;
            };
            let payload_offset = offset + RECORD_HEADER_LEN + MESSAGE_HEADER_LEN as u64;
            if opcode == op::MESSAGE
                && let Some(payload_len) = len.checked_sub(MESSAGE_HEADER_LEN as u64)
                && let Some(bytes) = self.file.bytes::<MESSAGE_HEADER_LEN>()?
                && let Some(header) = MessageHeader::parse(&mut Fields(&bytes))
                && self.wanted.message(&header)
            {
                self.due.push(Reverse((header.log_time_ns, number)));
                self.active.insert(
                    number,
                    Active::Run {
                        header,
                        payload_offset,
                        payload_len,
                    },
                );
                return Ok(());
            }
            offset = offset.saturating_add(RECORD_HEADER_LEN).saturating_add(len);
        }
        Ok(())
    }

    /// Takes the next message of a begun span and moves the span on.
    fn take(&mut self, number: usize) -> Result<Option<BagMessage>, BagError> {
        let index = Arc::clone(&self.index);
        match (&index.spans[number], self.active.remove(&number)) {
            (
                Span::Run(run),
                Some(Active::Run {
                    header,
                    payload_offset,
                    payload_len,
                }),
            ) => {
                self.file.seek(payload_offset)?;
                let data = self.file.content(payload_len, self.limits.max_message_bytes);
                self.advance_run(number, run, payload_offset + payload_len)?;
                Ok(Some(self.message(header, data?)))
            }
            (Span::Chunk(span), Some(Active::Chunk(cursor))) => {
                self.take_from_chunk(number, span, cursor).map(Some)
            }
            _ => Ok(None),
        }
    }

    fn take_from_chunk(
        &mut self,
        number: usize,
        span: &ChunkSpan,
        mut cursor: ChunkCursor,
    ) -> Result<BagMessage, BagError> {
        let records = match cursor.records.take() {
            Some(records) => records,
            None => {
                let records = chunk::load(&mut self.file, span, &self.limits, &mut self.spare)?.records;
                self.resident_bytes += records.len();
                records
            }
        };
        let entry = cursor.entries[cursor.next];
        let limit = self.limits.max_message_bytes;
        // Only a file that changed while it is read has no such bytes.
        let payload = records.get(entry.start..entry.start + entry.len);
        let data = match payload {
            Some(payload) if payload.len() as u64 <= limit => Ok(payload.to_vec()),
            Some(_) => Err(BagError::TooLarge {
                path: self.file.path.clone(),
                what: format!("a message in the chunk at offset {}", span.offset),
                limit,
            }),
            None => Err(self.file.bad(span.offset, "the chunk changed while it was read")),
        };
        cursor.next += 1;
        if let Some(following) = cursor.entries.get(cursor.next) {
            let key = (following.header.log_time_ns, number);
            cursor.records = Some(records);
            if self.is_first(key) {
                self.first = Some((number, cursor));
            } else {
                self.due.push(Reverse(key));
                self.active.insert(number, Active::Chunk(cursor));
            }
            self.shed(number);
        } else {
            self.resident_bytes -= records.len();
            self.spare.put(records);
        }
        Ok(self.message(entry.header, data?))
    }

    /// Whether a message is due before those of all other spans, begun or not.
    fn is_first(&self, key: (u64, usize)) -> bool {
        let before_due = self.due.peek().is_none_or(|Reverse(due)| key < *due);
        let next_start = self
            .pending
            .last()
            .map(|number| self.index.spans[*number].start_ns());
        before_due && next_start.is_none_or(|start| key.0 < start)
    }

    fn message(&self, header: MessageHeader, data: Vec<u8>) -> BagMessage {
        let channel = self.index.channels.get(&header.channel);
        BagMessage {
            topic: channel.map_or_else(|| "".into(), |c| Arc::clone(&c.topic)),
            type_name: channel.map_or_else(|| "".into(), |c| Arc::clone(&c.type_name)),
            log_time_ns: header.log_time_ns,
            publish_time_ns: header.publish_time_ns,
            data,
        }
    }
}

impl Iterator for Messages {
    type Item = Result<BagMessage, BagError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(problem) = self.problems.pop_front() {
                return Some(Err(problem));
            }
            if let Some((number, cursor)) = self.first.take() {
                let index = Arc::clone(&self.index);
                if let Span::Chunk(span) = &index.spans[number] {
                    return Some(self.take_from_chunk(number, span, cursor));
                }
            }
            let due = self.due.peek().map(|Reverse((time, _))| *time);
            if let Some(&number) = self.pending.last()
                && due.is_none_or(|due| self.index.spans[number].start_ns() <= due)
            {
                self.pending.pop();
                if let Err(error) = self.begin(number) {
                    return Some(Err(error));
                }
                continue;
            }
            let Some(Reverse((_, number))) = self.due.pop() else {
                return self.last.pop_front().map(Err);
            };
            match self.take(number) {
                Ok(Some(message)) => return Some(Ok(message)),
                Ok(None) => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }
}
