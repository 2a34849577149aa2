//! A spinning LiDAR: columns of beams, one after the other, clockwise from the rear.

use std::f64::consts::{PI, TAU};

use super::pose::{Pose, wrap};
use super::random::mix;
use super::roads::{KERB_M, Roads};
use super::solid::{Beams, Column, Hit, Solid};
use super::world::World;
use crate::lidar::PointCloud;

/// A sensor and how it is mounted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LidarConfig {
    /// Lasers, evenly spread between the two elevations.
    pub rings: usize,
    /// Columns of a turn.
    pub azimuths: usize,
    /// Elevation of the lowest laser in degrees.
    pub lowest_deg: f64,
    /// Elevation of the highest laser in degrees.
    pub highest_deg: f64,
    /// Height above the road in metres.
    pub height_m: f64,
    /// Place in front of `base_link` in metres.
    pub forward_m: f64,
    /// Turns a second.
    pub rate_hz: f64,
    /// Farthest return in metres.
    pub max_range_m: f64,
    /// Standard deviation of the range in metres.
    pub range_noise_m: f64,
    /// Share of returns that are lost near by; more are lost far away, on dark and on slanting surfaces.
    pub drop_out: f64,
    /// Whether points are moved to where they would be seen from the sensor's place at the stamp, as drivers do with
    /// the ego car's odometry.
    pub undistort: bool,
}

impl Default for LidarConfig {
    fn default() -> Self {
        Self {
            rings: 64,
            azimuths: 1440,
            lowest_deg: -25.0,
            highest_deg: 3.0,
            height_m: 1.9,
            forward_m: 1.0,
            rate_hz: 10.0,
            max_range_m: 100.0,
            range_noise_m: 0.02,
            drop_out: 0.01,
            undistort: true,
        }
    }
}

impl LidarConfig {
    /// The sensor in `base_link`.
    #[must_use]
    pub const fn mount(&self) -> Pose {
        Pose {
            x_m: self.forward_m,
            y_m: 0.0,
            z_m: self.height_m,
            yaw_rad: 0.0,
        }
    }

    /// Seconds that a turn takes.
    #[must_use]
    pub const fn period_s(&self) -> f64 {
        1.0 / self.rate_hz
    }
}

/// Kind of return that Autoware's drivers give for a sensor with one return a beam (`SINGLE_STRONGEST`).
const RETURN_TYPE: u8 = 1;

/// Takes sweeps of a [`World`] and keeps its memory between them.
#[derive(Debug)]
pub(super) struct Lidar {
    config: LidarConfig,
    beams: Beams,
    /// Azimuth of each column, counter-clockwise from ahead, with cosine and sine.
    columns: Vec<(f64, f64, f64)>,
    /// Solids that a column may meet, for each column.
    reach: Vec<Vec<u32>>,
    hits: Vec<Hit>,
}

/// One turn.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    /// In the sensor's frame at the start of the turn, column by column, lowest ring first.
    pub(super) cloud: PointCloud,
    /// For each point, 0 for ground and scenery, else the actor's number and 1.
    pub(super) owners: Vec<u32>,
}

impl Lidar {
    pub(super) fn new(config: &LidarConfig) -> Self {
        let mut beams = Beams::default();
        for ring in 0..config.rings {
            let share = ring as f64 / (config.rings.max(2) - 1) as f64;
            let elevation = config.lowest_deg + (config.highest_deg - config.lowest_deg) * share;
            let (sin, cos) = elevation.to_radians().sin_cos();
            beams.cos.push(cos as f32);
            beams.sin.push(sin as f32);
            beams.tan.push((sin / cos) as f32);
        }
        let columns = (0..config.azimuths)
            .map(|column| {
                let azimuth = PI - TAU * (column as f64 + 0.5) / config.azimuths as f64;
                let (sin, cos) = azimuth.sin_cos();
                (azimuth, cos, sin)
            })
            .collect();
        Self {
            config: *config,
            beams,
            columns,
            reach: vec![Vec::new(); config.azimuths],
            hits: vec![Hit::NONE; config.rings],
        }
    }

    /// The share of a turn that has passed when the beams point at a place of the map, in the world's last step.
    pub(super) fn seen_at(&self, world: &World, solid: &Solid) -> f64 {
        let mount = self.config.mount();
        let mut share = 0.5;
        for _ in 0..4 {
            let sensor = world.ego_from.towards(&world.ego_to, share).then(&mount);
            let place = solid.from.towards(&solid.to, share);
            let bearing = (place.y_m - sensor.y_m).atan2(place.x_m - sensor.x_m);
            share = (PI - wrap(bearing - sensor.yaw_rad)) / TAU;
        }
        share
    }

    /// Columns that may meet a solid: the first, and how many.
    fn window(&self, sensors: [&Pose; 2], solid: &Solid) -> Option<(usize, usize)> {
        let count = self.config.azimuths;
        let bearing = |sensor: &Pose, place: &Pose| {
            let (dx, dy) = (place.x_m - sensor.x_m, place.y_m - sensor.y_m);
            (dx.hypot(dy), wrap(dy.atan2(dx) - sensor.yaw_rad))
        };
        let (first_m, first) = bearing(sensors[0], &solid.from);
        let (last_m, last) = bearing(sensors[1], &solid.to);
        let distance = first_m.min(last_m);
        if distance - solid.radius_m > self.config.max_range_m {
            return None;
        }
        let swing = wrap(last - first);
        if distance <= solid.radius_m * 1.05 + 0.3 || swing.abs() > 1.0 {
            return Some((0, count));
        }
        // What is passed closely swings further in between than at the two ends.
        let half = (solid.radius_m / distance).asin() + 0.2 * swing.abs() + 0.01;
        let left = first + swing.max(0.0) + half;
        let right = first + swing.min(0.0) - half;
        let step = TAU / count as f64;
        let begin = ((PI - left) / step).floor();
        let width = ((left - right) / step).ceil() as usize + 1;
        Some(((begin as i64).rem_euclid(count as i64) as usize, width.min(count)))
    }

    /// One turn during the world's last step, whose length must be the turn's. `noise` seeds what is random.
    pub(super) fn sweep(&mut self, world: &World, noise: u64, sweep: &mut Sweep) {
        let mount = self.config.mount();
        let sensors = [world.ego_from.then(&mount), world.ego_to.then(&mount)];
        for list in &mut self.reach {
            list.clear();
        }
        let actors = world.actors.iter().map(|actor| &actor.solid);
        let solids: Vec<&Solid> = world.scenery.iter().chain(actors).collect();
        for (index, solid) in solids.iter().enumerate() {
            if let Some((first, width)) = self.window([&sensors[0], &sensors[1]], solid) {
                for column in first..first + width {
                    self.reach[column % self.config.azimuths].push(index as u32);
                }
            }
        }
        sweep.cloud.clear();
        sweep.owners.clear();
        let period_ns = self.config.period_s() * 1e9;
        for column in 0..self.config.azimuths {
            let share = (column as f64 + 0.5) / self.config.azimuths as f64;
            let sensor = sensors[0].towards(&sensors[1], share);
            let noise = mix(noise ^ ((column as u64) << 20));
            self.column(world, &solids, column, (share, sensor, noise));
            let shift = if self.config.undistort {
                sensors[0].inverse().then(&sensor)
            } else {
                Pose::default()
            };
            let time_ns = (share * period_ns).round() as i64;
            self.emit(column, noise, (shift, time_ns), sweep);
        }
    }

    /// Finds what each beam of a column meets.
    fn column(
        &mut self,
        world: &World,
        solids: &[&Solid],
        column: usize,
        (share, sensor, noise): (f64, Pose, u64),
    ) {
        self.hits.fill(Hit::NONE);
        let (azimuth, _, _) = self.columns[column];
        let (sin, cos) = (sensor.yaw_rad + azimuth).sin_cos();
        for &index in &self.reach[column] {
            let solid = solids[index as usize];
            let place = if solid.moves() {
                solid.from.towards(&solid.to, share)
            } else {
                solid.from
            };
            let (dx, dy) = (sensor.x_m - place.x_m, sensor.y_m - place.y_m);
            let (turn_sin, turn_cos) = place.yaw_rad.sin_cos();
            let into = |x: f64, y: f64| {
                [
                    (turn_cos * x + turn_sin * y) as f32,
                    (turn_cos * y - turn_sin * x) as f32,
                ]
            };
            let [ox, oy] = into(dx, dy);
            let ray = Column {
                origin: [ox, oy, (sensor.z_m - place.z_m) as f32],
                direction: into(cos, sin),
                noise,
            };
            for (salt, part) in solid.parts.iter().enumerate() {
                let salt = (u64::from(index) << 5) + salt as u64;
                ray.cast(part, salt, solid.owner, &self.beams, &mut self.hits);
            }
        }
        self.ground(&world.roads, &sensor, [cos, sin]);
    }

    /// Lets beams that met nothing nearer meet the road, the kerb or what lies beyond.
    fn ground(&mut self, roads: &Roads, sensor: &Pose, [cos, sin]: [f64; 2]) {
        let place = |level: f64| (sensor.x_m + level * cos, sensor.y_m + level * sin);
        for (ring, hit) in self.hits.iter_mut().enumerate() {
            let tan = f64::from(self.beams.tan[ring]);
            if tan >= 0.0 {
                break;
            }
            let along = f64::from(self.beams.cos[ring]);
            let (high, low) = ((sensor.z_m - KERB_M) / -tan, sensor.z_m / -tan);
            if high / along > f64::from(hit.range) || high / along > self.config.max_range_m {
                continue;
            }
            let (x, y) = place(high);
            let (level, incidence) = if roads.ground_m(x, y) > 0.0 {
                (high, -f64::from(self.beams.sin[ring]))
            } else {
                let (x, y) = place(low);
                if roads.ground_m(x, y) > 0.0 {
                    // The kerb's face lies in between.
                    let (mut road, mut raised) = (high, low);
                    for _ in 0..6 {
                        let middle = (road + raised) / 2.0;
                        let (x, y) = place(middle);
                        if roads.ground_m(x, y) > 0.0 {
                            raised = middle;
                        } else {
                            road = middle;
                        }
                    }
                    (raised, 0.7)
                } else {
                    (low, -f64::from(self.beams.sin[ring]))
                }
            };
            let range = (level / along) as f32;
            if range < hit.range {
                let (x, y) = place(level);
                *hit = Hit {
                    range,
                    owner: 0,
                    reflectivity: roads.ground_reflectivity(x, y),
                    incidence: incidence as f32,
                };
            }
        }
    }

    /// Turns what a column met into points.
    fn emit(&self, column: usize, noise: u64, (shift, time_ns): (Pose, i64), sweep: &mut Sweep) {
        let (_, cos, sin) = self.columns[column];
        let (turn_sin, turn_cos) = shift.yaw_rad.sin_cos();
        let forward = (turn_cos * cos - turn_sin * sin) as f32;
        let left = (turn_sin * cos + turn_cos * sin) as f32;
        let (x0, y0) = (shift.x_m as f32, shift.y_m as f32);
        let max_range = self.config.max_range_m as f32;
        for (ring, hit) in self.hits.iter().enumerate() {
            if hit.range > max_range {
                continue;
            }
            let bits = mix(noise ^ 0xd00d ^ ((ring as u64) << 40));
            let far = hit.range / 100.0;
            let slanting = ((0.05 - hit.incidence) / 0.05).clamp(0.0, 1.0);
            let dark = (0.2 - hit.reflectivity).max(0.0);
            let lost =
                self.config.drop_out as f32 + 0.12 * far * far + 0.5 * slanting * slanting + dark * far * 2.0;
            if ((bits & 0xffff) as f32) < lost * 65536.0 {
                continue;
            }
            // The sum of three uniform numbers, near enough to a normal one; scaled to a variance of 1.
            let uniform = |shift: u32| ((bits >> shift) & 0xffff) as f32 / 65536.0;
            let normal = (uniform(16) + uniform(32) + uniform(48) - 1.5) * 2.0;
            let range = hit.range + normal * self.config.range_noise_m as f32;
            let level = range * self.beams.cos[ring];
            let cloud = &mut sweep.cloud;
            cloud.x.push(x0 + level * forward);
            cloud.y.push(y0 + level * left);
            cloud.z.push(range * self.beams.sin[ring]);
            let strength = hit.reflectivity * (0.35 + 0.65 * hit.incidence) * (1.0 - 0.4 * far);
            cloud.intensity.push(
                (255.0 * strength * (0.9 + 0.2 * uniform(24)))
                    .round()
                    .clamp(1.0, 255.0),
            );
            cloud.ring.push(ring as u16);
            cloud.time_ns.push(time_ns);
            cloud.return_type.push(RETURN_TYPE);
            sweep.owners.push(hit.owner);
        }
    }
}
