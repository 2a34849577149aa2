//! Rigid transforms in float64.

/// Below this angle between quaternions a slerp is a lerp in float64.
const NEARLY_EQUAL: f64 = 1.0 - 1e-12;

/// A rotation followed by a translation: takes points of a child frame to its parent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Transform {
    /// Metres.
    pub translation: [f64; 3],
    /// Unit quaternion x, y, z, w.
    pub rotation: [f64; 4],
}

impl Transform {
    /// The transform that changes nothing.
    pub const IDENTITY: Self = Self {
        translation: [0.0; 3],
        rotation: [0.0, 0.0, 0.0, 1.0],
    };

    /// Takes a point through the transform.
    #[must_use]
    pub fn apply(&self, point: [f64; 3]) -> [f64; 3] {
        let rotated = rotate(self.rotation, point);
        std::array::from_fn(|i| rotated[i] + self.translation[i])
    }

    /// The transform that takes a point through `first` and then through this one.
    #[must_use]
    pub fn after(&self, first: &Self) -> Self {
        Self {
            translation: self.apply(first.translation),
            rotation: normalised(multiply(self.rotation, first.rotation)),
        }
    }

    /// The transform back.
    #[must_use]
    pub fn inverse(&self) -> Self {
        let [x, y, z, w] = self.rotation;
        let rotation = [-x, -y, -z, w];
        Self {
            translation: rotate(rotation, self.translation.map(|v| -v)),
            rotation,
        }
    }

    /// The transform a part of the way to another: translation in a line, rotation along the shorter arc at constant
    /// speed (slerp). `part` is 0 here and 1 there.
    #[must_use]
    pub fn towards(&self, other: &Self, part: f64) -> Self {
        let translation = std::array::from_fn(|i| {
            let (from, to) = (self.translation[i], other.translation[i]);
            from + (to - from) * part
        });
        Self {
            translation,
            rotation: slerp(self.rotation, other.rotation, part),
        }
    }

    /// The transform as a row-major 4 x 4 matrix.
    #[must_use]
    pub fn matrix(&self) -> [f64; 16] {
        let column = |axis: usize| {
            rotate(
                self.rotation,
                std::array::from_fn(|i| f64::from(u8::from(i == axis))),
            )
        };
        let [x, y, z] = [column(0), column(1), column(2)];
        let t = self.translation;
        [
            x[0], y[0], z[0], t[0], x[1], y[1], z[1], t[1], x[2], y[2], z[2], t[2], 0.0, 0.0, 0.0, 1.0,
        ]
    }
}

fn multiply([ax, ay, az, aw]: [f64; 4], [bx, by, bz, bw]: [f64; 4]) -> [f64; 4] {
    [
        aw * bx + ax * bw + ay * bz - az * by,
        aw * by - ax * bz + ay * bw + az * bx,
        aw * bz + ax * by - ay * bx + az * bw,
        aw * bw - ax * bx - ay * by - az * bz,
    ]
}

fn rotate([x, y, z, w]: [f64; 4], [px, py, pz]: [f64; 3]) -> [f64; 3] {
    // p + 2 w (v x p) + 2 v x (v x p), v the vector part.
    let cross = [y * pz - z * py, z * px - x * pz, x * py - y * px];
    let twice = [
        y * cross[2] - z * cross[1],
        z * cross[0] - x * cross[2],
        x * cross[1] - y * cross[0],
    ];
    let p = [px, py, pz];
    std::array::from_fn(|i| p[i] + 2.0 * (w * cross[i] + twice[i]))
}

fn dot(a: [f64; 4], b: [f64; 4]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The unit quaternion in the direction of one that is not zero.
pub(super) fn normalised(q: [f64; 4]) -> [f64; 4] {
    let length = dot(q, q).sqrt();
    q.map(|v| v / length)
}

fn slerp(from: [f64; 4], to: [f64; 4], part: f64) -> [f64; 4] {
    let cosine = dot(from, to);
    // A quaternion and its negative are one rotation; the nearer of them makes the shorter arc.
    let (to, cosine) = if cosine < 0.0 {
        (to.map(|v| -v), -cosine)
    } else {
        (to, cosine)
    };
    let (keep, take) = if cosine > NEARLY_EQUAL {
        (1.0 - part, part)
    } else {
        let angle = cosine.acos();
        (((1.0 - part) * angle).sin(), (part * angle).sin())
    };
    normalised(std::array::from_fn(|i| keep * from[i] + take * to[i]))
}
