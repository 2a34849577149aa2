//! Model bundles: a folder that holds all that makes a model what it is, each file with its digest.
//!
//! `bundle.json` is the manifest: name and version of the model, where its weights come from and under which licence, the
//! settings that are pinned (an entry of `models` in a pipeline file, paths relative to the folder), calibration presets,
//! and samples with the outputs that were stored for them. A bundle that was changed by hand is told, and not loaded.

mod check;
mod error;
mod manifest;
mod path;
mod pin;
mod settings;
mod version;

pub use check::{BundleFinding, FindingKind};
pub use error::BundleError;
pub use manifest::{
    BUNDLE_FORMAT, BundleFile, BundleSample, BundleSource, CALIBRATION_FOLDER, MANIFEST_FILE,
    MAX_MANIFEST_BYTES, Manifest,
};
pub use pin::{Pinned, compare, pinned};
pub use settings::settings_sha256;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::weights::file_sha256;

/// A bundle on disk whose manifest has been read. Its files are checked by [`Bundle::verify`] or [`Bundle::check`].
#[derive(Debug, Clone)]
pub struct Bundle {
    folder: PathBuf,
    manifest: Manifest,
    text: String,
}

impl Bundle {
    /// Reads the manifest of a bundle.
    ///
    /// # Errors
    /// A manifest that cannot be read, is of another format, or names files outside of the folder.
    pub fn open(folder: &Path) -> Result<Self, BundleError> {
        let path = folder.join(MANIFEST_FILE);
        let mut bytes = Vec::new();
        File::open(&path)
            .and_then(|file| file.take(MAX_MANIFEST_BYTES + 1).read_to_end(&mut bytes))
            .map_err(|source| BundleError::Read {
                path: path.clone(),
                source,
            })?;
        if bytes.len() as u64 > MAX_MANIFEST_BYTES {
            return Err(BundleError::TooLarge { path });
        }
        let wrong = |reason: String| BundleError::Manifest {
            path: path.clone(),
            reason,
        };
        let text = String::from_utf8(bytes).map_err(|error| wrong(error.to_string()))?;
        let manifest: Manifest = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        manifest.check().map_err(wrong)?;
        Ok(Self {
            folder: folder.to_owned(),
            manifest,
            text,
        })
    }

    /// The folder, as it was named.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What the bundle says of itself.
    #[must_use]
    pub const fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The manifest as it is written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Makes sure that every file is there, and that they and the pinned settings are as they were when the bundle was made.
    ///
    /// # Errors
    /// The first that is not, by name.
    pub fn verify(&self) -> Result<(), BundleError> {
        let files = self.manifest.files.iter();
        let mut findings = files
            .filter_map(|(name, file)| self.look_at(name, file))
            .chain(self.changed_settings());
        match findings.next() {
            Some(finding) => Err(BundleError::File {
                folder: self.folder.clone(),
                finding,
            }),
            None => Ok(()),
        }
    }

    /// What is wrong with the pinned settings, where the manifest has their digest.
    fn changed_settings(&self) -> Option<BundleFinding> {
        let recorded = self.manifest.model_sha256.as_deref()?;
        let digest = settings_sha256(&self.manifest.model);
        (digest != recorded).then(|| BundleFinding {
            kind: FindingKind::Modified,
            path: "model".to_owned(),
            detail: format!("has settings with SHA-256 {digest}, not {recorded}"),
        })
    }

    /// What is wrong with one file.
    fn look_at(&self, name: &str, file: &BundleFile) -> Option<BundleFinding> {
        let found = |kind, detail: String| {
            Some(BundleFinding {
                kind,
                path: name.to_owned(),
                detail,
            })
        };
        let path = match path::within(&self.folder, name) {
            Ok(path) => path,
            Err(reason) => return found(FindingKind::Unsafe, reason),
        };
        let bytes = match path.symlink_metadata() {
            Ok(metadata) if metadata.is_file() => metadata.len(),
            Ok(_) => return found(FindingKind::Unsafe, "is no plain file".to_owned()),
            Err(error) => return found(FindingKind::Missing, error.to_string()),
        };
        if bytes != file.bytes {
            let detail = format!("has {bytes} bytes, not {}", file.bytes);
            return found(FindingKind::Modified, detail);
        }
        match file_sha256(&path) {
            Ok(digest) if digest == file.sha256 => None,
            Ok(digest) => found(
                FindingKind::Modified,
                format!("has SHA-256 {digest}, not {}", file.sha256),
            ),
            Err(error) => found(FindingKind::Missing, error.to_string()),
        }
    }
}
