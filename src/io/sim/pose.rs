//! Where things stand: a place and a heading on level ground.

use std::f64::consts::{PI, TAU};

/// A pose with an upright z axis: all that vehicles on level ground have.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Pose {
    /// Metres.
    pub x_m: f64,
    /// Metres.
    pub y_m: f64,
    /// Metres.
    pub z_m: f64,
    /// Radians, counter-clockwise from x.
    pub yaw_rad: f64,
}

impl Pose {
    /// A pose on the ground.
    #[must_use]
    pub const fn on_ground(x_m: f64, y_m: f64, yaw_rad: f64) -> Self {
        Self {
            x_m,
            y_m,
            z_m: 0.0,
            yaw_rad,
        }
    }

    /// A point of this pose's frame, in the frame that the pose is given in.
    #[must_use]
    pub fn apply(&self, [x, y, z]: [f64; 3]) -> [f64; 3] {
        let (sin, cos) = self.yaw_rad.sin_cos();
        [
            self.x_m + cos * x - sin * y,
            self.y_m + sin * x + cos * y,
            self.z_m + z,
        ]
    }

    /// A pose given in this pose's frame, in the frame that this pose is given in.
    #[must_use]
    pub fn then(&self, child: &Self) -> Self {
        let [x_m, y_m, z_m] = self.apply([child.x_m, child.y_m, child.z_m]);
        Self {
            x_m,
            y_m,
            z_m,
            yaw_rad: wrap(self.yaw_rad + child.yaw_rad),
        }
    }

    /// The pose that undoes this one.
    #[must_use]
    pub fn inverse(&self) -> Self {
        let (sin, cos) = self.yaw_rad.sin_cos();
        Self {
            x_m: -cos * self.x_m - sin * self.y_m,
            y_m: sin * self.x_m - cos * self.y_m,
            z_m: -self.z_m,
            yaw_rad: wrap(-self.yaw_rad),
        }
    }

    /// The pose a `share` (0 to 1) of the way to another, turning the short way round.
    #[must_use]
    pub fn towards(&self, other: &Self, share: f64) -> Self {
        Self {
            x_m: self.x_m + (other.x_m - self.x_m) * share,
            y_m: self.y_m + (other.y_m - self.y_m) * share,
            z_m: self.z_m + (other.z_m - self.z_m) * share,
            yaw_rad: self.yaw_rad + wrap(other.yaw_rad - self.yaw_rad) * share,
        }
    }
}

/// The same angle in -π to π.
pub(super) fn wrap(angle_rad: f64) -> f64 {
    let turned = (angle_rad + PI).rem_euclid(TAU) - PI;
    // What is a hair below -π comes out as π; both are the same heading.
    turned.clamp(-PI, PI)
}
