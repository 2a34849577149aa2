//! What a model takes as plain arrays: names, shapes and types, checked on every call.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::Sensor;
use crate::tensor::{DType, HostTensor, Shape};

/// An array that a model takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputArray {
    /// Its name.
    pub name: &'static str,
    /// Sizes of its dimensions; `None` is any.
    pub dims: &'static [Option<usize>],
    /// Its element type.
    pub dtype: DType,
    /// What it holds, in a sentence.
    pub about: &'static str,
}

/// All arrays that a model takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputSchema(pub &'static [InputArray]);

/// Why arrays are not what a model takes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InputError {
    /// An array that the model does not take.
    #[error("the model takes no input `{name}`: it takes {known}")]
    Unknown {
        /// The name.
        name: String,
        /// What it takes, in words.
        known: String,
    },
    /// An array that is not there.
    #[error("input `{name}` is missing: {expected}")]
    Missing {
        /// The name.
        name: &'static str,
        /// What it is to be, in words.
        expected: String,
    },
    /// An array of another shape.
    #[error("input `{name}` has shape {found}; expected {expected}")]
    Shape {
        /// The name.
        name: &'static str,
        /// Its shape.
        found: Shape,
        /// What it is to be, in words.
        expected: String,
    },
    /// An array of another type.
    #[error("input `{name}` holds {found}; expected {expected}")]
    Type {
        /// The name.
        name: &'static str,
        /// Its type.
        found: DType,
        /// What it is to be, in words.
        expected: String,
    },
}

impl InputSchema {
    /// One image, its rows one after another.
    pub const IMAGE: Self = Self(&[InputArray {
        name: "image",
        dims: &[None, None, Some(3)],
        dtype: DType::U8,
        about: "rows, columns, and red, green, blue of each pixel",
    }]);

    /// One sweep.
    pub const POINTS: Self = Self(&[InputArray {
        name: "points",
        dims: &[None, Some(4)],
        dtype: DType::F32,
        about: "x, y, z in metres in the sensor's frame, and intensity, of each point",
    }]);

    /// No plain array: sets are given by their members.
    pub const NONE: Self = Self(&[]);

    /// What a model of a sensor takes where it says nothing else.
    #[must_use]
    pub const fn of(sensor: Sensor) -> Self {
        match sensor {
            Sensor::Camera => Self::IMAGE,
            Sensor::Lidar => Self::POINTS,
            Sensor::Set => Self::NONE,
        }
    }

    /// Whether arrays are those that the model takes.
    ///
    /// # Errors
    /// [`InputError`]: the first thing that is wrong.
    pub fn check(&self, arrays: &BTreeMap<String, HostTensor>) -> Result<(), InputError> {
        if let Some(name) = arrays
            .keys()
            .find(|name| self.0.iter().all(|a| a.name != name.as_str()))
        {
            let known: Vec<String> = self.0.iter().map(|a| format!("`{}`", a.name)).collect();
            return Err(InputError::Unknown {
                name: name
                    .chars()
                    .take(64)
                    .map(|c| if c.is_control() { ' ' } else { c })
                    .collect(),
                known: known.join(", "),
            });
        }
        for expected in self.0 {
            let name = expected.name;
            let Some(found) = arrays.get(name) else {
                return Err(InputError::Missing {
                    name,
                    expected: expected.words(),
                });
            };
            if found.dtype() != expected.dtype {
                return Err(InputError::Type {
                    name,
                    found: found.dtype(),
                    expected: expected.words(),
                });
            }
            let fits = |(size, dim): (&usize, &Option<usize>)| dim.is_none_or(|dim| dim == *size);
            let shape = found.shape();
            if shape.rank() != expected.dims.len() || !shape.iter().zip(expected.dims).all(fits) {
                return Err(InputError::Shape {
                    name,
                    found: *shape,
                    expected: expected.words(),
                });
            }
        }
        Ok(())
    }

    /// What is taken, for reports.
    #[must_use]
    pub fn describe(&self) -> Value {
        let arrays = self.0.iter().map(|array| {
            let facts = json!({
                "shape": array.dims,
                "dtype": array.dtype.to_string(),
                "about": array.about,
            });
            (array.name.to_owned(), facts)
        });
        Value::Object(arrays.collect())
    }
}

impl InputArray {
    /// For example `uint8 [any, any, 3]: rows, ...`.
    pub(crate) fn words(&self) -> String {
        let dims = self.dims.iter().map(|dim| match dim {
            Some(size) => size.to_string(),
            None => "any".to_owned(),
        });
        let dims: Vec<String> = dims.collect();
        format!("{} [{}]: {}", self.dtype, dims.join(", "), self.about)
    }
}
