//! NumPy archives as data: named arrays in a ZIP file, and a text about them.

mod error;
mod header;
mod narrow;
mod read;
mod write;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

pub use error::{NpzError, NpzFault};
pub use write::NpzCompression;

use super::{Array, whole_file};

/// What the arrays of an archive may take unpacked unless a caller says otherwise: 4 GiB.
pub const DEFAULT_NPZ_BYTES: u64 = 4 << 30;

/// Name under which an archive keeps a text about itself: JSON, as a NumPy string without dimensions.
const META: &str = "__meta__";

/// A NumPy archive: arrays by name, and what the file says about them.
///
/// Read are bool, whole numbers of 8 to 64 bits, float16, float32 and float64 in either byte order, row-major or
/// column-major, and bfloat16, which NumPy writes as two bytes of anything (`V2`). Written are the same types,
/// little-endian and row-major; arrays always come back row-major.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Npz {
    arrays: BTreeMap<String, Arc<Array>>,
    meta: Option<serde_json::Value>,
}

impl Npz {
    /// Reads a file whose arrays take at most [`DEFAULT_NPZ_BYTES`] unpacked, and as much as values in memory, of eight bytes
    /// each.
    ///
    /// # Errors
    /// [`NpzError`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, NpzError> {
        Self::open_within(path, DEFAULT_NPZ_BYTES)
    }

    /// Reads a file whose arrays take at most `max_bytes` unpacked.
    ///
    /// # Errors
    /// [`NpzError`].
    pub fn open_within(path: impl AsRef<Path>, max_bytes: u64) -> Result<Self, NpzError> {
        let path = path.as_ref();
        let bytes = std::fs::read(path).map_err(|source| NpzError::Read {
            path: path.to_owned(),
            source,
        })?;
        Self::from_bytes(&bytes, &file_name(path), max_bytes)
    }

    /// Reads an archive out of memory. `name` is used in messages; the arrays take at most `max_bytes` unpacked.
    ///
    /// # Errors
    /// [`NpzError`].
    pub fn from_bytes(bytes: &[u8], name: &str, max_bytes: u64) -> Result<Self, NpzError> {
        read::read(bytes, name, max_bytes)
    }

    /// Writes a file: whole, or not at all.
    ///
    /// # Errors
    /// [`NpzError::Array`] for a name or a type that cannot be written, [`NpzError::Write`].
    pub fn save(&self, path: impl AsRef<Path>, compression: NpzCompression) -> Result<(), NpzError> {
        let path = path.as_ref();
        let bytes = self.to_bytes(&file_name(path), compression)?;
        whole_file::write(path, &[&bytes]).map_err(|source| NpzError::Write {
            path: path.to_owned(),
            source,
        })
    }

    /// The bytes of a file; equal archives have equal bytes. `name` is used in messages.
    ///
    /// # Errors
    /// [`NpzError::Array`] for a name or a type that cannot be written.
    pub fn to_bytes(&self, name: &str, compression: NpzCompression) -> Result<Vec<u8>, NpzError> {
        write::write(self, name, compression)
    }

    /// An array.
    #[must_use]
    pub fn array(&self, name: &str) -> Option<&Arc<Array>> {
        self.arrays.get(name)
    }

    /// All arrays by name.
    #[must_use]
    pub const fn arrays(&self) -> &BTreeMap<String, Arc<Array>> {
        &self.arrays
    }

    /// The arrays alone.
    #[must_use]
    pub fn into_arrays(self) -> BTreeMap<String, Arc<Array>> {
        self.arrays
    }

    /// Adds an array, in place of one of the same name.
    pub fn insert(&mut self, name: impl Into<String>, array: impl Into<Arc<Array>>) {
        self.arrays.insert(name.into(), array.into());
    }

    /// What the file says about itself.
    #[must_use]
    pub const fn meta(&self) -> Option<&serde_json::Value> {
        self.meta.as_ref()
    }

    /// Says something about the file.
    pub fn set_meta(&mut self, meta: serde_json::Value) {
        self.meta = Some(meta);
    }
}

fn file_name(path: &Path) -> std::borrow::Cow<'_, str> {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy()
}
