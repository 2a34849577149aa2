//! Weights that were prepared once are read the next time.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use xxhash_rust::xxh3::xxh3_64;

use super::cache_file;
use crate::tensor::{HostTensor, Layout, TensorSpec};

/// Names the folder of the cache.
const ROOT_VARIABLE: &str = "SENSORIUM_CACHE";
/// Switches the cache off where it is `0`.
const SWITCH_VARIABLE: &str = "SENSORIUM_WEIGHT_CACHE";

/// Letters of a name that stay in the name of a file.
const NAME_LETTERS: usize = 80;

/// The folder for what can be made again: `$SENSORIUM_CACHE`, else `~/.cache/sensorium`; `None` without a home.
#[must_use]
pub fn cache_root() -> Option<PathBuf> {
    root_of(|name| std::env::var_os(name))
}

fn root_of(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let set = |name: &str| {
        variable(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    set(ROOT_VARIABLE).or_else(|| Some(set("HOME")?.join(".cache/sensorium")))
}

/// Prepared tensors in files, each kept under what it was made from (the digest of the model), by which version of the
/// preparing code, and its key. What is unreadable, damaged, or of another type, shape or layout is made again and
/// replaced. May be used by several threads and processes at once: files appear whole, and equal keys have equal tensors.
///
/// Whatever happens to the files, a caller gets its tensor: a cache that cannot be written is as one that is empty, and
/// says so once in the log.
#[derive(Debug)]
pub struct WeightCache {
    /// `None`: nothing is kept.
    folder: Option<PathBuf>,
    namespace: Option<PathBuf>,
    hits: AtomicU64,
    misses: AtomicU64,
    unwritable: AtomicU64,
}

/// Why a tensor is not in a cache and cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WeightCacheError<E> {
    /// The caller failed to make it.
    #[error(transparent)]
    Make(E),
    /// The caller made another tensor than it asked for.
    #[error("tensor `{key}` was to be {expected}, and was made as {found}")]
    Spec {
        /// The key.
        key: String,
        /// What was asked for.
        expected: Box<TensorSpec>,
        /// What was made.
        found: Box<TensorSpec>,
    },
    /// A layout that host tensors do not have.
    #[error("tensor `{key}` is in {layout} layout; tensors on the host are row-major")]
    Layout {
        /// The key.
        key: String,
        /// The layout.
        layout: Layout,
    },
}

impl WeightCache {
    /// The cache below [`cache_root`] for tensors of `namespace` (as `camera/yolox`), made from a source of that digest
    /// by that version of the preparing code. Off where `$SENSORIUM_WEIGHT_CACHE` is `0`, or there is no root.
    #[must_use]
    pub fn new(namespace: &str, digest: &str, version: &str) -> Self {
        let on = std::env::var_os(SWITCH_VARIABLE).is_none_or(|value| value != "0");
        match cache_root().filter(|_| on) {
            Some(root) => Self::at(&root, namespace, digest, version),
            None => Self::off(),
        }
    }

    /// As [`Self::new`] below a folder of one's own, whatever the environment says.
    #[must_use]
    pub fn at(root: &Path, namespace: &str, digest: &str, version: &str) -> Self {
        let below = root.join("weights");
        let namespace = namespace
            .split('/')
            .fold(below, |path, part| path.join(file_name(part)));
        Self {
            folder: Some(namespace.join(file_name(&format!("{digest}-{version}")))),
            namespace: Some(namespace),
            ..Self::off()
        }
    }

    /// A cache that keeps nothing.
    #[must_use]
    pub fn off() -> Self {
        Self {
            folder: None,
            namespace: None,
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            unwritable: AtomicU64::new(0),
        }
    }

    /// Whether anything is kept.
    #[must_use]
    pub const fn is_on(&self) -> bool {
        self.folder.is_some()
    }

    /// The file of a key; `None` where the cache is off.
    #[must_use]
    pub fn path(&self, key: &str) -> Option<PathBuf> {
        let folder = self.folder.as_ref()?;
        Some(folder.join(format!("{}.weights", file_name(key))))
    }

    /// The tensor of a key: out of its file, or made and then kept. `spec` is what it must be.
    ///
    /// # Errors
    /// [`WeightCacheError`]: `make` failed, or made something else.
    pub fn get<E>(
        &self,
        key: &str,
        spec: &TensorSpec,
        make: impl FnOnce() -> Result<HostTensor, E>,
    ) -> Result<HostTensor, WeightCacheError<E>> {
        if spec.layout != Layout::RowMajor {
            return Err(WeightCacheError::Layout {
                key: key.to_owned(),
                layout: spec.layout,
            });
        }
        let path = self.path(key);
        if let Some(path) = &path {
            match cache_file::read(path, key, spec) {
                Ok(tensor) => {
                    self.hits.fetch_add(1, Ordering::Relaxed);
                    return Ok(tensor);
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    tracing::info!(file = %path.display(), "prepared weights are made again: {error}");
                }
            }
        }
        self.misses.fetch_add(1, Ordering::Relaxed);
        let made = make().map_err(WeightCacheError::Make)?;
        if made.spec() != spec {
            return Err(WeightCacheError::Spec {
                key: key.to_owned(),
                expected: Box::new(*spec),
                found: Box::new(*made.spec()),
            });
        }
        if let Some(path) = path {
            self.keep(&path, key, &made);
        }
        Ok(made)
    }

    fn keep(&self, path: &Path, key: &str, tensor: &HostTensor) {
        let folder = path.parent().unwrap_or(path);
        let written = std::fs::create_dir_all(folder).and_then(|()| cache_file::write(path, key, tensor));
        if let Err(error) = written
            && self.unwritable.fetch_add(1, Ordering::Relaxed) == 0
        {
            tracing::warn!(file = %path.display(), "prepared weights are not kept: {error}");
        }
    }

    /// How many tensors came out of files.
    #[must_use]
    pub fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }

    /// How many had to be made.
    #[must_use]
    pub fn misses(&self) -> u64 {
        self.misses.load(Ordering::Relaxed)
    }

    /// Removes every file of the namespace, also those of other digests and versions.
    ///
    /// # Errors
    /// What the system says; a namespace without files is none.
    pub fn clear(&self) -> io::Result<()> {
        let Some(namespace) = &self.namespace else {
            return Ok(());
        };
        match std::fs::remove_dir_all(namespace) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// A name as a part of a path: the letters that no file system minds, and, where others were left out, a digest of all
/// of them.
fn file_name(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let harmless = name.chars().all(plain) && name.len() <= NAME_LETTERS && !name.starts_with('.');
    if harmless && !name.is_empty() {
        return name.to_owned();
    }
    let letters: String = name
        .chars()
        .filter(|&c| plain(c) && c != '.')
        .take(NAME_LETTERS)
        .collect();
    format!("{letters}-{:016x}", xxh3_64(name.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_what_the_variable_says_or_in_the_home() {
        let of = |set: &[(&str, &str)]| {
            root_of(|name| {
                let found = set.iter().find(|(key, _)| *key == name);
                found.map(|(_, value)| OsString::from(value))
            })
        };
        let home = Some(PathBuf::from("/home/me/.cache/sensorium"));
        assert_eq!(of(&[("HOME", "/home/me")]), home);
        assert_eq!(of(&[("HOME", "/home/me"), (ROOT_VARIABLE, "")]), home);
        assert_eq!(
            of(&[("HOME", "/home/me"), (ROOT_VARIABLE, "/big")]),
            Some("/big".into())
        );
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn no_name_leads_out_of_its_folder_and_no_two_are_one() {
        let names = [
            "a",
            "a/b",
            "a\\b",
            "..",
            ".",
            "",
            "a b",
            "ab",
            ".a",
            "ä",
            &"x".repeat(300),
        ];
        let files: Vec<String> = names.iter().map(|name| file_name(name)).collect();
        for (i, file) in files.iter().enumerate() {
            assert!(
                !file.contains(['/', '\\']) && !file.starts_with('.') && !file.is_empty(),
                "{file}"
            );
            assert!(file.len() < 120);
            assert!(!files[..i].contains(file), "{file}");
        }
    }
}
