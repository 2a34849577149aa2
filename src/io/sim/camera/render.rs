//! One image: bodies, shadows, colours, noise.

use super::super::material::Material;
use super::super::pose::Pose;
use super::super::random::mix;
use super::super::solid::Solid;
use super::super::world::World;
use super::backdrop::{Backdrop, Row};
use super::body::{Body, Surface};
use super::draw::Pen;
use super::light::{Light, scale};
use super::raster::{Canvas, NOTHING, Silhouette};
use super::shadow;
use super::texture::{STRETCH, Textures};
use super::view::{Vec3, View, dot};
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
    /// Memory for shadows.
    hulls: [Vec<[f32; 2]>; 2],
    /// Visible pixels of each body.
    counts: Vec<u32>,
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
            hulls: [const { Vec::new() }; 2],
            counts: Vec::new(),
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
                shadow::cast(part, sun, (view, &frame), &mut self.canvas, &mut self.hulls);
            }
        }
        if !view.may_see(
            frame.point([0.0, 0.0, half]),
            (radius * radius + half * half).sqrt(),
        ) {
            return None;
        }
        let number = self.bodies.len() as u32;
        let body = Body::new(frame, sun, user, look);
        self.bodies.push(body);
        let mut pen = Pen {
            view,
            number,
            body: &body,
            canvas: &mut self.canvas,
            surfaces: &mut self.surfaces,
        };
        for part in &solid.parts {
            pen.draw(part, silhouette);
        }
        Some(number)
    }

    /// Colours every pixel and counts those of each actor.
    fn paint(&mut self, world: &World, view: &View, light: &Light, noise: u64, rgb: &mut [u8]) {
        let (width, height) = (view.width, view.height);
        for row in &mut self.rows {
            row.resize(width * 3, 0.0);
        }
        let mut counts = std::mem::take(&mut self.counts);
        counts.clear();
        counts.resize(self.bodies.len(), 0);
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
        self.counts = counts;
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
