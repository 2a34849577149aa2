//! Bodies made of convex parts, and beams that meet them.
//!
//! A spinning LiDAR fires a column of beams at a time. All beams of a column lie in one upright plane, so what depends
//! on the direction alone is computed once a column and the beams of it are a problem in two dimensions.

use super::material::Material;
use super::pose::Pose;
use super::random::mix;

/// Most faces of a convex part.
pub(super) const MAX_FACES: usize = 10;
/// Nothing nearer than this is seen.
const MIN_RANGE_M: f32 = 0.8;

/// The half-space nx·x + ny·y + nz·z ≤ k.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Face {
    pub(super) nx: f32,
    pub(super) ny: f32,
    pub(super) nz: f32,
    pub(super) k: f32,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Form {
    Convex {
        faces: [Face; MAX_FACES],
        count: usize,
    },
    /// Upright.
    Cylinder,
    Ellipsoid {
        radii: [f32; 3],
    },
}

/// A part of a body, in the body's frame (x forward, y left, z up from the ground).
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    pub(super) form: Form,
    pub(super) middle: [f32; 2],
    /// Of a circle around `middle` that holds the part.
    pub(super) radius: f32,
    pub(super) low: f32,
    pub(super) high: f32,
    /// 0 to 1.
    reflectivity: f32,
    /// Share of the beams that go through, as through leaves, spokes and glass.
    pub(super) porosity: f32,
    /// What a camera sees of it.
    pub(super) material: Material,
}

impl Part {
    /// A side view in (x, z), convex, drawn out to `half_width` on both sides. `taper` is how much narrower each side
    /// gets for every metre above the lowest corner.
    pub(super) fn profile(corners: &[(f64, f64)], half_width: f64, taper: f64) -> Self {
        let count = corners.len() as f64;
        let middle_x = corners.iter().map(|c| c.0).sum::<f64>() / count;
        let middle_z = corners.iter().map(|c| c.1).sum::<f64>() / count;
        let low = corners.iter().map(|c| c.1).fold(f64::INFINITY, f64::min);
        let high = corners.iter().map(|c| c.1).fold(f64::NEG_INFINITY, f64::max);
        let front = corners.iter().map(|c| c.0).fold(f64::NEG_INFINITY, f64::max);
        let back = corners.iter().map(|c| c.0).fold(f64::INFINITY, f64::min);
        let mut faces = [Face::default(); MAX_FACES];
        let mut used = 0;
        let mut add = |nx: f64, ny: f64, nz: f64, k: f64| {
            let norm = (nx * nx + ny * ny + nz * nz).sqrt();
            faces[used] = Face {
                nx: (nx / norm) as f32,
                ny: (ny / norm) as f32,
                nz: (nz / norm) as f32,
                k: (k / norm) as f32,
            };
            used += 1;
        };
        for (i, &(x0, z0)) in corners.iter().enumerate() {
            let (x1, z1) = corners[(i + 1) % corners.len()];
            let (nx, nz) = (z1 - z0, x0 - x1);
            let k = nx * x0 + nz * z0;
            // Outwards, whichever way round the corners are given.
            let sign = if nx * middle_x + nz * middle_z <= k {
                1.0
            } else {
                -1.0
            };
            add(sign * nx, 0.0, sign * nz, sign * k);
        }
        add(0.0, 1.0, taper, half_width + taper * low);
        add(0.0, -1.0, taper, half_width + taper * low);
        let centre = (front + back) / 2.0;
        Self {
            form: Form::Convex { faces, count: used },
            middle: [centre as f32, 0.0],
            radius: ((front - back) / 2.0).hypot(half_width) as f32,
            low: low as f32,
            high: high as f32,
            reflectivity: 0.4,
            porosity: 0.0,
            material: Material::Post,
        }
    }

    /// A box: middle of its floor plan, length, width, bottom and top.
    pub(super) fn cuboid([x, y]: [f64; 2], [length, width]: [f64; 2], low: f64, high: f64) -> Self {
        let (front, back) = (x + length / 2.0, x - length / 2.0);
        let corners = [(back, low), (front, low), (front, high), (back, high)];
        Self::profile(&corners, width / 2.0, 0.0).moved_left(y)
    }

    pub(super) const fn cylinder([x, y]: [f64; 2], radius: f64, low: f64, high: f64) -> Self {
        Self {
            form: Form::Cylinder,
            middle: [x as f32, y as f32],
            radius: radius as f32,
            low: low as f32,
            high: high as f32,
            reflectivity: 0.4,
            porosity: 0.0,
            material: Material::Post,
        }
    }

    pub(super) const fn ellipsoid([x, y, z]: [f64; 3], [rx, ry, rz]: [f64; 3]) -> Self {
        Self {
            form: Form::Ellipsoid {
                radii: [rx as f32, ry as f32, rz as f32],
            },
            middle: [x as f32, y as f32],
            radius: if rx > ry { rx as f32 } else { ry as f32 },
            low: (z - rz) as f32,
            high: (z + rz) as f32,
            reflectivity: 0.4,
            porosity: 0.0,
            material: Material::Post,
        }
    }

    /// The same part further to the left.
    pub(super) fn moved_left(mut self, metres: f64) -> Self {
        let metres = metres as f32;
        self.middle[1] += metres;
        if let Form::Convex { faces, count } = &mut self.form {
            for face in &mut faces[..*count] {
                face.k += face.ny * metres;
            }
        }
        self
    }

    pub(super) const fn reflecting(mut self, reflectivity: f64) -> Self {
        self.reflectivity = reflectivity as f32;
        self
    }

    pub(super) const fn of(mut self, material: Material) -> Self {
        self.material = material;
        self
    }

    pub(super) const fn porous(mut self, porosity: f64) -> Self {
        self.porosity = porosity as f32;
        self
    }
}

/// A body at a place, which moves evenly during a sweep.
#[derive(Debug, Clone)]
pub(super) struct Solid {
    pub(super) parts: Vec<Part>,
    /// At the start and at the end of the sweep.
    pub(super) from: Pose,
    pub(super) to: Pose,
    /// Of a circle around the origin that holds every part.
    pub(super) radius_m: f64,
    /// 0 for scenery, else a number of its own.
    pub(super) owner: u32,
}

impl Solid {
    pub(super) fn new(parts: Vec<Part>, pose: Pose, owner: u32) -> Self {
        let mut solid = Self {
            parts,
            from: pose,
            to: pose,
            radius_m: 0.0,
            owner,
        };
        solid.measure();
        solid
    }

    /// Brings `radius_m` up to date after a change of the parts.
    pub(super) fn measure(&mut self) {
        let reach = |part: &Part| f64::from(part.middle[0].hypot(part.middle[1]) + part.radius);
        self.radius_m = self.parts.iter().map(reach).fold(0.0, f64::max);
    }

    pub(super) fn moves(&self) -> bool {
        self.from != self.to
    }
}

/// The beams of a column, lowest first.
#[derive(Debug, Clone, Default)]
pub(super) struct Beams {
    pub(super) cos: Vec<f32>,
    pub(super) sin: Vec<f32>,
    pub(super) tan: Vec<f32>,
}

/// What a beam met first.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hit {
    pub(super) range: f32,
    pub(super) owner: u32,
    pub(super) reflectivity: f32,
    /// Cosine of the angle between beam and surface normal.
    pub(super) incidence: f32,
}

impl Hit {
    pub(super) const NONE: Self = Self {
        range: f32::INFINITY,
        owner: 0,
        reflectivity: 0.0,
        incidence: 0.0,
    };
}

/// A column's direction in a body's frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct Column {
    /// The sensor's place.
    pub(super) origin: [f32; 3],
    /// Level direction, of length 1.
    pub(super) direction: [f32; 2],
    /// Scrambled with the number of a beam, its chances of getting through porous parts.
    pub(super) noise: u64,
}

impl Column {
    /// Fires every beam at a part and keeps what is nearer than what was met so far.
    pub(super) fn cast(&self, part: &Part, salt: u64, owner: u32, beams: &Beams, hits: &mut [Hit]) {
        let [ox, oy, oz] = self.origin;
        let [dx, dy] = self.direction;
        let (mx, my) = (part.middle[0] - ox, part.middle[1] - oy);
        let (ahead, aside) = (mx * dx + my * dy, my * dx - mx * dy);
        let spread = part.radius * part.radius - aside * aside;
        if spread <= 0.0 || ahead + part.radius < MIN_RANGE_M {
            return;
        }
        let spread = spread.sqrt();
        // Level distances between which the part lies.
        let (mut near, mut far) = ((ahead - spread).max(0.0), ahead + spread);
        let mut slopes = [(0.0, 0.0, 0.0); MAX_FACES];
        let mut count = 0;
        if let Form::Convex { faces, count: n } = &part.form {
            for face in &faces[..*n] {
                let slope = face.nx * dx + face.ny * dy;
                let k = face.k - face.nx * ox - face.ny * oy - face.nz * oz;
                slopes[count] = (slope, face.nz, k);
                count += 1;
                if face.nz.abs() < 1e-6 {
                    if slope > 1e-7 {
                        far = far.min(k / slope);
                    } else if slope < -1e-7 {
                        near = near.max(k / slope);
                    } else if k < 0.0 {
                        return;
                    }
                }
            }
        }
        if near > far || far <= 0.0 {
            return;
        }
        let (low, high) = (part.low - oz, part.high - oz);
        let close = near.max(0.05);
        let lowest = if low < 0.0 { low / close } else { low / far };
        let highest = if high > 0.0 { high / close } else { high / far };
        let first = beams.tan.partition_point(|&tan| tan < lowest);
        let last = beams.tan.partition_point(|&tan| tan <= highest);
        for (ring, hit) in hits.iter_mut().enumerate().take(last).skip(first) {
            let (cos, sin) = (beams.cos[ring], beams.sin[ring]);
            let met = match part.form {
                Form::Convex { .. } => meet_convex(&slopes[..count], cos, sin),
                Form::Cylinder => meet_cylinder([near, far], [low, high], cos, sin),
                Form::Ellipsoid { radii } => {
                    let middle = [mx, my, (low + high) / 2.0];
                    meet_ellipsoid(middle, radii, [dx * cos, dy * cos, sin])
                }
            };
            let Some((mut range, depth, incidence)) = met else {
                continue;
            };
            if part.porosity > 0.0 {
                let bits = mix(self.noise ^ (salt << 32) ^ ((ring as u64) << 8));
                if ((bits & 0xffff) as f32) < part.porosity * 65536.0 {
                    continue;
                }
                range += depth.min(0.8) * ((bits >> 16) & 0xffff) as f32 / 65536.0;
            }
            if range < hit.range && range > MIN_RANGE_M {
                *hit = Hit {
                    range,
                    owner,
                    reflectivity: part.reflectivity,
                    incidence,
                };
            }
        }
    }
}

/// Range of the first face, the way inside, and the cosine of incidence.
fn meet_convex(slopes: &[(f32, f32, f32)], cos: f32, sin: f32) -> Option<(f32, f32, f32)> {
    let (mut enter, mut leave, mut incidence) = (0.0, f32::INFINITY, 0.0);
    for &(slope, rise, k) in slopes {
        let rate = slope * cos + rise * sin;
        if rate < -1e-7 {
            let at = k / rate;
            if at > enter {
                enter = at;
                incidence = -rate;
            }
        } else if rate > 1e-7 {
            leave = leave.min(k / rate);
        } else if k < 0.0 {
            return None;
        }
    }
    (enter <= leave && enter > 0.0).then_some((enter, leave - enter, incidence))
}

fn meet_cylinder(
    [near, far]: [f32; 2],
    [low, high]: [f32; 2],
    cos: f32,
    sin: f32,
) -> Option<(f32, f32, f32)> {
    let range = near / cos;
    let height = range * sin;
    if (low..=high).contains(&height) {
        return Some((range, (far - near) / cos, cos * 0.8));
    }
    let lid = if height > high { high } else { low };
    let range = lid / sin;
    let level = range * cos;
    (range > 0.0 && (near..=far).contains(&level)).then_some((range, (far - level) / cos, sin.abs()))
}

fn meet_ellipsoid(middle: [f32; 3], radii: [f32; 3], direction: [f32; 3]) -> Option<(f32, f32, f32)> {
    let (mut a, mut b, mut c) = (0.0, 0.0, -1.0);
    for axis in 0..3 {
        let (m, d) = (middle[axis] / radii[axis], direction[axis] / radii[axis]);
        a += d * d;
        b += d * m;
        c += m * m;
    }
    let root = b * b - a * c;
    if root <= 0.0 {
        return None;
    }
    let root = root.sqrt();
    let range = (b - root) / a;
    (range > 0.0).then_some((range, 2.0 * root / a, (root / b.abs().max(1e-6)).clamp(0.2, 1.0)))
}
