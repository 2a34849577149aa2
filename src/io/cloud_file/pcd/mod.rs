//! PCD, the file format of the Point Cloud Library, versions 0.6 and 0.7.

mod ascii;
mod header;
mod lzf;
mod write;

pub(super) use write::write;

use header::{Header, Storage};

use super::error::CloudFileError;
use super::{CloudFile, CloudFileOptions, CloudFormat};
use crate::io::cloud::{Field, Table, find_places, read_table};
use crate::lidar::PointCloud;

/// How the points of a PCD file are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PcdEncoding {
    /// One line of text a point. Floats are written so that they are read back exactly.
    Ascii,
    /// Little-endian bytes, a point after the other.
    Binary,
    /// A column after the other, packed with LZF.
    BinaryCompressed,
}

/// Reads a PCD file.
///
/// Bytes behind the points are ignored, as PCL pads files to whole pages. Fields named `_` are padding.
pub(super) fn read(bytes: &[u8], options: &CloudFileOptions) -> Result<CloudFile, CloudFileError> {
    let header = Header::parse(bytes)?;
    let body = &bytes[header.body_at..];
    let needed = header.body_bytes();
    let unpacked;
    let (data, by_columns) = match header.storage {
        Storage::Ascii => {
            unpacked = ascii::to_binary(&header, body)?;
            (&unpacked[..], false)
        }
        Storage::Binary => {
            let found = body.len() as u64;
            let whole = usize::try_from(needed).ok().and_then(|needed| body.get(..needed));
            (whole.ok_or(CloudFileError::PcdTooShort { needed, found })?, false)
        }
        Storage::BinaryCompressed => {
            unpacked = unpack(body, needed, options.max_unpacked_bytes)?;
            (&unpacked[..], true)
        }
    };
    let mut cloud = PointCloud::default();
    // Fits: every point takes a byte of `data` at least, or there is none.
    let points = if data.is_empty() {
        0
    } else {
        header.points as usize
    };
    let table = Table {
        data,
        rows: 1,
        width: points,
        row_step: data.len(),
        big_endian: false,
        stamp_ns: None,
    };
    let places = find_places(&fields(&header, by_columns), options.read)?;
    let summary = read_table(&table, &places, options.read, &mut cloud)?;
    Ok(CloudFile {
        cloud,
        summary,
        format: CloudFormat::Pcd,
        layout: header.describe(),
        size: [header.width, header.height].map(|n| usize::try_from(n).unwrap_or(usize::MAX)),
    })
}

fn fields<'a>(header: &'a Header<'_>, by_columns: bool) -> Vec<Field<'a>> {
    let mut offset = 0;
    let step = header.point_bytes();
    let mut fields = Vec::with_capacity(header.fields.len());
    for field in &header.fields {
        let bytes = field.scalar.size() as u64 * field.count;
        fields.push(Field {
            name: field.name,
            offset,
            stride: if by_columns { bytes } else { step },
            scalar: Ok(field.scalar),
            count: field.count,
            within: None,
        });
        // Fits: the product of header and points was checked.
        offset += if by_columns { bytes * header.points } else { bytes };
    }
    fields
}

/// Unpacks the columns of a compressed file: two lengths, then an LZF block.
fn unpack(body: &[u8], needed: u64, allowed: u64) -> Result<Vec<u8>, CloudFileError> {
    let (lengths, block) = body.split_first_chunk::<8>().ok_or(CloudFileError::PcdTooShort {
        needed: 8,
        found: body.len() as u64,
    })?;
    let word = |at: usize| {
        let bytes = [lengths[at], lengths[at + 1], lengths[at + 2], lengths[at + 3]];
        u64::from(u32::from_le_bytes(bytes))
    };
    let (compressed, unpacked) = (word(0), word(4));
    let available = block.len() as u64;
    // What cannot be unpacked from so few bytes is not made room for.
    let possible = unpacked <= compressed.saturating_mul(lzf::MAX_RATIO);
    if unpacked != needed || compressed > available || !possible {
        return Err(CloudFileError::PcdBlock {
            compressed,
            unpacked,
            needed,
            available,
        });
    }
    if needed > allowed {
        return Err(CloudFileError::TooLargeUnpacked { needed, allowed });
    }
    lzf::decompress(&block[..compressed as usize], unpacked as usize)
        .map_err(|at| CloudFileError::PcdDamaged { at })
}
