//! One cloud of several.

use thiserror::Error;

use crate::io::cdr::CdrError;
use crate::io::messages::{HeaderMsg, PointCloud2Msg, PointFieldMsg, PointFields, field_type};
use crate::io::tf::Transform;
use crate::lidar::PointCloud;

/// A cloud and where it is.
#[derive(Debug, Clone, Copy)]
pub struct MergeInput<'a> {
    /// The points.
    pub cloud: &'a PointCloud,
    /// Brings them to the frame of the merged cloud.
    pub transform: Transform,
    /// Whether intensities were stored in a byte each.
    pub byte_intensity: bool,
}

/// What a merged cloud is like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Merged {
    /// The message, little-endian CDR.
    pub message: Vec<u8>,
    /// Points in it.
    pub points: usize,
}

/// Why clouds cannot be merged.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MergeError {
    /// More points than are allowed.
    #[error("the clouds have {points} points together, at most {limit} are allowed (`max_points`)")]
    TooManyPoints {
        /// Points of all clouds.
        points: usize,
        /// How many are allowed.
        limit: usize,
    },
    /// The message is too long.
    #[error(transparent)]
    Cdr(#[from] CdrError),
}

/// Where the fields of a merged point are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Layout {
    /// One byte or four.
    intensity: Option<Intensity>,
    ring: bool,
    return_type: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Intensity {
    Byte,
    Float,
}

impl Layout {
    /// The fields that all clouds with points have.
    fn of(inputs: &[MergeInput<'_>]) -> Self {
        let clouds = || inputs.iter().filter(|input| !input.cloud.is_empty());
        let ring = clouds().all(|input| !input.cloud.ring.is_empty());
        let return_type = clouds().all(|input| !input.cloud.return_type.is_empty());
        let intensity = clouds().all(|input| !input.cloud.intensity.is_empty());
        // Autoware's PointXYZIRC keeps intensities in a byte; others may have fractions, or more than 255.
        let bytes = ring && return_type && clouds().all(|input| input.byte_intensity);
        Self {
            intensity: intensity.then_some(if bytes { Intensity::Byte } else { Intensity::Float }),
            ring,
            return_type,
        }
    }

    /// A byte of intensity and one of the return make room for two of the ring, as PointXYZIRC has it.
    fn return_first(self) -> bool {
        self.intensity == Some(Intensity::Byte)
    }

    /// The fields, and the bytes of a point.
    fn fields<'a>(self) -> (PointFields<'a>, u32) {
        let mut fields = PointFields::new();
        let mut at = 0;
        let mut add = |name, datatype, bytes: u32| {
            fields.push(PointFieldMsg {
                name,
                offset: at,
                datatype,
                count: 1,
            });
            at += bytes;
        };
        add("x", field_type::FLOAT32, 4);
        add("y", field_type::FLOAT32, 4);
        add("z", field_type::FLOAT32, 4);
        match self.intensity {
            Some(Intensity::Byte) => add("intensity", field_type::UINT8, 1),
            Some(Intensity::Float) => add("intensity", field_type::FLOAT32, 4),
            None => {}
        }
        let return_type = self.return_type.then_some(("return_type", field_type::UINT8, 1));
        let ring = self.ring.then_some(("channel", field_type::UINT16, 2));
        let both = if self.return_first() {
            [return_type, ring]
        } else {
            [ring, return_type]
        };
        for (name, datatype, bytes) in both.into_iter().flatten() {
            add(name, datatype, bytes);
        }
        (fields, at.next_multiple_of(4))
    }
}

/// Merges clouds into one message in the order given: each point `p` becomes `R p + t`, worked out in float64 and rounded
/// to float32 once.
///
/// The fields are x, y, z and those of intensity, return type and ring that every cloud with points has; where all three
/// are there and intensities were bytes, the layout is Autoware's `PointXYZIRC`. Times of single points are left out, for
/// the points are those of the stamp now.
///
/// # Errors
/// [`MergeError`].
pub fn merge_clouds(
    inputs: &[MergeInput<'_>],
    header: HeaderMsg<'_>,
    max_points: usize,
) -> Result<Merged, MergeError> {
    let points: usize = inputs.iter().map(|input| input.cloud.len()).sum();
    let too_many = || MergeError::TooManyPoints {
        points,
        limit: max_points,
    };
    if points > max_points {
        return Err(too_many());
    }
    let layout = Layout::of(inputs);
    let (_, point_step) = layout.fields();
    let width = u32::try_from(points).map_err(|_| too_many())?;
    let row_step = width.checked_mul(point_step).ok_or_else(too_many)?;
    let mut data = Vec::with_capacity(row_step as usize);
    let mut is_dense = true;
    for input in inputs {
        is_dense &= append(input, layout, point_step as usize, &mut data);
    }
    let message = PointCloud2Msg {
        header,
        height: 1,
        width,
        fields: layout.fields().0,
        is_bigendian: false,
        point_step,
        row_step,
        data: &data,
        is_dense,
    };
    Ok(Merged {
        message: message.encode()?,
        points,
    })
}

/// Appends the points of a cloud; whether all of them are finite.
fn append(input: &MergeInput<'_>, layout: Layout, point_step: usize, data: &mut Vec<u8>) -> bool {
    let PointCloud {
        x,
        y,
        z,
        intensity,
        ring,
        return_type,
        ..
    } = input.cloud;
    let m = input.transform.matrix();
    let mut is_dense = true;
    for at in 0..input.cloud.len() {
        let start = data.len();
        let p = [f64::from(x[at]), f64::from(y[at]), f64::from(z[at])];
        for row in 0..3 {
            let r = &m[4 * row..4 * row + 4];
            let value = (r[0] * p[0] + r[1] * p[1] + r[2] * p[2] + r[3]) as f32;
            is_dense &= value.is_finite();
            data.extend_from_slice(&value.to_le_bytes());
        }
        match layout.intensity {
            // A conversion that saturates: the value was a byte.
            Some(Intensity::Byte) => data.push(intensity[at] as u8),
            Some(Intensity::Float) => data.extend_from_slice(&intensity[at].to_le_bytes()),
            None => {}
        }
        if layout.return_type && layout.return_first() {
            data.push(return_type[at]);
        }
        if layout.ring {
            data.extend_from_slice(&ring[at].to_le_bytes());
        }
        if layout.return_type && !layout.return_first() {
            data.push(return_type[at]);
        }
        data.resize(start + point_step, 0);
    }
    is_dense
}
