//! Whether a bundle is what it was when it was made.

use std::fmt;
use std::path::Path;

use serde::Serialize;

use super::manifest::MANIFEST_FILE;
use super::{Bundle, BundleError};

/// Deepest folder that is looked into.
const MAX_DEPTH: usize = 16;
/// Most files that are looked at.
const MAX_FILES: usize = 100_000;

/// What can be found about a bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingKind {
    /// A file is not as it was.
    Modified,
    /// A file is not there.
    Missing,
    /// A file is there that the manifest does not know.
    Extra,
    /// A name or a link leads out of the folder.
    Unsafe,
    /// Another bundle is newer, or has other files.
    Outdated,
    /// Nobody can tell where something comes from.
    Unverified,
}

impl FindingKind {
    /// Whether it only is worth saying.
    #[must_use]
    pub const fn is_warning(self) -> bool {
        matches!(self, Self::Outdated | Self::Unverified)
    }
}

impl fmt::Display for FindingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Modified => "modified",
            Self::Missing => "missing",
            Self::Extra => "extra",
            Self::Unsafe => "unsafe",
            Self::Outdated => "outdated",
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
    /// Everything that is to be said about the bundle, and beside another one where one is given.
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
        self.check_origin(&mut found);
        if let Some(other) = against {
            self.compare(other, &mut found);
        }
        Ok(found)
    }

    fn check_origin(&self, found: &mut Vec<BundleFinding>) {
        let source = &self.manifest.source;
        let origin = [
            ("source.repository", source.repository.is_empty()),
            ("source.revision", source.revision.is_empty()),
            ("licence", self.manifest.licence.is_empty()),
            ("samples", self.manifest.samples.is_empty()),
        ];
        for (key, _) in origin.into_iter().filter(|(_, empty)| *empty) {
            found.push(BundleFinding {
                kind: FindingKind::Unverified,
                path: key.to_owned(),
                detail: "is not recorded".to_owned(),
            });
        }
    }

    fn compare(&self, other: &Self, found: &mut Vec<BundleFinding>) {
        let mut outdated = |path: &str, detail: String| {
            found.push(BundleFinding {
                kind: FindingKind::Outdated,
                path: path.to_owned(),
                detail,
            });
        };
        let (own, newer) = (&self.manifest, &other.manifest);
        let there = other.folder.display();
        for (key, one, two) in [
            ("name", &own.name, &newer.name),
            ("version", &own.version, &newer.version),
            ("source.revision", &own.source.revision, &newer.source.revision),
        ] {
            if one != two {
                outdated(key, format!("is {one:?}, and {two:?} in {there}"));
            }
        }
        if own.model != newer.model {
            outdated("model", format!("has other settings than in {there}"));
        }
        for (name, file) in &newer.files {
            match own.files.get(name) {
                Some(same) if same == file => {}
                Some(_) => outdated(name, format!("is another file than in {there}")),
                None => outdated(name, format!("is only in {there}")),
            }
        }
        for name in own.files.keys().filter(|name| !newer.files.contains_key(*name)) {
            outdated(name, format!("is not in {there}"));
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
