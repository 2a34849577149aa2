//! Who is in a world when it begins: lanes with their traffic, parked vehicles, people who wait, the ego car.

use std::f64::consts::{FRAC_PI_2, PI};

use super::bodies::{self, Size};
use super::path::Path;
use super::pose::{Pose, wrap};
use super::random::Random;
use super::roads::{CYCLE_LANE_M, Parking, Roads, Roadside};
use super::solid::{Part, Solid};
use super::traffic::{Arm, Lane, LaneKind, Mover, Stop};
use super::world::{Actor, Figure, World, WorldConfig};
use crate::outputs::ObjectLabel;

impl World {
    /// Puts everybody into an empty world.
    pub(super) fn people(&mut self, config: &WorldConfig, seed: u64) {
        self.add_lanes(config, &mut Random::new(seed, 4));
        self.add_parked(config, &mut Random::new(seed, 5));
        self.add_waiting(config, &mut Random::new(seed, 6));
        self.choose_ego(&mut Random::new(seed, 7));
    }

    fn add_lanes(&mut self, config: &WorldConfig, random: &mut Random) {
        let roads = self.roads.clone();
        let busy = config.traffic * random.between(0.55, 1.5);
        let cycling = config.cyclists * random.between(0.5, 1.5);
        let walking = config.pedestrians * random.between(0.4, 1.6);
        for side in &roads.sides {
            // One drives on the right: outside counter-clockwise, inside clockwise.
            let clockwise = side.sign < 0.0;
            for lane in 0..roads.lanes {
                let aside = (lane as f64 + 0.5) * roads.lane_m;
                let path = roads.main_path(side.sign * aside, clockwise);
                self.add_lane(path, LaneKind::Road, busy / (roads.lanes as f64).sqrt(), random);
            }
            let aside = roads.lanes as f64 * roads.lane_m + CYCLE_LANE_M / 2.0;
            self.add_lane(
                roads.main_path(side.sign * aside, clockwise),
                LaneKind::Cycle,
                cycling,
                random,
            );
            for (track, aside) in tracks(side.kerb_m, side.pavement_m) {
                let path = roads.main_path(side.sign * aside, (track % 2 == 0) == clockwise);
                self.add_lane(path, LaneKind::Foot, walking, random);
            }
        }
        for (index, road) in roads.crossings.iter().enumerate() {
            for inward in [false, true] {
                let mut add = |right: f64, kind: LaneKind, busy: f64, back: bool| {
                    let (right, inward) = if back { (-right, !inward) } else { (right, inward) };
                    let path = Roads::cross_path(road, right, inward);
                    let [line_m, exit_m] = roads.cross_stop(inward);
                    let stop = Stop {
                        crossing: index,
                        arm: Arm::Cross,
                        line_m,
                        exit_m,
                    };
                    self.populate(path, kind, vec![stop], busy, random);
                };
                add(roads.lane_m / 2.0, LaneKind::Road, busy * 0.8, false);
                add(road.kerb_m - CYCLE_LANE_M / 2.0, LaneKind::Cycle, cycling, false);
                for (track, aside) in tracks(road.kerb_m, road.pavement_m) {
                    add(aside, LaneKind::Foot, walking, track % 2 == 1);
                }
            }
        }
    }

    fn add_lane(&mut self, path: Path, kind: LaneKind, busy: f64, random: &mut Random) {
        let crossings = self.roads.crossings.iter().enumerate();
        let stops = crossings
            .map(|(crossing, road)| {
                let [line_m, exit_m] = self.roads.main_stop(&path, road);
                Stop {
                    crossing,
                    arm: Arm::Main,
                    line_m,
                    exit_m,
                }
            })
            .collect();
        self.populate(path, kind, stops, busy, random);
    }

    /// Puts movers onto a new lane, outside of its crossings and slow enough to stop before them.
    fn populate(&mut self, path: Path, kind: LaneKind, stops: Vec<Stop>, busy: f64, random: &mut Random) {
        let lane = self.traffic.lanes.len();
        let mut order = Vec::new();
        let length = path.length();
        let mean_gap = match kind {
            LaneKind::Road => 43.0,
            LaneKind::Cycle => 80.0,
            LaneKind::Foot => 54.0,
        } / busy;
        let mut at = random.between(0.0, mean_gap);
        loop {
            let (actor, wish) = match kind {
                LaneKind::Road => vehicle(random),
                LaneKind::Cycle => cyclist(random),
                LaneKind::Foot => pedestrian(random),
            };
            let half = actor.size[0] / 2.0;
            at += half;
            // Room for the one behind the start too.
            if busy <= 0.0 || at + half + 12.0 > length {
                break;
            }
            let on_crossing = |stop: &Stop| {
                let front = at + half - stop.line_m;
                front > -3.0 && at - half < stop.exit_m + 1.0
            };
            if stops.iter().any(on_crossing) {
                at += half + 3.0;
                continue;
            }
            let to_line = stops
                .iter()
                .map(|stop| (stop.line_m - at - half).rem_euclid(length))
                .fold(f64::INFINITY, f64::min);
            // A little of everything between a queue and an empty road.
            let gap = if random.chance(0.15) {
                random.between(0.08, 0.15) * mean_gap
            } else {
                random.between(0.2, 1.9) * mean_gap
            };
            let gap = gap.max(if kind == LaneKind::Foot { 0.8 } else { 3.0 });
            let speed = wish.min((2.0 * to_line).sqrt()).min((gap / 1.5).max(0.5));
            let mover = self.traffic.movers.len();
            order.push(mover);
            let mut moving = Mover::new(at, speed, wish, actor.size[0]);
            moving.gone_m = random.between(0.0, 10.0);
            self.traffic.movers.push(moving);
            self.add(actor, Some((lane, mover)));
            at += half + gap;
        }
        self.traffic.lanes.push(Lane {
            path,
            kind,
            stops,
            order,
        });
    }

    fn add(&mut self, mut actor: Actor, follows: Option<(usize, usize)>) {
        actor.id = self.next_id;
        self.next_id += 1;
        actor.follows = follows;
        actor.solid.owner = self.actors.len() as u32 + 1;
        self.actors.push(actor);
    }

    fn near_crossing(&self, pose: Pose, reach: f64) -> bool {
        self.roads.crossings.iter().any(|road| {
            let [out, aside, _] = road.middle.inverse().apply([pose.x_m, pose.y_m, 0.0]);
            aside.abs() < road.half_zone_m() + reach && out.abs() < 40.0
        })
    }

    fn add_parked(&mut self, config: &WorldConfig, random: &mut Random) {
        for side in self.roads.sides {
            match side.parking {
                Parking::None => {}
                Parking::Parallel => self.park_along(&side, config, random),
                Parking::Perpendicular => self.park_across(&side, config, random),
            }
        }
    }

    fn park_along(&mut self, side: &Roadside, config: &WorldConfig, random: &mut Random) {
        let aside = side.kerb_m - side.parking.depth_m() / 2.0;
        let path = self.roads.main_path(side.sign * aside, side.sign < 0.0);
        let share = random.between(0.2, 0.6) * config.traffic.min(1.5);
        let mut at = random.between(0.0, 5.0);
        loop {
            let mut actor = vehicle(random).0;
            if actor.label == ObjectLabel::Bus {
                continue;
            }
            let half = actor.size[0] / 2.0;
            if at + 2.0 * half > path.length() {
                break;
            }
            let mut pose = path.at(at + half);
            at += 2.0 * half + random.between(0.7, 1.8);
            if !random.chance(share) || self.near_crossing(pose, half + 2.0) {
                continue;
            }
            if random.chance(0.08) {
                pose.yaw_rad += PI;
            }
            pose.yaw_rad = wrap(pose.yaw_rad + random.between(-0.03, 0.03));
            actor.solid.from = pose;
            actor.solid.to = pose;
            self.add(actor, None);
        }
    }

    fn park_across(&mut self, side: &Roadside, config: &WorldConfig, random: &mut Random) {
        let share = random.between(0.15, 0.5) * config.traffic.min(1.5);
        let course = self.roads.course;
        let slot = 2.7;
        for quarter in 0..4 {
            let half = course.half_straight(quarter) - 4.0;
            let count = (2.0 * half / slot) as usize;
            for place in 0..count {
                let along = -half + (place as f64 + 0.5) * slot;
                let mut actor = car(random).0;
                let kerb_gap = random.between(0.1, 0.4);
                let aside = side.kerb_m - kerb_gap - actor.size[0] / 2.0;
                let path = self.roads.main_path(side.sign * aside, false);
                let distance = match path {
                    Path::Round { course, .. } => course.distance_at(quarter, along),
                    Path::Straight { .. } => continue,
                };
                let pose = path.at(distance);
                if !random.chance(share) || actor.size[0] > 5.2 || self.near_crossing(pose, 3.0) {
                    continue;
                }
                let inwards = if random.chance(0.75) {
                    side.sign
                } else {
                    -side.sign
                };
                let turn = -inwards * FRAC_PI_2 + random.between(-0.04, 0.04);
                let pose = Pose {
                    yaw_rad: wrap(pose.yaw_rad + turn),
                    ..pose
                };
                actor.solid.from = pose;
                actor.solid.to = pose;
                self.add(actor, None);
            }
        }
    }

    /// People who stand on the pavement, alone or in small groups.
    fn add_waiting(&mut self, config: &WorldConfig, random: &mut Random) {
        if config.pedestrians <= 0.0 {
            return;
        }
        for side in self.roads.sides {
            let path = self.roads.main_path(side.sign * (side.edge_m() - 0.35), false);
            let mut at = random.between(0.0, 30.0);
            while at + 4.0 < path.length() {
                let count = 1 + random.below(3);
                for _ in 0..count {
                    let pose = path.at(at);
                    at += random.between(1.05, 1.5);
                    if self.near_crossing(pose, 1.0) {
                        continue;
                    }
                    let mut actor = pedestrian(random).0;
                    let pose = Pose {
                        z_m: self.roads.ground_m(pose.x_m, pose.y_m),
                        yaw_rad: random.between(-PI, PI),
                        ..pose
                    };
                    actor.solid.from = pose;
                    actor.solid.to = pose;
                    if let Figure::Walker(build) = actor.figure {
                        bodies::walker(&build, 0.0, 0.0, &mut actor.solid.parts);
                        actor.solid.measure();
                    }
                    self.add(actor, None);
                }
                at += random.between(30.0, 190.0) / config.pedestrians;
            }
        }
    }

    /// Makes one of the cars on the main road the ego car.
    fn choose_ego(&mut self, random: &mut Random) {
        let fits = |actor: &Actor| match actor.follows {
            Some((lane, _)) => {
                actor.label == ObjectLabel::Car
                    && self.traffic.lanes[lane].kind == LaneKind::Road
                    && self.traffic.lanes[lane].path.radius().is_some()
            }
            None => false,
        };
        let cars: Vec<usize> = (0..self.actors.len())
            .filter(|&i| fits(&self.actors[i]))
            .collect();
        if let Some(&chosen) = cars.get(random.below(cars.len().max(1))) {
            let actor = self.actors.remove(chosen);
            for (index, actor) in self.actors.iter_mut().enumerate() {
                actor.solid.owner = index as u32 + 1;
            }
            if let Some(follows) = actor.follows {
                self.ego = follows;
            }
        } else {
            self.ego = self.lone_ego();
        }
    }

    /// A car of its own on a main road that has none.
    fn lone_ego(&mut self) -> (usize, usize) {
        let mover = self.traffic.movers.len();
        // The first lane is one of the main road; before its start, in a corner, room is left.
        let lane = &mut self.traffic.lanes[0];
        lane.order.push(mover);
        let at = lane.path.length() - 4.0;
        self.traffic.movers.push(Mover::new(at, 5.0, 10.0, 4.5));
        (0, mover)
    }
}

/// Tracks of a pavement: number and distance from the middle of the road, between what stands at the kerb and who
/// stands at the far edge.
fn tracks(kerb_m: f64, pavement_m: f64) -> impl Iterator<Item = (usize, f64)> {
    let count = ((pavement_m - 1.3 - 1.25) / 0.85).floor().max(0.0) as usize + 1;
    (0..count).map(move |track| (track, kerb_m + 1.3 + 0.85 * track as f64))
}

fn actor(label: ObjectLabel, size: Size, parts: Vec<Part>, figure: Figure) -> Actor {
    Actor {
        id: 0,
        label,
        size,
        solid: Solid::new(parts, Pose::default(), 0),
        figure,
        follows: None,
        laps: 0,
    }
}

/// A car and the speed it would like.
fn car(random: &mut Random) -> (Actor, f64) {
    let (size, parts) = bodies::car(random);
    let wish = random.between(8.0, 14.0);
    (actor(ObjectLabel::Car, size, parts, Figure::Vehicle), wish)
}

fn vehicle(random: &mut Random) -> (Actor, f64) {
    match random.unit() {
        u if u < 0.14 => {
            let (size, parts) = bodies::truck(random);
            let wish = random.between(7.0, 12.0);
            (actor(ObjectLabel::Truck, size, parts, Figure::Vehicle), wish)
        }
        u if u < 0.34 => {
            let (size, parts) = bodies::bus(random);
            let wish = random.between(7.0, 12.0);
            (actor(ObjectLabel::Bus, size, parts, Figure::Vehicle), wish)
        }
        _ => car(random),
    }
}

fn cyclist(random: &mut Random) -> (Actor, f64) {
    let build = bodies::cyclist(random);
    let mut parts = Vec::new();
    bodies::rider(&build, 0.0, &mut parts);
    let wish = random.between(3.0, 6.5);
    (
        actor(ObjectLabel::Bicycle, build.size, parts, Figure::Rider(build)),
        wish,
    )
}

fn pedestrian(random: &mut Random) -> (Actor, f64) {
    let build = bodies::pedestrian(random);
    let mut parts = Vec::new();
    bodies::walker(&build, 0.0, 1.0, &mut parts);
    let wish = random.between(0.9, 1.7);
    (
        actor(ObjectLabel::Pedestrian, build.size, parts, Figure::Walker(build)),
        wish,
    )
}
