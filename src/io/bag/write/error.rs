//! Why a bag cannot be written.

use std::path::PathBuf;

use thiserror::Error;

use crate::io::recorder::RecordError;

/// Why a bag cannot be written. What was asked for is then not there; what was there before still is.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BagWriteError {
    /// Something of that name exists.
    #[error("{} exists already", path.display())]
    Exists {
        /// What exists.
        path: PathBuf,
    },
    /// Something of that name exists and is no bag, so it is not replaced even where that is allowed.
    #[error("{} exists and is no bag: it is not replaced", path.display())]
    NotReplaced {
        /// What exists.
        path: PathBuf,
    },
    /// The operating system refused.
    #[error("cannot write {}: {source}", path.display())]
    Io {
        /// File or folder.
        path: PathBuf,
        /// Its reason.
        source: std::io::Error,
    },
    /// An MCAP file cannot be written.
    #[error(transparent)]
    Mcap(#[from] RecordError),
    /// A SQLite file cannot be written.
    #[error("writing {}: {source}", path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// SQLite's reason.
        source: rusqlite::Error,
    },
    /// The metadata cannot be put into words.
    #[error("metadata of {}: {reason}", path.display())]
    Metadata {
        /// The bag.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// One topic cannot have two types.
    #[error("topic {topic} has type {first} and, elsewhere, {second}: a topic has one type")]
    TwoTypes {
        /// The topic.
        topic: String,
        /// The type that it has.
        first: String,
        /// The type that it should get too.
        second: String,
    },
    /// A bag of several files is a folder.
    #[error("{} is one file and cannot be split; name a folder", path.display())]
    SplitFile {
        /// The file asked for.
        path: PathBuf,
    },
    /// SQLite bags are not compressed.
    #[error("a SQLite bag is written uncompressed; choose MCAP for zstd")]
    CompressedSqlite,
    /// A time that the storage has no room for.
    #[error("{}: {time_ns} ns is beyond the times of SQLite bags", path.display())]
    Time {
        /// The file.
        path: PathBuf,
        /// The time.
        time_ns: u64,
    },
}

impl BagWriteError {
    pub(super) fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }

    pub(super) fn sqlite(path: impl Into<PathBuf>) -> impl FnOnce(rusqlite::Error) -> Self {
        let path = path.into();
        move |source| Self::Sqlite { path, source }
    }
}
