//! Whether a bundle is what it was when it was made.

use std::cmp::Ordering;
use std::fmt;
use std::path::Path;

use serde::Serialize;

use super::manifest::MANIFEST_FILE;
use super::{Bundle, BundleError, version};

/// Deepest folder that is looked into.
const MAX_DEPTH: usize = 16;
/// Most files that are looked at.
const MAX_FILES: usize = 100_000;
/// What is called a revision and names another one every day.
const MOVING: [&str; 7] = ["HEAD", "main", "master", "latest", "develop", "dev", "trunk"];

/// What can be found about a bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// A file, or what the manifest pins, is not as it was.
    Modified,
    /// A file is not there.
    Missing,
    /// A file is there that the manifest does not know.
    Extra,
    /// A name or a link leads out of the folder.
    Unsafe,
    /// A file is as it was, and not what it has to be.
    Invalid,
    /// Another bundle is newer.
    Outdated,
    /// Another bundle is something else, and its version does not say so.
    Changed,
    /// Nobody can tell where something comes from, or whether it is as it was.
    Unverified,
}

impl FindingKind {
    /// Whether it only is worth saying.
    #[must_use]
    pub const fn is_warning(self) -> bool {
        matches!(self, Self::Outdated | Self::Changed | Self::Unverified)
    }
}

impl fmt::Display for FindingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Modified => "modified",
            Self::Missing => "missing",
            Self::Extra => "extra",
            Self::Unsafe => "unsafe",
            Self::Invalid => "invalid",
            Self::Outdated => "outdated",
            Self::Changed => "changed",
            Self::Unverified => "unverified",
        })
    }
}

/// Something about a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BundleFinding {
    /// What it is.
    pub kind: FindingKind,
    /// The file, or the key of the manifest.
    pub path: String,
    /// What was found, as the end of a sentence that begins with the file.
    pub detail: String,
}

impl fmt::Display for BundleFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} {}", self.kind, self.path, self.detail)
    }
}

impl Bundle {
    /// Everything that is to be said about the bundle, and beside another one where one is given: nothing of that where this one
    /// is newer.
    ///
    /// # Errors
    /// A folder that cannot be read.
    pub fn check(&self, against: Option<&Self>) -> Result<Vec<BundleFinding>, BundleError> {
        let mut found = Vec::new();
        for (name, file) in &self.manifest.files {
            found.extend(self.look_at(name, file));
        }
        let mut walk = Walk {
            bundle: self,
            files: 0,
            found: &mut found,
        };
        walk.folder(&self.folder, "", 0)?;
        found.extend(self.changed_settings());
        self.check_origin(&mut found);
        if let Some(other) = against {
            self.compare(other, &mut found);
        }
        Ok(found)
    }

    fn check_origin(&self, found: &mut Vec<BundleFinding>) {
        let (manifest, source) = (&self.manifest, &self.manifest.source);
        let mut unverified = |path: &str, detail: String| {
            found.push(BundleFinding {
                kind: FindingKind::Unverified,
                path: path.to_owned(),
                detail,
            });
        };
        for (key, empty) in [
            ("source.repository", source.repository.trim().is_empty()),
            ("source.revision", source.revision.trim().is_empty()),
            ("licence", manifest.licence.trim().is_empty()),
            ("samples", manifest.samples.is_empty()),
        ] {
            if empty {
                unverified(key, "is not recorded".to_owned());
            }
        }
        if MOVING.contains(&source.revision.trim()) {
            let detail = format!(
                "is {:?}, which names another revision from day to day",
                source.revision
            );
            unverified("source.revision", detail);
        }
        if manifest.model_sha256.is_none() {
            unverified("model", "has settings without a digest".to_owned());
        }
    }

    fn compare(&self, other: &Self, found: &mut Vec<BundleFinding>) {
        let mut tell = |kind, path: &str, detail: String| {
            found.push(BundleFinding {
                kind,
                path: path.to_owned(),
                detail,
            });
        };
        let (own, theirs) = (&self.manifest, &other.manifest);
        let there = other.folder.display();
        if own.name != theirs.name {
            let detail = format!("is {:?}, and {:?} in {there}", own.name, theirs.name);
            // Versions of two models say nothing about each other.
            return tell(FindingKind::Changed, "name", detail);
        }
        let versions = format!("is {:?}, and {:?} in {there}", own.version, theirs.version);
        let kind = match version::order(&own.version, &theirs.version) {
            Some(Ordering::Greater) => return,
            Some(Ordering::Equal) => FindingKind::Changed,
            Some(Ordering::Less) => {
                tell(FindingKind::Outdated, "version", versions);
                FindingKind::Outdated
            }
            None => {
                let detail = format!("{versions}: nobody can tell which is newer");
                return tell(FindingKind::Unverified, "version", detail);
            }
        };
        for (key, one, two) in [
            (
                "source.repository",
                &own.source.repository,
                &theirs.source.repository,
            ),
            ("source.revision", &own.source.revision, &theirs.source.revision),
            ("licence", &own.licence, &theirs.licence),
        ] {
            if one != two {
                tell(kind, key, format!("is {one:?}, and {two:?} in {there}"));
            }
        }
        if own.model != theirs.model {
            tell(kind, "model", format!("has other settings than in {there}"));
        }
        for (name, file) in &theirs.files {
            match own.files.get(name) {
                Some(same) if same == file => {}
                Some(_) => tell(kind, name, format!("is another file than in {there}")),
                None => tell(kind, name, format!("is only in {there}")),
            }
        }
        for name in own.files.keys().filter(|name| !theirs.files.contains_key(*name)) {
            tell(kind, name, format!("is not in {there}"));
        }
    }
}

/// Looks for files that the manifest does not know.
struct Walk<'a> {
    bundle: &'a Bundle,
    files: usize,
    found: &'a mut Vec<BundleFinding>,
}

impl Walk<'_> {
    fn folder(&mut self, folder: &Path, prefix: &str, depth: usize) -> Result<(), BundleError> {
        let cannot = |source| BundleError::Read {
            path: folder.to_owned(),
            source,
        };
        let mut entries = std::fs::read_dir(folder)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(cannot)?;
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            self.files += 1;
            let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
            let kind = entry.file_type().map_err(cannot)?;
            let mut tell = |kind, detail: &str| {
                self.found.push(BundleFinding {
                    kind,
                    path: name.clone(),
                    detail: detail.to_owned(),
                });
            };
            if self.files > MAX_FILES {
                tell(FindingKind::Extra, "and what follows it is too much to look at");
                return Ok(());
            }
            if kind.is_symlink() {
                // One that a listed file leads through has been told there.
                let listed = |file: &String| *file == name || file.starts_with(&format!("{name}/"));
                if !self.bundle.manifest.files.keys().any(listed) {
                    tell(FindingKind::Unsafe, "is a symbolic link");
                }
            } else if kind.is_dir() {
                if depth == MAX_DEPTH {
                    tell(FindingKind::Extra, "is a folder too deep to look into");
                } else {
                    self.folder(&entry.path(), &format!("{name}/"), depth + 1)?;
                }
            } else if name != MANIFEST_FILE && !self.bundle.manifest.files.contains_key(&name) {
                tell(FindingKind::Extra, "is not in the manifest");
            }
        }
        Ok(())
    }
}
