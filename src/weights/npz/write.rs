//! Writing a NumPy archive.

use std::io::{Cursor, Write};

use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipWriter};

use super::error::{NpzError, NpzFault};
use super::narrow::to_raw;
use super::{META, Npz, header};

/// How the arrays of an archive are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum NpzCompression {
    /// As they are.
    #[default]
    Stored,
    /// Deflated.
    Deflated,
}

/// The bytes of an archive, its arrays in the order of their names.
pub(super) fn write(npz: &Npz, file: &str, compression: NpzCompression) -> Result<Vec<u8>, NpzError> {
    let broken = |reason: String| NpzError::Archive {
        file: file.to_owned(),
        reason,
    };
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    let method = match compression {
        NpzCompression::Stored => CompressionMethod::Stored,
        NpzCompression::Deflated => CompressionMethod::Deflated,
    };
    let options = SimpleFileOptions::default()
        .compression_method(method)
        // No wall time: equal arrays make equal files.
        .last_modified_time(DateTime::DEFAULT);
    let mut add = |name: &str, header: &[u8], raw: &[u8]| -> Result<(), NpzError> {
        let options = options.large_file(raw.len() as u64 > u64::from(u32::MAX) / 2);
        archive
            .start_file(format!("{name}.npy"), options)
            .map_err(|e| broken(e.to_string()))?;
        let written = archive.write_all(header).and_then(|()| archive.write_all(raw));
        written.map_err(|e| broken(e.to_string()))
    };
    for (name, array) in &npz.arrays {
        let refused = |fault| NpzError::Array {
            file: file.to_owned(),
            array: name.clone(),
            fault: Box::new(fault),
        };
        if !is_name(name) {
            return Err(refused(NpzFault::Name));
        }
        let element = array.element();
        let known = header::descriptor(element).zip(to_raw(array));
        let (descriptor, raw) = known.ok_or_else(|| refused(NpzFault::NoNumpyType { element }))?;
        add(name, &header::written(descriptor, array.shape()), &raw)?;
    }
    if let Some(meta) = &npz.meta {
        let text = meta.to_string();
        let raw: Vec<u8> = text.chars().flat_map(|c| u32::from(c).to_le_bytes()).collect();
        add(META, &header::written(&format!("<U{}", raw.len() / 4), &[]), &raw)?;
    }
    let done = archive.finish().map_err(|e| broken(e.to_string()))?;
    Ok(done.into_inner())
}

fn is_name(name: &str) -> bool {
    let climbs = || name.split(['/', '\\']).any(|part| part == "..");
    !name.is_empty()
        && name != META
        && !name.starts_with('/')
        && !name.contains(char::is_control)
        && !climbs()
}
