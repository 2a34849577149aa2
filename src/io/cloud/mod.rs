//! Point clouds between tables of bytes and columns.
//!
//! [`read_cloud`] takes a `sensor_msgs/PointCloud2` apart by the names, types and offsets of its fields, whatever their
//! order, size or padding, into a [`PointCloud`](crate::lidar::PointCloud) whose memory is reused; [`encode_cloud`] writes one in Autoware's
//! layout. Nothing is guessed: a message that contradicts itself or can be read in two ways is refused with its numbers.

mod columns;
mod error;
mod fields;
mod message;
mod times;
mod write;

pub use error::CloudError;
pub use message::read_cloud;
pub use times::MAX_SWEEP_S;
pub use write::{MAX_TIME_NS, encode_cloud};

pub(crate) use columns::{Place, Places, Table, read_table};
pub(crate) use fields::{Field, Scalar, find_places, is_column};
pub(crate) use times::{Time, TimeUnit};
pub(crate) use write::check_columns;

/// What is read of a cloud beside its coordinates, and which points stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadOptions {
    /// Read intensities where there are any.
    pub intensity: bool,
    /// Read laser numbers where there are any.
    pub ring: bool,
    /// Read times where there are any.
    pub time: bool,
    /// Read kinds of return where there are any.
    pub return_type: bool,
    /// Keep points with a coordinate that is NaN or infinite, so that an organised cloud keeps its order.
    pub keep_non_finite: bool,
}

impl Default for ReadOptions {
    /// Everything of every point that is somewhere.
    fn default() -> Self {
        Self {
            intensity: true,
            ring: true,
            time: true,
            return_type: true,
            keep_non_finite: false,
        }
    }
}

/// What was found out while a cloud was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CloudSummary {
    /// Points that the message or file holds.
    pub points: usize,
    /// Points with a coordinate that is NaN or infinite. They are left out unless
    /// [`keep_non_finite`](ReadOptions::keep_non_finite) is set, whatever `is_dense` says.
    pub non_finite: usize,
    /// Points with a coordinate beyond 10 km or too small for a normal float32: a sign that the byte order is not what
    /// the message says. They are kept.
    pub implausible: usize,
    /// The message left `row_step` at 0, which is accepted for a cloud of one row.
    pub row_step_missing: bool,
    /// The stamp that times count from: that of the message, or for a file with times of day its earliest.
    pub stamp_ns: Option<i64>,
}
