//! What can be wrong with a bag: errors, and warnings that do not stop a reader.

use std::fmt;
use std::path::PathBuf;

use thiserror::Error;

/// Why a bag cannot be opened, or why part of it cannot be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BagError {
    /// The operating system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// File or folder.
        path: PathBuf,
        /// Its reason.
        source: std::io::Error,
    },
    /// A recording of ROS 1.
    #[error(
        "{} is a ROS 1 bag; convert it first: rosbags-convert --src {} --dst <new folder> \
         (pip install rosbags)",
        path.display(), path.display()
    )]
    Ros1 {
        /// The file.
        path: PathBuf,
    },
    /// A file of no bytes, as a recorder leaves that never wrote.
    #[error("{} has 0 bytes: its recorder wrote nothing", path.display())]
    EmptyFile {
        /// The file.
        path: PathBuf,
    },
    /// The first bytes are those of no known storage.
    #[error("{} is neither MCAP nor SQLite (.db3): its first bytes are those of no bag", path.display())]
    UnknownFormat {
        /// The file.
        path: PathBuf,
    },
    /// A folder that holds neither `metadata.yaml` nor a bag file.
    #[error("{} holds no metadata.yaml and no .mcap or .db3 file", path.display())]
    NoBagInFolder {
        /// The folder.
        path: PathBuf,
    },
    /// `metadata.yaml` cannot be understood.
    #[error("{}: {reason}", path.display())]
    Metadata {
        /// The file.
        path: PathBuf,
        /// What is wrong, with its place.
        reason: String,
    },
    /// Every file that `metadata.yaml` names is missing.
    #[error("{}: none of the {} files it names is here (first: {first})", path.display(), named)]
    AllFilesMissing {
        /// The metadata file.
        path: PathBuf,
        /// Files named.
        named: usize,
        /// The first of them.
        first: String,
    },
    /// A SQLite file without the tables of a bag.
    #[error("{} is SQLite but no bag: {missing}", path.display())]
    NotABagDatabase {
        /// The file.
        path: PathBuf,
        /// What is missing.
        missing: String,
    },
    /// SQLite reports damage.
    #[error("{}: {source}", path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// Its report.
        source: rusqlite::Error,
    },
    /// A row of a SQLite bag that is no message.
    #[error("{}: message {id}: {reason}", path.display())]
    BadRow {
        /// The file.
        path: PathBuf,
        /// `messages.id`.
        id: i64,
        /// What is wrong.
        reason: &'static str,
    },
    /// The file ends in the middle of a record, or before its closing records. Every whole message before
    /// that point has been delivered.
    #[error("{} is truncated at offset {offset}: every whole message before it was read", path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Where the record starts that is not whole.
        offset: u64,
    },
    /// A record whose content contradicts itself.
    #[error("{}: bad MCAP record at offset {offset}: {reason}", path.display())]
    BadRecord {
        /// The file.
        path: PathBuf,
        /// Where the record, or the chunk around it, starts.
        offset: u64,
        /// What is wrong.
        reason: String,
    },
    /// A chunk does not have the checksum that it says; its messages are not delivered.
    #[error(
        "{}: chunk at offset {offset} is damaged (checksum {actual:08x}, recorded {recorded:08x})",
        path.display()
    )]
    ChunkChecksum {
        /// The file.
        path: PathBuf,
        /// Where the chunk starts.
        offset: u64,
        /// Checksum in the file.
        recorded: u32,
        /// Checksum of the bytes.
        actual: u32,
    },
    /// Compressed bytes that do not decompress.
    #[error("{}: {what} does not decompress: {source}", path.display())]
    Decompress {
        /// The file.
        path: PathBuf,
        /// Which part.
        what: String,
        /// The decompressor's reason.
        source: std::io::Error,
    },
    /// Something is larger than [`BagLimits`](super::BagLimits) allows.
    #[error("{}: {what} is larger than the limit of {limit} bytes", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Which part.
        what: String,
        /// The limit.
        limit: u64,
    },
    /// A topic was asked for that the bag does not have.
    #[error("topic {topic} is not in the bag; it has: {}", available.join(", "))]
    UnknownTopic {
        /// What was asked for.
        topic: String,
        /// What there is.
        available: Vec<String>,
    },
}

impl BagError {
    pub(super) fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }

    pub(super) fn sqlite(path: impl Into<PathBuf>) -> impl FnOnce(rusqlite::Error) -> Self {
        let path = path.into();
        move |source| Self::Sqlite { path, source }
    }
}

/// Something about a bag that its user should know, though it can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BagWarning {
    /// Files that `metadata.yaml` names are not here; the rest is read.
    MissingFiles {
        /// Names of those that are missing.
        missing: Vec<String>,
        /// How many are named.
        named: usize,
    },
    /// The folder has no `metadata.yaml`; every bag file in it is read.
    NoMetadata {
        /// The folder.
        path: PathBuf,
    },
    /// A file that cannot be read at all, beside others that can.
    UnreadableFile {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// Messages are zstd frames though nothing says so; they are decompressed.
    UndeclaredCompression {
        /// The file.
        path: PathBuf,
    },
    /// The file ends too early; its whole messages are read.
    Truncated {
        /// The file.
        path: PathBuf,
        /// Where the record starts that is not whole.
        offset: u64,
    },
    /// A record contradicts itself; what can be read around it is read.
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where the record starts.
        offset: u64,
        /// What is wrong.
        reason: String,
    },
    /// Log times go backwards within the file; messages are sorted while reading.
    OutOfOrder {
        /// The file.
        path: PathBuf,
    },
    /// A write-ahead log lies beside a SQLite file: its recorder did not close it. File and log are read from a copy,
    /// since reading the log in place would write files beside the bag.
    WriteAheadLog {
        /// The log.
        path: PathBuf,
        /// Why there is no such copy, so that what is in the log is not read.
        not_read: Option<String>,
    },
    /// Something said of a topic cannot be understood and is left out: a QoS profile, a type hash.
    TopicDetail {
        /// The topic.
        topic: String,
        /// What it is.
        reason: String,
    },
}

impl BagWarning {
    /// Whether messages that were recorded are missing, or may be.
    #[must_use]
    pub fn loses_messages(&self) -> bool {
        match self {
            Self::MissingFiles { .. }
            | Self::UnreadableFile { .. }
            | Self::Truncated { .. }
            | Self::Damaged { .. }
            | Self::WriteAheadLog {
                not_read: Some(_), ..
            } => true,
            Self::NoMetadata { .. }
            | Self::UndeclaredCompression { .. }
            | Self::OutOfOrder { .. }
            | Self::WriteAheadLog { not_read: None, .. }
            | Self::TopicDetail { .. } => false,
        }
    }
}

impl fmt::Display for BagWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MissingFiles { missing, named } => write!(
                f,
                "{} of {named} files named in the metadata are missing: {}",
                missing.len(),
                missing.join(", ")
            ),
            Self::NoMetadata { path } => {
                write!(
                    f,
                    "{} has no metadata.yaml; every bag file in it is read",
                    path.display()
                )
            }
            Self::UnreadableFile { path: _, reason } => write!(f, "not read: {reason}"),
            Self::UndeclaredCompression { path } => write!(
                f,
                "{}: messages are zstd-compressed though the metadata does not say so",
                path.display()
            ),
            Self::Truncated { path, offset } => {
                write!(
                    f,
                    "{} is truncated at offset {offset}; its whole messages are read",
                    path.display()
                )
            }
            Self::Damaged { path, offset, reason } => {
                write!(f, "{}: bad record at offset {offset}: {reason}", path.display())
            }
            Self::OutOfOrder { path } => {
                write!(
                    f,
                    "{}: log times go backwards; messages are sorted while reading",
                    path.display()
                )
            }
            Self::WriteAheadLog { path, not_read: None } => write!(
                f,
                "{}: the recorder did not close the bag; this log is read from a copy",
                path.display()
            ),
            Self::WriteAheadLog {
                path,
                not_read: Some(reason),
            } => write!(
                f,
                "{} holds messages that are not read ({reason}); close the bag first: \
                 sqlite3 <bag.db3> 'PRAGMA wal_checkpoint'",
                path.display()
            ),
            Self::TopicDetail { topic, reason } => write!(f, "topic {topic}: {reason}; it is left out"),
        }
    }
}
