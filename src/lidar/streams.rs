//! A cache of sweeps for each stream.

use super::densify::{DensifierState, DensifyConfig, SweepDensifier};

/// Streams that are kept when nothing else is said.
const DEFAULT_MAX_STREAMS: usize = 16;

/// One [`SweepDensifier`] a stream. Beyond a number of streams, the one not used for longest is forgotten: its sweeps,
/// not its memory, which the new one takes over.
#[derive(Debug, Clone)]
pub struct StreamDensifiers {
    config: DensifyConfig,
    max_streams: usize,
    /// Last used first.
    streams: Vec<(String, SweepDensifier)>,
    evictions: u64,
}

impl StreamDensifiers {
    /// No streams yet; at most 16.
    #[must_use]
    pub const fn new(config: DensifyConfig) -> Self {
        Self {
            config,
            max_streams: DEFAULT_MAX_STREAMS,
            streams: Vec::new(),
            evictions: 0,
        }
    }

    /// At most this many streams; at least one.
    #[must_use]
    pub fn with_max_streams(mut self, max_streams: usize) -> Self {
        self.max_streams = max_streams.max(1);
        self
    }

    /// The cache of a stream, which is the one used last from now on; an empty one for a stream that is not known.
    pub fn get(&mut self, stream: &str) -> &mut SweepDensifier {
        match self.streams.iter().position(|(name, _)| name == stream) {
            Some(at) => self.streams[..=at].rotate_right(1),
            None if self.streams.len() >= self.max_streams => {
                self.evictions += 1;
                self.streams.rotate_right(1);
                let (name, densifier) = &mut self.streams[0];
                stream.clone_into(name);
                densifier.start_anew();
            }
            None => self
                .streams
                .insert(0, (stream.to_owned(), SweepDensifier::new(self.config))),
        }
        &mut self.streams[0].1
    }

    /// Forgets a stream. False if it is not known.
    pub fn forget(&mut self, stream: &str) -> bool {
        let before = self.streams.len();
        self.streams.retain(|(name, _)| name != stream);
        self.streams.len() < before
    }

    /// Names of the streams, the one used last first.
    pub fn streams(&self) -> impl ExactSizeIterator<Item = &str> {
        self.streams.iter().map(|(name, _)| name.as_str())
    }

    /// Streams forgotten for others since the start.
    #[must_use]
    pub const fn evictions(&self) -> u64 {
        self.evictions
    }

    /// What each stream's cache holds and has seen, the one used last first.
    pub fn describe(&self) -> impl ExactSizeIterator<Item = (&str, DensifierState)> {
        self.streams
            .iter()
            .map(|(name, densifier)| (name.as_str(), densifier.describe()))
    }
}
