//! Named arrays, held against what a model takes.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;

use super::arrays::whole_values;
use super::error::shown;
use super::numbers::Number;
use super::{ArrayForm, InputError, decode_array, decode_base64};
use crate::perception::{InputArray, InputSchema};
use crate::tensor::{DType, Element, HostTensor};
use crate::weights::{Array, ElementType, Npz, Values};

/// Arrays by name: as they are, or a whole NumPy archive.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Inputs")]
pub struct InputsForm {
    /// Arrays by name.
    #[serde(default, deserialize_with = "super::limited_map_or_null::<_, _, _, 64>")]
    #[schemars(with = "Option<BTreeMap<String, ArrayForm>>", extend("maxProperties" = 64))]
    pub arrays: BTreeMap<String, ArrayForm>,
    /// A NumPy archive of arrays in base64.
    pub npz: Option<String>,
}

/// The arrays of a request as a model takes them: every array of the schema is there and no other, of its shape, finite,
/// and in its type. Whole types take floats that are whole and in their range; floats are rounded to the type's precision.
///
/// # Errors
/// [`InputError`] with paths below `field`.
pub fn decode_named_arrays(
    form: &InputsForm,
    schema: &InputSchema,
    field: &str,
    max_bytes: usize,
) -> Result<BTreeMap<String, HostTensor>, InputError> {
    check_named_arrays(&named_arrays(form, field, max_bytes)?, schema, field)
}

/// The arrays of a request as they are.
fn named_arrays(
    form: &InputsForm,
    field: &str,
    max_bytes: usize,
) -> Result<BTreeMap<String, Arc<Array>>, InputError> {
    let mut arrays = BTreeMap::new();
    let mut room = max_bytes;
    if let Some(text) = &form.npz {
        let field = format!("{field}.npz");
        let bytes = decode_base64(text, &field, max_bytes)?;
        let archive = Npz::from_bytes(&bytes, "archive", max_bytes as u64);
        arrays = archive
            .map_err(|error| InputError::new(field, error))?
            .into_arrays();
        room = room.saturating_sub(arrays.values().map(|array| size(array)).sum());
    }
    for (name, form) in &form.arrays {
        let path = format!("{field}.arrays.{}", shown(name));
        let array = decode_array(form, &path, room)?;
        room = room.saturating_sub(size(&array));
        if arrays.insert(name.clone(), Arc::new(array)).is_some() {
            return Err(InputError::unexpected(
                path,
                "the archive has an array of this name, too",
            ));
        }
    }
    Ok(arrays)
}

/// Bytes that an array takes.
fn size(array: &Array) -> usize {
    array
        .element()
        .bytes_of(array.values().len())
        .unwrap_or(usize::MAX)
}

/// Arrays as a model takes them; see [`decode_named_arrays`].
///
/// # Errors
/// [`InputError`] with paths below `field`.
pub fn check_named_arrays(
    arrays: &BTreeMap<String, Arc<Array>>,
    schema: &InputSchema,
    field: &str,
) -> Result<BTreeMap<String, HostTensor>, InputError> {
    let known = || {
        schema
            .0
            .iter()
            .map(|array| array.name)
            .collect::<Vec<_>>()
            .join(", ")
    };
    if let Some(name) = arrays
        .keys()
        .find(|name| schema.0.iter().all(|array| array.name != name.as_str()))
    {
        let reason = format!("the model takes no such array: it takes {}", known());
        return Err(InputError::unexpected(format!("{field}.{}", shown(name)), reason));
    }
    let one = |expected: &InputArray| {
        let field = format!("{field}.{}", expected.name);
        let array = arrays.get(expected.name);
        let array = array.ok_or_else(|| InputError::missing(&field, expected.words()))?;
        let fits = |(size, dim): (&usize, &Option<usize>)| dim.is_none_or(|dim| dim == *size);
        let dims = &array.shape()[..];
        if dims.len() != expected.dims.len() || !dims.iter().zip(expected.dims).all(fits) {
            return Err(InputError::value(
                field,
                format!("an array of shape {dims:?}"),
                expected.words(),
            ));
        }
        ArrayForm::check_finite(array, &field)?;
        Ok((expected.name.to_owned(), tensor(array, expected, &field)?))
    };
    schema.0.iter().map(one).collect()
}

/// An array in the type that is asked for.
fn tensor(array: &Array, expected: &InputArray, field: &str) -> Result<HostTensor, InputError> {
    let (dims, dtype) = (&array.shape()[..], expected.dtype);
    let whole = |element: ElementType| -> Result<Vec<i64>, InputError> {
        let values: Box<dyn Iterator<Item = Number> + '_> = match array.values() {
            Values::F32(values) => Box::new(values.iter().map(|&v| Number::Float(v.into()))),
            Values::F64(values) => Box::new(values.iter().map(|&v| Number::Float(v))),
            Values::I64(values) => Box::new(values.iter().map(|&v| Number::Int(v))),
        };
        whole_values(values, element, field)
    };
    // The values are in the range of the type that they are narrowed to.
    match dtype {
        DType::U8 => made(dims, whole(ElementType::U8)?.into_iter().map(|v| v as u8), field),
        DType::I8 => made(dims, whole(ElementType::I8)?.into_iter().map(|v| v as i8), field),
        DType::U16 => made(
            dims,
            whole(ElementType::U16)?.into_iter().map(|v| v as u16),
            field,
        ),
        DType::I16 => made(
            dims,
            whole(ElementType::I16)?.into_iter().map(|v| v as i16),
            field,
        ),
        DType::U32 => made(
            dims,
            whole(ElementType::U32)?.into_iter().map(|v| v as u32),
            field,
        ),
        DType::I32 => made(
            dims,
            whole(ElementType::I32)?.into_iter().map(|v| v as i32),
            field,
        ),
        DType::U64 => made(
            dims,
            whole(ElementType::U64)?.into_iter().map(|v| v as u64),
            field,
        ),
        DType::I64 => made(dims, whole(ElementType::I64)?.into_iter(), field),
        DType::F32 => {
            let values: Vec<f32> = match array.values() {
                Values::F32(values) => values.clone(),
                Values::F64(values) => values.iter().map(|&v| v as f32).collect(),
                Values::I64(values) => values.iter().map(|&v| v as f32).collect(),
            };
            if let Some(at) = values.iter().position(|value| !value.is_finite()) {
                return Err(InputError::value(
                    field,
                    format!("element {at} is too large"),
                    "float32",
                ));
            }
            made(dims, values.into_iter(), field)
        }
        other => Err(InputError::unexpected(
            field,
            format!("arrays of {other} cannot be sent"),
        )),
    }
}

fn made<T: Element>(
    dims: &[usize],
    values: impl Iterator<Item = T>,
    field: &str,
) -> Result<HostTensor, InputError> {
    let values: Vec<T> = values.collect();
    HostTensor::from_slice(dims, &values)
        .map_err(|error| InputError::value(field, error.to_string(), "an array of a size that fits memory"))
}
