//! Columns out of a table of bytes.
//!
//! Points are taken a block at a time, so that a block's bytes stay in the first cache while each column is read from
//! it.

use half::f16;

use super::error::CloudError;
use super::times::settle;
use super::{CloudSummary, ReadOptions, Scalar, Time};
use crate::lidar::PointCloud;

/// Points whose columns are read in turn.
const BLOCK: usize = 512;
/// Beyond this no LiDAR sees.
const FAR_M: f32 = 10_000.0;

/// Where one value of every point is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    /// Where the first point's value starts.
    pub(crate) offset: usize,
    /// Bytes from one point's value to the next one's.
    pub(crate) stride: usize,
    pub(crate) scalar: Scalar,
}

/// Where the columns of a cloud are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Places {
    pub(crate) x: Place,
    pub(crate) y: Place,
    pub(crate) z: Place,
    pub(crate) intensity: Option<Place>,
    pub(crate) ring: Option<Place>,
    pub(crate) time: Option<Time>,
    pub(crate) return_type: Option<Place>,
}

impl Places {
    fn all(&self) -> impl Iterator<Item = Place> {
        let time = self.time.map(|time| time.place);
        let optional = [self.intensity, self.ring, time, self.return_type];
        [self.x, self.y, self.z]
            .into_iter()
            .chain(optional.into_iter().flatten())
    }
}

/// Rows of points in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Table<'a> {
    pub(crate) data: &'a [u8],
    pub(crate) rows: usize,
    pub(crate) width: usize,
    /// Bytes from one row to the next.
    pub(crate) row_step: usize,
    pub(crate) big_endian: bool,
    /// When the cloud was taken, where that is known.
    pub(crate) stamp_ns: Option<i64>,
}

/// Reads the columns at `places` into `cloud`, whose former points are removed and whose memory is used again.
///
/// # Errors
/// [`CloudError::FieldBeyondPoint`], [`CloudError::Value`], [`CloudError::TimeRange`], [`CloudError::TimeAmbiguous`];
/// the cloud is then empty.
pub(crate) fn read_table(
    table: &Table<'_>,
    places: &Places,
    options: ReadOptions,
    cloud: &mut PointCloud,
) -> Result<CloudSummary, CloudError> {
    cloud.clear();
    let read = fill(table, places, options, cloud);
    if read.is_err() {
        cloud.clear();
    }
    read
}

fn fill(
    table: &Table<'_>,
    places: &Places,
    options: ReadOptions,
    cloud: &mut PointCloud,
) -> Result<CloudSummary, CloudError> {
    let points = table.rows.saturating_mul(table.width);
    let mut summary = CloudSummary {
        points,
        stamp_ns: table.stamp_ns,
        ..CloudSummary::default()
    };
    if points == 0 {
        return Ok(summary);
    }
    for place in places.all() {
        check(table, place)?;
    }
    // Every point has at least a byte of its own in the table, so this is bounded by what is there already.
    reserve(cloud, places, points);
    let mut misfit = None;
    for row in 0..table.rows {
        for first in (0..table.width).step_by(BLOCK) {
            let block = Block {
                table,
                start: row * table.row_step,
                first,
                count: BLOCK.min(table.width - first),
            };
            let known = cloud.len();
            block.read(places, cloud, &mut misfit);
            let (non_finite, implausible) = count_odd(cloud, known);
            summary.non_finite += non_finite;
            summary.implausible += implausible;
        }
    }
    if let Some(error) = misfit {
        return Err(error);
    }
    if summary.non_finite > 0 && !options.keep_non_finite {
        drop_non_finite(cloud);
    }
    if let Some(time) = places.time {
        summary.stamp_ns = settle(&mut cloud.time_ns, time.unit, table.stamp_ns)?;
    }
    Ok(summary)
}

/// Every value of `place` lies within the table.
fn check(table: &Table<'_>, place: Place) -> Result<(), CloudError> {
    let size = place.scalar.size();
    let end = (table.rows - 1)
        .checked_mul(table.row_step)
        .and_then(|at| at.checked_add((table.width - 1).checked_mul(place.stride)?))
        .and_then(|at| at.checked_add(place.offset)?.checked_add(size));
    if end.is_some_and(|end| end <= table.data.len()) && place.stride >= size {
        return Ok(());
    }
    Err(CloudError::FieldBeyondPoint {
        field: place.scalar.name().to_owned(),
        end: place.offset.saturating_add(size) as u64,
        point_step: place.stride as u64,
    })
}

fn reserve(cloud: &mut PointCloud, places: &Places, points: usize) {
    cloud.x.reserve(points);
    cloud.y.reserve(points);
    cloud.z.reserve(points);
    let room = |wanted: bool| if wanted { points } else { 0 };
    cloud.intensity.reserve(room(places.intensity.is_some()));
    cloud.ring.reserve(room(places.ring.is_some()));
    cloud.time_ns.reserve(room(places.time.is_some()));
    cloud.return_type.reserve(room(places.return_type.is_some()));
}

/// A value as the types of columns.
trait Number: Copy {
    fn to_f32(self) -> f32;
    fn to_f64(self) -> f64;
    /// The value if it is whole and not negative; beyond a `u32` nothing is asked for.
    fn to_u32(self) -> Option<u32>;
    /// Nearest `i64`.
    fn to_i64(self) -> i64;
}

macro_rules! whole_number {
    ($($type:ty),*) => {$(
        impl Number for $type {
            fn to_f32(self) -> f32 {
                self as f32
            }
            fn to_f64(self) -> f64 {
                self as f64
            }
            fn to_u32(self) -> Option<u32> {
                u32::try_from(self).ok()
            }
            fn to_i64(self) -> i64 {
                i64::try_from(self).unwrap_or(i64::MAX)
            }
        }
    )*};
}
whole_number!(i8, u8, i16, u16, i32, u32, i64, u64);

macro_rules! float_number {
    ($($type:ty),*) => {$(
        impl Number for $type {
            fn to_f32(self) -> f32 {
                self as f32
            }
            fn to_f64(self) -> f64 {
                f64::from(self)
            }
            fn to_u32(self) -> Option<u32> {
                let whole = self as u32;
                (whole as Self == self).then_some(whole)
            }
            fn to_i64(self) -> i64 {
                self as i64
            }
        }
    )*};
}
float_number!(f32, f64);

impl Number for f16 {
    fn to_f32(self) -> f32 {
        f32::from(self)
    }
    fn to_f64(self) -> f64 {
        f64::from(self)
    }
    fn to_u32(self) -> Option<u32> {
        f32::from(self).to_u32()
    }
    fn to_i64(self) -> i64 {
        f32::from(self) as i64
    }
}

/// Some points in a row.
#[derive(Clone, Copy)]
struct Block<'t, 'a> {
    table: &'t Table<'a>,
    /// Where the row starts.
    start: usize,
    /// First point, counted in its row.
    first: usize,
    count: usize,
}

/// Appends a block's values at a place to `$out`, each through `$convert` (a closure over an impl of [`Number`]).
macro_rules! append {
    ($block:expr, $place:expr, $out:expr, |$value:ident| $convert:expr) => {
        append!(@types $block, $place, $out, $value, $convert,
            I8 i8, U8 u8, I16 i16, U16 u16, I32 i32, U32 u32, I64 i64, U64 u64, F16 f16, F32 f32, F64 f64)
    };
    (@types $block:expr, $place:expr, $out:expr, $value:ident, $convert:expr, $($scalar:ident $type:ty),*) => {
        match ($place.scalar, $block.table.big_endian) {
            $(
                (Scalar::$scalar, false) => $block.each($place, $out, |raw| {
                    let $value = <$type>::from_le_bytes(raw);
                    $convert
                }),
                (Scalar::$scalar, true) => $block.each($place, $out, |raw| {
                    let $value = <$type>::from_be_bytes(raw);
                    $convert
                }),
            )*
        }
    };
}

impl Block<'_, '_> {
    fn read(&self, places: &Places, cloud: &mut PointCloud, misfit: &mut Option<CloudError>) {
        append!(self, places.x, &mut cloud.x, |value| value.to_f32());
        append!(self, places.y, &mut cloud.y, |value| value.to_f32());
        append!(self, places.z, &mut cloud.z, |value| value.to_f32());
        if let Some(place) = places.intensity {
            append!(self, place, &mut cloud.intensity, |value| value.to_f32());
        }
        let mut note = |meaning, index: usize, value: f64, expected| {
            let at = [&cloud.x, &cloud.y, &cloud.z].map(|column| column.get(index).copied());
            // A point that is nowhere need not say anything else either.
            if misfit.is_none() && at.iter().flatten().all(|c| c.is_finite()) {
                *misfit = Some(CloudError::Value {
                    meaning,
                    point: index,
                    value,
                    expected,
                });
            }
        };
        if let Some(place) = places.ring {
            let mut index = cloud.ring.len();
            append!(self, place, &mut cloud.ring, |value| {
                let ring = value.to_u32().and_then(|ring| u16::try_from(ring).ok());
                if ring.is_none() {
                    note("ring", index, value.to_f64(), "a whole number from 0 to 65535");
                }
                index += 1;
                ring.unwrap_or(0)
            });
        }
        if let Some(place) = places.return_type {
            let mut index = cloud.return_type.len();
            append!(self, place, &mut cloud.return_type, |value| {
                let kind = value.to_u32().and_then(|kind| u8::try_from(kind).ok());
                if kind.is_none() {
                    note(
                        "return type",
                        index,
                        value.to_f64(),
                        "a whole number from 0 to 255",
                    );
                }
                index += 1;
                kind.unwrap_or(0)
            });
        }
        if let Some(Time { place, unit }) = places.time {
            let out = &mut cloud.time_ns;
            if unit.is_float() {
                append!(self, place, out, |value| value.to_f64().to_bits() as i64);
            } else {
                append!(self, place, out, |value| value.to_i64());
            }
        }
    }

    /// Appends the converted value of every point of the block. The place was checked against the table.
    fn each<const N: usize, T>(&self, place: Place, out: &mut Vec<T>, mut of: impl FnMut([u8; N]) -> T) {
        let start = self.start + place.offset + self.first * place.stride;
        let end = start + (self.count - 1) * place.stride + N;
        let (whole, last) = self.table.data[start..end].split_at(end - N - start);
        let mut value = |point: &[u8]| {
            let mut raw = [0; N];
            raw.copy_from_slice(&point[..N]);
            of(raw)
        };
        // Pieces of one length let the check of the range move out of the loop; the last piece is as short as the value.
        out.extend(whole.chunks_exact(place.stride).map(&mut value));
        out.push(value(last));
    }
}

/// Points from the `first` on that are nowhere, and points that are nowhere likely.
fn count_odd(cloud: &PointCloud, first: usize) -> (usize, usize) {
    let odd = |v: f32| {
        let size = v.abs();
        (size > FAR_M) | size.is_nan() | ((size < f32::MIN_POSITIVE) & (size > 0.0))
    };
    // Counts as wide as the values, so that the loop runs in vectors.
    let (mut non_finite, mut implausible) = (0u32, 0u32);
    for ((&x, &y), &z) in cloud.x[first..]
        .iter()
        .zip(&cloud.y[first..])
        .zip(&cloud.z[first..])
    {
        let finite = x.is_finite() & y.is_finite() & z.is_finite();
        non_finite += u32::from(!finite);
        implausible += u32::from(finite & (odd(x) | odd(y) | odd(z)));
    }
    (non_finite as usize, implausible as usize)
}

/// Removes points that are nowhere, in place.
fn drop_non_finite(cloud: &mut PointCloud) {
    let finite = |cloud: &PointCloud, at: usize| {
        cloud.x[at].is_finite() && cloud.y[at].is_finite() && cloud.z[at].is_finite()
    };
    fn shift<T: Copy>(column: &mut [T], from: usize, to: usize) {
        // Columns that the sensor does not have are empty.
        if from < column.len() {
            column[to] = column[from];
        }
    }
    let mut kept = 0;
    for at in 0..cloud.len() {
        if finite(cloud, at) {
            shift(&mut cloud.x, at, kept);
            shift(&mut cloud.y, at, kept);
            shift(&mut cloud.z, at, kept);
            shift(&mut cloud.intensity, at, kept);
            shift(&mut cloud.ring, at, kept);
            shift(&mut cloud.time_ns, at, kept);
            shift(&mut cloud.return_type, at, kept);
            kept += 1;
        }
    }
    cloud.x.truncate(kept);
    cloud.y.truncate(kept);
    cloud.z.truncate(kept);
    cloud.intensity.truncate(kept);
    cloud.ring.truncate(kept);
    cloud.time_ns.truncate(kept);
    cloud.return_type.truncate(kept);
}
