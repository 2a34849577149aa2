//! The world around the ego car: roads, scenery, traffic.

use std::f64::consts::PI;

use super::bodies::{self, Build, Size};
use super::pose::{Pose, wrap};
use super::random::Random;
use super::roads::Roads;
use super::scenery::scenery;
use super::solid::Solid;
use super::traffic::{LaneKind, Signals, Traffic};
use crate::outputs::ObjectLabel;

/// Middle of the ego car in front of its rear axle, where its frame `base_link` is.
const EGO_AXLE_TO_MIDDLE_M: f64 = 1.4;

/// How much goes on in a [`World`]. 1 is a busy street; every world varies around it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WorldConfig {
    /// Cars, trucks and buses.
    pub traffic: f64,
    /// People on foot.
    pub pedestrians: f64,
    /// People on bicycles.
    pub cyclists: f64,
}

impl Default for WorldConfig {
    fn default() -> Self {
        Self {
            traffic: 1.0,
            pedestrians: 1.0,
            cyclists: 1.0,
        }
    }
}

/// A road user other than the ego car.
#[derive(Debug, Clone)]
pub(super) struct Actor {
    pub(super) id: u32,
    pub(super) label: ObjectLabel,
    pub(super) size: Size,
    pub(super) solid: Solid,
    pub(super) figure: Figure,
    /// Lane and mover; nothing for what stands still.
    pub(super) follows: Option<(usize, usize)>,
    pub(super) laps: u32,
}

/// Who changes shape while moving.
#[derive(Debug, Clone, Copy)]
pub(super) enum Figure {
    Vehicle,
    Walker(Build),
    Rider(Build),
}

/// A stretch of town with everything in it, one moment at a time.
#[derive(Debug, Clone)]
pub struct World {
    pub(super) roads: Roads,
    pub(super) scenery: Vec<Solid>,
    pub(super) actors: Vec<Actor>,
    pub(super) traffic: Traffic,
    /// Lane and mover.
    pub(super) ego: (usize, usize),
    pub(super) ego_from: Pose,
    pub(super) ego_to: Pose,
    pub(super) next_id: u32,
}

impl World {
    /// Builds the world of a seed.
    #[must_use]
    pub fn new(config: &WorldConfig, seed: u64) -> Self {
        let mut random = Random::new(seed, 1);
        let roads = Roads::new(&mut random);
        let scenery = scenery(&roads, &mut Random::new(seed, 2));
        let mut random = Random::new(seed, 3);
        let signals = roads
            .crossings
            .iter()
            .map(|_| Signals::new(&mut random))
            .collect();
        let traffic = Traffic {
            lanes: Vec::new(),
            movers: Vec::new(),
            signals,
        };
        let mut world = Self {
            roads,
            scenery,
            actors: Vec::new(),
            traffic,
            ego: (0, 0),
            ego_from: Pose::default(),
            ego_to: Pose::default(),
            next_id: 1,
        };
        world.people(config, seed);
        world.place();
        world.place();
        world
    }

    /// Lets `dt_s` seconds pass; between its two moments everything moves evenly.
    pub fn step(&mut self, dt_s: f64) {
        self.traffic.step(dt_s);
        self.place();
    }

    /// Lets `steps` times `dt_s` seconds pass without looking.
    pub(super) fn run(&mut self, steps: usize, dt_s: f64) {
        for _ in 0..steps {
            self.traffic.step(dt_s);
        }
        self.place();
        self.place();
    }

    /// The ego car's `base_link` (on the ground below the middle of its rear axle) in the map, now.
    #[must_use]
    pub fn ego(&self) -> Pose {
        self.ego_to
    }

    /// The ego car's speed in m/s and turn rate in rad/s over the last step of `dt_s` seconds.
    pub(super) fn ego_motion(&self, dt_s: f64) -> [f64; 2] {
        let moved = self.ego_from.inverse().then(&self.ego_to);
        [moved.x_m / dt_s, moved.yaw_rad / dt_s]
    }

    /// Puts everybody where they are now; where they were becomes the start of the step.
    fn place(&mut self) {
        let (lane, mover) = self.ego;
        let at = self.traffic.movers[mover].at_m;
        let middle = self.traffic.lanes[lane].path.at(at);
        self.ego_from = self.ego_to;
        self.ego_to = middle.then(&Pose::on_ground(-EGO_AXLE_TO_MIDDLE_M, 0.0, 0.0));
        for actor in &mut self.actors {
            let Some((lane, mover)) = actor.follows else {
                continue;
            };
            let mover = &self.traffic.movers[mover];
            let lane = &self.traffic.lanes[lane];
            let mut pose = lane.path.at(mover.at_m);
            pose.yaw_rad = wrap(pose.yaw_rad);
            if lane.kind == LaneKind::Foot {
                pose.z_m = self.roads.ground_m(pose.x_m, pose.y_m);
            }
            let restarted = mover.laps != actor.laps && lane.path.radius().is_none();
            if restarted {
                // Somebody else comes along at the far end.
                actor.id = self.next_id;
                self.next_id += 1;
            }
            actor.laps = mover.laps;
            actor.solid.from = if restarted { pose } else { actor.solid.to };
            actor.solid.to = pose;
            let pace = actor.size[2] * 0.42;
            match actor.figure {
                Figure::Vehicle => {}
                Figure::Walker(build) => {
                    let swing = (mover.speed_mps / 0.8).min(1.0);
                    bodies::walker(&build, mover.gone_m / pace * PI, swing, &mut actor.solid.parts);
                    actor.solid.measure();
                }
                Figure::Rider(build) => {
                    bodies::rider(&build, mover.gone_m * 1.2, &mut actor.solid.parts);
                    actor.solid.measure();
                }
            }
        }
    }
}
