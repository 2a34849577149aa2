//! Lines that traffic follows: a closed round course, and straight roads that start again at their end.

use std::f64::consts::{FRAC_PI_2, PI};

use super::pose::Pose;

/// A rectangle with round corners, run counter-clockwise from the south end of its east side.
///
/// Another one `d` metres outside is that with every measure `d` larger, so lanes of a road are exact parallels.
#[derive(Debug, Clone, Copy)]
pub(super) struct Course {
    pub(super) half_x_m: f64,
    pub(super) half_y_m: f64,
    pub(super) radius_m: f64,
}

impl Course {
    pub(super) const fn outside(self, metres: f64) -> Self {
        Self {
            half_x_m: self.half_x_m + metres,
            half_y_m: self.half_y_m + metres,
            radius_m: self.radius_m + metres,
        }
    }

    /// Half the length of the straight part of a side: 0 east, 1 north, 2 west, 3 south.
    pub(super) const fn half_straight(self, side: usize) -> f64 {
        if side.is_multiple_of(2) {
            self.half_y_m - self.radius_m
        } else {
            self.half_x_m - self.radius_m
        }
    }

    fn corner_length(self) -> f64 {
        FRAC_PI_2 * self.radius_m
    }

    pub(super) fn length(self) -> f64 {
        4.0 * (self.half_straight(0) + self.half_straight(1) + self.corner_length())
    }

    /// Where a side's straight part passes `along`, the coordinate along that side (y, x, y, x).
    pub(super) fn distance_at(self, side: usize, along: f64) -> f64 {
        let before: f64 = (0..side)
            .map(|side| 2.0 * self.half_straight(side) + self.corner_length())
            .sum();
        let forward = if side == 0 || side == 3 { along } else { -along };
        before + self.half_straight(side) + forward
    }

    fn at(self, distance: f64) -> Pose {
        let mut left = distance.rem_euclid(self.length());
        for side in 0..4 {
            let half = self.half_straight(side);
            let yaw = FRAC_PI_2 * (side as f64 + 1.0);
            let (sin, cos) = yaw.sin_cos();
            // Distance of the side from the middle of the course.
            let out = if side.is_multiple_of(2) {
                self.half_x_m
            } else {
                self.half_y_m
            };
            if left < 2.0 * half {
                let forward = left - half;
                return Pose::on_ground(sin * out + cos * forward, -cos * out + sin * forward, yaw);
            }
            left -= 2.0 * half;
            if left < self.corner_length() || side == 3 {
                let turn = (left / self.radius_m).min(FRAC_PI_2);
                let middle = out - self.radius_m;
                let (x, y) = (sin * middle + cos * half, -cos * middle + sin * half);
                let (sin, cos) = (yaw + turn).sin_cos();
                return Pose::on_ground(x + sin * self.radius_m, y - cos * self.radius_m, yaw + turn);
            }
            left -= self.corner_length();
        }
        // Every distance below the length lies on one of the four sides.
        Pose::on_ground(self.half_x_m, 0.0, FRAC_PI_2)
    }

    /// How far outside (negative: inside) of the course a place is.
    pub(super) fn outside_m(self, x: f64, y: f64) -> f64 {
        let qx = x.abs() - (self.half_x_m - self.radius_m);
        let qy = y.abs() - (self.half_y_m - self.radius_m);
        let beyond = if qx <= 0.0 {
            qy.max(0.0)
        } else if qy <= 0.0 {
            qx
        } else {
            (qx * qx + qy * qy).sqrt()
        };
        beyond + qx.max(qy).min(0.0) - self.radius_m
    }
}

/// A line to follow.
#[derive(Debug, Clone, Copy)]
pub(super) enum Path {
    /// Round a course, counter-clockwise or the other way.
    Round { course: Course, clockwise: bool },
    /// Straight on from a pose.
    Straight { start: Pose, length_m: f64 },
}

impl Path {
    pub(super) fn length(&self) -> f64 {
        match *self {
            Self::Round { course, .. } => course.length(),
            Self::Straight { length_m, .. } => length_m,
        }
    }

    /// Smallest radius of a curve, where there is one.
    pub(super) const fn radius(&self) -> Option<f64> {
        match *self {
            Self::Round { course, .. } => Some(course.radius_m),
            Self::Straight { .. } => None,
        }
    }

    /// Where one is after `distance` metres, heading along the path.
    pub(super) fn at(&self, distance: f64) -> Pose {
        match *self {
            Self::Round { course, clockwise } => {
                if clockwise {
                    let pose = course.at(course.length() - distance);
                    Pose {
                        yaw_rad: pose.yaw_rad + PI,
                        ..pose
                    }
                } else {
                    course.at(distance)
                }
            }
            Self::Straight { start, length_m } => {
                let forward = distance.rem_euclid(length_m);
                let [x, y, _] = start.apply([forward, 0.0, 0.0]);
                Pose::on_ground(x, y, start.yaw_rad)
            }
        }
    }
}
