//! Transforms in float32, as Autoware's densification computes them.
//!
//! Every rounding is that of Eigen 3 and of the point kernel without contraction: sums of three products are
//! `a + (b + c)` in matrices and `((a + b) + c) + d` in points.

use super::geometry::RigidTransform;

/// A linear map followed by a translation, float32: `Eigen::Affine3f`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Affine3f {
    /// Rows of the linear part.
    pub linear: [[f32; 3]; 3],
    /// Metres.
    pub translation_m: [f32; 3],
}

impl From<&RigidTransform> for Affine3f {
    /// Every value rounded to the nearest float32.
    fn from(pose: &RigidTransform) -> Self {
        Self {
            linear: pose.rotation().map(|row| row.map(|v| v as f32)),
            translation_m: pose.translation_m().map(|v| v as f32),
        }
    }
}

impl Affine3f {
    /// Leaves every point where it is.
    pub const IDENTITY: Self = Self {
        linear: [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        translation_m: [0.0; 3],
    };

    /// The inverse by cofactors: `1 / det` with the determinant along column 0, times each cofactor; the translation
    /// is `(-L⁻¹) t`. A linear part without an inverse gives values that are not finite, as in Eigen.
    #[must_use]
    pub fn invert_affine_f32(&self) -> Self {
        let m = self.linear;
        let cofactor = |i: usize, j: usize| {
            let ([i1, i2], [j1, j2]) = ([(i + 1) % 3, (i + 2) % 3], [(j + 1) % 3, (j + 2) % 3]);
            m[i1][j1] * m[i2][j2] - m[i1][j2] * m[i2][j1]
        };
        let determinant = sum3([0, 1, 2].map(|i| cofactor(i, 0) * m[i][0]));
        let inverse_determinant = 1.0 / determinant;
        let linear = [0, 1, 2].map(|i| [0, 1, 2].map(|j| cofactor(j, i) * inverse_determinant));
        Self {
            linear,
            translation_m: linear.map(|row| sum3([0, 1, 2].map(|j| -row[j] * self.translation_m[j]))),
        }
    }

    /// This one after the other: `a_from_c` of `a_from_b` and `b_from_c`.
    #[must_use]
    pub fn compose_f32(&self, b_from_c: &Self) -> Self {
        let times = |row: [f32; 3], column: [f32; 3]| sum3([0, 1, 2].map(|k| row[k] * column[k]));
        let column = |j: usize| [0, 1, 2].map(|i| b_from_c.linear[i][j]);
        Self {
            linear: self.linear.map(|row| [0, 1, 2].map(|j| times(row, column(j)))),
            translation_m: [0, 1, 2]
                .map(|i| times(self.linear[i], b_from_c.translation_m) + self.translation_m[i]),
        }
    }

    /// Points column by column: `((m0 x + m1 y) + m2 z) + m3`, each product and sum rounded to float32.
    ///
    /// The columns have one length; what is beyond the shortest is not touched.
    pub fn transform_points_f32(&self, from: [&[f32]; 3], to: [&mut [f32]; 3]) {
        let ([x, y, z], [to_x, to_y, to_z]) = (from, to);
        let length = [x.len(), y.len(), z.len(), to_x.len(), to_y.len(), to_z.len()]
            .into_iter()
            .fold(usize::MAX, usize::min);
        let (x, y, z) = (&x[..length], &y[..length], &z[..length]);
        let (to_x, to_y, to_z) = (&mut to_x[..length], &mut to_y[..length], &mut to_z[..length]);
        let [[a0, a1, a2], [b0, b1, b2], [c0, c1, c2]] = self.linear;
        let [a3, b3, c3] = self.translation_m;
        for i in 0..length {
            let (px, py, pz) = (x[i], y[i], z[i]);
            to_x[i] = a0 * px + a1 * py + a2 * pz + a3;
            to_y[i] = b0 * px + b1 * py + b2 * pz + b3;
            to_z[i] = c0 * px + c1 * py + c2 * pz + c3;
        }
    }
}

/// Eigen halves a sum until one or two terms are left.
fn sum3([a, b, c]: [f32; 3]) -> f32 {
    a + (b + c)
}
