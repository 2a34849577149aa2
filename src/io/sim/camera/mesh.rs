//! Flat faces of parts.

use super::super::material::Material;
use super::super::solid::{Form, MAX_FACES, Part};
use super::view::Vec3;

/// Sides of what is round.
const ROUND_SIDES: usize = 12;
/// Most corners of a face.
pub(super) const MAX_CORNERS: usize = 16;

/// A face in the body's frame: its outward normal n, its plane n·p = k, and its corners in order.
pub(super) type Emit<'a> = dyn FnMut(Vec3, f32, &[Vec3]) + 'a;

/// Gives the flat faces of a part, in a fixed order. Ellipsoids have none.
pub(super) fn faces(part: &Part, emit: &mut Emit<'_>) {
    match &part.form {
        Form::Convex { faces, count } => {
            let outline = Outline::of(part);
            if matches!(part.material, Material::Wheel | Material::Spokes) {
                return wheel(part, &outline, emit);
            }
            let sides = &faces[count - 2..*count];
            let (left, right) = (sides[0], sides[1]);
            let across = |side: &super::super::solid::Face, z: f32| (side.k - side.nz * z) / side.ny;
            let corners = outline.corners();
            let mut lefts = [[0.0; 3]; MAX_CORNERS];
            let mut rights = [[0.0; 3]; MAX_CORNERS];
            for (i, &[x, z]) in corners.iter().enumerate() {
                lefts[i] = [x, across(&left, z), z];
                rights[i] = [x, across(&right, z), z];
            }
            for i in 0..corners.len() {
                let next = (i + 1) % corners.len();
                let [dx, dz] = [corners[next][0] - corners[i][0], corners[next][1] - corners[i][1]];
                let length = (dx * dx + dz * dz).sqrt();
                if length < 1e-4 {
                    continue;
                }
                let normal = [dz / length, 0.0, -dx / length];
                let k = normal[0] * corners[i][0] + normal[2] * corners[i][1];
                emit(normal, k, &[lefts[i], lefts[next], rights[next], rights[i]]);
            }
            emit([left.nx, left.ny, left.nz], left.k, &lefts[..corners.len()]);
            emit([right.nx, right.ny, right.nz], right.k, &rights[..corners.len()]);
        }
        Form::Cylinder => cylinder(part, emit),
        Form::Ellipsoid { .. } => {}
    }
}

/// The side view of a convex part, corners in counter-clockwise order of x and z.
struct Outline {
    corners: [[f32; 2]; MAX_CORNERS],
    count: usize,
}

impl Outline {
    /// Where all faces of the side view hold, which is what a beam meets.
    fn of(part: &Part) -> Self {
        let [x, reach] = [part.middle[0], part.radius + 1.0];
        let mut outline = Self {
            corners: [[0.0; 2]; MAX_CORNERS],
            count: 4,
        };
        let (low, high) = (part.low - 1.0, part.high + 1.0);
        outline.corners[..4].copy_from_slice(&[
            [x - reach, low],
            [x + reach, low],
            [x + reach, high],
            [x - reach, high],
        ]);
        if let Form::Convex { faces, count } = &part.form {
            for face in &faces[..count - 2] {
                outline.cut(face.nx, face.nz, face.k);
            }
        }
        outline
    }

    fn corners(&self) -> &[[f32; 2]] {
        &self.corners[..self.count]
    }

    /// Keeps what has nx·x + nz·z ≤ k.
    fn cut(&mut self, nx: f32, nz: f32, k: f32) {
        let from = self.corners;
        let outside = |[x, z]: [f32; 2]| nx * x + nz * z - k;
        let mut kept = 0;
        for i in 0..self.count {
            let (here, next) = (from[i], from[(i + 1) % self.count]);
            let (a, b) = (outside(here), outside(next));
            let mut keep = |corner| {
                if kept < MAX_CORNERS {
                    self.corners[kept] = corner;
                    kept += 1;
                }
            };
            if a <= 0.0 {
                keep(here);
            }
            if (a < 0.0 && b > 0.0) || (a > 0.0 && b < 0.0) {
                let share = a / (a - b);
                keep([
                    here[0] + (next[0] - here[0]) * share,
                    here[1] + (next[1] - here[1]) * share,
                ]);
            }
        }
        self.count = kept;
    }
}

/// A wheel is a box to a beam and round to the eye; it stands a little out of the bodywork.
fn wheel(part: &Part, outline: &Outline, emit: &mut Emit<'_>) {
    let Form::Convex { faces, count } = &part.form else {
        return;
    };
    let outwards = match part.material {
        Material::Wheel if part.middle[1] > 0.0 => 0.04,
        Material::Wheel => -0.04,
        _ => 0.0,
    };
    let [left, right] = [faces[count - 2].k + outwards, -faces[count - 1].k + outwards];
    let radius = (part.high - part.low) / 2.0;
    let (x0, z0) = (part.middle[0], part.low + radius);
    debug_assert_eq!(outline.count, 4);
    let ring: [[f32; 2]; ROUND_SIDES] = CIRCLE.map(|[cos, sin]| [x0 + cos * radius, z0 + sin * radius]);
    for i in 0..ROUND_SIDES {
        let next = (i + 1) % ROUND_SIDES;
        let [a, b] = [ring[i], ring[next]];
        let normal = HALF_WAY[i];
        let normal = [normal[0], 0.0, normal[1]];
        let k = normal[0] * a[0] + normal[2] * a[1];
        let face = [
            [a[0], left, a[1]],
            [b[0], left, b[1]],
            [b[0], right, b[1]],
            [a[0], right, a[1]],
        ];
        emit(normal, k, &face);
    }
    emit([0.0, 1.0, 0.0], left, &ring.map(|[x, z]| [x, left, z]));
    emit([0.0, -1.0, 0.0], -right, &ring.map(|[x, z]| [x, right, z]));
}

fn cylinder(part: &Part, emit: &mut Emit<'_>) {
    let [mx, my] = part.middle;
    let ring: [[f32; 2]; ROUND_SIDES] =
        CIRCLE.map(|[cos, sin]| [mx + cos * part.radius, my + sin * part.radius]);
    for i in 0..ROUND_SIDES {
        let next = (i + 1) % ROUND_SIDES;
        let [a, b] = [ring[i], ring[next]];
        let normal = [HALF_WAY[i][0], HALF_WAY[i][1], 0.0];
        let k = normal[0] * a[0] + normal[1] * a[1];
        let face = [
            [a[0], a[1], part.low],
            [b[0], b[1], part.low],
            [b[0], b[1], part.high],
            [a[0], a[1], part.high],
        ];
        emit(normal, k, &face);
    }
    emit([0.0, 0.0, 1.0], part.high, &ring.map(|[x, y]| [x, y, part.high]));
}

const SIN_15: f32 = 0.258_819_04;
const SIN_45: f32 = std::f32::consts::FRAC_1_SQRT_2;
const SIN_60: f32 = 0.866_025_4;
const SIN_75: f32 = 0.965_925_8;

/// Cosine and sine of every 30 degrees.
const CIRCLE: [[f32; 2]; ROUND_SIDES] = [
    [1.0, 0.0],
    [SIN_60, 0.5],
    [0.5, SIN_60],
    [0.0, 1.0],
    [-0.5, SIN_60],
    [-SIN_60, 0.5],
    [-1.0, 0.0],
    [-SIN_60, -0.5],
    [-0.5, -SIN_60],
    [0.0, -1.0],
    [0.5, -SIN_60],
    [SIN_60, -0.5],
];

/// The same half way between.
const HALF_WAY: [[f32; 2]; ROUND_SIDES] = [
    [SIN_75, SIN_15],
    [SIN_45, SIN_45],
    [SIN_15, SIN_75],
    [-SIN_15, SIN_75],
    [-SIN_45, SIN_45],
    [-SIN_75, SIN_15],
    [-SIN_75, -SIN_15],
    [-SIN_45, -SIN_45],
    [-SIN_15, -SIN_75],
    [SIN_15, -SIN_75],
    [SIN_45, -SIN_45],
    [SIN_75, -SIN_15],
];

const _: () = assert!(MAX_FACES + 4 <= MAX_CORNERS);
