//! A drive through a simulated world, frame by frame.

use std::sync::Arc;

use super::camera::{Camera, CameraConfig, CameraImage, Light};
use super::lidar::{Lidar, LidarConfig, Sweep};
use super::pose::{Pose, wrap};
use super::random::{Random, mix};
use super::world::{World, WorldConfig};
use crate::lidar::PointCloud;
use crate::outputs::{DetectedObject, ObjectLabel, OrientationAvailability, Twist2D};

/// Steps of traffic before a world is looked at, of this many seconds each.
const WARM_UP_STEP_S: f64 = 0.1;

/// What is driven through, and the sensors.
#[derive(Debug, Clone, PartialEq)]
pub struct DriveConfig {
    /// The world.
    pub world: WorldConfig,
    /// The LiDAR.
    pub lidar: LidarConfig,
    /// The cameras.
    pub cameras: Vec<CameraConfig>,
    /// Images of each camera a second: as many as the LiDAR has turns, or a whole part of it. Images are taken at the
    /// stamps of sweeps, the first of them included.
    pub camera_hz: u32,
    /// Stamp of the first frame, in nanoseconds since 1970.
    pub start_ns: u64,
}

impl DriveConfig {
    /// Sweeps from one image to the next.
    #[must_use]
    pub fn sweeps_per_image(&self) -> u64 {
        (self.lidar.rate_hz / f64::from(self.camera_hz.max(1)))
            .round()
            .max(1.0) as u64
    }
}

impl Default for DriveConfig {
    fn default() -> Self {
        Self {
            world: WorldConfig::default(),
            lidar: LidarConfig::default(),
            cameras: Vec::new(),
            camera_hz: 10,
            start_ns: 1_700_000_000_000_000_000,
        }
    }
}

/// A road user as it really is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrueObject {
    /// The same in every frame, and no other's.
    pub id: u32,
    /// Its box in the sensor's frame at the stamp, where it was when the beams passed its middle: the box holds the
    /// object's points. `velocity_mps` times `seen_after_ns` earlier is where it was at the stamp.
    pub object: DetectedObject,
    /// Nanoseconds after the stamp at which the beams passed its middle.
    pub seen_after_ns: i64,
    /// Velocity over ground in m/s, along the x and y axes of the sensor's frame at the stamp.
    pub velocity_mps: [f64; 2],
    /// Points of the cloud that lie on it.
    pub points: u32,
}

/// One turn of the LiDAR with everything that is true about it, and the images that were taken at its start.
#[derive(Debug, Clone)]
pub struct DriveFrame {
    /// Start of the turn, in nanoseconds since 1970.
    pub stamp_ns: u64,
    /// End of the turn, when the next one starts.
    pub end_ns: u64,
    /// The sweep in the sensor's frame at the stamp, in the order of time, and with each column from the lowest ring up.
    pub cloud: PointCloud,
    /// For each point of the cloud the `id` of the road user that it lies on, or 0 for ground and scenery.
    pub point_ids: Vec<u32>,
    /// The ego car's `base_link` (on the ground below the middle of its rear axle) in the map, at the stamp.
    pub world_from_base: Pose,
    /// The sensor in `base_link`.
    pub base_from_lidar: Pose,
    /// The ego car's speed in m/s.
    pub ego_speed_mps: f64,
    /// The ego car's turn rate in rad/s, counter-clockwise.
    pub ego_turn_radps: f64,
    /// Road users that the LiDAR saw, with at least one point each.
    pub truth: Vec<TrueObject>,
    /// All cameras of the ego car.
    pub cameras: Arc<[CameraConfig]>,
    /// Images exposed at the stamp: one of each camera, or none.
    pub images: Vec<CameraImage>,
}

/// A drive without end: one seed, one drive, on every machine of a kind and with any number of threads.
///
/// ```
/// use sensorium::io::sim::{Drive, DriveConfig};
///
/// let mut drive = Drive::new(&DriveConfig::default(), 7);
/// let frame = drive.next_frame();
/// assert!(frame.cloud.len() > 10_000);
/// ```
#[derive(Debug)]
pub struct Drive {
    config: DriveConfig,
    world: World,
    lidar: Lidar,
    cameras: Vec<Camera>,
    camera_configs: Arc<[CameraConfig]>,
    light: Light,
    sweep: Sweep,
    seed: u64,
    frames: u64,
}

impl Drive {
    /// Starts a drive.
    #[must_use]
    pub fn new(config: &DriveConfig, seed: u64) -> Self {
        let mut world = World::new(&config.world, seed);
        let seconds = Random::new(seed, 20).between(4.0, 8.0);
        world.run((seconds / WARM_UP_STEP_S) as usize, WARM_UP_STEP_S);
        Self {
            config: config.clone(),
            world,
            lidar: Lidar::new(&config.lidar),
            cameras: config.cameras.iter().map(Camera::new).collect(),
            camera_configs: config.cameras.clone().into(),
            light: Light::new(seed),
            sweep: Sweep::default(),
            seed,
            frames: 0,
        }
    }

    /// Drives on for one turn of the sensor.
    pub fn next_frame(&mut self) -> DriveFrame {
        let period_s = self.config.lidar.period_s();
        self.world.step(period_s);
        let noise = mix(self.seed ^ mix(self.frames + 1));
        self.lidar.sweep(&self.world, noise, &mut self.sweep);
        let images = self.images(noise);
        let counts = count(&self.world, &[&self.sweep]);
        let after_ns = |frames: u64| (frames as f64 * period_s * 1e9).round() as u64;
        let start_ns = self.config.start_ns;
        let (stamp_ns, end_ns) = (
            start_ns + after_ns(self.frames),
            start_ns + after_ns(self.frames + 1),
        );
        self.frames += 1;
        let [ego_speed_mps, ego_turn_radps] = self.world.ego_motion(period_s);
        let ids = self.sweep.owners.iter().map(|&owner| match owner {
            0 => 0,
            owner => self.world.actors[owner as usize - 1].id,
        });
        DriveFrame {
            stamp_ns,
            end_ns,
            cloud: self.sweep.cloud.clone(),
            point_ids: ids.collect(),
            world_from_base: self.world.ego_from,
            base_from_lidar: self.config.lidar.mount(),
            ego_speed_mps,
            ego_turn_radps,
            truth: truth(&self.world, &self.lidar, &self.config.lidar, &counts),
            cameras: Arc::clone(&self.camera_configs),
            images,
        }
    }

    /// Images at the start of the world's last step, where it is their turn.
    fn images(&mut self, noise: u64) -> Vec<CameraImage> {
        if !self.frames.is_multiple_of(self.config.sweeps_per_image()) {
            return Vec::new();
        }
        let cameras = self.cameras.iter_mut().enumerate();
        cameras
            .map(|(index, camera)| {
                let noise = mix(noise ^ mix(0xca3e ^ ((index as u64 + 1) << 20)));
                camera.take(&self.world, &self.light, noise, index)
            })
            .collect()
    }
}

/// Points on each actor, in any of the sweeps.
pub(super) fn count(world: &World, sweeps: &[&Sweep]) -> Vec<u32> {
    let mut counts = vec![0; world.actors.len() + 1];
    for sweep in sweeps {
        for &owner in &sweep.owners {
            counts[owner as usize] += 1;
        }
    }
    counts
}

/// The actors that have points, as the world's last step shows them to the sensor.
pub(super) fn truth(world: &World, lidar: &Lidar, config: &LidarConfig, counts: &[u32]) -> Vec<TrueObject> {
    let sensor = world.ego_from.then(&config.mount());
    let into = sensor.inverse();
    let period_s = config.period_s();
    let seen = world
        .actors
        .iter()
        .zip(&counts[1..])
        .filter(|(_, points)| **points > 0);
    seen.map(|(actor, &points)| {
        let solid = &actor.solid;
        let share = lidar.seen_at(world, solid);
        let place = solid.from.towards(&solid.to, share);
        let pose = into.then(&place);
        let moved = [solid.to.x_m - solid.from.x_m, solid.to.y_m - solid.from.y_m];
        let (sin, cos) = into.yaw_rad.sin_cos();
        let velocity_mps = [
            (cos * moved[0] - sin * moved[1]) / period_s,
            (sin * moved[0] + cos * moved[1]) / period_s,
        ];
        let (sin, cos) = pose.yaw_rad.sin_cos();
        let object = DetectedObject {
            label: actor.label,
            score: 1.0,
            position_m: [pose.x_m, pose.y_m, pose.z_m + actor.size[2] / 2.0],
            yaw_rad: pose.yaw_rad,
            size_m: actor.size,
            orientation: OrientationAvailability::Available,
            twist: Some(Twist2D {
                linear_x_mps: cos * velocity_mps[0] + sin * velocity_mps[1],
                linear_y_mps: cos * velocity_mps[1] - sin * velocity_mps[0],
                angular_z_radps: wrap(solid.to.yaw_rad - solid.from.yaw_rad) / period_s,
            }),
            pose_variance: None,
            twist_variance: None,
        };
        TrueObject {
            id: actor.id,
            object,
            seen_after_ns: (share * period_s * 1e9).round() as i64,
            velocity_mps,
            points,
        }
    })
    .collect()
}

/// A moment of a world of its own, seen by the current sweep and the ones before it.
#[derive(Debug, Clone, Default)]
pub struct Scene {
    /// x, y, z in the sensor's frame at the stamp of the current sweep, and seconds before it; current sweep first.
    pub points: Vec<[f32; 4]>,
    /// Road users with at least one point, as the current sweep shows them; `points` counts those of all sweeps.
    pub truth: Vec<TrueObject>,
}

impl Scene {
    /// Takes the scene of a seed: `sweeps` turns of the sensor, the last of them current.
    #[must_use]
    pub fn new(world: &WorldConfig, config: &LidarConfig, seed: u64, sweeps: usize) -> Self {
        let mut world = World::new(world, seed);
        let seconds = Random::new(seed, 20).between(3.0, 15.0);
        world.run((seconds / WARM_UP_STEP_S) as usize, WARM_UP_STEP_S);
        let mut lidar = Lidar::new(config);
        let mut taken = Vec::with_capacity(sweeps);
        for number in 0..sweeps.max(1) {
            world.step(config.period_s());
            let mut sweep = Sweep::default();
            lidar.sweep(&world, mix(seed ^ mix(number as u64 + 1)), &mut sweep);
            taken.push((world.ego_from.then(&config.mount()), sweep));
        }
        let all: Vec<&Sweep> = taken.iter().map(|(_, sweep)| sweep).collect();
        let counts = count(&world, &all);
        let mut scene = Self {
            points: Vec::with_capacity(all.iter().map(|sweep| sweep.cloud.len()).sum()),
            truth: truth(&world, &lidar, config, &counts),
        };
        let into = world.ego_from.then(&config.mount()).inverse();
        for (age, (sensor, sweep)) in taken.iter().rev().enumerate() {
            let shift = into.then(sensor);
            let (sin, cos) = shift.yaw_rad.sin_cos();
            let (sin, cos) = (sin as f32, cos as f32);
            let (x0, y0) = (shift.x_m as f32, shift.y_m as f32);
            let lag = (age as f64 * config.period_s()) as f32;
            let cloud = &sweep.cloud;
            for ((&x, &y), &z) in cloud.x.iter().zip(&cloud.y).zip(&cloud.z) {
                let point = if age == 0 {
                    [x, y, z, lag]
                } else {
                    [x0 + cos * x - sin * y, y0 + sin * x + cos * y, z, lag]
                };
                scene.points.push(point);
            }
        }
        scene
    }
}

/// Classes of the training data, in the order of their numbers there.
pub const SCENE_CLASSES: [ObjectLabel; 5] = [
    ObjectLabel::Car,
    ObjectLabel::Truck,
    ObjectLabel::Bus,
    ObjectLabel::Bicycle,
    ObjectLabel::Pedestrian,
];
