//! Writing `sensor_msgs/PointCloud2` in Autoware's layout.

use super::error::CloudError;
use crate::io::messages::{HeaderMsg, PointCloud2Msg, PointFieldMsg, field_type};
use crate::lidar::PointCloud;

/// Latest time after the stamp in nanoseconds that a point of the written layout can have: about 4.29 s.
pub const MAX_TIME_NS: i64 = u32::MAX as i64;

/// Names, offsets and types of Autoware's `PointXYZIRCAEDT`.
const FIELDS: [(&str, u32, u8); 10] = [
    ("x", 0, field_type::FLOAT32),
    ("y", 4, field_type::FLOAT32),
    ("z", 8, field_type::FLOAT32),
    ("intensity", 12, field_type::UINT8),
    ("return_type", 13, field_type::UINT8),
    ("channel", 14, field_type::UINT16),
    ("azimuth", 16, field_type::FLOAT32),
    ("elevation", 20, field_type::FLOAT32),
    ("distance", 24, field_type::FLOAT32),
    ("time_stamp", 28, field_type::UINT32),
];
const POINT_BYTES: usize = 32;

/// Encodes a cloud as `sensor_msgs/PointCloud2` in Autoware's layout `PointXYZIRCAEDT`: one row of points of 32 bytes.
///
/// Intensities are rounded to whole numbers. Azimuth (clockwise from x, 0 to 2π), elevation (up) in radians and
/// distance in metres are worked out of the coordinates. Columns that the cloud does not have are written as 0.
///
/// # Errors
/// [`CloudError::Value`] for an intensity outside 0 to 255 or a time outside 0 to [`MAX_TIME_NS`],
/// [`CloudError::ColumnLength`], [`CloudError::TooManyPoints`], [`CloudError::Cdr`].
pub fn encode_cloud(cloud: &PointCloud, header: HeaderMsg<'_>) -> Result<Vec<u8>, CloudError> {
    check_columns(cloud)?;
    let points = cloud.len();
    let too_many = |_| CloudError::TooManyPoints { points };
    let row_step = u32::try_from(points.saturating_mul(POINT_BYTES)).map_err(too_many)?;
    let mut data = Vec::with_capacity(points * POINT_BYTES);
    for at in 0..points {
        data.extend_from_slice(&point_bytes(cloud, at)?);
    }
    let fields = FIELDS.map(|(name, offset, datatype)| PointFieldMsg {
        name,
        offset,
        datatype,
        count: 1,
    });
    let is_dense = [&cloud.x, &cloud.y, &cloud.z]
        .iter()
        .all(|column| column.iter().all(|value| value.is_finite()));
    let message = PointCloud2Msg {
        header,
        height: 1,
        width: row_step / POINT_BYTES as u32,
        fields: fields.into_iter().collect(),
        is_bigendian: false,
        point_step: POINT_BYTES as u32,
        row_step,
        data: &data,
        is_dense,
    };
    Ok(message.encode()?)
}

/// Every column has one value a point, or none at all.
pub(crate) fn check_columns(cloud: &PointCloud) -> Result<(), CloudError> {
    let points = cloud.len();
    let required = [("y", cloud.y.len()), ("z", cloud.z.len())];
    let optional = [
        ("intensity", cloud.intensity.len()),
        ("ring", cloud.ring.len()),
        ("time", cloud.time_ns.len()),
        ("return type", cloud.return_type.len()),
    ];
    let wrong = required.iter().find(|(_, len)| *len != points);
    let wrong = wrong.or_else(|| optional.iter().find(|(_, len)| ![0, points].contains(len)));
    wrong.map_or(Ok(()), |&(column, len)| {
        Err(CloudError::ColumnLength { column, len, points })
    })
}

fn point_bytes(cloud: &PointCloud, at: usize) -> Result<[u8; POINT_BYTES], CloudError> {
    let (x, y, z) = (cloud.x[at], cloud.y[at], cloud.z[at]);
    let intensity = cloud.intensity.get(at).copied().unwrap_or(0.0).round();
    let time_ns = cloud.time_ns.get(at).copied().unwrap_or(0);
    let misfit = |meaning, value, expected| CloudError::Value {
        meaning,
        point: at,
        value,
        expected,
    };
    if !(0.0..=255.0).contains(&intensity) {
        return Err(misfit("intensity", intensity.into(), "0 to 255"));
    }
    let time = u32::try_from(time_ns)
        .map_err(|_| misfit("time in nanoseconds", time_ns as f64, "0 to 4294967295"))?;
    let [azimuth, elevation, distance] = viewing_angles(x, y, z);
    let mut bytes = [0; POINT_BYTES];
    let mut put = |offset: usize, value: &[u8]| bytes[offset..offset + value.len()].copy_from_slice(value);
    put(0, &x.to_le_bytes());
    put(4, &y.to_le_bytes());
    put(8, &z.to_le_bytes());
    put(12, &[intensity as u8]);
    put(13, &[cloud.return_type.get(at).copied().unwrap_or(0)]);
    put(14, &cloud.ring.get(at).copied().unwrap_or(0).to_le_bytes());
    put(16, &azimuth.to_le_bytes());
    put(20, &elevation.to_le_bytes());
    put(24, &distance.to_le_bytes());
    put(28, &time.to_le_bytes());
    Ok(bytes)
}

/// Azimuth (clockwise from x, 0 to 2π) and elevation in radians, distance in metres; angles of the origin are 0.
fn viewing_angles(x: f32, y: f32, z: f32) -> [f32; 3] {
    use std::f32::consts::TAU;
    let azimuth = (-y.atan2(x)).rem_euclid(TAU);
    let flat = x.hypot(y);
    // The remainder of a tiny negative angle rounds to the full circle.
    let azimuth = if azimuth >= TAU { 0.0 } else { azimuth };
    [azimuth, z.atan2(flat), flat.hypot(z)]
}
