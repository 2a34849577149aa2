//! Constants that lie in files beside the model.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Component, Path, PathBuf};

use sha2::{Digest, Sha256};

use super::OnnxError;
use super::proto::StringStringEntryProto;

/// What was read so far of the files beside a model.
#[derive(Debug, Default)]
pub(super) struct External {
    /// The files, in the order of their first use.
    pub(super) files: Vec<String>,
    /// Over the constants in the order in which they were read; `None` as long as there are none.
    pub(super) digest: Option<Sha256>,
}

/// Reads `bytes` bytes of external data. The file must lie in `folder` or below it, also after following
/// links.
pub(super) fn read(
    model: &str,
    tensor: &str,
    entries: &[StringStringEntryProto],
    folder: Option<&Path>,
    bytes: usize,
    external: &mut External,
) -> Result<Vec<u8>, OnnxError> {
    let value = |key: &str| entries.iter().find(|e| e.key == key).map(|e| e.value.as_str());
    let location = value("location").unwrap_or_default();
    let content = number(value("offset"), "offset")
        .and_then(|offset| Ok((offset.unwrap_or(0), number(value("length"), "length")?)))
        .and_then(|(offset, length)| {
            let path = inside(folder, location)?;
            // Without a length the tensor takes what its shape needs.
            let length = length.unwrap_or(bytes as u64);
            if length != bytes as u64 {
                return Err(format!("its shape needs {bytes} bytes, the entry gives {length}"));
            }
            slice(&path, offset, bytes)
        })
        .map_err(|reason| OnnxError::External {
            model: model.to_owned(),
            tensor: tensor.to_owned(),
            location: location.to_owned(),
            reason,
        })?;
    if !external.files.iter().any(|f| f == location) {
        external.files.push(location.to_owned());
    }
    external.digest.get_or_insert_default().update(&content);
    Ok(content)
}

fn number(text: Option<&str>, what: &str) -> Result<Option<u64>, String> {
    text.map(|t| t.parse().map_err(|_| format!("{what} `{t}` is no byte count")))
        .transpose()
}

/// The real path of a location, refused unless it stays inside the folder.
fn inside(folder: Option<&Path>, location: &str) -> Result<PathBuf, String> {
    let folder = folder.ok_or("the model was not read from a folder")?;
    let relative = Path::new(location);
    let plain = relative
        .components()
        .all(|c| matches!(c, Component::Normal(_) | Component::CurDir));
    if !plain || location.is_empty() {
        return Err("the path must be relative and stay inside the model's folder".to_owned());
    }
    let real = |path: &Path| path.canonicalize().map_err(|e| e.to_string());
    let (root, path) = (real(folder)?, real(&folder.join(relative))?);
    if !path.starts_with(&root) {
        return Err("the path leads out of the model's folder".to_owned());
    }
    Ok(path)
}

fn slice(path: &Path, offset: u64, bytes: usize) -> Result<Vec<u8>, String> {
    let mut file = File::open(path).map_err(|e| e.to_string())?;
    let meta = file.metadata().map_err(|e| e.to_string())?;
    // A device or a pipe has no size to check against.
    if !meta.is_file() {
        return Err("not a regular file".to_owned());
    }
    let end = offset.checked_add(bytes as u64);
    if end.is_none_or(|end| end > meta.len()) {
        return Err(format!(
            "bytes {offset}.. + {bytes} lie outside its {} bytes",
            meta.len()
        ));
    }
    file.seek(SeekFrom::Start(offset)).map_err(|e| e.to_string())?;
    let mut content = vec![0; bytes];
    file.read_exact(&mut content).map_err(|e| e.to_string())?;
    Ok(content)
}
