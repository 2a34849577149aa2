//! Arrays and images as answers have them.

use ::base64::Engine;
use ::base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::jsonable::{NonFinite, double_value, float_value};
use super::{ArrayEncoding, ArrayType};
use crate::image::{EncodeError, ImageRef, encode_png};
use crate::weights::{Array, ElementType, Npz, NpzCompression, NpzError, Values};

/// An array for JSON: `{"encoding", "key", "dtype", "shape", "data"}`, `key` for archives alone. Lists hold float32 rounded
/// to 6 significant digits and float64 exactly.
///
/// # Errors
/// [`NonFinite`] for a list with NaN or infinities, which JSON does not have; the path of the element is `data[i]`.
/// [`NpzError`] for a key that no archive can have or a type that NumPy lacks.
pub fn encode_array(array: &Array, encoding: ArrayEncoding, key: &str) -> Result<Value, EncodeFault> {
    let mut form = Map::new();
    form.insert("encoding".to_owned(), json!(encoding));
    let data = match encoding {
        ArrayEncoding::List => {
            let mut next = 0;
            list(array, array.shape(), &mut next)?
        }
        ArrayEncoding::Raw => Value::String(STANDARD.encode(raw_bytes(array))),
        ArrayEncoding::Npz | ArrayEncoding::NpzCompressed => {
            form.insert("key".to_owned(), key.into());
            let mut archive = Npz::default();
            archive.insert(key, array.clone());
            let compression = match encoding {
                ArrayEncoding::NpzCompressed => NpzCompression::Deflated,
                _ => NpzCompression::Stored,
            };
            Value::String(STANDARD.encode(archive.to_bytes("answer", compression)?))
        }
    };
    form.insert("dtype".to_owned(), json!(ArrayType::of(array.element())));
    form.insert("shape".to_owned(), json!(array.shape()[..]));
    form.insert("data".to_owned(), data);
    Ok(Value::Object(form))
}

/// An image for JSON: `{"encoding": "png", "key", "shape", "dtype", "data"}`.
///
/// # Errors
/// [`EncodeError`].
pub fn encode_png_form(image: &ImageRef<'_>, key: &str) -> Result<Value, EncodeError> {
    let shape = match image.format().channels() {
        1 => vec![image.height(), image.width()],
        channels => vec![image.height(), image.width(), channels],
    };
    Ok(json!({
        "encoding": "png",
        "key": key,
        "dtype": "uint8",
        "shape": shape,
        "data": STANDARD.encode(encode_png(image)?),
    }))
}

/// Why an array cannot be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeFault {
    /// NaN or infinity in a list.
    #[error(transparent)]
    NonFinite(#[from] NonFinite),
    /// An archive that cannot be.
    #[error(transparent)]
    Npz(#[from] NpzError),
    /// An image that cannot be written.
    #[error(transparent)]
    Png(#[from] EncodeError),
}

fn list(array: &Array, dims: &[usize], next: &mut usize) -> Result<Value, NonFinite> {
    let Some((&len, inner)) = dims.split_first() else {
        let at = *next;
        *next += 1;
        return match array.values() {
            Values::F32(values) => float_value(values[at], || format!("data[{at}]")),
            Values::F64(values) => double_value(values[at], || format!("data[{at}]")),
            Values::I64(values) if array.element() == ElementType::Bool => Ok((values[at] != 0).into()),
            Values::I64(values) => Ok(values[at].into()),
        };
    };
    let items: Result<Vec<Value>, NonFinite> = (0..len).map(|_| list(array, inner, next)).collect();
    items.map(Value::Array)
}

/// Elements in little-endian, row-major order.
fn raw_bytes(array: &Array) -> Vec<u8> {
    let element = array.element();
    match array.values() {
        Values::F32(values) => match element {
            ElementType::F16 => values
                .iter()
                .flat_map(|&v| half::f16::from_f32(v).to_le_bytes())
                .collect(),
            ElementType::Bf16 => values
                .iter()
                .flat_map(|&v| half::bf16::from_f32(v).to_le_bytes())
                .collect(),
            _ => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
        },
        Values::F64(values) => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
        // The values are in the range of their type: its lowest bytes are all of them.
        Values::I64(values) => {
            let size = element.bits() / 8;
            values
                .iter()
                .flat_map(|v| v.to_le_bytes().into_iter().take(size))
                .collect()
        }
    }
}
