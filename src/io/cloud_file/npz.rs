//! NumPy archives: a ZIP file of arrays, one for each column of the cloud.

use std::borrow::Cow;
use std::io::{Cursor, Read};

use ndarray::ArrayView1;
use ndarray_npy::{WritableElement, WriteNpyExt};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use super::error::CloudFileError;
use super::npy::{self, NpyArray};
use super::{CloudFile, CloudFileOptions, CloudFormat};
use crate::io::cloud::{Field, Table, find_places, is_column, read_table};
use crate::lidar::PointCloud;

fn bad(reason: impl Into<String>) -> CloudFileError {
    CloudFileError::Npz {
        reason: reason.into(),
    }
}

/// Reads an archive of one-dimensional arrays that are named as fields of a cloud are (`x`, `y`, `z`, `intensity`,
/// `ring`, `t`, ...), or of a single array as a `.npy` file has it.
pub(super) fn read(bytes: &[u8], options: &CloudFileOptions) -> Result<CloudFile, CloudFileError> {
    let mut archive = ZipArchive::new(Cursor::new(bytes)).map_err(|error| bad(error.to_string()))?;
    let names: Vec<String> = archive.file_names().flatten().map(Cow::into_owned).collect();
    let arrays: Vec<&str> = names
        .iter()
        .filter_map(|name| name.strip_suffix(".npy"))
        .collect();
    let allowed = options.max_unpacked_bytes;
    let mut room = allowed;
    if let [only] = arrays[..] {
        let array = unpack(&mut archive, only, &mut room, allowed)?;
        let file = npy::read(&array, options)?;
        return Ok(CloudFile {
            format: CloudFormat::Npz,
            ..file
        });
    }
    let columns: Vec<&str> = arrays.into_iter().filter(|name| is_column(name)).collect();
    let mut data = Vec::new();
    let mut fields = Vec::new();
    let mut points = None;
    for name in columns {
        let array = unpack(&mut archive, name, &mut room, allowed)?;
        let array = NpyArray::parse(&array).map_err(|error| bad(format!("array {name}: {error}")))?;
        let [len] = array.shape[..] else {
            return Err(bad(format!(
                "array {name} has shape {:?}; one dimension is expected",
                array.shape
            )));
        };
        if let Some((first, points)) = points.filter(|&(_, points)| points != len) {
            return Err(bad(format!(
                "array {name} has {len} values, and {first} has {points}"
            )));
        }
        points = Some((name, len));
        let size = array.scalar.size();
        fields.push(Field {
            name,
            offset: data.len() as u64,
            stride: size as u64,
            scalar: Ok(array.scalar),
            count: 1,
            within: None,
        });
        let from = data.len();
        data.extend_from_slice(array.data);
        if array.big_endian {
            data[from..].chunks_exact_mut(size).for_each(<[u8]>::reverse);
        }
    }
    let places = find_places(&fields, options.read)?;
    let width = points.map_or(0, |(_, points)| points);
    let table = Table {
        data: &data,
        rows: 1,
        width,
        row_step: data.len(),
        big_endian: false,
        stamp_ns: None,
    };
    let mut cloud = PointCloud::default();
    let summary = read_table(&table, &places, options.read, &mut cloud)?;
    let layout = fields
        .iter()
        .map(|field| field.name)
        .collect::<Vec<_>>()
        .join(" ");
    Ok(CloudFile {
        cloud,
        summary,
        format: CloudFormat::Npz,
        layout,
        size: [width, 1],
    })
}

/// The bytes of an array, as a `.npy` file has them. Sizes that the archive claims are not believed.
fn unpack(
    archive: &mut ZipArchive<Cursor<&[u8]>>,
    name: &str,
    room: &mut u64,
    allowed: u64,
) -> Result<Vec<u8>, CloudFileError> {
    let failed = |reason: String| bad(format!("array {name}: {reason}"));
    let member = archive
        .by_name(&format!("{name}.npy"))
        .map_err(|error| failed(error.to_string()))?;
    let mut bytes = Vec::new();
    let read = member.take(room.saturating_add(1)).read_to_end(&mut bytes);
    let read = read.map_err(|error| failed(error.to_string()))? as u64;
    *room = room
        .checked_sub(read)
        .ok_or_else(|| failed(format!("the arrays unpack to more than {allowed} bytes")))?;
    Ok(bytes)
}

/// Every column that the cloud has as an array of its own; times are whole nanoseconds. Arrays are stored as they are.
pub(super) fn write(cloud: &PointCloud) -> Result<Vec<u8>, CloudFileError> {
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    add(&mut archive, "x", &cloud.x, true)?;
    add(&mut archive, "y", &cloud.y, true)?;
    add(&mut archive, "z", &cloud.z, true)?;
    add(&mut archive, "intensity", &cloud.intensity, false)?;
    add(&mut archive, "ring", &cloud.ring, false)?;
    add(&mut archive, "return_type", &cloud.return_type, false)?;
    add(&mut archive, "t", &cloud.time_ns, false)?;
    let done = archive.finish().map_err(|error| bad(error.to_string()))?;
    Ok(done.into_inner())
}

/// Adds a column, an empty one only if it is `needed`.
fn add<T: WritableElement>(
    archive: &mut ZipWriter<Cursor<Vec<u8>>>,
    name: &str,
    column: &[T],
    needed: bool,
) -> Result<(), CloudFileError> {
    if column.is_empty() && !needed {
        return Ok(());
    }
    let stored = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    let started = archive.start_file(format!("{name}.npy"), stored);
    started.map_err(|error| bad(error.to_string()))?;
    let written = ArrayView1::from(column).write_npy(archive);
    written.map_err(|error| bad(error.to_string()))
}
