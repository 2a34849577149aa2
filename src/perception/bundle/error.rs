//! Why a bundle cannot be used.

use std::path::PathBuf;

use super::BundleFinding;
use super::manifest::{MANIFEST_FILE, MAX_MANIFEST_BYTES};

/// Why a bundle cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BundleError {
    /// The manifest or a file cannot be read.
    #[error("{} cannot be read", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The manifest is larger than any manifest should be.
    #[error("{} is larger than {MAX_MANIFEST_BYTES} bytes", path.display())]
    TooLarge {
        /// The manifest.
        path: PathBuf,
    },
    /// The manifest says what cannot be.
    #[error("{} is no manifest of a bundle: {reason}", path.display())]
    Manifest {
        /// The manifest.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A file or a pinned setting is not as it was when the bundle was made.
    #[error("the bundle {} was changed: {finding} ({MANIFEST_FILE} says what it was made of)", folder.display())]
    File {
        /// The bundle.
        folder: PathBuf,
        /// What is wrong, and with what.
        finding: BundleFinding,
    },
}
