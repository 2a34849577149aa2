//! Reading `sensor_msgs/PointCloud2`.

use smallvec::SmallVec;

use super::error::CloudError;
use super::{CloudSummary, Field, ReadOptions, Scalar, Table, find_places, read_table};
use crate::io::messages::PointCloud2Msg;
use crate::lidar::PointCloud;

/// Reads a message into `cloud`, whose former points are removed and whose memory is used again.
///
/// | column | fields | types |
/// |---|---|---|
/// | x, y, z | `x`, `y`, `z` | float32, float64 |
/// | intensity | `intensity`, else `reflectivity` | any |
/// | ring | `ring` or `channel` | any, whole values from 0 to 65535 |
/// | time | `t`, `time`, `timestamp` or `time_stamp` | 32-bit integers: nanoseconds after the stamp; float32: seconds after it; float64: seconds after it, or seconds or nanoseconds since the epoch, whichever lies within [`MAX_SWEEP_S`](super::MAX_SWEEP_S) |
/// | return type | `return_type` | any, whole values from 0 to 255 |
///
/// A column without a field stays empty. Fields may lie anywhere in a point, unaligned, in either byte order, and points
/// and rows may be padded. A cloud without points is read as one, whatever its fields.
///
/// # Errors
/// Any [`CloudError`] of reading; `cloud` is then empty.
pub fn read_cloud(
    message: &PointCloud2Msg<'_>,
    options: ReadOptions,
    cloud: &mut PointCloud,
) -> Result<CloudSummary, CloudError> {
    cloud.clear();
    let (table, row_step_missing) = table_of(message)?;
    let stamp_ns = table.stamp_ns;
    if table.data.is_empty() {
        return Ok(CloudSummary {
            row_step_missing,
            stamp_ns,
            ..CloudSummary::default()
        });
    }
    let stride = u64::from(message.point_step);
    let fields = message.fields.iter().map(|field| Field {
        name: field.name,
        offset: field.offset.into(),
        stride,
        scalar: Scalar::of_datatype(field.datatype).ok_or(field.datatype),
        count: field.count.into(),
        within: Some(stride),
    });
    let fields: SmallVec<[Field<'_>; 16]> = fields.collect();
    let places = find_places(&fields, options)?;
    let summary = read_table(&table, &places, options, cloud)?;
    Ok(CloudSummary {
        row_step_missing,
        ..summary
    })
}

/// The message's rows, once its sizes agree with each other; and whether `row_step` was left out.
fn table_of<'a>(message: &PointCloud2Msg<'a>) -> Result<(Table<'a>, bool), CloudError> {
    let (height, width) = (u64::from(message.height), u64::from(message.width));
    let point_step = u64::from(message.point_step);
    // Fits: a product of two 32-bit numbers.
    let row = width * point_step;
    let declared = u64::from(message.row_step);
    let missing = declared == 0 && row > 0 && height == 1;
    let row_step = if missing { row } else { declared };
    let points = height * width;
    if points > 0 && row_step < row {
        return Err(CloudError::RowStep {
            row_step,
            width,
            point_step,
        });
    }
    let found = message.data.len() as u64;
    let expected = if points == 0 { 0 } else { height * row_step };
    // Points without bytes would be without end.
    if found != expected || (points > 0 && expected == 0) {
        return Err(CloudError::DataSize {
            found,
            expected,
            height,
            width,
            point_step,
            row_step,
        });
    }
    let rows_touch = row_step == row;
    let table = Table {
        data: message.data,
        // Fit: together they are at most the length of the data.
        rows: if rows_touch { 1 } else { height as usize },
        width: if rows_touch {
            points as usize
        } else {
            width as usize
        },
        row_step: row_step as usize,
        big_endian: message.is_bigendian,
        stamp_ns: Some(message.header.stamp_ns()),
    };
    Ok((table, missing))
}
