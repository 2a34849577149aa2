//! Weights by name, whatever file they come from.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{
    Array, BatchNorm, FoldError, Npz, NpzError, Safetensors, SafetensorsError, TorchError, Values, torch,
};

/// The most that a name may differ from the one that is advised, in edits.
const NEAR_EDITS: usize = 3;

/// Why there is no state dict, or not what is asked of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateDictError {
    /// A file whose name does not say what it is.
    #[error(
        "{}: weights are read from .safetensors, .pth, .pt, .ckpt, .bin (PyTorch) and .npz files",
        path.display()
    )]
    Extension {
        /// The file.
        path: PathBuf,
    },
    /// A safetensors file that is refused.
    #[error(transparent)]
    Safetensors(#[from] SafetensorsError),
    /// A NumPy archive that is refused.
    #[error(transparent)]
    Npz(#[from] NpzError),
    /// A PyTorch checkpoint that is refused.
    #[error(transparent)]
    Torch(#[from] TorchError),
    /// No tensor of this name.
    #[error("{file}: there is no tensor `{name}`{advice}")]
    Missing {
        /// The file.
        file: String,
        /// The name.
        name: String,
        /// The nearest name, in words; empty where none is near.
        advice: String,
    },
    /// No tensor of such a name.
    #[error("{file}: no tensor is called `{prefix}.*`")]
    NothingBelow {
        /// The file.
        file: String,
        /// The first part of the name.
        prefix: String,
    },
    /// Names that would become equal.
    #[error("{file}: without `{prefix}` two tensors would be called `{name}`")]
    NameTwice {
        /// The file.
        file: String,
        /// What was to be taken off.
        prefix: String,
        /// The name.
        name: String,
    },
    /// Integers where floats are expected.
    #[error("{file}: tensor `{name}` holds {element}, floats are wanted")]
    NoFloats {
        /// The file.
        file: String,
        /// The tensor.
        name: String,
        /// What it holds.
        element: super::ElementType,
    },
    /// Parameters of a normalisation that do not belong together.
    #[error("{file}: `{name}` is no batch normalisation: {source}")]
    Norm {
        /// The file.
        file: String,
        /// The layer.
        name: String,
        /// What is wrong.
        source: FoldError,
    },
}

/// Tensors by name, as a network's parameters are saved: `backbone.conv1.weight` and so on.
#[derive(Debug, Clone, PartialEq)]
pub struct StateDict {
    file: String,
    tensors: BTreeMap<String, Arc<Array>>,
}

/// Reads the weights of a file by its extension: `.safetensors`, `.npz`, or a PyTorch checkpoint (`.pth`, `.pt`,
/// `.ckpt`, `.bin`), of which the tensors at the top are taken, or else those under the only one of `state_dict`,
/// `model_state_dict`, `model_state` and `model`.
///
/// # Errors
/// [`StateDictError`].
pub fn load_state_dict(path: impl AsRef<Path>) -> Result<StateDict, StateDictError> {
    let path = path.as_ref();
    let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
    match extension.to_ascii_lowercase().as_str() {
        "safetensors" => {
            let file = Safetensors::open(path)?;
            Ok(StateDict::new(file.name(), file.arrays()?))
        }
        "npz" => Ok(StateDict::new(&file_name(path), Npz::open(path)?.into_arrays())),
        "pth" | "pt" | "ckpt" | "bin" => load_torch_checkpoint(path, None),
        _ => Err(StateDictError::Extension {
            path: path.to_owned(),
        }),
    }
}

/// Reads a PyTorch checkpoint, as a ZIP archive or in the older form, as data: no code of it runs, and classes that
/// state dicts do not need are refused. `key` is where the tensors are, keys joined by `/`; without it as
/// [`load_state_dict`] has it. What is no tensor is left out.
///
/// # Errors
/// [`StateDictError::Torch`].
pub fn load_torch_checkpoint(path: impl AsRef<Path>, key: Option<&str>) -> Result<StateDict, StateDictError> {
    let path = path.as_ref();
    let bytes = std::fs::read(path).map_err(|source| TorchError::Read {
        path: path.to_owned(),
        source,
    })?;
    StateDict::from_torch(&bytes, &file_name(path), key)
}

fn file_name(path: &Path) -> std::borrow::Cow<'_, str> {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy()
}

impl StateDict {
    /// Tensors by name. `file` is used in messages.
    #[must_use]
    pub fn new(file: &str, tensors: BTreeMap<String, Arc<Array>>) -> Self {
        Self {
            file: file.to_owned(),
            tensors,
        }
    }

    /// As [`load_torch_checkpoint`] out of memory; `file` is used in messages.
    ///
    /// # Errors
    /// [`StateDictError::Torch`].
    pub fn from_torch(bytes: &[u8], file: &str, key: Option<&str>) -> Result<Self, StateDictError> {
        Ok(Self::new(file, torch::read(bytes, file, key)?))
    }

    /// All tensors by name.
    #[must_use]
    pub const fn tensors(&self) -> &BTreeMap<String, Arc<Array>> {
        &self.tensors
    }

    /// A tensor.
    ///
    /// # Errors
    /// [`StateDictError::Missing`] with the nearest name.
    pub fn get(&self, name: &str) -> Result<&Arc<Array>, StateDictError> {
        self.tensors.get(name).ok_or_else(|| {
            let near = self
                .tensors
                .keys()
                .map(|n| (strsim::levenshtein(name, n), n))
                .min();
            StateDictError::Missing {
                file: self.file.clone(),
                name: name.to_owned(),
                advice: near
                    .filter(|&(edits, _)| edits <= NEAR_EDITS)
                    .map_or_else(String::new, |(_, near)| format!("; did you mean `{near}`?")),
            }
        })
    }

    /// A tensor's values as f32; float64 is rounded to nearest.
    ///
    /// # Errors
    /// [`StateDictError::Missing`], [`StateDictError::NoFloats`].
    pub fn floats(&self, name: &str) -> Result<Vec<f32>, StateDictError> {
        let array = self.get(name)?;
        array.to_f32().ok_or_else(|| self.no_floats(name, array))
    }

    /// The tensors called `prefix.*`, without that prefix.
    ///
    /// # Errors
    /// [`StateDictError::NothingBelow`] if there are none.
    pub fn sub(&self, prefix: &str) -> Result<Self, StateDictError> {
        let below = self.tensors.iter().filter_map(|(name, tensor)| {
            let name = name.strip_prefix(prefix)?.strip_prefix('.')?;
            Some((name.to_owned(), Arc::clone(tensor)))
        });
        let tensors: BTreeMap<_, _> = below.collect();
        match tensors.is_empty() {
            false => Ok(Self::new(&self.file, tensors)),
            true => Err(StateDictError::NothingBelow {
                file: self.file.clone(),
                prefix: prefix.to_owned(),
            }),
        }
    }

    /// All tensors; `prefix` (as `module.`) is taken off the names that have it.
    ///
    /// # Errors
    /// [`StateDictError::NameTwice`] if two names become equal.
    pub fn strip(&self, prefix: &str) -> Result<Self, StateDictError> {
        let mut tensors = BTreeMap::new();
        for (name, tensor) in &self.tensors {
            let short = name.strip_prefix(prefix).unwrap_or(name);
            if tensors.insert(short.to_owned(), Arc::clone(tensor)).is_some() {
                return Err(StateDictError::NameTwice {
                    file: self.file.clone(),
                    prefix: prefix.to_owned(),
                    name: short.to_owned(),
                });
            }
        }
        Ok(Self::new(&self.file, tensors))
    }

    /// The batch normalisation of a layer, from its `weight`, `bias`, `running_mean` and `running_var`. `epsilon` is no
    /// part of a state dict. A layer with neither weight nor bias normalises only.
    ///
    /// # Errors
    /// [`StateDictError`] for parameters that are missing or do not belong together.
    pub fn bn(&self, name: &str, epsilon: f64) -> Result<BatchNorm, StateDictError> {
        let mean = self.doubles(&format!("{name}.running_mean"))?;
        let (weight, bias) = (format!("{name}.weight"), format!("{name}.bias"));
        let plain = !self.tensors.contains_key(&weight) && !self.tensors.contains_key(&bias);
        let (scale, shift) = match plain {
            true => (vec![1.0; mean.len()], vec![0.0; mean.len()]),
            false => (self.doubles(&weight)?, self.doubles(&bias)?),
        };
        let norm = BatchNorm {
            scale,
            shift,
            variance: self.doubles(&format!("{name}.running_var"))?,
            mean,
            epsilon,
        };
        match norm.affine(norm.channels()) {
            Ok(_) => Ok(norm),
            Err(source) => Err(StateDictError::Norm {
                file: self.file.clone(),
                name: name.to_owned(),
                source,
            }),
        }
    }

    fn doubles(&self, name: &str) -> Result<Vec<f64>, StateDictError> {
        let array = self.get(name)?;
        match array.values() {
            Values::F32(v) => Ok(v.iter().map(|&x| f64::from(x)).collect()),
            Values::F64(v) => Ok(v.clone()),
            Values::I64(_) => Err(self.no_floats(name, array)),
        }
    }

    fn no_floats(&self, name: &str, array: &Array) -> StateDictError {
        StateDictError::NoFloats {
            file: self.file.clone(),
            name: name.to_owned(),
            element: array.element(),
        }
    }
}
