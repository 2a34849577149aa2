//! One image: bodies, shadows, colours, noise.

use super::super::material::Material;
use super::super::pose::Pose;
use super::super::random::{fraction, mix};
use super::super::solid::{Form, Part, Solid};
use super::super::world::World;
use super::backdrop::{Backdrop, Row};
use super::body::{Body, Surface, tuft};
use super::light::{Light, scale};
use super::mesh::{MAX_CORNERS, faces};
use super::raster::{Canvas, NOTHING, Silhouette, project};
use super::shadow;
use super::texture::{STRETCH, Textures, chance};
use super::view::{NEAR_M, Vec3, View, dot};
use super::{CameraConfig, CameraImage, TrueBox};
use crate::outputs::ObjectLabel;

/// Scenery is drawn up to here, in metres.
const SCENERY_REACH_M: f32 = 260.0;
/// Shadows are drawn up to here, in metres.
const SHADOW_REACH_M: f32 = 90.0;
/// Height that no solid exceeds, in metres.
const TALLEST_M: f32 = 18.0;

/// Floats from here to twice of it are whole numbers.
const TWO_TO_23: f32 = 8_388_608.0;

/// Takes images of a [`World`] and keeps its memory between them.
#[derive(Debug)]
pub(crate) struct Camera {
    config: CameraConfig,
    canvas: Canvas,
    textures: &'static Textures,
    bodies: Vec<Body>,
    /// The first stands for no surface.
    surfaces: Vec<Surface>,
    actors: Vec<Seen>,
    hull: Vec<[f32; 2]>,
    /// Three rows of linear colours, for the blur of the lens.
    rows: [Vec<f32>; 3],
}

/// An actor that was drawn.
#[derive(Debug)]
struct Seen {
    actor: usize,
    body: u32,
    silhouette: Silhouette,
    visible_px: u32,
}

impl Camera {
    pub(crate) fn new(config: &CameraConfig) -> Self {
        let (width, height) = (config.width_px as usize, config.height_px as usize);
        Self {
            config: config.clone(),
            canvas: Canvas::new(width, height),
            textures: Textures::shared(),
            bodies: Vec::new(),
            surfaces: Vec::new(),
            actors: Vec::new(),
            hull: Vec::new(),
            rows: [const { Vec::new() }; 3],
        }
    }

    /// Looks through another camera from now on.
    pub(crate) fn point(&mut self, config: &CameraConfig) {
        let size = |config: &CameraConfig| (config.width_px as usize, config.height_px as usize);
        let (width, height) = size(config);
        if size(&self.config) != (width, height) {
            self.canvas = Canvas::new(width, height);
        }
        self.config.clone_from(config);
    }

    /// Takes an image at the start of the world's last step, as the camera of an index. `noise` seeds the sensor's noise.
    pub(crate) fn take(&mut self, world: &World, light: &Light, noise: u64, index: usize) -> CameraImage {
        let view = View::new(&self.config, &world.ego_from);
        self.canvas.clear();
        self.bodies.clear();
        self.surfaces.clear();
        self.actors.clear();
        self.surfaces.push(Surface {
            body: 0,
            material: Material::Post,
            normal: None,
            middle: [0.0; 3],
            radii: [1.0; 3],
            high: 0.0,
        });
        for (index, solid) in world.scenery.iter().enumerate() {
            let look = mix(u64::from(light.salt) ^ ((index as u64) << 32)) as u32;
            let mut silhouette = Silhouette::new(0);
            self.solid(&view, light, solid, (None, look), &mut silhouette);
        }
        for (index, actor) in world.actors.iter().enumerate() {
            let look = mix(u64::from(light.salt) ^ ((u64::from(actor.id) << 32) | 1)) as u32;
            let mut silhouette = Silhouette::new(index as u32 + 1);
            let size = actor.size.map(|metres| metres as f32);
            let identity = (Some((actor.label, size)), look);
            let body = self.solid(&view, light, &actor.solid, identity, &mut silhouette);
            if let (Some(body), 1..) = (body, silhouette.pixels) {
                self.actors.push(Seen {
                    actor: index,
                    body,
                    silhouette,
                    visible_px: 0,
                });
            }
        }
        let mut rgb = vec![0; view.width * view.height * 3];
        self.paint(world, &view, light, noise, &mut rgb);
        CameraImage {
            camera: index,
            rgb,
            truth: self.truth(world, &view),
        }
    }

    fn truth(&self, world: &World, view: &View) -> Vec<TrueBox> {
        let seen = self.actors.iter().filter(|seen| seen.visible_px > 0);
        seen.map(|seen| {
            let actor = &world.actors[seen.actor];
            let [x0, y0, x1, y1] = seen.silhouette.bounds;
            let place = actor.solid.from;
            TrueBox {
                id: actor.id,
                label: actor.label,
                box_px: [x0 as f32, y0 as f32, (x1 + 1) as f32, (y1 + 1) as f32],
                visible_px: seen.visible_px,
                silhouette_px: seen.silhouette.pixels,
                distance_m: (place.x_m - view.eye[0]).hypot(place.y_m - view.eye[1]),
            }
        })
        .collect()
    }

    /// Draws a body and gives its number, if it may be seen at all.
    fn solid(
        &mut self,
        view: &View,
        light: &Light,
        solid: &Solid,
        (user, look): (Option<(ObjectLabel, Vec3)>, u32),
        silhouette: &mut Silhouette,
    ) -> Option<u32> {
        let pose: &Pose = &solid.from;
        let frame = view.frame(pose);
        let radius = solid.radius_m as f32;
        let away = (frame.eye[0] * frame.eye[0] + frame.eye[1] * frame.eye[1]).sqrt();
        if away > SCENERY_REACH_M + radius {
            return None;
        }
        let (sin, cos) = (pose.yaw_rad.sin() as f32, pose.yaw_rad.cos() as f32);
        let [sx, sy, sz] = light.sun;
        let sun = [cos * sx + sin * sy, cos * sy - sin * sx, sz];
        let slope = (sx * sx + sy * sy).sqrt() / sz;
        let tall = solid
            .parts
            .iter()
            .map(|part| part.high)
            .fold(0.0, f32::max)
            .min(TALLEST_M);
        let half = tall / 2.0;
        let shadow_reach = radius + slope * half;
        let shadow_middle = [-sun[0] / sz * half, -sun[1] / sz * half, 0.0];
        if away < SHADOW_REACH_M + radius && view.may_see(frame.point(shadow_middle), shadow_reach) {
            for part in &solid.parts {
                shadow::cast(part, sun, (view, &frame), &mut self.canvas, &mut self.hull);
            }
        }
        if !view.may_see(
            frame.point([0.0, 0.0, half]),
            (radius * radius + half * half).sqrt(),
        ) {
            return None;
        }
        let body = self.bodies.len() as u32;
        self.bodies.push(Body::new(frame, sun, user, look));
        for part in &solid.parts {
            self.part(view, body, part, silhouette);
        }
        Some(body)
    }

    fn part(&mut self, view: &View, body: u32, part: &Part, silhouette: &mut Silhouette) {
        let Self {
            canvas,
            bodies,
            surfaces,
            ..
        } = self;
        let frame = &bodies[body as usize].frame;
        let look = bodies[body as usize].look;
        let middle = [part.middle[0], part.middle[1], (part.low + part.high) / 2.0];
        let half = (part.high - part.low) / 2.0;
        let surface = |normal, radii| Surface {
            body,
            material: part.material,
            normal,
            middle,
            radii,
            high: part.high,
        };
        if let Form::Ellipsoid { radii } = part.form {
            let number = surfaces.len() as u32;
            surfaces.push(surface(None, radii));
            let reach = radii[0].max(radii[1]).max(radii[2]);
            let Some(window) = window(view, frame.point(middle), reach) else {
                return;
            };
            let eye: Vec3 = [0, 1, 2].map(|i| (frame.eye[i] - middle[i]) / radii[i]);
            let inside = dot(eye, eye) - 1.0;
            let leafy = part.material == Material::Leaves;
            let nearness = |u: f32, v: f32| {
                let ray = frame.direction_back(view.ray(u, v));
                let d: Vec3 = [0, 1, 2].map(|i| ray[i] / radii[i]);
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
                    let at: Vec3 = [0, 1, 2].map(|i| frame.eye[i] + ray[i] * depth);
                    // Thin towards the rim.
                    if tuft(at, look) > 0.58 + root / -b * 2.0 {
                        return None;
                    }
                }
                Some(1.0 / depth)
            };
            canvas.window(window, number, silhouette, nearness);
            return;
        }
        let round = matches!(part.form, Form::Cylinder);
        let radii = if matches!(part.material, Material::Wheel | Material::Spokes) {
            [half; 3]
        } else {
            // Without end, so that the normals of its side are level.
            [part.radius, part.radius, 1e6]
        };
        // A sign's plate is as wide as it is high.
        let radii = if part.material == Material::Sign {
            [half; 3]
        } else {
            radii
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
            let number = surfaces.len() as u32;
            let flat = !round || normal[2] > 0.5;
            surfaces.push(surface(flat.then_some(normal), radii));
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

    /// Colours every pixel and counts those of each actor.
    fn paint(&mut self, world: &World, view: &View, light: &Light, noise: u64, rgb: &mut [u8]) {
        let (width, height) = (view.width, view.height);
        for row in &mut self.rows {
            row.resize(width * 3, 0.0);
        }
        let mut counts = vec![0u32; self.bodies.len()];
        let backdrop = Backdrop::new(&world.roads, light, self.textures, view.eye);
        let mut rows = std::mem::take(&mut self.rows);
        for row in 0..height {
            self.colour_row(
                &backdrop.row(view, row),
                view,
                light,
                row,
                &mut rows[row % 3],
                &mut counts,
            );
            if row > 0 {
                let above = row.saturating_sub(2);
                self.develop([above, row - 1, row], &rows, light, noise, rgb);
            }
        }
        let last = height - 1;
        self.develop([last.saturating_sub(1), last, last], &rows, light, noise, rgb);
        self.rows = rows;
        for seen in &mut self.actors {
            seen.visible_px = counts[seen.body as usize];
        }
    }

    fn colour_row(
        &self,
        backdrop: &Row<'_>,
        view: &View,
        light: &Light,
        row: usize,
        linear: &mut [f32],
        counts: &mut [u32],
    ) {
        let pixels = row * view.width..(row + 1) * view.width;
        let surfaces = &self.canvas.surface[pixels.clone()];
        let nearness = &self.canvas.nearness[pixels.clone()];
        let shade = &self.canvas.shade[pixels];
        let mut from = 0;
        for run in surfaces.chunk_by(|a, b| a == b) {
            let to = from + run.len();
            let out = &mut linear[3 * from..3 * to];
            if run[0] == NOTHING {
                backdrop.colour(from, &shade[from..to], out);
            } else {
                let surface = &self.surfaces[run[0] as usize];
                counts[surface.body as usize] += run.len() as u32;
                self.colour_surface(light, view, surface, [from, row], &nearness[from..to], out);
            }
            from = to;
        }
    }

    /// Colours pixels of a row that show one surface.
    fn colour_surface(
        &self,
        light: &Light,
        view: &View,
        surface: &Surface,
        [column, row]: [usize; 2],
        nearness: &[f32],
        out: &mut [f32],
    ) {
        let body = &self.bodies[surface.body as usize];
        let eye = body.frame.eye;
        let first = body.frame.direction_back(view.ray(column as f32, row as f32));
        let step = body.frame.direction_back([1.0 / view.focal_px[0], 0.0, 0.0]);
        let lit_at = |n: Vec3| light.on(dot(n, body.sun), n[2]);
        let flat = surface.normal.map(|n| (n, lit_at(n)));
        for (i, (&nearness, out)) in nearness.iter().zip(out.chunks_exact_mut(3)).enumerate() {
            let depth = 1.0 / nearness;
            let p = [0, 1, 2].map(|axis| eye[axis] + (first[axis] + step[axis] * i as f32) * depth);
            let (n, lit) = flat.unwrap_or_else(|| {
                let n = surface.normal_at(p);
                (n, lit_at(n))
            });
            let look = body.look(surface, p, n, self.textures);
            let mirrored = scale(
                light.horizon,
                if n[2] > -0.3 { look.shine } else { 0.3 * look.shine },
            );
            let colour =
                [0, 1, 2].map(|i| look.colour[i] * (lit[i] * (1.0 - look.shine) + look.glow) + mirrored[i]);
            out.copy_from_slice(&light.through_air(colour, depth));
        }
    }

    /// Turns the middle of three rows of linear colours into pixels: blur, exposure, noise.
    fn develop(&self, rows: [usize; 3], lines: &[Vec<f32>; 3], light: &Light, noise: u64, rgb: &mut [u8]) {
        let [above, here, below] = rows.map(|row| &lines[row % 3][..]);
        let (row, length) = (rows[1], here.len());
        // The pixels to the left and to the right; at the edges the pixel itself.
        let mut padded = [0.0; STRETCH + 6];
        let out = &mut rgb[row * length..(row + 1) * length];
        for (part, out) in out.chunks_mut(STRETCH).enumerate() {
            let (start, count) = (part * STRETCH, out.len());
            let end = start + count;
            let padded = &mut padded[..count + 6];
            for i in 0..3 {
                padded[i] = here[(start + i).max(3) - 3];
                padded[count + 3 + i] = here[(end + i).min(length - 3 + i)];
            }
            padded[3..count + 3].copy_from_slice(&here[start..end]);
            let stretch = ((row as u64) << 16) | part as u64;
            let grain = &self.textures.grain(noise, stretch)[..count];
            let (above, below) = (&above[start..end], &below[start..end]);
            let (left, middle, right) = (&padded[..count], &padded[3..count + 3], &padded[6..]);
            for (i, out) in out.iter_mut().enumerate() {
                let beside = left[i] + right[i] + above[i] + below[i];
                let value = (middle[i] * 0.6 + beside * 0.1) * light.exposure;
                // A shoulder instead of a hard limit.
                let value = value * 1.25 / (1.0 + 0.25 * value);
                let level = 255.0 * value.sqrt() + grain[i] * light.grain;
                // Rounded to a whole number, which the low bits of the sum then hold.
                *out = (level.clamp(0.0, 255.0) + TWO_TO_23).to_bits() as u8;
            }
        }
    }
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
