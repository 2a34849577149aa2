//! Streams and frames by name and number.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

/// A stream, as numbered by [`Streams::register`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(u32);

impl StreamId {
    /// The stream at a position in the order of registration.
    pub(crate) const fn of(index: usize) -> Self {
        Self(index as u32)
    }

    /// Position in the order of registration, from 0.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stream {}", self.0)
    }
}

/// One frame of one stream. Sequence numbers are given by [`super::Ledger::frame_in`]: from 0, without gaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FrameId {
    /// The stream.
    pub stream: StreamId,
    /// Position in the stream, from 0.
    pub seq: u64,
}

impl fmt::Display for FrameId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} #{}", self.stream, self.seq)
    }
}

/// The names of the streams of a run. Clones share one list; streams may be added while the run goes on.
#[derive(Debug, Clone, Default)]
pub struct Streams {
    names: Arc<RwLock<Vec<Arc<str>>>>,
}

impl Streams {
    /// The stream of this name; a new one if the name is new.
    pub fn register(&self, name: &str) -> StreamId {
        let mut names = self.names.write().unwrap_or_else(PoisonError::into_inner);
        let index = names
            .iter()
            .position(|known| **known == *name)
            .unwrap_or_else(|| {
                names.push(Arc::from(name));
                names.len() - 1
            });
        StreamId(index as u32)
    }

    /// Name of a stream; its number as text if it was registered elsewhere.
    #[must_use]
    pub fn name(&self, id: StreamId) -> Arc<str> {
        let names = self.names.read().unwrap_or_else(PoisonError::into_inner);
        names
            .get(id.index())
            .map_or_else(|| Arc::from(id.to_string()), Arc::clone)
    }

    /// All streams in the order of registration.
    #[must_use]
    pub fn all(&self) -> Vec<(StreamId, Arc<str>)> {
        let names = self.names.read().unwrap_or_else(PoisonError::into_inner);
        (0..).map(StreamId).zip(names.iter().map(Arc::clone)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_keeps_its_number() {
        let streams = Streams::default();
        let front = streams.register("front");
        let rear = streams.clone().register("rear");
        assert_ne!(front, rear);
        assert_eq!(streams.register("front"), front);
        assert_eq!(&*streams.name(rear), "rear");
        assert_eq!(&*streams.name(StreamId(9)), "stream 9");
        assert_eq!(streams.all().len(), 2);
    }
}
