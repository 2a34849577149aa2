//! Ground and sky.

use super::super::roads::{Cover, KERB_M, Roads};
use super::light::{Colour, Light, blend, product, rgb, scale};
use super::texture::{Textures, Track, chance};
use super::view::{View, dot};

/// Ground is drawn up to here, in metres along the optical axis.
const GROUND_REACH_M: f64 = 400.0;
/// Slope up to which hills and trees stand at the horizon.
const SKYLINE: f32 = 0.1;
/// Pixels between two colours of the open sky; those between are blended.
const SKY_STEP: usize = 4;

const ASPHALT: Colour = rgb(96, 96, 99);
const PARKING: Colour = rgb(112, 110, 108);
const RED_LANE: Colour = rgb(136, 84, 76);
const CYCLE_LANE: Colour = rgb(103, 103, 105);
const LINE: Colour = rgb(222, 222, 216);
const PAVING: Colour = rgb(158, 154, 148);
/// Side of a slab of a pavement.
const SLAB_M: f64 = 0.6;
const KERB: Colour = rgb(168, 166, 160);
const GREEN: Colour = rgb(70, 98, 44);
const DRY: Colour = rgb(124, 122, 66);
const HILLS: Colour = rgb(84, 98, 74);
const CLOUD: Colour = rgb(246, 246, 248);

pub(super) struct Backdrop<'a> {
    roads: &'a Roads,
    light: &'a Light,
    textures: &'a Textures,
    eye: [f64; 3],
    /// Light on level ground, in the sun and in the shade.
    on_ground: [Colour; 2],
}

/// A row of an image: a camera that does not roll sees level ground at one depth all along it.
pub(super) struct Row<'a> {
    backdrop: &'a Backdrop<'a>,
    /// Direction of the first pixel, with 1 along the optical axis.
    first: [f64; 3],
    /// And from one pixel to the next.
    step: [f64; 2],
    ground: Option<Level>,
}

/// Level ground along a row.
#[derive(Clone, Copy)]
struct Level {
    /// Depth of pavements and of the road.
    high: f64,
    low: f64,
    /// How much is left of detail that is finer than a pixel far away, where it would flicker.
    fine: f32,
    /// Share of the air's colour.
    air: f32,
}

/// A stretch of a row that shows one cover.
struct Strip {
    /// Nothing for the face of a kerb.
    cover: Option<Cover>,
    place: [f64; 2],
    step: [f64; 2],
    level: Level,
}

impl<'a> Backdrop<'a> {
    pub(super) fn new(roads: &'a Roads, light: &'a Light, textures: &'a Textures, eye: [f64; 3]) -> Self {
        let up = light.sun[2];
        let shade = scale(light.on(0.15 * up, 1.0), 0.75);
        Self {
            roads,
            light,
            textures,
            eye,
            on_ground: [light.on(up, 1.0), shade],
        }
    }

    /// Colours a strip: a colour times a tone that varies with the textures, lit, and seen through the air.
    fn strip(&self, strip: &Strip, shade: &[u8], out: &mut [f32]) {
        let Level { fine, air, .. } = strip.level;
        let (colour, spread, broadly) = match strip.cover {
            None => (KERB, 0.1, 0.0),
            Some(Cover::Asphalt) => (ASPHALT, 0.25, 0.2),
            Some(Cover::Parking) => (PARKING, 0.25, 0.25),
            Some(Cover::CycleLane) if self.light.red_lanes => (RED_LANE, 0.2, 0.15),
            Some(Cover::CycleLane) => (CYCLE_LANE, 0.2, 0.15),
            Some(Cover::Line) => (LINE, 0.15, 0.12),
            Some(Cover::Pavement) => (PAVING, 0.12, 0.1),
            Some(Cover::Grass) => (GREEN, 0.5, 0.0),
        };
        let spread = spread * fine;
        let haze = scale(self.light.horizon, air);
        let seen =
            |colour, shade: u8| scale(product(colour, self.on_ground[usize::from(shade > 0)]), 1.0 - air);
        let lit = [seen(colour, 0), seen(colour, 1)];
        let track = |units| Track::new(strip.place, strip.step, units);
        let (mut grain, mut broad) = (track(24.0), track(10.0));
        let mut slabs = track(1.0 / SLAB_M);
        let drier = [0, 1, 2].map(|i| DRY[i] - GREEN[i]);
        let dry = [seen(drier, 0), seen(drier, 1)];
        for (&shade, out) in shade.iter().zip(out.chunks_exact_mut(3)) {
            let mut tone = 1.0 + spread * self.textures.coarse_on(&grain);
            let drift = self.textures.drift_on(&broad);
            tone += broadly * drift;
            grain.advance();
            broad.advance();
            let shade = usize::from(shade > 0);
            let mut colour = lit[shade];
            match strip.cover {
                Some(Cover::Pavement) => {
                    let [i, j] = slabs.cell();
                    tone += 0.12 * fine * (chance(i, j, 7) - 0.5);
                    // Joints are a twentieth of a slab.
                    if fine == 1.0 && slabs.rest().iter().any(|&rest| rest < 65536 / 20) {
                        tone *= 0.7;
                    }
                    slabs.advance();
                }
                Some(Cover::Grass) => {
                    let share = 0.4 + 0.5 * drift;
                    colour = [0, 1, 2].map(|i| colour[i] + dry[shade][i] * share);
                }
                _ => {}
            }
            out.copy_from_slice(&[0, 1, 2].map(|i| haze[i] + colour[i] * tone));
        }
    }

    pub(super) fn row(&'a self, view: &View, row: usize) -> Row<'a> {
        let [right, down, forward] = view.axes;
        let [fx, fy] = view.focal_px.map(f64::from);
        let [cx, cy] = view.centre_px.map(f64::from);
        let (left, low) = (-cx / fx, (row as f64 - cy) / fy);
        let first = [0, 1, 2].map(|i| forward[i] + right[i] * left + down[i] * low);
        let depth = |level: f64| (self.eye[2] - level) / -first[2];
        let reached = first[2] < 0.0 && depth(KERB_M) < GROUND_REACH_M;
        Row {
            backdrop: self,
            first,
            step: [right[0] / fx, right[1] / fx],
            ground: reached.then(|| {
                let high = depth(KERB_M);
                Level {
                    high,
                    low: depth(0.0),
                    fine: (14.0 / high as f32).min(1.0),
                    air: self.light.air(high as f32),
                }
            }),
        }
    }
}

/// What a row's ground is covered with from a column on.
struct Found {
    /// Nothing for the face of a kerb.
    cover: Option<Cover>,
    /// Whether that lies a kerb higher than the road.
    raised: bool,
    columns: usize,
}

impl Row<'_> {
    /// Colours of the pixels from a column on; `shade` says which of them are in the shade if they show ground.
    pub(super) fn colour(&self, from: usize, shade: &[u8], out: &mut [f32]) {
        if let Some(level) = self.ground {
            return self.ground(level, from, shade, out);
        }
        // The open sky has no detail.
        let open = self.first[2] > f64::from(SKYLINE) * 2.0;
        let step = if open { SKY_STEP } else { 1 };
        let mut here = self.sky(from);
        for (part, out) in out.chunks_mut(3 * step).enumerate() {
            let next = self.sky(from + (part + 1) * step);
            for (i, out) in out.chunks_exact_mut(3).enumerate() {
                out.copy_from_slice(&blend(here, next, i as f32 / step as f32));
            }
            here = next;
        }
    }

    fn ground(&self, level: Level, from: usize, shade: &[u8], out: &mut [f32]) {
        let (mut done, count) = (0, shade.len());
        while done < count {
            let column = (from + done) as f64;
            let ray = [0, 1].map(|axis| self.first[axis] + self.step[axis] * column);
            let found = self.find(level, ray);
            let end = count.min(done + found.columns);
            let depth = if found.raised { level.high } else { level.low };
            let place = [0, 1].map(|axis| self.backdrop.eye[axis] + ray[axis] * depth);
            let step = self.step.map(|step| step * depth);
            let strip = Strip {
                cover: found.cover,
                place,
                step,
                level,
            };
            self.backdrop
                .strip(&strip, &shade[done..end], &mut out[3 * done..3 * end]);
            done = end;
        }
    }

    /// What a direction of the row meets.
    fn find(&self, Level { high, low, .. }: Level, [dx, dy]: [f64; 2]) -> Found {
        let Backdrop { roads, eye, .. } = self.backdrop;
        let at = |depth: f64| roads.cover(eye[0] + dx * depth, eye[1] + dy * depth);
        let (below, alone_m) = at(low);
        // How far the two levels are apart along the ground, and what a column is across it, at most.
        let apart_m = (low - high) * (dx.abs() + dy.abs());
        let column_m = low * (self.step[0].abs() + self.step[1].abs());
        let found = |cover: Option<Cover>, alone_m: f64| Found {
            cover,
            raised: cover.is_none_or(Cover::raised),
            columns: 1 + (alone_m / column_m) as usize,
        };
        if alone_m > apart_m {
            return found(Some(below), alone_m - apart_m);
        }
        let (above, above_alone_m) = at(high);
        match (above.raised(), below.raised()) {
            // The edge of a pavement may stand before the road.
            (true, _) => found(Some(above), above_alone_m),
            (false, false) => found(Some(below), alone_m.min(above_alone_m)),
            // The kerb is all that one sees of it.
            (false, true) => found(None, 0.0),
        }
    }

    fn sky(&self, column: usize) -> Colour {
        let Backdrop { light, textures, .. } = self.backdrop;
        let (dx, dy, dz) = (
            (self.first[0] + self.step[0] * column as f64) as f32,
            (self.first[1] + self.step[1] * column as f64) as f32,
            self.first[2] as f32,
        );
        let level = (dx * dx + dy * dy).sqrt();
        let rise = dz / level;
        if rise < SKYLINE {
            // A number that goes once round with the direction, as the angle does.
            let round = dx / (dx.abs() + dy.abs());
            let round = if dy < 0.0 { 3.0 - round } else { round + 1.0 };
            let hills = 0.035 + 0.03 * textures.smooth(round * 64.0, light.salt as u8 as f32);
            let trees = 0.008 * textures.smooth(round * 900.0, 77.0);
            if rise < hills + trees {
                let green = textures.coarse(round * 500.0, rise * 900.0);
                let stuff = scale(HILLS, 1.0 + 0.3 * green);
                return light.through_air(product(stuff, light.on(0.6 * light.sun[2], 1.0)), 450.0);
            }
        }
        let up = (rise * 1.6).clamp(0.0, 1.0);
        let mut colour = blend(light.horizon, light.zenith, up * (2.0 - up));
        if light.clouds > 0.0 && rise > 0.02 {
            // Clouds on a level high above.
            let (x, y) = (dx / dz * 9.0, dy / dz * 9.0);
            let salt = (light.salt >> 8) as u8 as f32;
            let puff = textures.smooth(x + salt, y) + light.clouds - 0.6;
            let share = (puff * 2.0).clamp(0.0, 0.9) * (rise * 5.0).min(1.0);
            let white = scale(CLOUD, 0.85 + 0.15 * light.sunlight[1].min(1.0));
            colour = blend(colour, white, share * (1.0 - 0.5 * light.clouds * light.clouds));
        }
        // A glow around the sun.
        let near = dot([dx, dy, dz], light.sun) / (level * level + dz * dz).sqrt();
        if near > 0.8 {
            let glow = (near - 0.8) * 5.0;
            let strength = 0.8 * glow * glow * glow;
            colour = [0, 1, 2].map(|i| colour[i] + light.sunlight[i] * strength);
        }
        colour
    }
}
