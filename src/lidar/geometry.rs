//! Poses in float64, and the conventions for headings.
//!
//! A transform is named `a_from_b`: it takes the coordinates of a point in frame b to those in frame a.

use std::f64::consts::{FRAC_PI_2, PI, TAU};

/// How far a matrix may be from a rotation: the largest entry of `RᵀR - 1`. Extrinsics published in float32 stay
/// below it.
const ORTHOGONAL_WITHIN: f64 = 1e-4;

/// A squared length of a quaternion this near to 1 is left as it is.
const UNIT_WITHIN: f64 = 1e-12;

/// A rotation followed by a translation, float64.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RigidTransform {
    /// Rows of the rotation matrix.
    rotation: [[f64; 3]; 3],
    translation_m: [f64; 3],
}

/// Numbers that are no pose.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum TransformError {
    /// NaN or infinite.
    #[error(
        "the {part} of a pose holds a value that is not finite: {values:?}; drop the pose or find its source"
    )]
    NotFinite {
        /// Which input.
        part: &'static str,
        /// Its values.
        values: Vec<f64>,
    },
    /// Scaled, sheared or mirrored.
    #[error(
        "the matrix of a pose is no rotation: its rows are off from orthogonal unit rows by {off:.3e} (at most {} is \
         taken), its determinant is {determinant:.6}; give a matrix without scale, shear or mirror",
        ORTHOGONAL_WITHIN
    )]
    NotARotation {
        /// Largest entry of `RᵀR - 1`.
        off: f64,
        /// 1 for a rotation.
        determinant: f64,
    },
    /// A quaternion without direction.
    #[error(
        "the quaternion {quaternion_xyzw:?} (x, y, z, w) has no direction; an unset pose has w = 1, not 0"
    )]
    ZeroQuaternion {
        /// As given.
        quaternion_xyzw: [f64; 4],
    },
    /// A 4 x 4 matrix that is no affine transform.
    #[error(
        "the last row of a pose must be 0 0 0 1, but it is {row:?}; the matrix is transposed or projective"
    )]
    LastRow {
        /// As given.
        row: [f64; 4],
    },
}

fn finite(part: &'static str, values: &[f64]) -> Result<(), TransformError> {
    if values.iter().all(|v| v.is_finite()) {
        return Ok(());
    }
    Err(TransformError::NotFinite {
        part,
        values: values.to_vec(),
    })
}

impl RigidTransform {
    /// Leaves every point where it is.
    pub const IDENTITY: Self = Self {
        rotation: [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        translation_m: [0.0; 3],
    };

    /// A transform from the rows of a rotation matrix and a translation in metres.
    ///
    /// # Errors
    /// [`TransformError`] for values that are not finite, and for a matrix that is no rotation.
    pub fn new(rotation: [[f64; 3]; 3], translation_m: [f64; 3]) -> Result<Self, TransformError> {
        finite("rotation", rotation.as_flattened())?;
        finite("translation", &translation_m)?;
        let column = |j: usize| [rotation[0][j], rotation[1][j], rotation[2][j]];
        let mut off = 0.0_f64;
        for i in 0..3 {
            for j in 0..3 {
                let unit = if i == j { 1.0 } else { 0.0 };
                off = off.max((dot(column(i), column(j)) - unit).abs());
            }
        }
        let [a, b, c] = rotation;
        let determinant = dot(
            a,
            [
                b[1] * c[2] - b[2] * c[1],
                b[2] * c[0] - b[0] * c[2],
                b[0] * c[1] - b[1] * c[0],
            ],
        );
        if off > ORTHOGONAL_WITHIN || determinant < 0.0 {
            return Err(TransformError::NotARotation { off, determinant });
        }
        Ok(Self {
            rotation,
            translation_m,
        })
    }

    /// A transform from a homogeneous matrix, row by row.
    ///
    /// # Errors
    /// As [`RigidTransform::new`], and where the last row is not 0 0 0 1.
    pub fn from_matrix(matrix: [[f64; 4]; 4]) -> Result<Self, TransformError> {
        if matrix[3] != [0.0, 0.0, 0.0, 1.0] {
            return Err(TransformError::LastRow { row: matrix[3] });
        }
        let row = |i: usize| [matrix[i][0], matrix[i][1], matrix[i][2]];
        Self::new(
            [row(0), row(1), row(2)],
            [matrix[0][3], matrix[1][3], matrix[2][3]],
        )
    }

    /// A transform from a translation and fixed-axis angles in radians: `Rz(yaw) Ry(pitch) Rx(roll)`, as URDF and
    /// tf2 read them.
    ///
    /// # Errors
    /// [`TransformError::NotFinite`].
    pub fn from_xyz_rpy(xyz_m: [f64; 3], rpy_rad: [f64; 3]) -> Result<Self, TransformError> {
        finite("translation", &xyz_m)?;
        finite("roll, pitch and yaw", &rpy_rad)?;
        let [(sr, cr), (sp, cp), (sy, cy)] = rpy_rad.map(f64::sin_cos);
        Ok(Self {
            rotation: [
                [cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr],
                [sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr],
                [-sp, cp * sr, cp * cr],
            ],
            translation_m: xyz_m,
        })
    }

    /// A transform from a translation and a quaternion (x, y, z, w), as ROS messages carry them. The matrix is that
    /// of `Eigen::Quaterniond::toRotationMatrix`; a quaternion that is not of length 1 is brought to it first.
    ///
    /// # Errors
    /// [`TransformError`] for values that are not finite and a quaternion of zeros.
    pub fn from_translation_quaternion(
        translation_m: [f64; 3],
        quaternion_xyzw: [f64; 4],
    ) -> Result<Self, TransformError> {
        finite("translation", &translation_m)?;
        finite("quaternion", &quaternion_xyzw)?;
        let length2: f64 = quaternion_xyzw.iter().map(|v| v * v).sum();
        if !(length2.is_normal() && length2.is_finite()) {
            return Err(TransformError::ZeroQuaternion { quaternion_xyzw });
        }
        let length = if (length2 - 1.0).abs() <= UNIT_WITHIN {
            1.0
        } else {
            length2.sqrt()
        };
        let [x, y, z, w] = quaternion_xyzw.map(|v| v / length);
        let [tx, ty, tz] = [2.0 * x, 2.0 * y, 2.0 * z];
        let [twx, twy, twz] = [tx * w, ty * w, tz * w];
        let [txx, txy, txz] = [tx * x, ty * x, tz * x];
        let [tyy, tyz, tzz] = [ty * y, tz * y, tz * z];
        Ok(Self {
            rotation: [
                [1.0 - (tyy + tzz), txy - twz, txz + twy],
                [txy + twz, 1.0 - (txx + tzz), tyz - twx],
                [txz - twy, tyz + twx, 1.0 - (txx + tyy)],
            ],
            translation_m,
        })
    }

    /// Rows of the rotation matrix.
    #[must_use]
    pub const fn rotation(&self) -> [[f64; 3]; 3] {
        self.rotation
    }

    /// Translation in metres.
    #[must_use]
    pub const fn translation_m(&self) -> [f64; 3] {
        self.translation_m
    }

    /// Heading of this frame's x axis in radians, counter-clockwise, -π to π.
    #[must_use]
    pub fn yaw_rad(&self) -> f64 {
        self.rotation[1][0].atan2(self.rotation[0][0])
    }

    /// `a_from_c` of this one as `a_from_b` and the other as `b_from_c`.
    #[must_use]
    pub fn compose(&self, b_from_c: &Self) -> Self {
        let column = |j: usize| [0, 1, 2].map(|i| b_from_c.rotation[i][j]);
        Self {
            rotation: self.rotation.map(|row| [0, 1, 2].map(|j| dot(row, column(j)))),
            translation_m: self.apply(b_from_c.translation_m),
        }
    }

    /// `b_from_a` of this one as `a_from_b`: the transposed rotation.
    #[must_use]
    pub fn invert_rigid(&self) -> Self {
        let rotation = [0, 1, 2].map(|j| [0, 1, 2].map(|i| self.rotation[i][j]));
        Self {
            rotation,
            translation_m: rotation.map(|row| -dot(row, self.translation_m)),
        }
    }

    /// One point, in metres.
    #[must_use]
    pub fn apply(&self, point_m: [f64; 3]) -> [f64; 3] {
        [0, 1, 2].map(|i| dot(self.rotation[i], point_m) + self.translation_m[i])
    }

    /// Every point in place, in metres.
    pub fn transform_points(&self, points_m: &mut [[f64; 3]]) {
        for point in points_m {
            *point = self.apply(*point);
        }
    }
}

fn dot(a: [f64; 3], b: [f64; 3]) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

/// Heading in ROS (counter-clockwise from x) of a yaw as mmdet3d's heads give it: `-yaw - π/2`, computed in double
/// and rounded to float32 as Autoware does.
#[must_use]
pub fn mmdet_yaw_to_ros(yaw_mmdet_rad: f32) -> f32 {
    (-f64::from(yaw_mmdet_rad) - FRAC_PI_2) as f32
}

/// The yaw that [`mmdet_yaw_to_ros`] takes to this heading, but for the rounding of both: the same formula.
#[must_use]
pub fn ros_yaw_to_mmdet(yaw_ros_rad: f32) -> f32 {
    (-f64::from(yaw_ros_rad) - FRAC_PI_2) as f32
}

/// Quaternion (x, y, z, w) of a turn about z.
#[must_use]
pub fn quaternion_xyzw_from_yaw(yaw_rad: f64) -> [f64; 4] {
    let (sin, cos) = (yaw_rad / 2.0).sin_cos();
    [0.0, 0.0, sin, cos]
}

/// Heading of the x axis that a quaternion (x, y, z, w) of any length turns, in radians, -π to π.
#[must_use]
pub fn yaw_from_quaternion_xyzw([x, y, z, w]: [f64; 4]) -> f64 {
    (2.0 * (w * z + x * y)).atan2(w * w + x * x - y * y - z * z)
}

/// The same angle in [-π, π). An angle that lies there keeps its bits.
#[must_use]
pub fn wrap_angle(angle_rad: f64) -> f64 {
    let rest = angle_rad % TAU;
    if (-PI..PI).contains(&rest) {
        rest
    } else {
        rest - TAU.copysign(rest)
    }
}
