//! Point-cloud files: PCD, the `.bin` tables of KITTI and nuScenes, NumPy arrays and archives of them, and PointCloud2 messages as they are.
//!
//! [`read`] and [`write()`] go by the extension. A file is untrusted: no length in it is believed before the bytes for it
//! are there.

mod error;
mod npy;
mod npz;
mod pcd;
mod table;

use std::path::Path;

pub use error::CloudFileError;
pub use pcd::PcdEncoding;
pub use table::TableLayout;

pub(super) use npy::NpyArray;

use super::cloud::{CloudError, CloudSummary, ReadOptions, check_columns, encode_cloud, read_cloud};
use super::messages::{HeaderMsg, PointCloud2Msg};
use crate::lidar::PointCloud;

/// Kind of a point-cloud file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloudFormat {
    /// `.pcd`: Point Cloud Library.
    Pcd,
    /// `.bin`: a table of numbers without a header, as KITTI, nuScenes and Waymo's copies have it.
    Bin,
    /// `.npy`: a NumPy array.
    Npy,
    /// `.npz`: NumPy arrays in a ZIP file, one for each column.
    Npz,
    /// `.cdr`: one `sensor_msgs/PointCloud2` as it is on the wire.
    Cdr,
}

impl CloudFormat {
    /// The format that a file's extension stands for.
    ///
    /// # Errors
    /// [`CloudFileError::UnknownFormat`].
    pub fn of(path: &Path) -> Result<Self, CloudFileError> {
        let extension = path.extension().and_then(|e| e.to_str()).unwrap_or("");
        match extension.to_ascii_lowercase().as_str() {
            "pcd" => Ok(Self::Pcd),
            "bin" => Ok(Self::Bin),
            "npy" => Ok(Self::Npy),
            "npz" => Ok(Self::Npz),
            "cdr" => Ok(Self::Cdr),
            _ => Err(CloudFileError::UnknownFormat { path: path.into() }),
        }
    }
}

impl std::fmt::Display for CloudFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Pcd => "PCD",
            Self::Bin => "table of numbers (.bin)",
            Self::Npy => "NumPy array",
            Self::Npz => "NumPy archive",
            Self::Cdr => "sensor_msgs/PointCloud2 (CDR)",
        })
    }
}

/// How a file is read.
#[derive(Debug, Clone)]
pub struct CloudFileOptions {
    /// Columns to read, and what becomes of points that are nowhere.
    pub read: ReadOptions,
    /// What the numbers of a `.bin` or `.npy` file are; found out where it is `None` and only one layout fits.
    pub layout: Option<TableLayout>,
    /// Most bytes that packed points may take unpacked. Nothing is made room for beyond it, whatever a file claims.
    pub max_unpacked_bytes: u64,
}

impl Default for CloudFileOptions {
    /// Every column, a layout that is found out, and 1 GiB unpacked.
    fn default() -> Self {
        Self {
            read: ReadOptions::default(),
            layout: None,
            max_unpacked_bytes: 1 << 30,
        }
    }
}

/// What a file held.
#[derive(Debug, Clone, PartialEq)]
pub struct CloudFile {
    /// The points.
    pub cloud: PointCloud,
    /// What was found out while they were read.
    pub summary: CloudSummary,
    /// Kind of the file.
    pub format: CloudFormat,
    /// The file's own words on its layout: fields and types, or the layout of a table.
    pub layout: String,
    /// Points in a row and rows, as the file declares them; one row for a cloud without order.
    pub size: [usize; 2],
}

/// Reads a point-cloud file by its extension.
///
/// # Errors
/// Any [`CloudFileError`].
pub fn read(path: &Path, options: &CloudFileOptions) -> Result<CloudFile, CloudFileError> {
    let format = CloudFormat::of(path)?;
    let bytes = std::fs::read(path).map_err(|source| CloudFileError::Read {
        path: path.into(),
        source,
    })?;
    let read = parse(&bytes, format, options);
    read.map_err(|error| error.at(path))
}

/// Reads the bytes of a point-cloud file.
///
/// # Errors
/// Any [`CloudFileError`] but those of the file system.
pub fn parse(
    bytes: &[u8],
    format: CloudFormat,
    options: &CloudFileOptions,
) -> Result<CloudFile, CloudFileError> {
    match format {
        CloudFormat::Pcd => pcd::read(bytes, options),
        CloudFormat::Bin => table::read(bytes, options),
        CloudFormat::Npy => npy::read(bytes, options),
        CloudFormat::Npz => npz::read(bytes, options),
        CloudFormat::Cdr => message(bytes, options.read),
    }
}

fn message(bytes: &[u8], options: ReadOptions) -> Result<CloudFile, CloudFileError> {
    let message = PointCloud2Msg::decode(bytes).map_err(CloudError::from)?;
    let mut cloud = PointCloud::default();
    let summary = read_cloud(&message, options, &mut cloud)?;
    let fields: Vec<&str> = message.fields.iter().map(|field| field.name).collect();
    Ok(CloudFile {
        cloud,
        summary,
        format: CloudFormat::Cdr,
        layout: format!("{}, {} bytes a point", fields.join(" "), message.point_step),
        size: [message.width as usize, message.height as usize],
    })
}

/// A point of the widest layout that is written.
const MAX_POINT_BYTES: usize = 32;

/// How a file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CloudWriteOptions<'a> {
    /// How the points of a `.pcd` file are stored.
    pub pcd: PcdEncoding,
    /// Stamp of a `.cdr` file's header.
    pub stamp_ns: i64,
    /// Frame of a `.cdr` file's header.
    pub frame_id: &'a str,
}

impl Default for CloudWriteOptions<'_> {
    fn default() -> Self {
        Self {
            pcd: PcdEncoding::Binary,
            stamp_ns: 0,
            frame_id: "lidar",
        }
    }
}

/// Writes a point-cloud file by its extension, replacing one of that name.
///
/// `.pcd` and `.npz` have every column that the cloud has. `.bin` and `.npy` are float32 x, y, z, intensity, and the ring where
/// there is one (KITTI's layout, and nuScenes'); a missing intensity is 0. `.cdr` is Autoware's layout.
///
/// # Errors
/// [`CloudFileError::UnknownFormat`], [`CloudFileError::Write`], [`CloudFileError::Cloud`], [`CloudFileError::Stamp`].
pub fn write(path: &Path, cloud: &PointCloud, options: CloudWriteOptions<'_>) -> Result<(), CloudFileError> {
    let bytes = encode(cloud, CloudFormat::of(path)?, options)?;
    std::fs::write(path, bytes).map_err(|source| CloudFileError::Write {
        path: path.into(),
        source,
    })
}

/// The bytes of a point-cloud file; see [`write()`].
///
/// # Errors
/// [`CloudFileError::Cloud`], [`CloudFileError::Stamp`].
pub fn encode(
    cloud: &PointCloud,
    format: CloudFormat,
    options: CloudWriteOptions<'_>,
) -> Result<Vec<u8>, CloudFileError> {
    check_columns(cloud)?;
    // So that the 32-bit sizes of every format can hold the widest point.
    let points = cloud.len();
    if points.saturating_mul(MAX_POINT_BYTES) > u32::MAX as usize {
        return Err(CloudError::TooManyPoints { points }.into());
    }
    match format {
        CloudFormat::Pcd => Ok(pcd::write(cloud, options.pcd)),
        CloudFormat::Bin => Ok(table::write(cloud)),
        CloudFormat::Npy => npy::write(cloud),
        CloudFormat::Npz => npz::write(cloud),
        CloudFormat::Cdr => {
            let header = HeaderMsg::new(options.stamp_ns, options.frame_id);
            let header = header.ok_or(CloudFileError::Stamp {
                stamp_ns: options.stamp_ns,
            })?;
            Ok(encode_cloud(cloud, header)?)
        }
    }
}

/// Columns of a cloud that a format has no place for.
#[must_use]
pub fn left_out(cloud: &PointCloud, format: CloudFormat) -> Vec<&'static str> {
    let is_table = matches!(format, CloudFormat::Bin | CloudFormat::Npy);
    let columns = [
        ("time", !cloud.time_ns.is_empty()),
        ("return type", !cloud.return_type.is_empty()),
    ];
    columns
        .iter()
        .filter(|(_, there)| is_table && *there)
        .map(|(name, _)| *name)
        .collect()
}
