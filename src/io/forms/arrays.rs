//! Arrays of numbers in JSON: as they are in NumPy archives, as raw bytes, or as lists.

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

use super::numbers::Number;
use super::{InputError, InputFault, NestedNumbers, decode_base64};
use crate::numeric::{bf16_to_f32, f16_to_f32};
use crate::tensor::Shape;
use crate::weights::{Array, ElementType, Npz, Values};

/// How an array is written in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ArrayEncoding {
    /// A NumPy archive in base64, its arrays as they are.
    Npz,
    /// A NumPy archive in base64, its arrays deflated.
    NpzCompressed,
    /// The elements' bytes in base64.
    Raw,
    /// Lists of lists of numbers.
    List,
}

/// Type of an array's elements, with NumPy's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum ArrayType {
    Bool,
    Int8,
    Uint8,
    Int16,
    Uint16,
    Int32,
    Uint32,
    Int64,
    Uint64,
    Float16,
    Bfloat16,
    Float32,
    Float64,
}

/// Which byte of an element comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ByteOrder {
    /// The lowest.
    #[default]
    Little,
    /// The highest.
    Big,
}

/// Which index runs fastest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
pub enum ElementOrder {
    /// The last: row-major.
    #[default]
    C,
    /// The first: column-major.
    F,
}

/// An array: a list of lists, a single number, or an envelope that says how it is encoded.
#[derive(Debug, Clone, PartialEq)]
pub enum ArrayForm {
    /// Lists of lists, or a single number.
    List(NestedNumbers),
    /// Anything else.
    Envelope(Box<ArrayEnvelope>),
}

/// An array and how it is encoded.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "EncodedArray")]
pub struct ArrayEnvelope {
    /// How `data` is encoded; found out from what `data` and the other fields are where it is left out.
    pub encoding: Option<ArrayEncoding>,
    /// Base64, a number, or lists of lists of numbers.
    pub data: ArrayData,
    /// Name of the array in the archive; the only one where it is left out.
    pub key: Option<String>,
    /// Lengths, outermost first; needed for raw bytes, checked otherwise.
    #[schemars(length(max = 6))]
    #[serde(default, deserialize_with = "super::limited_list_or_null::<_, _, 6>")]
    pub shape: Option<Vec<usize>>,
    /// Type of the elements; needed for raw bytes, checked for archives. Lists are float64, or int64 if all are whole.
    pub dtype: Option<ArrayType>,
    /// Order of raw bytes in an element.
    pub byte_order: Option<ByteOrder>,
    /// Order of raw elements.
    pub order: Option<ElementOrder>,
}

/// The data of an array.
#[derive(Debug, Clone, PartialEq)]
pub enum ArrayData {
    /// Base64.
    Text(String),
    /// Lists of lists, or a single number.
    List(NestedNumbers),
}

impl ArrayType {
    /// The type as archives have it.
    #[must_use]
    pub const fn element(self) -> ElementType {
        match self {
            Self::Bool => ElementType::Bool,
            Self::Int8 => ElementType::I8,
            Self::Uint8 => ElementType::U8,
            Self::Int16 => ElementType::I16,
            Self::Uint16 => ElementType::U16,
            Self::Int32 => ElementType::I32,
            Self::Uint32 => ElementType::U32,
            Self::Int64 => ElementType::I64,
            Self::Uint64 => ElementType::U64,
            Self::Float16 => ElementType::F16,
            Self::Bfloat16 => ElementType::Bf16,
            Self::Float32 => ElementType::F32,
            Self::Float64 => ElementType::F64,
        }
    }

    /// The type of archives' elements; `None` for those that NumPy lacks.
    #[must_use]
    pub const fn of(element: ElementType) -> Option<Self> {
        Some(match element {
            ElementType::Bool => Self::Bool,
            ElementType::I8 => Self::Int8,
            ElementType::U8 => Self::Uint8,
            ElementType::I16 => Self::Int16,
            ElementType::U16 => Self::Uint16,
            ElementType::I32 => Self::Int32,
            ElementType::U32 => Self::Uint32,
            ElementType::I64 => Self::Int64,
            ElementType::U64 => Self::Uint64,
            ElementType::F16 => Self::Float16,
            ElementType::Bf16 => Self::Bfloat16,
            ElementType::F32 => Self::Float32,
            ElementType::F64 => Self::Float64,
            ElementType::F8E4M3Fn | ElementType::F8E5M2 | ElementType::F4E2M1 => return None,
        })
    }
}

/// The array of a form; everything that it says about itself is held against what it is. An archive may unpack to
/// `max_bytes`, and raw bytes may be as many.
///
/// # Errors
/// [`InputError`] with paths below `field`.
pub fn decode_array(form: &ArrayForm, field: &str, max_bytes: usize) -> Result<Array, InputError> {
    let envelope = match form {
        ArrayForm::List(list) => return of_list(list, &list.dims, None, field),
        ArrayForm::Envelope(envelope) => envelope,
    };
    let text = match (&envelope.data, envelope.encoding) {
        (ArrayData::List(list), None | Some(ArrayEncoding::List)) => {
            only_with(envelope, field, "raw bytes", false)?;
            let dims = dims_of(list, envelope.shape.as_deref());
            let array = of_list(list, dims, envelope.dtype, &format!("{field}.data"))?;
            return expect(array, envelope, field);
        }
        (ArrayData::List(_), Some(_)) => {
            let data = format!("{field}.data");
            return Err(InputError::value(data, "a list", "base64, for this encoding"));
        }
        (ArrayData::Text(_), Some(ArrayEncoding::List)) => {
            let data = format!("{field}.data");
            return Err(InputError::value(
                data,
                "text",
                "lists of numbers, for this encoding",
            ));
        }
        (ArrayData::Text(text), _) => text,
    };
    let bytes = decode_base64(text, &format!("{field}.data"), max_bytes)?;
    let encoding = envelope
        .encoding
        .unwrap_or(match bytes.starts_with(b"PK") && envelope.shape.is_none() {
            true => ArrayEncoding::Npz,
            false => ArrayEncoding::Raw,
        });
    if encoding == ArrayEncoding::Raw {
        return of_raw(&bytes, envelope, field);
    }
    only_with(envelope, field, "raw bytes", true)?;
    let archive = Npz::from_bytes(&bytes, "archive", max_bytes as u64);
    let archive = archive.map_err(|error| InputError::new(format!("{field}.data"), error))?;
    let names = || {
        archive
            .arrays()
            .keys()
            .map(|name| super::error::shown(name))
            .take(16)
            .collect::<Vec<_>>()
            .join(", ")
    };
    let array = match &envelope.key {
        Some(key) => archive.array(key).ok_or_else(|| {
            let found = format!("`{}` is not in the archive", super::error::shown(key));
            InputError::value(format!("{field}.key"), found, format!("one of {}", names()))
        })?,
        None => match archive.arrays().len() {
            1 => archive.arrays().values().next(),
            _ => None,
        }
        .ok_or_else(|| InputError::missing(format!("{field}.key"), format!("one of {}", names())))?,
    };
    expect(array.as_ref().clone(), envelope, field)
}

/// Fields that say something of raw bytes alone.
fn only_with(envelope: &ArrayEnvelope, field: &str, what: &str, with_key: bool) -> Result<(), InputError> {
    let given = [
        ("byte_order", envelope.byte_order.is_some()),
        ("order", envelope.order.is_some()),
        ("key", envelope.key.is_some() && !with_key),
    ];
    match given.iter().find(|(_, given)| *given) {
        Some((name, _)) => Err(InputError::unexpected(
            format!("{field}.{name}"),
            format!("only {what} have it"),
        )),
        None => Ok(()),
    }
}

/// Holds an array against the shape and type that its form says.
fn expect(array: Array, envelope: &ArrayEnvelope, field: &str) -> Result<Array, InputError> {
    if let Some(shape) = &envelope.shape
        && shape[..] != array.shape()[..]
    {
        let (found, expected) = (
            format!("{shape:?}"),
            format!("{:?}, as the data has it", &array.shape()[..]),
        );
        return Err(InputError::value(format!("{field}.shape"), found, expected));
    }
    if let Some(dtype) = envelope.dtype
        && dtype.element() != array.element()
    {
        let (found, expected) = (
            dtype.element().to_string(),
            format!("{}, as the data has it", array.element()),
        );
        return Err(InputError::value(format!("{field}.dtype"), found, expected));
    }
    Ok(array)
}

fn shape_of(dims: &[usize], field: &str) -> Result<Shape, InputError> {
    Shape::new(dims)
        .map_err(|error| InputError::value(field, error.to_string(), "a shape of up to six dimensions"))
}

/// Lengths of a list. One without numbers ends at its first empty level, so that what lies below is taken from the shape that
/// is said.
fn dims_of<'a>(list: &'a NestedNumbers, said: Option<&'a [usize]>) -> &'a [usize] {
    match said {
        Some(said) if list.dims.contains(&0) && said.starts_with(&list.dims) => said,
        _ => &list.dims,
    }
}

fn of_list(
    list: &NestedNumbers,
    dims: &[usize],
    dtype: Option<ArrayType>,
    field: &str,
) -> Result<Array, InputError> {
    if list.ragged {
        return Err(InputError::unexpected(
            field,
            "lists of one level differ in length",
        ));
    }
    let shape = shape_of(dims, field)?;
    let whole = list.values.iter().all(|value| matches!(value, Number::Int(_)));
    let element = match dtype {
        Some(dtype) => dtype.element(),
        None if whole && !list.values.is_empty() => ElementType::I64,
        None => ElementType::F64,
    };
    let values = match element {
        ElementType::F64 => Values::F64(list.values.iter().map(|&value| float(value)).collect()),
        element if element.is_float() => {
            let values: Vec<f32> = list
                .values
                .iter()
                .map(|&value| narrow(float(value), element))
                .collect();
            if let Some(at) = values.iter().position(|value| !value.is_finite()) {
                let expected = format!("values of {element}");
                return Err(InputError::value(
                    field,
                    format!("element {at} is too large"),
                    expected,
                ));
            }
            Values::F32(values)
        }
        element => Values::I64(whole_values(list.values.iter().copied(), element, field)?),
    };
    // The values are as many as the shape has elements, for the list is not ragged, and below an empty level there are none.
    Array::new(shape, element, values).ok_or_else(|| InputError::unexpected(field, "lists without a shape"))
}

fn float(value: Number) -> f64 {
    match value {
        Number::Int(value) => value as f64,
        Number::Above(value) => value as f64,
        Number::Float(value) => value,
    }
}

/// A value as a shorter float has it, in the carrier of all of them.
fn narrow(value: f64, element: ElementType) -> f32 {
    match element {
        ElementType::F16 => half::f16::from_f64(value).to_f32(),
        ElementType::Bf16 => half::bf16::from_f64(value).to_f32(),
        _ => value as f32,
    }
}

/// Least and greatest value of a whole type, in its carrier.
pub(super) const fn range_of(element: ElementType) -> (i64, i64) {
    match element {
        ElementType::Bool => (0, 1),
        ElementType::I8 => (i8::MIN as i64, i8::MAX as i64),
        ElementType::U8 => (0, u8::MAX as i64),
        ElementType::I16 => (i16::MIN as i64, i16::MAX as i64),
        ElementType::U16 => (0, u16::MAX as i64),
        ElementType::I32 => (i32::MIN as i64, i32::MAX as i64),
        ElementType::U32 => (0, u32::MAX as i64),
        ElementType::U64 => (0, i64::MAX),
        _ => (i64::MIN, i64::MAX),
    }
}

/// Whole values in the range of their type.
pub(super) fn whole_values(
    values: impl Iterator<Item = Number>,
    element: ElementType,
    field: &str,
) -> Result<Vec<i64>, InputError> {
    // Beyond it not every whole number is a float64.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let (least, greatest) = range_of(element);
    let wrong = |at: usize, found: String| {
        let found = format!("element {at} is {found}");
        InputError::value(
            field,
            found,
            format!("whole numbers of {element} from {least} to {greatest}"),
        )
    };
    let whole = values.enumerate().map(|(at, value)| {
        let whole = match value {
            Number::Int(value) => Some(value),
            Number::Above(_) => None,
            Number::Float(value) => (value.fract() == 0.0 && value.abs() <= EXACT).then_some(value as i64),
        };
        let inside = whole.filter(|value| (least..=greatest).contains(value));
        inside.ok_or_else(|| match value {
            Number::Int(value) => wrong(at, value.to_string()),
            Number::Above(value) => wrong(at, value.to_string()),
            Number::Float(value) => wrong(at, value.to_string()),
        })
    });
    whole.collect()
}

fn of_raw(bytes: &[u8], envelope: &ArrayEnvelope, field: &str) -> Result<Array, InputError> {
    if envelope.key.is_some() {
        return Err(InputError::unexpected(
            format!("{field}.key"),
            "only archives have it",
        ));
    }
    let shape = envelope.shape.as_deref();
    let shape =
        shape.ok_or_else(|| InputError::missing(format!("{field}.shape"), "the shape of raw bytes"))?;
    let dtype = envelope.dtype;
    let dtype =
        dtype.ok_or_else(|| InputError::missing(format!("{field}.dtype"), "the type of raw bytes"))?;
    let element = dtype.element();
    let shape = shape_of(shape, &format!("{field}.shape"))?;
    let needed = element.bytes_of(shape.elements());
    if needed != Some(bytes.len()) {
        let needed = needed.map_or_else(|| "more than can be".to_owned(), |needed| needed.to_string());
        let expected = format!("{needed} for {element} of shape {:?}", &shape[..]);
        return Err(InputError::value(
            format!("{field}.data"),
            format!("{} bytes", bytes.len()),
            expected,
        ));
    }
    let big = envelope.byte_order == Some(ByteOrder::Big);
    let values = elements(element, bytes, big, &format!("{field}.data"))?;
    let values = match envelope.order.unwrap_or_default() {
        ElementOrder::C => values,
        ElementOrder::F => match values {
            Values::F32(values) => Values::F32(row_major(&values, &shape)),
            Values::F64(values) => Values::F64(row_major(&values, &shape)),
            Values::I64(values) => Values::I64(row_major(&values, &shape)),
        },
    };
    // The number of bytes was held against the shape.
    Array::new(shape, element, values).ok_or_else(|| InputError::unexpected(field, "bytes without a shape"))
}

/// Elements of bytes in either order, widened without loss.
fn elements(element: ElementType, bytes: &[u8], big: bool, field: &str) -> Result<Values, InputError> {
    fn each<const N: usize, T>(bytes: &[u8], big: bool, make: impl Fn([u8; N]) -> T) -> Vec<T> {
        let chunks = bytes.as_chunks::<N>().0.iter();
        chunks
            .map(|&chunk| {
                let mut chunk = chunk;
                if big {
                    chunk.reverse();
                }
                make(chunk)
            })
            .collect()
    }
    Ok(match element {
        ElementType::F16 => Values::F32(each(bytes, big, |b| f16_to_f32(u16::from_le_bytes(b)))),
        ElementType::Bf16 => Values::F32(each(bytes, big, |b| bf16_to_f32(u16::from_le_bytes(b)))),
        ElementType::F64 => Values::F64(each(bytes, big, f64::from_le_bytes)),
        ElementType::Bool => Values::I64(each(bytes, big, |b: [u8; 1]| i64::from(b != [0]))),
        ElementType::I8 => Values::I64(each(bytes, big, |b| i64::from(i8::from_le_bytes(b)))),
        ElementType::U8 => Values::I64(each(bytes, big, |b| i64::from(u8::from_le_bytes(b)))),
        ElementType::I16 => Values::I64(each(bytes, big, |b| i64::from(i16::from_le_bytes(b)))),
        ElementType::U16 => Values::I64(each(bytes, big, |b| i64::from(u16::from_le_bytes(b)))),
        ElementType::I32 => Values::I64(each(bytes, big, |b| i64::from(i32::from_le_bytes(b)))),
        ElementType::U32 => Values::I64(each(bytes, big, |b| i64::from(u32::from_le_bytes(b)))),
        ElementType::I64 => Values::I64(each(bytes, big, i64::from_le_bytes)),
        ElementType::U64 => {
            let values = each(bytes, big, u64::from_le_bytes).into_iter();
            let values = values.map(|value| i64::try_from(value).map_or(Number::Above(value), Number::Int));
            Values::I64(whole_values(values, element, field)?)
        }
        // `ArrayType` leads to no other type.
        _ => Values::F32(each(bytes, big, f32::from_le_bytes)),
    })
}

/// Elements of column-major order in row-major order.
fn row_major<T: Copy>(values: &[T], dims: &[usize]) -> Vec<T> {
    let mut steps = vec![1; dims.len()];
    for axis in 1..dims.len() {
        steps[axis] = steps[axis - 1] * dims[axis - 1];
    }
    let place = |mut index: usize| {
        let mut at = 0;
        for (&len, &step) in dims.iter().zip(&steps).rev() {
            at += index % len * step;
            index /= len;
        }
        values[at]
    };
    (0..values.len()).map(place).collect()
}

impl ArrayForm {
    /// Whether any of its elements is NaN or infinite.
    pub(super) fn check_finite(array: &Array, field: &str) -> Result<(), InputError> {
        let at = match array.values() {
            Values::F32(values) => values.iter().position(|value| !value.is_finite()),
            Values::F64(values) => values.iter().position(|value| !value.is_finite()),
            Values::I64(_) => None,
        };
        match at {
            Some(at) => Err(InputError::new(field, InputFault::NotFinite { at })),
            None => Ok(()),
        }
    }
}

impl<'de> Deserialize<'de> for ArrayForm {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Form;

        impl<'de> Visitor<'de> for Form {
            type Value = ArrayForm;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, lists of numbers, or an object with `data`")
            }

            fn visit_bool<E>(self, value: bool) -> Result<ArrayForm, E> {
                Ok(ArrayForm::List(NestedNumbers::single(value)))
            }

            fn visit_i64<E>(self, value: i64) -> Result<ArrayForm, E> {
                Ok(ArrayForm::List(NestedNumbers::single(Number::Int(value))))
            }

            fn visit_u64<E>(self, value: u64) -> Result<ArrayForm, E> {
                Ok(ArrayForm::List(NestedNumbers::single(value)))
            }

            fn visit_f64<E>(self, value: f64) -> Result<ArrayForm, E> {
                Ok(ArrayForm::List(NestedNumbers::single(Number::Float(value))))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<ArrayForm, A::Error> {
                NestedNumbers::read(seq).map(ArrayForm::List)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ArrayForm, A::Error> {
                let envelope = ArrayEnvelope::deserialize(MapAccessDeserializer::new(map))?;
                Ok(ArrayForm::Envelope(Box::new(envelope)))
            }
        }

        deserializer.deserialize_any(Form)
    }
}

impl<'de> Deserialize<'de> for ArrayData {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Data;

        impl<'de> Visitor<'de> for Data {
            type Value = ArrayData;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("base64, a number, or lists of numbers")
            }

            fn visit_bool<E>(self, value: bool) -> Result<ArrayData, E> {
                Ok(ArrayData::List(NestedNumbers::single(value)))
            }

            fn visit_i64<E>(self, value: i64) -> Result<ArrayData, E> {
                Ok(ArrayData::List(NestedNumbers::single(Number::Int(value))))
            }

            fn visit_u64<E>(self, value: u64) -> Result<ArrayData, E> {
                Ok(ArrayData::List(NestedNumbers::single(value)))
            }

            fn visit_f64<E>(self, value: f64) -> Result<ArrayData, E> {
                Ok(ArrayData::List(NestedNumbers::single(Number::Float(value))))
            }

            fn visit_str<E>(self, text: &str) -> Result<ArrayData, E> {
                Ok(ArrayData::Text(text.to_owned()))
            }

            fn visit_string<E>(self, text: String) -> Result<ArrayData, E> {
                Ok(ArrayData::Text(text))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<ArrayData, A::Error> {
                NestedNumbers::deserialize(SeqAccessDeserializer::new(seq)).map(ArrayData::List)
            }
        }

        deserializer.deserialize_any(Data)
    }
}

impl JsonSchema for ArrayForm {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Array".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let envelope = generator.subschema_for::<ArrayEnvelope>();
        json_schema!({
            "description": "A number, lists of lists of numbers, or an array and how it is encoded.",
            "anyOf": [{ "type": ["number", "boolean", "array"] }, envelope],
        })
    }
}

impl JsonSchema for ArrayData {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ArrayData".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Base64, a number, or lists of lists of numbers.",
            "type": ["string", "number", "boolean", "array"],
        })
    }
}
