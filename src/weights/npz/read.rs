//! Reading a NumPy archive: what is claimed is held against what is allowed before memory is reserved.

use std::io::{Cursor, Read};
use std::sync::Arc;

use zip::ZipArchive;
use zip::read::ZipFile;

use super::error::{NpzError, NpzFault};
use super::header::{self, ArrayHeader, Kind};
use super::{META, Npz};
use crate::weights::widen::from_raw;
use crate::weights::{Array, Values};

/// The most that deflate makes of a byte.
const MAX_GROWTH: u64 = 1032;

/// What an archive's member turned out to be.
enum Member {
    Numbers(Array),
    Text(String),
}

/// Reads an archive whose members take at most `allowed` bytes unpacked.
pub(super) fn read(bytes: &[u8], file: &str, allowed: u64) -> Result<Npz, NpzError> {
    let broken = |reason: String| NpzError::Archive {
        file: file.to_owned(),
        reason,
    };
    let mut archive = ZipArchive::new(Cursor::new(bytes)).map_err(|e| broken(e.to_string()))?;
    let mut declared = 0_u64;
    for index in 0..archive.len() {
        let member = archive.by_index_raw(index).map_err(|e| broken(e.to_string()))?;
        declared = declared.saturating_add(member.size());
    }
    if declared > allowed {
        return Err(NpzError::TooLarge {
            file: file.to_owned(),
            declared,
            allowed,
        });
    }
    let mut npz = Npz::default();
    let mut room = allowed;
    for index in 0..archive.len() {
        let mut member = archive.by_index(index).map_err(|e| broken(e.to_string()))?;
        let name = member.name().map_err(|e| broken(e.to_string()))?.into_owned();
        // NumPy ignores what is no array.
        let Some(name) = name.strip_suffix(".npy") else {
            continue;
        };
        let refused = |fault| NpzError::Array {
            file: file.to_owned(),
            array: name.to_owned(),
            fault: Box::new(fault),
        };
        match (name, unpack(&mut member, &mut room).map_err(refused)?) {
            (META, Member::Text(text)) => {
                let meta = serde_json::from_str(&text).map_err(|source| NpzError::Meta {
                    file: file.to_owned(),
                    source,
                })?;
                npz.meta = Some(meta);
            }
            (META, Member::Numbers(_)) => return Err(refused(NpzFault::NoText)),
            (_, Member::Text(_)) => return Err(refused(NpzFault::Text)),
            (_, Member::Numbers(array)) => {
                npz.arrays.insert(name.to_owned(), Arc::new(array));
            }
        }
    }
    Ok(npz)
}

/// Reads one array. The archive's sizes were held against what is allowed; `room` is what its values may still take in
/// memory, where whole numbers have eight bytes.
fn unpack<R: Read + std::io::Seek>(member: &mut ZipFile<'_, R>, room: &mut u64) -> Result<Member, NpzFault> {
    let (packed, declared) = (member.compressed_size(), member.size());
    if declared > packed.saturating_mul(MAX_GROWTH) {
        return Err(NpzFault::Ratio { packed, declared });
    }
    let mut start = [0; 12];
    member.read_exact(&mut start).map_err(unpacking)?;
    let length = header::length(&start)?;
    let mut text = start.to_vec();
    // The shortest header has 12 bytes with what is before it, or is none.
    let rest = length.checked_sub(start.len()).ok_or(NpzFault::NoArray)?;
    text.resize(length, 0);
    member.read_exact(&mut text[length - rest..]).map_err(unpacking)?;
    let header = header::parse(&text)?;
    let found = declared.saturating_sub(length as u64);
    let needed = header.kind.bytes_of(header.shape.elements());
    let Some(needed) = needed.filter(|&needed| needed as u64 == found) else {
        return Err(NpzFault::Length {
            needed: needed.map_or(u64::MAX, |needed| needed as u64),
            found,
        });
    };
    let carried = 8 * header.shape.elements() as u64;
    *room = room.checked_sub(carried).ok_or(NpzFault::Room {
        needed: carried,
        left: *room,
    })?;
    // The vector grows with what is really there; one byte more shows a member that lied, and has the checksum
    // of an honest one looked at.
    let mut raw = Vec::new();
    let read = member.take(found + 1).read_to_end(&mut raw);
    read.map_err(unpacking)?;
    if raw.len() != needed {
        return Err(NpzFault::Length {
            needed: found,
            found: raw.len() as u64,
        });
    }
    if header.big_endian {
        raw.chunks_exact_mut(header.kind.unit()).for_each(<[u8]>::reverse);
    }
    member_of(&header, &raw)
}

fn unpacking(error: std::io::Error) -> NpzFault {
    NpzFault::Unpack(error.to_string())
}

fn member_of(header: &ArrayHeader, raw: &[u8]) -> Result<Member, NpzFault> {
    let element = match header.kind {
        Kind::Numbers(element) => element,
        Kind::Text(_) if header.shape.rank() == 0 => return Ok(Member::Text(text(raw)?)),
        Kind::Text(_) => return Err(NpzFault::Text),
    };
    let values = from_raw(element, raw, header.shape.elements())
        .map_err(|value| NpzFault::ValueRange { value, element })?;
    let values = match values {
        Values::F32(v) if header.fortran => Values::F32(row_major(&v, &header.shape)),
        Values::F64(v) if header.fortran => Values::F64(row_major(&v, &header.shape)),
        Values::I64(v) if header.fortran => Values::I64(row_major(&v, &header.shape)),
        values => values,
    };
    // The number of bytes was held against the shape.
    let array = Array::new(header.shape, element, values);
    array.map(Member::Numbers).ok_or(NpzFault::NoArray)
}

/// A text of little-endian code points, without the zeros that fill it up.
fn text(raw: &[u8]) -> Result<String, NpzFault> {
    let points = raw.as_chunks::<4>().0.iter().map(|&b| u32::from_le_bytes(b));
    let points: Vec<u32> = points.collect();
    let len = points.iter().rposition(|&p| p != 0).map_or(0, |last| last + 1);
    let chars = points[..len].iter().map(|&p| char::from_u32(p));
    let text: Option<String> = chars.collect();
    text.ok_or_else(|| NpzFault::Unpack("its text is no Unicode".to_owned()))
}

/// Elements of column-major order (the first index runs fastest) in row-major order.
fn row_major<T: Copy>(values: &[T], dims: &[usize]) -> Vec<T> {
    let mut steps = vec![1; dims.len()];
    for axis in 1..dims.len() {
        steps[axis] = steps[axis - 1] * dims[axis - 1];
    }
    let mut index = vec![0; dims.len()];
    let mut from = 0;
    let mut ordered = Vec::with_capacity(values.len());
    for _ in 0..values.len() {
        ordered.push(values[from]);
        for axis in (0..dims.len()).rev() {
            index[axis] += 1;
            from += steps[axis];
            if index[axis] < dims[axis] {
                break;
            }
            from -= steps[axis] * dims[axis];
            index[axis] = 0;
        }
    }
    ordered
}
