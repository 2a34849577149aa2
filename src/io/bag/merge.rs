//! Messages of all files of a bag, merged by log time and decompressed.

use std::collections::{BTreeSet, VecDeque};
use std::iter::Peekable;
use std::sync::Arc;

use super::{BagError, BagMessage, Contents, FileReader, TimeRange, db3, mcap, zstd};

/// An iterator over messages in log-time order; see [`Bag::messages`](super::Bag::messages).
///
/// Owns what it reads, so it may move to a thread of its own.
#[derive(Debug)]
pub struct Messages {
    contents: Arc<Contents>,
    /// Topics asked for; `None` for all.
    topics: Option<BTreeSet<String>>,
    range: TimeRange,
    /// Files not begun: start time and number, earliest first.
    pending: VecDeque<(u64, usize)>,
    active: Vec<(usize, Peekable<FileMessages>)>,
}

#[derive(Debug)]
enum FileMessages {
    Mcap(Box<mcap::Messages>),
    Db3(Box<db3::Messages>),
}

impl Iterator for FileMessages {
    type Item = Result<BagMessage, BagError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Mcap(messages) => messages.next(),
            Self::Db3(messages) => messages.next(),
        }
    }
}

impl Messages {
    pub(super) fn new(contents: Arc<Contents>, topics: Option<BTreeSet<String>>, range: TimeRange) -> Self {
        let files = contents.files.iter().enumerate();
        // A file without a known start has no whole message, but may have damage to tell of.
        let starts = files.map(|(number, file)| (file.range_ns().map_or(0, |(start, _)| start), number));
        let mut pending: Vec<(u64, usize)> = starts.collect();
        pending.sort_unstable();
        Self {
            contents,
            topics,
            range,
            pending: pending.into(),
            active: Vec::new(),
        }
    }

    fn begin(&mut self, number: usize) -> Result<(), BagError> {
        let limits = self.contents.limits;
        let wanted = |topic: &str| self.topics.as_ref().is_none_or(|topics| topics.contains(topic));
        let messages = match &self.contents.files[number].reader {
            FileReader::Mcap(file) => {
                FileMessages::Mcap(Box::new(file.messages(wanted, self.range, limits)?))
            }
            FileReader::Db3(file) => FileMessages::Db3(Box::new(file.messages(wanted, self.range, limits)?)),
        };
        self.active.push((number, messages.peekable()));
        Ok(())
    }

    /// Decompresses a message that is a zstd frame.
    fn unpack(&self, number: usize, mut message: BagMessage) -> Result<BagMessage, BagError> {
        if !message.data.starts_with(&zstd::MAGIC) {
            return Ok(message);
        }
        let path = || self.contents.files[number].shown.clone();
        let what = || format!("a message of {} at {} ns", message.topic, message.log_time_ns);
        let limit = self.contents.limits.max_message_bytes;
        match zstd::decompress_message(&message.data, limit) {
            Ok(Some(data)) => {
                message.data = data;
                Ok(message)
            }
            Ok(None) => Err(BagError::TooLarge {
                path: path(),
                what: what(),
                limit,
            }),
            Err(source) => Err(BagError::Decompress {
                path: path(),
                what: what(),
                source,
            }),
        }
    }
}

impl Iterator for Messages {
    type Item = Result<BagMessage, BagError>;

    fn next(&mut self) -> Option<Self::Item> {
        // The last file, as most often the only one, has nothing to be merged with.
        if self.pending.is_empty()
            && let [(number, messages)] = &mut self.active[..]
        {
            let (number, item) = (*number, messages.next()?);
            return Some(item.and_then(|message| self.unpack(number, message)));
        }
        loop {
            self.active.retain_mut(|(_, messages)| messages.peek().is_some());
            // Damage is told before later messages: an error counts as due at once.
            let mut due: Option<(u64, usize, usize)> = None;
            for (place, (number, messages)) in self.active.iter_mut().enumerate() {
                let time = match messages.peek() {
                    Some(Ok(message)) => message.log_time_ns,
                    Some(Err(_)) => 0,
                    None => continue,
                };
                if due.is_none_or(|(first, file, _)| (time, *number) < (first, file)) {
                    due = Some((time, *number, place));
                }
            }
            if let Some(&(start, number)) = self.pending.front()
                && due.is_none_or(|(time, ..)| start <= time)
            {
                self.pending.pop_front();
                if let Err(error) = self.begin(number) {
                    return Some(Err(error));
                }
                continue;
            }
            let (_, number, place) = due?;
            let item = self.active[place].1.next()?;
            return Some(item.and_then(|message| self.unpack(number, message)));
        }
    }
}
