//! Goldens: the arrays that a network should give, in a NumPy archive with a text about where they come from.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ndarray::{ArrayD, IxDyn};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::compare::Arrays;
use crate::numeric::Fp8Policy;
use crate::tensor::{DType, HostTensor};
use crate::weights::{Array, DEFAULT_NPZ_BYTES, ElementType, Npz, NpzCompression, NpzError, Values};

/// A tensor that a golden file cannot hold.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GoldenError {
    /// The archive cannot be read or written.
    #[error(transparent)]
    Npz(#[from] NpzError),
    /// The file cannot be read.
    #[error("{} cannot be read: {cause}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// What the system said.
        #[source]
        cause: std::io::Error,
    },
    /// An integer beyond what an archive holds.
    #[error("{name} has an element of {value}; whole numbers are kept up to {}", i64::MAX)]
    TooLarge {
        /// The tensor.
        name: String,
        /// The element.
        value: u64,
    },
    /// Elements that NumPy has no type for.
    #[error("{name} has elements of {dtype}, which a NumPy archive has no type for: keep them as float32")]
    NoType {
        /// The tensor.
        name: String,
        /// The type.
        dtype: DType,
    },
}

/// Writes tensors, each in its type, with a text about them: whole, or not at all.
///
/// # Errors
/// [`GoldenError`] for 8-bit floats and integers beyond 2^63 - 1; what the archive refuses.
pub fn save_goldens(
    file: &Path,
    tensors: &BTreeMap<String, HostTensor>,
    meta: Option<Value>,
    compression: NpzCompression,
) -> Result<(), GoldenError> {
    let mut npz = Npz::default();
    for (name, tensor) in tensors {
        npz.insert(name, array_of(name, tensor)?);
    }
    if let Some(meta) = meta {
        npz.set_meta(meta);
    }
    Ok(npz.save(file, compression)?)
}

fn array_of(name: &str, tensor: &HostTensor) -> Result<Array, GoldenError> {
    let no_type = || GoldenError::NoType {
        name: name.to_owned(),
        dtype: tensor.dtype(),
    };
    let element = match tensor.dtype() {
        DType::U8 => ElementType::U8,
        DType::I8 => ElementType::I8,
        DType::U16 => ElementType::U16,
        DType::I16 => ElementType::I16,
        DType::U32 => ElementType::U32,
        DType::I32 => ElementType::I32,
        DType::U64 => ElementType::U64,
        DType::I64 => ElementType::I64,
        DType::F16 => ElementType::F16,
        DType::Bf16 => ElementType::Bf16,
        DType::F32 => ElementType::F32,
        DType::F8E3M4 | DType::F8E4M3 | DType::F8E5M2 => return Err(no_type()),
    };
    let values = match tensor.dtype() {
        DType::U64 => {
            let wide: &[u64] = bytemuck::cast_slice(tensor.bytes());
            if let Some(&value) = wide.iter().find(|&&value| i64::try_from(value).is_err()) {
                return Err(GoldenError::TooLarge {
                    name: name.to_owned(),
                    value,
                });
            }
            Values::I64(wide.iter().map(|&value| value as i64).collect())
        }
        DType::U8 => widened(tensor, |x: u8| i64::from(x)),
        DType::I8 => widened(tensor, |x: i8| i64::from(x)),
        DType::U16 => widened(tensor, |x: u16| i64::from(x)),
        DType::I16 => widened(tensor, |x: i16| i64::from(x)),
        DType::U32 => widened(tensor, |x: u32| i64::from(x)),
        DType::I32 => widened(tensor, |x: i32| i64::from(x)),
        DType::I64 => widened(tensor, |x: i64| x),
        // The policy is one of 8-bit floats.
        _ => Values::F32(tensor.to_f32(&Fp8Policy::default())),
    };
    Array::new(*tensor.shape(), element, values).ok_or_else(no_type)
}

fn widened<T: bytemuck::Pod>(tensor: &HostTensor, widen: impl Fn(T) -> i64) -> Values {
    let elements: &[T] = bytemuck::cast_slice(tensor.bytes());
    Values::I64(elements.iter().map(|&x| widen(x)).collect())
}

/// A golden file. Its arrays are there by name; the float64 array that metrics compare with is made when it is asked for.
#[derive(Debug, Clone)]
pub struct Goldens {
    npz: Npz,
    sha256: String,
}

impl Goldens {
    /// Reads a file, which may have been written by NumPy.
    ///
    /// # Errors
    /// [`GoldenError::Read`], [`GoldenError::Npz`].
    pub fn open(file: &Path) -> Result<Self, GoldenError> {
        let bytes = std::fs::read(file).map_err(|cause| GoldenError::Read {
            file: file.to_owned(),
            cause,
        })?;
        let digest = Sha256::digest(&bytes);
        Ok(Self {
            npz: Npz::from_bytes(&bytes, &file.to_string_lossy(), DEFAULT_NPZ_BYTES)?,
            sha256: digest.iter().map(|byte| format!("{byte:02x}")).collect(),
        })
    }

    /// What the file says about itself; null where it says nothing.
    #[must_use]
    pub fn meta(&self) -> &Value {
        self.npz.meta().unwrap_or(&Value::Null)
    }

    /// SHA-256 of the file, in hexadecimal digits.
    #[must_use]
    pub fn sha256(&self) -> &str {
        &self.sha256
    }
}

impl Arrays for Goldens {
    fn names(&self) -> Vec<String> {
        self.npz.arrays().keys().cloned().collect()
    }

    fn array(&self, name: &str) -> Option<ArrayD<f64>> {
        let array = self.npz.array(name)?;
        let values = match array.values() {
            Values::F32(values) => values.iter().map(|&x| f64::from(x)).collect(),
            Values::F64(values) => values.clone(),
            Values::I64(values) => values.iter().map(|&x| x as f64).collect(),
        };
        // The archive's reader held the number of values against the shape.
        ArrayD::from_shape_vec(IxDyn(array.shape()), values).ok()
    }
}
