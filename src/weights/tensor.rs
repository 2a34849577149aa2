//! Constants out of their messages: sizes checked first, then widened.

use std::path::Path;

use super::external::External;
use super::proto::TensorProto;
use super::widen::{from_raw, narrowed};
use super::{Array, ElementType, OnnxError, Values};
use crate::numeric::{bf16_to_f32, f16_to_f32};
use crate::tensor::{Shape, TensorError};

/// Reads a constant. `folder` is where external data may lie; `external` collects what is read there.
pub(super) fn read(
    model: &str,
    mut proto: TensorProto,
    folder: Option<&Path>,
    external: &mut External,
) -> Result<Array, OnnxError> {
    let name = proto.name.clone();
    let shape = shape(model, &name, &proto.dims)?;
    let element = ElementType::from_code(proto.data_type).ok_or_else(|| OnnxError::ElementType {
        model: model.to_owned(),
        tensor: name.clone(),
        code: proto.data_type,
    })?;
    let Some(bytes) = element.bytes_of(shape.elements()) else {
        return Err(OnnxError::Shape {
            model: model.to_owned(),
            tensor: name,
            source: Box::new(TensorError::TooLarge {
                dims: shape.to_vec(),
                dtype_bytes: element.bits().div_ceil(8),
            }),
        });
    };
    let length = |expected: usize, found: usize, unit: &'static str| OnnxError::Length {
        model: model.to_owned(),
        tensor: name.clone(),
        shape: shape.to_string(),
        expected,
        found,
        unit,
    };
    let raw = if proto.data_location == 1 {
        Some(super::external::read(
            model,
            &name,
            &proto.external_data,
            folder,
            bytes,
            external,
        )?)
    } else {
        proto.raw_data.take()
    };
    let values = match raw {
        Some(raw) if raw.len() != bytes => return Err(length(bytes, raw.len(), "bytes")),
        Some(raw) => from_raw(element, &raw, shape.elements()),
        None => from_fields(element, &proto, shape.elements()),
    }
    .map_err(|value| OnnxError::ValueRange {
        model: model.to_owned(),
        tensor: name.clone(),
        value,
        element: element.to_string(),
    })?;
    let found = values.len();
    Array::new(shape, element, values).ok_or_else(|| length(shape.elements(), found, "elements"))
}

fn shape(model: &str, tensor: &str, dims: &[i64]) -> Result<Shape, OnnxError> {
    let sizes: Option<Vec<usize>> = dims.iter().map(|&d| usize::try_from(d).ok()).collect();
    let sizes = sizes.ok_or_else(|| OnnxError::NegativeDim {
        model: model.to_owned(),
        tensor: tensor.to_owned(),
        dims: dims.to_vec(),
    })?;
    Shape::new(&sizes).map_err(|source| OnnxError::Shape {
        model: model.to_owned(),
        tensor: tensor.to_owned(),
        source: Box::new(source),
    })
}

fn from_fields(element: ElementType, proto: &TensorProto, count: usize) -> Result<Values, String> {
    let ints = |low: i64, high: i64| -> Result<Values, String> {
        let values: Vec<i64> = proto.int32_data.iter().map(|&v| i64::from(v)).collect();
        match values.iter().find(|v| !(low..=high).contains(v)) {
            Some(outside) => Err(outside.to_string()),
            None => Ok(Values::I64(values)),
        }
    };
    let halves = |make: fn(u16) -> f32| -> Result<Values, String> {
        let values = proto.int32_data.iter();
        let values = values.map(|&v| u16::try_from(v).map(make).map_err(|_| v.to_string()));
        values.collect::<Result<_, _>>().map(Values::F32)
    };
    // Codes of 8 bits, or two of 4 bits, in an integer each.
    let bytes = || -> Result<Vec<u8>, String> {
        let values = proto.int32_data.iter();
        let values = values.map(|&v| u8::try_from(v).map_err(|_| v.to_string()));
        values.collect()
    };
    match element {
        ElementType::F8E4M3Fn | ElementType::F8E5M2 | ElementType::F4E2M1 => {
            from_raw(element, &bytes()?, count)
        }
        ElementType::F32 => Ok(Values::F32(proto.float_data.clone())),
        ElementType::F64 => Ok(Values::F64(proto.double_data.clone())),
        ElementType::I64 => Ok(Values::I64(proto.int64_data.clone())),
        ElementType::F16 => halves(f16_to_f32),
        ElementType::Bf16 => halves(bf16_to_f32),
        ElementType::U8 => ints(0, 0xff),
        ElementType::I8 => ints(-0x80, 0x7f),
        ElementType::U16 => ints(0, 0xffff),
        ElementType::I16 => ints(-0x8000, 0x7fff),
        ElementType::I32 => ints(i64::from(i32::MIN), i64::from(i32::MAX)),
        ElementType::Bool => ints(0, 1),
        ElementType::U32 => match proto.uint64_data.iter().find(|&&v| v > u64::from(u32::MAX)) {
            Some(outside) => Err(outside.to_string()),
            None => narrowed(&proto.uint64_data).map(Values::I64),
        },
        ElementType::U64 => narrowed(&proto.uint64_data).map(Values::I64),
    }
}
