//! Where and when frames were taken, in a form that a device can subtract.

use super::scratch::{Scratch, part};
use crate::ops::DeviceTensor;
use crate::trace::WorkError;

/// Columns of a row that says where and when a frame was taken.
pub const PLACE_LANES: usize = 12;

const X_HIGH: usize = 0;
const Y_HIGH: usize = 1;
const X_LOW: usize = 2;
const Y_LOW: usize = 3;
const COS: usize = 4;
const SIN: usize = 5;
const KNOWN: usize = 6;
const T_HIGH: usize = 7;
const T_LOW: usize = 8;
const THERE: usize = 9;

/// Metres of a coarse step: float32 holds so many steps exactly up to 4 million km.
const STEP_M: f64 = 256.0;
/// Seconds of a coarse step, exact up to the year 2038 and far beyond.
const STEP_S: f64 = 128.0;

/// Where a sensor was on the ground, and when.
///
/// float32 holds today's time to two minutes and a map coordinate of 100 km to a centimetre. So both are two numbers, a
/// multiple of a coarse step and the rest: the difference of two places is that of the coarse parts, which is exact, plus
/// that of the rests.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Place {
    /// Position in the world in metres and heading in radians; `None` where it is not known.
    pub ground: Option<[f64; 3]>,
    /// Sensor stamp in nanoseconds.
    pub stamp_ns: i64,
}

impl Place {
    /// The place of a sensor whose x axis looks ahead and z up: a LiDAR.
    #[must_use]
    pub fn of_level(stamp_ns: i64, world_from_sensor: Option<&[f64; 16]>) -> Self {
        Self::of_axis(stamp_ns, world_from_sensor, 0)
    }

    /// The place of a sensor whose z axis looks ahead: the optical frame of a camera.
    #[must_use]
    pub fn of_optical(stamp_ns: i64, world_from_sensor: Option<&[f64; 16]>) -> Self {
        Self::of_axis(stamp_ns, world_from_sensor, 2)
    }

    /// Positions are not known where the axis stands upright or a number is none.
    fn of_axis(stamp_ns: i64, world_from_sensor: Option<&[f64; 16]>, ahead: usize) -> Self {
        let ground = world_from_sensor.and_then(|m| {
            let (x, y) = (m[ahead], m[4 + ahead]);
            let ground = [m[3], m[7], y.atan2(x)];
            let told = x.hypot(y) > 1e-6 && ground.iter().all(|v| v.is_finite());
            (told && ground[..2].iter().all(|v| v.abs() < 1e9)).then_some(ground)
        });
        Self { ground, stamp_ns }
    }

    /// The row that goes to the device.
    #[must_use]
    pub fn row(&self) -> [f32; PLACE_LANES] {
        let mut row = [0.0; PLACE_LANES];
        row[THERE] = 1.0;
        row[COS] = 1.0;
        if let Some([x, y, heading]) = self.ground {
            [row[X_HIGH], row[X_LOW]] = halves(x, STEP_M);
            [row[Y_HIGH], row[Y_LOW]] = halves(y, STEP_M);
            row[COS] = heading.cos() as f32;
            row[SIN] = heading.sin() as f32;
            row[KNOWN] = 1.0;
        }
        let seconds = self.stamp_ns.div_euclid(1_000_000_000);
        let rest_ns = self.stamp_ns.rem_euclid(1_000_000_000);
        let coarse = seconds.div_euclid(STEP_S as i64);
        row[T_HIGH] = (coarse as f64 * STEP_S) as f32;
        row[T_LOW] = (seconds.rem_euclid(STEP_S as i64) as f64 + rest_ns as f64 / 1e9) as f32;
        row
    }
}

/// A multiple of a step, and the rest.
fn halves(value: f64, step: f64) -> [f32; 2] {
    let coarse = (value / step).floor() * step;
    [coarse as f32, (value - coarse) as f32]
}

/// A movement on the ground in columns `[N, 1]`: `x' = cos x - sin y + dx`, `y' = sin x + cos y + dy`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Movement {
    pub(super) cos: DeviceTensor,
    pub(super) sin: DeviceTensor,
    pub(super) dx: DeviceTensor,
    pub(super) dy: DeviceTensor,
}

/// From coordinates at the places `from` to those at `to`, rows `[N, PLACE_LANES]`, of which one may have a single row.
/// No movement where either place is not known.
pub(super) fn movement(
    work: &mut Scratch<'_, '_>,
    from: &DeviceTensor,
    to: &DeviceTensor,
    one: &DeviceTensor,
) -> Result<Movement, WorkError> {
    let column = |rows: &DeviceTensor, lane: usize| part(rows, 1, lane, 1);
    let [from_cos, from_sin] = [column(from, COS)?, column(from, SIN)?];
    let [to_cos, to_sin] = [column(to, COS)?, column(to, SIN)?];
    let mut along = |high: usize, low: usize| -> Result<DeviceTensor, WorkError> {
        let coarse = work.sub(&column(from, high)?, &column(to, high)?)?;
        let fine = work.sub(&column(from, low)?, &column(to, low)?)?;
        Ok(work.add(&coarse, &fine)?)
    };
    let (x, y) = (along(X_HIGH, X_LOW)?, along(Y_HIGH, Y_LOW)?);
    let known = work.mul(&column(from, KNOWN)?, &column(to, KNOWN)?)?;
    let mut sum = |products: [[&DeviceTensor; 2]; 2], minus: bool| -> Result<DeviceTensor, WorkError> {
        let [a, b] = products;
        let (a, b) = (work.mul(a[0], a[1])?, work.mul(b[0], b[1])?);
        let made = if minus {
            work.sub(&a, &b)?
        } else {
            work.add(&a, &b)?
        };
        Ok(work.mul(&made, &known)?)
    };
    let cos = sum([[&from_cos, &to_cos], [&from_sin, &to_sin]], false)?;
    let sin = sum([[&from_sin, &to_cos], [&from_cos, &to_sin]], true)?;
    let dx = sum([[&x, &to_cos], [&y, &to_sin]], false)?;
    let dy = sum([[&y, &to_cos], [&x, &to_sin]], true)?;
    let unknown = work.sub(one, &known)?;
    Ok(Movement {
        cos: work.add(&cos, &unknown)?,
        sin,
        dx,
        dy,
    })
}

/// Seconds from the places `from` to `to`, and whether there is anything at `from`: columns `[N, 1]`.
pub(super) fn ages(
    work: &mut Scratch<'_, '_>,
    from: &DeviceTensor,
    to: &DeviceTensor,
) -> Result<[DeviceTensor; 2], WorkError> {
    let coarse = work.sub(&part(to, 1, T_HIGH, 1)?, &part(from, 1, T_HIGH, 1)?)?;
    let fine = work.sub(&part(to, 1, T_LOW, 1)?, &part(from, 1, T_LOW, 1)?)?;
    let there = part(from, 1, THERE, 1)?;
    let age = work.add(&coarse, &fine)?;
    // What is not there has no age.
    Ok([work.mul(&age, &there)?, there])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rustfmt::skip]
    const IDENTITY: [f64; 16] = [1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0];

    #[test]
    fn a_row_holds_places_and_times_of_today_to_the_hair() {
        let (x, y) = (89_123.456_7, -43_210.987_6);
        let place = Place {
            ground: Some([x, y, 2.0]),
            stamp_ns: 1_767_225_601_123_456_789,
        };
        let row = place.row().map(f64::from);
        assert!((row[X_HIGH] + row[X_LOW] - x).abs() < 2e-5);
        assert!((row[Y_HIGH] + row[Y_LOW] - y).abs() < 2e-5);
        assert!((row[T_HIGH] + row[T_LOW] - 1_767_225_601.123_456_7).abs() < 1e-5);
        assert_eq!(row[X_HIGH] % STEP_M, 0.0);
        assert_eq!([row[KNOWN], row[THERE]], [1.0, 1.0]);
        assert!((row[COS] - 2_f64.cos()).abs() < 1e-7 && (row[SIN] - 2_f64.sin()).abs() < 1e-7);
    }

    #[test]
    fn headings_are_those_of_the_axis_that_looks_ahead() {
        // x of the camera to the right, y down, z ahead; it looks along y of the world.
        #[rustfmt::skip]
        let optical = [1.0, 0.0, 0.0, 5.0, 0.0, 0.0, 1.0, 6.0, 0.0, -1.0, 0.0, 1.5, 0.0, 0.0, 0.0, 1.0];
        let place = Place::of_optical(0, Some(&optical));
        let [x, y, heading] = place.ground.unwrap();
        assert_eq!([x, y], [5.0, 6.0]);
        assert!((heading - std::f64::consts::FRAC_PI_2).abs() < 1e-12);
        let level = Place::of_level(0, Some(&optical));
        assert_eq!(level.ground.unwrap()[2], 0.0);
        // z of a LiDAR points up, which is no heading.
        assert_eq!(Place::of_optical(0, Some(&IDENTITY)).ground, None);
        let mut nowhere = optical;
        nowhere[3] = f64::NAN;
        assert_eq!(Place::of_optical(0, Some(&nowhere)).ground, None);
    }
}
