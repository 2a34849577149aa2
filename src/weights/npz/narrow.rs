//! Elements back in the type that their file declared.

use half::{bf16, f16};

use crate::weights::{Array, ElementType, Values};

/// The little-endian bytes of an array in its declared type, or `None` for floats of 8 and 4 bits. Values that were
/// read from that type come back to the bit, NaN as NaN; others are rounded to it (floats) or taken modulo its range (integers).
pub(super) fn to_raw(array: &Array) -> Option<Vec<u8>> {
    Some(match (array.element(), array.values()) {
        (ElementType::F32, Values::F32(v)) => each(v, |x| x.to_le_bytes()),
        (ElementType::F16, Values::F32(v)) => each(v, |x| f16::from_f32(x).to_le_bytes()),
        (ElementType::Bf16, Values::F32(v)) => each(v, |x| bf16::from_f32(x).to_le_bytes()),
        (ElementType::F64, Values::F64(v)) => each(v, |x| x.to_le_bytes()),
        (ElementType::Bool, Values::I64(v)) => each(v, |x| [u8::from(x != 0)]),
        (ElementType::U8 | ElementType::I8, Values::I64(v)) => each(v, |x| (x as u8).to_le_bytes()),
        (ElementType::U16 | ElementType::I16, Values::I64(v)) => each(v, |x| (x as u16).to_le_bytes()),
        (ElementType::U32 | ElementType::I32, Values::I64(v)) => each(v, |x| (x as u32).to_le_bytes()),
        (ElementType::U64 | ElementType::I64, Values::I64(v)) => each(v, |x| x.to_le_bytes()),
        _ => return None,
    })
}

fn each<T: Copy, const N: usize>(values: &[T], bytes: impl Fn(T) -> [u8; N]) -> Vec<u8> {
    values.iter().flat_map(|&value| bytes(value)).collect()
}
