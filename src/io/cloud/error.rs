//! Why a cloud cannot be read or written.

use thiserror::Error;

use crate::io::cdr::CdrError;

/// Why a point cloud cannot be read or written.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum CloudError {
    /// The message itself is damaged.
    #[error(transparent)]
    Cdr(#[from] CdrError),
    /// A coordinate has no field.
    #[error("the cloud has no field {name}; its fields are: {fields}")]
    MissingField {
        /// The field that is needed.
        name: &'static str,
        /// Those there are.
        fields: String,
    },
    /// Two fields could be meant, and the layout does not say which.
    #[error(
        "fields {first} and {second} could both be the cloud's {meaning}; rename one, or leave out the {meaning}"
    )]
    AmbiguousFields {
        /// What is looked for.
        meaning: &'static str,
        /// One of them.
        first: String,
        /// Another.
        second: String,
    },
    /// A field has a type that cannot hold what it should.
    #[error("field {field} is {found}; {expected} is expected")]
    FieldType {
        /// The field.
        field: String,
        /// Its type.
        found: String,
        /// Types that can be read.
        expected: &'static str,
    },
    /// A field is a list.
    #[error("field {field} has {count} elements a point; 1 is expected")]
    FieldCount {
        /// The field.
        field: String,
        /// Its number of elements.
        count: u64,
    },
    /// A field lies beyond the end of a point.
    #[error("field {field} ends at byte {end} of a point, but points are {point_step} bytes apart")]
    FieldBeyondPoint {
        /// The field.
        field: String,
        /// First byte after it.
        end: u64,
        /// Bytes from one point to the next.
        point_step: u64,
    },
    /// Rows overlap.
    #[error("row_step {row_step} is less than a row of {width} points, {point_step} bytes each")]
    RowStep {
        /// Bytes from one row to the next.
        row_step: u64,
        /// Points in a row.
        width: u64,
        /// Bytes from one point to the next.
        point_step: u64,
    },
    /// There is more or less data than the sizes say.
    #[error(
        "the cloud has {found} bytes of data, but {height} rows of {row_step} bytes are {expected} \
         (width {width}, point_step {point_step})"
    )]
    DataSize {
        /// Bytes there are.
        found: u64,
        /// Bytes there should be.
        expected: u64,
        /// Rows.
        height: u64,
        /// Points in a row.
        width: u64,
        /// Bytes from one point to the next.
        point_step: u64,
        /// Bytes from one row to the next.
        row_step: u64,
    },
    /// A value does not fit where it belongs.
    #[error("{meaning} of point {point} is {value}; {expected} is expected")]
    Value {
        /// What the value is.
        meaning: &'static str,
        /// The first point with such a value.
        point: usize,
        /// The value.
        value: f64,
        /// Values that fit.
        expected: &'static str,
    },
    /// Times make no sweep, read as offsets or as times of day.
    #[error(
        "times of points run from {from} to {to}, which lie within {limit_s} s neither of 0 nor of the cloud's stamp{}; \
         set the sensor's clock, or leave out the time",
        stamp_text(*stamp_ns)
    )]
    TimeRange {
        /// Earliest, as stored.
        from: f64,
        /// Latest, as stored.
        to: f64,
        /// Longest sweep that is believed.
        limit_s: f64,
        /// Stamp of the cloud.
        stamp_ns: Option<i64>,
    },
    /// Times can be read in two ways.
    #[error(
        "times of points run from {from} to {to} s, near both 0 and the cloud's stamp{}: they could be {first} or \
         {second}; leave out the time",
        stamp_text(Some(*stamp_ns))
    )]
    TimeAmbiguous {
        /// Earliest, as stored.
        from: f64,
        /// Latest, as stored.
        to: f64,
        /// Stamp of the cloud.
        stamp_ns: i64,
        /// The likelier reading.
        first: &'static str,
        /// The other one.
        second: &'static str,
    },
    /// The cloud to write has columns of different lengths.
    #[error("the cloud has {points} points, but {len} values of {column}")]
    ColumnLength {
        /// The column.
        column: &'static str,
        /// Its length.
        len: usize,
        /// Number of points.
        points: usize,
    },
    /// The cloud to write has more points than a message can count.
    #[error("{points} points are too many for one message")]
    TooManyPoints {
        /// Number of points.
        points: usize,
    },
}

fn stamp_text(stamp_ns: Option<i64>) -> String {
    let Some(ns) = stamp_ns else {
        return String::new();
    };
    format!(
        " ({}.{:09} s)",
        ns.div_euclid(1_000_000_000),
        ns.rem_euclid(1_000_000_000)
    )
}
