//! Elements of model files, widened without loss.

use super::{ElementType, Values};
use crate::numeric::{Fp8Format, Fp8Policy, bf16_to_f32, f16_to_f32, fp4_decode, fp8_decode};

/// Little-endian elements of a fixed size; the length was checked to be a multiple of it.
fn elements<const N: usize, T>(raw: &[u8], make: impl Fn([u8; N]) -> T) -> Vec<T> {
    raw.as_chunks::<N>().0.iter().map(|&bytes| make(bytes)).collect()
}

/// The elements of a little-endian file. `raw` has the [`ElementType::bytes_of`] of `count` elements, or
/// fewer: the result then has another length than `count`.
///
/// # Errors
/// The first value that its carrier cannot hold, in words.
pub(super) fn from_raw(element: ElementType, raw: &[u8], count: usize) -> Result<Values, String> {
    Ok(match element {
        ElementType::F32 => Values::F32(elements(raw, f32::from_le_bytes)),
        ElementType::F16 => Values::F32(elements(raw, |b| f16_to_f32(u16::from_le_bytes(b)))),
        ElementType::Bf16 => Values::F32(elements(raw, |b| bf16_to_f32(u16::from_le_bytes(b)))),
        ElementType::F8E4M3Fn => Values::F32(fp8(Fp8Format::E4M3, raw)),
        ElementType::F8E5M2 => Values::F32(fp8(Fp8Format::E5M2, raw)),
        ElementType::F4E2M1 => Values::F32(fp4(raw, count)),
        ElementType::F64 => Values::F64(elements(raw, f64::from_le_bytes)),
        ElementType::U8 => Values::I64(elements(raw, |b| i64::from(u8::from_le_bytes(b)))),
        ElementType::I8 => Values::I64(elements(raw, |b| i64::from(i8::from_le_bytes(b)))),
        ElementType::Bool => Values::I64(elements(raw, |b| i64::from(b != [0]))),
        ElementType::U16 => Values::I64(elements(raw, |b| i64::from(u16::from_le_bytes(b)))),
        ElementType::I16 => Values::I64(elements(raw, |b| i64::from(i16::from_le_bytes(b)))),
        ElementType::I32 => Values::I64(elements(raw, |b| i64::from(i32::from_le_bytes(b)))),
        ElementType::U32 => Values::I64(elements(raw, |b| i64::from(u32::from_le_bytes(b)))),
        ElementType::I64 => Values::I64(elements(raw, i64::from_le_bytes)),
        ElementType::U64 => Values::I64(narrowed(&elements(raw, u64::from_le_bytes))?),
    })
}

/// Model files hold E4M3 without infinities and E5M2 with them: the two formats of OCP's specification.
fn fp8(format: Fp8Format, raw: &[u8]) -> Vec<f32> {
    raw.iter()
        .map(|&code| fp8_decode(format, &Fp8Policy::OCP, code))
        .collect()
}

/// Two elements a byte, the first in the low bits; after an odd count the last high bits are padding.
fn fp4(raw: &[u8], count: usize) -> Vec<f32> {
    let codes = raw.iter().flat_map(|&byte| [byte & 15, byte >> 4]);
    let padding = usize::from(count % 2 == 1);
    codes
        .take((2 * raw.len()).saturating_sub(padding))
        .map(fp4_decode)
        .collect()
}

/// uint64 values in the i64 carrier; those above its range are refused.
pub(super) fn narrowed(values: &[u64]) -> Result<Vec<i64>, String> {
    let values = values.iter();
    values
        .map(|&v| i64::try_from(v).map_err(|_| format!("{v} (above {})", i64::MAX)))
        .collect()
}
