//! Where a bag is written before it gets its name.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::BagWriteError;
use crate::io::bag::metadata;

/// A temporary folder beside the bag's place. What is in it is gone unless the bag is complete.
#[derive(Debug)]
pub(super) struct Place {
    wanted: PathBuf,
    overwrite: bool,
    folder: TempDir,
}

impl Place {
    /// Makes the folder, and that in which the bag shall lie.
    pub(super) fn new(wanted: &Path, overwrite: bool) -> Result<Self, BagWriteError> {
        allow(wanted, overwrite)?;
        let parent = match wanted.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        fs::create_dir_all(parent).map_err(BagWriteError::io(parent))?;
        let mut prefix = std::ffi::OsString::from(".");
        prefix.push(wanted.file_name().unwrap_or_default());
        prefix.push(".");
        let folder = tempfile::Builder::new()
            .prefix(&prefix)
            .suffix(".part")
            .tempdir_in(parent);
        Ok(Self {
            wanted: wanted.to_owned(),
            overwrite,
            folder: folder.map_err(BagWriteError::io(wanted))?,
        })
    }

    /// The name that the bag shall get.
    pub(super) fn wanted(&self) -> &Path {
        &self.wanted
    }

    /// What is written now and gets the bag's name in the end.
    pub(super) fn unfinished(&self) -> PathBuf {
        self.folder.path().join("bag")
    }

    /// Gives the bag its name.
    pub(super) fn complete(self) -> Result<(), BagWriteError> {
        allow(&self.wanted, self.overwrite)?;
        let refused = || BagWriteError::io(&self.wanted);
        let replaced = self.folder.path().join("replaced");
        let replaces = self.wanted.symlink_metadata().is_ok();
        if replaces {
            fs::rename(&self.wanted, &replaced).map_err(refused())?;
        }
        if let Err(source) = fs::rename(self.unfinished(), &self.wanted) {
            if replaces {
                // The first error is the one worth telling.
                let _ = fs::rename(&replaced, &self.wanted);
            }
            return Err(refused()(source));
        }
        // What was replaced, and the empty folder, are of no more use; the bag is complete without their going.
        let _ = self.folder.close();
        Ok(())
    }
}

/// Whether the name is free, or holds a bag that may be replaced.
fn allow(wanted: &Path, overwrite: bool) -> Result<(), BagWriteError> {
    let path = || wanted.to_owned();
    if wanted.symlink_metadata().is_err() {
        return Ok(());
    }
    if !overwrite {
        return Err(BagWriteError::Exists { path: path() });
    }
    let replaceable = if wanted.is_dir() {
        let empty = fs::read_dir(wanted).is_ok_and(|mut entries| entries.next().is_none());
        empty || wanted.join(metadata::FILE_NAME).is_file()
    } else {
        wanted.is_file()
    };
    if replaceable {
        Ok(())
    } else {
        Err(BagWriteError::NotReplaced { path: path() })
    }
}

/// Has the operating system write a file out, so that a disk that is full or fails is told of.
pub(super) fn sync(path: &Path) -> Result<(), BagWriteError> {
    File::open(path)
        .and_then(|file| file.sync_all())
        .map_err(BagWriteError::io(path))
}
