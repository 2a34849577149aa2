//! Points as text, turned into the bytes of a binary file.

use super::header::{Header, PcdField};
use crate::io::cloud::Scalar;
use crate::io::cloud_file::error::CloudFileError;

/// The points as a binary file has them.
///
/// Grows with the text: a value of at most eight bytes needs two characters of it.
pub(super) fn to_binary(header: &Header<'_>, text: &[u8]) -> Result<Vec<u8>, CloudFileError> {
    let mut bytes = Vec::new();
    let mut found = 0;
    for line in text.split(|&b| b == b'\n') {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        found += 1;
        if found > header.points {
            break;
        }
        point(header, (found - 1) as usize, line, &mut bytes)?;
    }
    if found != header.points {
        return Err(CloudFileError::PcdLines {
            points: header.points,
            found,
        });
    }
    Ok(bytes)
}

fn point(header: &Header<'_>, at: usize, line: &[u8], bytes: &mut Vec<u8>) -> Result<(), CloudFileError> {
    let bad = |field: &PcdField<'_>, reason: String| CloudFileError::PcdValue {
        point: at,
        field: field.name.to_owned(),
        reason,
    };
    // What is not UTF-8 is no number either; the words are looked at one by one.
    let mut words = line
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty());
    let mut last = None;
    for field in &header.fields {
        last = Some(field);
        for _ in 0..field.count {
            let Some(word) = words.next() else {
                return Err(bad(field, "the line ends before it".to_owned()));
            };
            let word = std::str::from_utf8(word).unwrap_or("\u{fffd}");
            // Padding may hold anything.
            let padding = field.name == "_";
            if !append(field.scalar, if padding { "0" } else { word }, bytes) {
                return Err(bad(field, format!("{word:?} is no {}", field.scalar.name())));
            }
        }
    }
    match (words.next(), last) {
        (Some(_), Some(field)) => Err(bad(field, "the line goes on after it".to_owned())),
        _ => Ok(()),
    }
}

fn append(scalar: Scalar, word: &str, bytes: &mut Vec<u8>) -> bool {
    macro_rules! whole {
        ($type:ty) => {{
            // Some writers print whole numbers as floats.
            let float = || {
                let value = word.parse::<f64>().ok()?;
                (value as $type as f64 == value).then_some(value as $type)
            };
            let value = word.parse::<$type>().ok().or_else(float);
            value.map(|value| bytes.extend_from_slice(&value.to_le_bytes()))
        }};
    }
    macro_rules! float {
        ($type:ty) => {{
            let value = word.parse::<$type>().ok();
            value.map(|value| bytes.extend_from_slice(&value.to_le_bytes()))
        }};
    }
    let appended = match scalar {
        Scalar::I8 => whole!(i8),
        Scalar::U8 => whole!(u8),
        Scalar::I16 => whole!(i16),
        Scalar::U16 => whole!(u16),
        Scalar::I32 => whole!(i32),
        Scalar::U32 => whole!(u32),
        Scalar::I64 => whole!(i64),
        Scalar::U64 => whole!(u64),
        Scalar::F32 => float!(f32),
        Scalar::F64 => float!(f64),
        // No PCD file has one: its sizes of floats are 4 and 8.
        Scalar::F16 => None,
    };
    appended.is_some()
}
