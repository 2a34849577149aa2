//! Reading rosbag2 recordings: MCAP and SQLite files, with or without `metadata.yaml`.
//!
//! A bag is a folder with `metadata.yaml`, a metadata file, or a single `.mcap` or `.db3` file. What a file is
//! its first bytes tell, not its name. Messages of all files come merged by log time, in bounded memory.
//!
//! Damage never hides what is whole: a file that was cut off delivers every whole message before the point of
//! the cut, then one [`BagError::Truncated`].
//!
//! ```no_run
//! # fn main() -> Result<(), sensorium::io::bag::BagError> {
//! let bag = sensorium::io::bag::Bag::open("drive_0.mcap".as_ref())?;
//! for message in bag.messages(&["/camera/image_raw"])? {
//!     let message = message?;
//!     assert!(!message.topic.is_empty());
//! }
//! # Ok(())
//! # }
//! ```

mod check;
mod copy;
mod db3;
mod error;
mod mcap;
mod merge;
mod metadata;
mod open;
mod qos;
mod topic;
mod write;
mod zstd;

use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use check::{BagCheck, check, find_bags};
pub use copy::{Copied, Selection, copy};
pub use error::{BagError, BagWarning};
pub use merge::Messages;
pub(super) use qos::text as qos_text;
pub use topic::{BagTopic, TypeDefinition};
pub use write::{BagWriteError, BagWriter, BagWriterSettings, TopicId, WrittenBag};

use topic::FileTopic;

/// How much a bag may make the reader allocate or write. Damaged or hostile files are refused beyond it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BagLimits {
    /// Largest message, after decompression.
    pub max_message_bytes: u64,
    /// Largest MCAP chunk, compressed or decompressed.
    pub max_chunk_bytes: u64,
    /// Decompressed chunks kept, beside the one in use, where chunks of an MCAP file overlap in time. Beyond it
    /// nothing is refused: chunks are decompressed again when their turn comes.
    pub max_resident_bytes: u64,
    /// Largest sum of files decompressed to the temporary folder (bags compressed in mode `FILE`).
    pub max_unpacked_bytes: u64,
}

impl Default for BagLimits {
    /// 256 MiB a message, 1 GiB a chunk, 512 MiB of chunks kept, 8 GiB of decompressed files.
    fn default() -> Self {
        Self {
            max_message_bytes: 256 << 20,
            max_chunk_bytes: 1 << 30,
            max_resident_bytes: 512 << 20,
            max_unpacked_bytes: 8 << 30,
        }
    }
}

/// Log times from `start_ns` on and before `end_ns`, in nanoseconds since the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeRange {
    /// First time within.
    pub start_ns: u64,
    /// First time behind; `None` for no end.
    pub end_ns: Option<u64>,
}

impl TimeRange {
    /// All times.
    pub const ALL: Self = Self {
        start_ns: 0,
        end_ns: None,
    };

    /// Whether a time is within.
    #[must_use]
    pub fn contains(&self, time_ns: u64) -> bool {
        time_ns >= self.start_ns && self.end_ns.is_none_or(|end| time_ns < end)
    }

    /// Whether any time from `first_ns` to `last_ns`, both counted, may be within.
    fn meets(&self, first_ns: u64, last_ns: u64) -> bool {
        last_ns >= self.start_ns && self.end_ns.is_none_or(|end| first_ns < end)
    }
}

/// One recorded message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BagMessage {
    /// Topic name.
    pub topic: Arc<str>,
    /// Type in its long form, such as `sensor_msgs/msg/Image`.
    pub type_name: Arc<str>,
    /// When it was recorded, in nanoseconds since the epoch.
    pub log_time_ns: u64,
    /// When it was published, in nanoseconds since the epoch; the log time where the storage does not say.
    pub publish_time_ns: u64,
    /// The serialised message, decompressed; for `cdr` see [`crate::io::cdr`].
    pub data: Vec<u8>,
}

/// What keeps a bag's messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Storage {
    /// MCAP files.
    Mcap,
    /// SQLite files.
    Sqlite3,
}

impl Storage {
    /// The name that rosbag2 uses.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Mcap => "mcap",
            Self::Sqlite3 => "sqlite3",
        }
    }
}

/// An opened bag.
#[derive(Debug)]
pub struct Bag {
    contents: Arc<Contents>,
    topics: Vec<BagTopic>,
    warnings: Vec<BagWarning>,
}

/// What the messages are read from; shared with the iterators over it.
#[derive(Debug)]
struct Contents {
    files: Vec<BagFile>,
    limits: BagLimits,
    range_ns: Option<(u64, u64)>,
    size_bytes: u64,
    declared_messages: Option<u64>,
    compression: &'static str,
    /// Holds decompressed files until the last reader is gone.
    _unpacked: Option<tempfile::TempDir>,
}

#[derive(Debug)]
struct BagFile {
    shown: PathBuf,
    reader: FileReader,
}

#[derive(Debug)]
enum FileReader {
    Mcap(mcap::McapFile),
    Db3(db3::Db3File),
}

impl BagFile {
    fn topics(&self) -> Vec<FileTopic> {
        match &self.reader {
            FileReader::Mcap(file) => file.topics(),
            FileReader::Db3(file) => file.topics(),
        }
    }

    fn range_ns(&self) -> Option<(u64, u64)> {
        match &self.reader {
            FileReader::Mcap(file) => file.range_ns(),
            FileReader::Db3(file) => file.range_ns(),
        }
    }

    fn warnings(&self) -> Vec<BagWarning> {
        match &self.reader {
            FileReader::Mcap(file) => file.warnings(),
            FileReader::Db3(_) => Vec::new(),
        }
    }
}

impl Bag {
    /// Opens a bag with the default [`BagLimits`]: a folder, a `metadata.yaml`, or a single bag file.
    ///
    /// # Errors
    /// Any [`BagError`] that leaves nothing to read; lesser trouble is in [`Bag::warnings`].
    pub fn open(path: &Path) -> Result<Self, BagError> {
        Self::open_with(path, BagLimits::default())
    }

    /// As [`Bag::open`], with limits.
    ///
    /// # Errors
    /// As [`Bag::open`].
    pub fn open_with(path: &Path, limits: BagLimits) -> Result<Self, BagError> {
        open::open(path, limits)
    }

    /// The topics, sorted by name.
    #[must_use]
    pub fn topics(&self) -> &[BagTopic] {
        &self.topics
    }

    /// What the user should know about the bag.
    #[must_use]
    pub fn warnings(&self) -> &[BagWarning] {
        &self.warnings
    }

    /// Messages in the files that are here.
    #[must_use]
    pub fn message_count(&self) -> u64 {
        self.topics.iter().map(|topic| topic.messages).sum()
    }

    /// Messages that `metadata.yaml` says were recorded, files that are missing included.
    #[must_use]
    pub fn declared_message_count(&self) -> Option<u64> {
        self.contents.declared_messages
    }

    /// First and last log time in nanoseconds since the epoch; `None` for a bag without messages.
    #[must_use]
    pub fn range_ns(&self) -> Option<(u64, u64)> {
        self.contents.range_ns
    }

    /// Nanoseconds from the first message to the last.
    #[must_use]
    pub fn duration_ns(&self) -> u64 {
        self.contents
            .range_ns
            .map_or(0, |(first, last)| last.saturating_sub(first))
    }

    /// Bytes of the files that are here.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.contents.size_bytes
    }

    /// Number of files that are here.
    #[must_use]
    pub fn file_count(&self) -> usize {
        self.contents.files.len()
    }

    /// What keeps the messages; that of the first file where a bag mixes both.
    #[must_use]
    pub fn storage(&self) -> Storage {
        match self.contents.files.first().map(|file| &file.reader) {
            Some(FileReader::Db3(_)) => Storage::Sqlite3,
            _ => Storage::Mcap,
        }
    }

    /// Compression on top of the storage's own: `none`, `file` or `message`.
    #[must_use]
    pub fn compression(&self) -> &'static str {
        self.contents.compression
    }

    /// Messages of some topics, all files merged by log time.
    ///
    /// An `Err` item tells of damage; the iterator goes on where it can, and ends for certain.
    ///
    /// # Errors
    /// [`BagError::UnknownTopic`] for a topic that the bag does not have.
    pub fn messages(&self, topics: &[&str]) -> Result<Messages, BagError> {
        self.messages_within(Some(topics), TimeRange::ALL)
    }

    /// Messages of some topics, or of all, with a log time in a range; see [`Bag::messages`]. What lies wholly
    /// outside the range is not read.
    ///
    /// # Errors
    /// As [`Bag::messages`].
    pub fn messages_within(&self, topics: Option<&[&str]>, range: TimeRange) -> Result<Messages, BagError> {
        for topic in topics.into_iter().flatten() {
            if !self.topics.iter().any(|known| known.name == *topic) {
                return Err(BagError::UnknownTopic {
                    topic: (*topic).to_owned(),
                    available: self.topics.iter().map(|known| known.name.clone()).collect(),
                });
            }
        }
        let topics = topics.map(|topics| topics.iter().map(|topic| (*topic).to_owned()).collect());
        Ok(Messages::new(Arc::clone(&self.contents), topics, range))
    }

    /// Messages of every topic; see [`Bag::messages`].
    #[must_use]
    pub fn all_messages(&self) -> Messages {
        Messages::new(Arc::clone(&self.contents), None, TimeRange::ALL)
    }
}
