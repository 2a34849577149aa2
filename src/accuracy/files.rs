//! Files that are there whole or not at all.

use std::io::{self, Write};
use std::path::Path;

/// Writes another file in the same folder and renames it, so that nobody ever sees half of one.
pub(super) fn write_whole(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let mut builder = tempfile::Builder::new();
    // As any other new file, not for its owner alone.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let mut written = builder.tempfile_in(folder)?;
    written.write_all(bytes)?;
    written.as_file().sync_all()?;
    written.persist(file)?;
    Ok(())
}
