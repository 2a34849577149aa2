//! Parts of bodies, drawn.

use super::super::material::Material;
use super::super::random::fraction;
use super::super::solid::{Form, Part};
use super::body::{Body, Surface, tuft};
use super::mesh::{MAX_CORNERS, faces};
use super::raster::{Canvas, Silhouette, project};
use super::texture::chance;
use super::view::{NEAR_M, Vec3, View, dot};

/// Draws the parts of one body.
pub(super) struct Pen<'a> {
    pub(super) view: &'a View,
    /// The body's number in the image.
    pub(super) number: u32,
    pub(super) body: &'a Body,
    pub(super) canvas: &'a mut Canvas,
    pub(super) surfaces: &'a mut Vec<Surface>,
}

impl Pen<'_> {
    pub(super) fn draw(&mut self, part: &Part, silhouette: &mut Silhouette) {
        match part.form {
            Form::Ellipsoid { radii } => self.ellipsoid(part, radii, silhouette),
            Form::Convex { .. } | Form::Cylinder => self.flat(part, silhouette),
        }
    }

    fn surface(&mut self, part: &Part, normal: Option<Vec3>, radii: Vec3) -> u32 {
        let number = self.surfaces.len() as u32;
        self.surfaces.push(Surface {
            body: self.number,
            material: part.material,
            normal,
            middle: middle(part),
            radii,
            high: part.high,
        });
        number
    }

    /// Meets every pixel's ray with the ellipsoid.
    fn ellipsoid(&mut self, part: &Part, radii: Vec3, silhouette: &mut Silhouette) {
        let (view, frame, look) = (self.view, &self.body.frame, self.body.look);
        let middle = middle(part);
        let reach = radii[0].max(radii[1]).max(radii[2]);
        let Some(window) = window(view, frame.point(middle), reach) else {
            return;
        };
        let eye: Vec3 = [0, 1, 2].map(|i| (frame.eye[i] - middle[i]) / radii[i]);
        let inside = dot(eye, eye) - 1.0;
        let leafy = part.material == Material::Leaves;
        // Rays in units of the radii, in which the ellipsoid is a ball.
        let scaled = |ray: Vec3| -> Vec3 { [0, 1, 2].map(|i| ray[i] / radii[i]) };
        let step = scaled(frame.direction_back([1.0 / view.focal_px[0], 0.0, 0.0]));
        let row = |u: f32, v: f32| scaled(frame.direction_back(view.ray(u, v)));
        let nearness = |first: &Vec3, columns: f32| {
            let d: Vec3 = [0, 1, 2].map(|i| first[i] + step[i] * columns);
            let (a, b) = (dot(d, d), dot(eye, d));
            let root = b * b - a * inside;
            if root <= 0.0 || b >= 0.0 {
                return None;
            }
            let root = root.sqrt();
            let depth = (-b - root) / a;
            if depth < NEAR_M {
                return None;
            }
            if leafy {
                let at: Vec3 = [0, 1, 2].map(|i| middle[i] + (eye[i] + d[i] * depth) * radii[i]);
                // Thin towards the rim.
                if tuft(at, look) > 0.58 + root / -b * 2.0 {
                    return None;
                }
            }
            Some(1.0 / depth)
        };
        let number = self.surface(part, None, radii);
        self.canvas.window(window, number, silhouette, row, nearness);
    }

    fn flat(&mut self, part: &Part, silhouette: &mut Silhouette) {
        let (view, frame, look) = (self.view, &self.body.frame, self.body.look);
        let middle = middle(part);
        let half = (part.high - part.low) / 2.0;
        let round = matches!(part.form, Form::Cylinder);
        let radii = match part.material {
            // Wheels are round, and a sign's plate is as wide as it is high.
            Material::Wheel | Material::Spokes | Material::Sign => [half; 3],
            // Without end, so that the normals of a cylinder's side are level.
            _ => [part.radius, part.radius, 1e6],
        };
        faces(part, &mut |normal, k, corners| {
            if dot(normal, frame.eye) <= k {
                return;
            }
            let mut seen = [[0.0; 3]; MAX_CORNERS];
            for (place, &corner) in seen.iter_mut().zip(corners) {
                *place = frame.point(corner);
            }
            let mut pixels = [[0.0; 2]; MAX_CORNERS + 2];
            let Some(corners) = project(view, &seen[..corners.len()], &mut pixels) else {
                return;
            };
            // On the plane, nearness is linear over the image.
            let n = frame.direction(normal);
            let offset = k - dot(normal, frame.eye);
            let [fx, fy] = view.focal_px;
            let [cx, cy] = view.centre_px;
            let (b, c) = (n[0] / (fx * offset), n[1] / (fy * offset));
            let plane = [n[2] / offset - b * cx - c * cy, b, c];
            let flat = !round || normal[2] > 0.5;
            let number = self.surface(part, flat.then_some(normal), radii);
            let canvas = &mut *self.canvas;
            let local = |u, v, nearness: f32| frame.at_depth(view.ray(u, v), 1.0 / nearness);
            match part.material {
                Material::Spokes => canvas.face(corners, plane, number, silhouette, |u, v, nearness| {
                    let [x, _, z] = local(u, v, nearness);
                    is_between_spokes((x - middle[0]) / half, (z - middle[2]) / half, normal[1])
                }),
                Material::Tubes if part.porosity > 0.0 => {
                    canvas.face(corners, plane, number, silhouette, |u, v, nearness| {
                        let [x, _, z] = local(u, v, nearness);
                        normal[1] != 0.0 && is_between_tubes(x - middle[0], z, [part.low, part.high])
                    });
                }
                Material::Fence => canvas.face(corners, plane, number, silhouette, |u, v, nearness| {
                    let [x, _, z] = local(u, v, nearness);
                    let rail = z > part.high - 0.06 || (z - 0.15).abs() < 0.03;
                    let far = nearness < 1.0 / 22.0;
                    let bar = if far {
                        chance(u as i32, v as i32, look) < 0.35
                    } else {
                        fraction(x / 0.13) < 0.3
                    };
                    !rail && !bar
                }),
                _ => canvas.face(corners, plane, number, silhouette, |_, _, _| false),
            }
        });
    }
}

fn middle(part: &Part) -> Vec3 {
    [part.middle[0], part.middle[1], (part.low + part.high) / 2.0]
}

/// The part of an image that may show a ball, nothing if it lies behind.
fn window(view: &View, [x, y, z]: Vec3, radius: f32) -> Option<[[f32; 2]; 2]> {
    if z + radius < NEAR_M {
        return None;
    }
    if z - radius < NEAR_M {
        return Some([[0.0, view.width as f32], [0.0, view.height as f32]]);
    }
    let reach = |place: f32, focal: f32, centre: f32| {
        let ends = [place - radius, place + radius];
        let slopes = ends.map(|end| [end / (z - radius), end / (z + radius)]);
        let low = slopes[0][0].min(slopes[0][1]);
        let high = slopes[1][0].max(slopes[1][1]);
        [centre + focal * low, centre + focal * high]
    };
    Some([
        reach(x, view.focal_px[0], view.centre_px[0]),
        reach(y, view.focal_px[1], view.centre_px[1]),
    ])
}

/// Whether a place of a bicycle's wheel, in radii from its middle, lets one look through.
fn is_between_spokes(x: f32, z: f32, sideways: f32) -> bool {
    if sideways == 0.0 {
        return false;
    }
    let out = x * x + z * z;
    let spoke = (x * z).abs() < 0.015 || (x * x - z * z).abs() < 0.03;
    out < 0.72 && out > 0.02 && !spoke
}

/// Whether a place inside of a bicycle's frame lies between its tubes.
fn is_between_tubes(x: f32, z: f32, [low, high]: [f32; 2]) -> bool {
    let share = (z - low) / (high - low).max(0.1);
    let diagonal = (x - 0.25 + 0.45 * share).abs() < 0.035;
    (0.1..0.85).contains(&share) && x.abs() < 0.4 && !diagonal
}
