//! Why a point-cloud file cannot be read or written.

use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::io::cloud::CloudError;

/// Why a point-cloud file cannot be read or written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CloudFileError {
    /// What follows happened in a file.
    #[error("{}: {source}", path.display())]
    In {
        /// The file.
        path: PathBuf,
        /// What happened.
        source: Box<Self>,
    },
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The extension names no format.
    #[error("{}: the extension of a point cloud is .pcd, .bin, .npy, .npz or .cdr", path.display())]
    UnknownFormat {
        /// The file.
        path: PathBuf,
    },
    /// The points cannot be read.
    #[error(transparent)]
    Cloud(#[from] CloudError),
    /// A PCD file without a DATA line, such as an empty one.
    #[error("the file has no PCD header: there is no DATA line in its first {searched} bytes")]
    NoPcdHeader {
        /// Bytes looked through.
        searched: usize,
    },
    /// A line of a PCD header cannot be read.
    #[error("line {line} of the PCD header is {text:?}: {reason}")]
    PcdLine {
        /// Line, counted from 1.
        line: usize,
        /// Its text.
        text: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A line of a PCD header is missing.
    #[error("the PCD header has no {key} line")]
    PcdKeyMissing {
        /// Its first word.
        key: &'static str,
    },
    /// Lines of a PCD header contradict each other.
    #[error("the PCD header has {fields} FIELDS, but {found} values of {key}")]
    PcdFieldCount {
        /// The line that is too long or too short.
        key: &'static str,
        /// Values on that line.
        found: usize,
        /// Fields.
        fields: usize,
    },
    /// WIDTH, HEIGHT and POINTS contradict each other.
    #[error(
        "the PCD header says WIDTH {width}, HEIGHT {height} and POINTS {points}, which is not their product"
    )]
    PcdPoints {
        /// Points in a row.
        width: u64,
        /// Rows.
        height: u64,
        /// Points.
        points: u64,
    },
    /// A PCD file is shorter than its header says.
    #[error("the PCD header needs {needed} bytes of points, and {found} follow it")]
    PcdTooShort {
        /// Bytes that the header asks for.
        needed: u64,
        /// Bytes there are.
        found: u64,
    },
    /// The number of lines of an ASCII file is not that of its header.
    #[error("the PCD header says {points} points, and {found} lines of points follow it")]
    PcdLines {
        /// Points by the header.
        points: u64,
        /// Lines there are; one more than `points` stands for any number of them.
        found: u64,
    },
    /// A line of points cannot be read.
    #[error("point {point} of the PCD file, field {field}: {reason}")]
    PcdValue {
        /// The point, counted from 0.
        point: usize,
        /// The field.
        field: String,
        /// What is wrong.
        reason: String,
    },
    /// The sizes of a compressed block cannot be true.
    #[error(
        "the compressed block of the PCD file says {compressed} bytes packed and {unpacked} unpacked, but the header \
         needs {needed} and {available} bytes follow"
    )]
    PcdBlock {
        /// Size of the packed block by the file.
        compressed: u64,
        /// Size of the unpacked block by the file.
        unpacked: u64,
        /// Bytes that the header's points take.
        needed: u64,
        /// Bytes left in the file.
        available: u64,
    },
    /// Packed points that are larger than what is unpacked.
    #[error("the points take {needed} bytes unpacked, and at most {allowed} are unpacked")]
    TooLargeUnpacked {
        /// Bytes that the file says its points take.
        needed: u64,
        /// Bytes that are unpacked at most.
        allowed: u64,
    },
    /// The compressed block is damaged.
    #[error("the compressed block of the PCD file is damaged at byte {at}")]
    PcdDamaged {
        /// Byte of the packed block where it makes no sense any more.
        at: usize,
    },
    /// A table whose layout cannot be found out.
    #[error(
        "{len} bytes could be {}; name the layout, such as f32:xyzi, f32:xyzir or f16:xyzil",
        if candidates.is_empty() { "no layout that is known" } else { candidates }
    )]
    LayoutUnknown {
        /// Bytes in the file.
        len: usize,
        /// Layouts that fit, if any.
        candidates: String,
    },
    /// A layout that does not fit the file.
    #[error("{len} bytes are no whole number of points of layout {layout} ({step} bytes each)")]
    LayoutSize {
        /// Bytes in the file.
        len: usize,
        /// The layout.
        layout: String,
        /// Bytes of a point.
        step: usize,
    },
    /// A layout that is not one.
    #[error("{text:?} is no layout: {reason}")]
    LayoutText {
        /// What was given.
        text: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Not a NumPy array, or one that holds no points.
    #[error("not a NumPy array of points: {reason}")]
    Npy {
        /// What is wrong.
        reason: String,
    },
    /// Not a NumPy archive, or one that holds no points.
    #[error("not a NumPy archive of points: {reason}")]
    Npz {
        /// What is wrong.
        reason: String,
    },
    /// A stamp that a message cannot hold.
    #[error("stamp {stamp_ns} ns does not fit a ROS 2 message (1901 to January 2038)")]
    Stamp {
        /// The stamp.
        stamp_ns: i64,
    },
}

impl CloudFileError {
    /// The error with the file that it happened in.
    pub(super) fn at(self, path: &Path) -> Self {
        Self::In {
            path: path.into(),
            source: Box::new(self),
        }
    }
}
