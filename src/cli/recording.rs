//! Recordings under the name that was asked for only once they are complete.

use std::path::{Path, PathBuf};

use miette::{IntoDiagnostic, WrapErr, miette};

/// Has an MCAP file written under another name beside `out`, whose folder is made if need be, and gives it its name when
/// it is complete. A file that could not be completed is removed.
///
/// # Errors
/// A name that does not end in .mcap, a folder that cannot be made, and those of `write`.
pub(super) fn write_recording<T>(
    out: &Path,
    write: impl FnOnce(&Path) -> miette::Result<T>,
) -> miette::Result<T> {
    if out.extension().is_none_or(|suffix| suffix != "mcap") {
        let stem = out.file_stem().unwrap_or(out.as_os_str());
        return Err(miette!(
            help = format!(
                "give the file's whole name, such as --out {}.mcap",
                Path::new(stem).display()
            ),
            "{} is no .mcap file",
            out.display()
        ));
    }
    let mut unfinished = out.to_owned().into_os_string();
    unfinished.push(".part");
    let unfinished = PathBuf::from(unfinished);
    if let Some(folder) = out.parent() {
        std::fs::create_dir_all(folder)
            .into_diagnostic()
            .wrap_err_with(|| format!("cannot make the folder {}", folder.display()))?;
    }
    let written = write(&unfinished).and_then(|result| {
        std::fs::rename(&unfinished, out)
            .into_diagnostic()
            .wrap_err_with(|| format!("cannot write {}", out.display()))?;
        Ok(result)
    });
    written.inspect_err(|_| {
        // The first error is the one worth telling.
        let _ = std::fs::remove_file(&unfinished);
    })
}
