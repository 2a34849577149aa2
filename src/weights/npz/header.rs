//! The header of one array of a NumPy archive.

use ndarray_npy::npy::header::{Header, Layout};

use super::error::NpzFault;
use crate::tensor::Shape;
use crate::weights::ElementType;

/// The longest header that is read: one short Python dictionary.
pub(super) const MAX_HEADER_BYTES: usize = 4096;

/// Opens every array.
const MAGIC: &[u8; 6] = b"\x93NUMPY";

/// What the elements of an array are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Numbers or truth values.
    Numbers(ElementType),
    /// Texts of so many code points, 4 bytes each, filled up with zeros.
    Text(usize),
}

impl Kind {
    /// Bytes of so many elements; `None` beyond the address space.
    pub(super) fn bytes_of(self, elements: usize) -> Option<usize> {
        match self {
            Self::Numbers(element) => element.bytes_of(elements),
            Self::Text(points) => points
                .checked_mul(4)
                .and_then(|each| each.checked_mul(elements))
                .filter(|&bytes| isize::try_from(bytes).is_ok()),
        }
    }

    /// Bytes that change places with the byte order.
    pub(super) const fn unit(self) -> usize {
        match self {
            Self::Numbers(element) => element.bits() / 8,
            Self::Text(_) => 4,
        }
    }
}

/// A header, checked.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ArrayHeader {
    pub(super) kind: Kind,
    pub(super) big_endian: bool,
    pub(super) fortran: bool,
    pub(super) shape: Shape,
}

/// Length of a header with what comes before it, out of the first bytes of an array: 10 or, from format version 2
/// on, 12 bytes and the text.
pub(super) fn length(start: &[u8; 12]) -> Result<usize, NpzFault> {
    let Some([version, _minor, a, b, c, d]) = start.strip_prefix(MAGIC) else {
        return Err(NpzFault::NoArray);
    };
    let (before, text) = match version {
        1 => (10, usize::from(u16::from_le_bytes([*a, *b]))),
        2 | 3 => (12, u32::from_le_bytes([*a, *b, *c, *d]) as usize),
        _ => return Err(NpzFault::Version { found: *version }),
    };
    if text > MAX_HEADER_BYTES {
        return Err(NpzFault::HeaderLength { found: text });
    }
    Ok(before + text)
}

/// Reads a whole header, as long as [`length`] says.
pub(super) fn parse(header: &[u8]) -> Result<ArrayHeader, NpzFault> {
    // The parser recurs for any depth of nesting.
    if header.iter().filter(|b| b"([{".contains(b)).count() > 4 {
        return Err(NpzFault::Header(
            "it is nested; one dictionary with one shape is expected".to_owned(),
        ));
    }
    let mut text = header;
    let parsed = Header::from_reader(&mut text).map_err(|e| NpzFault::Header(e.to_string()))?;
    let descriptor = parsed.type_descriptor.to_string();
    let (kind, big_endian) = kind(descriptor.trim_matches(['\'', '"'])).ok_or_else(|| NpzFault::Type {
        found: descriptor.chars().take(64).collect(),
    })?;
    Ok(ArrayHeader {
        kind,
        big_endian,
        fortran: parsed.layout == Layout::Fortran,
        shape: Shape::new(&parsed.shape)?,
    })
}

/// Type and byte order of NumPy's short spelling, such as `<f4`.
fn kind(descriptor: &str) -> Option<(Kind, bool)> {
    let (order, name) = descriptor.split_at_checked(1)?;
    let big_endian = match order {
        "<" | "|" => false,
        ">" => true,
        _ => return None,
    };
    let kind = match name {
        "b1" => Kind::Numbers(ElementType::Bool),
        "i1" => Kind::Numbers(ElementType::I8),
        "u1" => Kind::Numbers(ElementType::U8),
        "i2" => Kind::Numbers(ElementType::I16),
        "u2" => Kind::Numbers(ElementType::U16),
        "i4" => Kind::Numbers(ElementType::I32),
        "u4" => Kind::Numbers(ElementType::U32),
        "i8" => Kind::Numbers(ElementType::I64),
        "u8" => Kind::Numbers(ElementType::U64),
        "f2" => Kind::Numbers(ElementType::F16),
        "f4" => Kind::Numbers(ElementType::F32),
        "f8" => Kind::Numbers(ElementType::F64),
        // NumPy has no bfloat16 of its own: arrays of `ml_dtypes.bfloat16` are written as two bytes of anything.
        "V2" => Kind::Numbers(ElementType::Bf16),
        _ => Kind::Text(name.strip_prefix('U')?.parse().ok()?),
    };
    Some((kind, big_endian))
}

/// The header of an array that is about to be written: little-endian, row-major, with what comes before the text,
/// padded as NumPy does it so that the elements begin at a multiple of 64 bytes.
pub(super) fn written(descriptor: &str, dims: &[usize]) -> Vec<u8> {
    let shape = match dims {
        [] => "()".to_owned(),
        [only] => format!("({only},)"),
        _ => format!("{dims:?}").replace('[', "(").replace(']', ")"),
    };
    let mut text = format!("{{'descr': '{descriptor}', 'fortran_order': False, 'shape': {shape}, }}");
    let unpadded = 10 + text.len() + 1;
    text.extend(std::iter::repeat_n(' ', unpadded.next_multiple_of(64) - unpadded));
    text.push('\n');
    let mut header = MAGIC.to_vec();
    header.extend([1, 0]);
    // At most six dimensions of twenty digits: far below the 65535 bytes of this version.
    header.extend((text.len() as u16).to_le_bytes());
    header.extend(text.as_bytes());
    header
}

/// NumPy's spelling of a type as it is written, or `None` for those that NumPy lacks.
pub(super) const fn descriptor(element: ElementType) -> Option<&'static str> {
    Some(match element {
        ElementType::Bool => "|b1",
        ElementType::I8 => "|i1",
        ElementType::U8 => "|u1",
        ElementType::I16 => "<i2",
        ElementType::U16 => "<u2",
        ElementType::I32 => "<i4",
        ElementType::U32 => "<u4",
        ElementType::I64 => "<i8",
        ElementType::U64 => "<u8",
        ElementType::F16 => "<f2",
        ElementType::F32 => "<f4",
        ElementType::F64 => "<f8",
        ElementType::Bf16 => "<V2",
        ElementType::F8E4M3Fn | ElementType::F8E5M2 | ElementType::F4E2M1 => return None,
    })
}
