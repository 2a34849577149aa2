//! What stands beside the roads and never moves: buildings, walls, trees, bushes, poles, bollards, bins, signs.

use super::material::Material;
use super::path::Path;
use super::pose::Pose;
use super::random::Random;
use super::roads::{CROSS_REACH_M, KERB_M, Roads};
use super::solid::{Part, Solid};

/// Everything beside the roads of a plan.
pub(super) fn scenery(roads: &Roads, random: &mut Random) -> Vec<Solid> {
    let mut yard = Yard {
        roads,
        solids: Vec::with_capacity(1500),
    };
    for side in &roads.sides {
        let kerb = roads.main_path(side.sign * (side.kerb_m + 0.5), false);
        let edge = roads.main_path(side.sign * side.edge_m(), false);
        let turn = if side.sign > 0.0 { 1.0 } else { -1.0 };
        yard.kerbside(&kerb, random);
        yard.frontage(&edge, turn, random);
    }
    for road in &roads.crossings {
        for inward in [false, true] {
            let kerb = Roads::cross_path(road, road.kerb_m + 0.5, inward);
            let edge = Roads::cross_path(road, road.kerb_m + road.pavement_m, inward);
            yard.kerbside(&kerb, random);
            yard.frontage(&edge, 1.0, random);
        }
        yard.signal_poles(road.middle, random, road.kerb_m + 0.45);
    }
    yard.solids
}

struct Yard<'a> {
    roads: &'a Roads,
    solids: Vec<Solid>,
}

impl Yard<'_> {
    fn place(&mut self, parts: Vec<Part>, x: f64, y: f64, yaw_rad: f64) {
        let pose = Pose {
            z_m: self.roads.ground_m(x, y),
            ..Pose::on_ground(x, y, yaw_rad)
        };
        self.solids.push(Solid::new(parts, pose, 0));
    }

    /// Whether a place at the kerb is on no road and out of every crossing.
    fn free_at_kerb(&self, x: f64, y: f64) -> bool {
        if self.roads.ground_m(x, y) < KERB_M {
            return false;
        }
        self.roads.crossings.iter().all(|road| {
            let half = road.half_zone_m() + 0.5;
            let [out, aside, _] = road.middle.inverse().apply([x, y, 0.0]);
            // The corner that belongs to both roads.
            let side = &self.roads.sides[usize::from(out < 0.0)];
            aside.abs() > half || out.abs() > side.edge_m() + 1.5
        })
    }

    /// Small things along the kerb.
    fn kerbside(&mut self, path: &Path, random: &mut Random) {
        let trees = random.chance(0.5);
        let mut at = random.between(0.0, 8.0);
        while at < path.length() {
            let pose = path.at(at);
            at += random.between(3.5, 13.0);
            if !self.free_at_kerb(pose.x_m, pose.y_m) {
                continue;
            }
            match random.unit() {
                u if u < 0.28 && trees => self.tree(pose.x_m, pose.y_m, true, random),
                u if u < 0.48 => self.lamp(pose, random),
                u if u < 0.58 => {
                    let count = 2 + random.below(5);
                    for i in 0..count {
                        let [x, y, _] = pose.apply([i as f64 * 1.5, 0.0, 0.0]);
                        if self.free_at_kerb(x, y) {
                            self.bollard(x, y, random);
                        }
                    }
                    at += count as f64 * 1.5;
                }
                u if u < 0.7 => self.bin(pose, random),
                u if u < 0.84 => self.sign(pose, random),
                u if u < 0.9 => self.cabinet(pose, random),
                _ => {}
            }
        }
    }

    /// What lies behind the pavement, in blocks of one kind. `turn` is 1 where that is to the right of the path.
    fn frontage(&mut self, path: &Path, turn: f64, random: &mut Random) {
        let mut at = 0.0;
        while at < path.length() {
            let block = random.between(25.0, 90.0);
            let end = at + block;
            match random.unit() {
                u if u < 0.5 => self.buildings(path, turn, [at, end], random),
                u if u < 0.7 => {
                    self.wall(path, turn, [at, end], random);
                    self.green(path, turn, [at, end], 2.5, random);
                }
                u if u < 0.85 => {
                    self.hedge(path, turn, [at, end], random);
                    self.green(path, turn, [at, end], 3.0, random);
                }
                _ => self.green(path, turn, [at, end], 0.6, random),
            }
            at = end;
        }
    }

    /// Whether a box of the given size is on no road.
    fn free_box(&self, pose: Pose, [length, width]: [f64; 2]) -> bool {
        let steps = (length / 4.0).ceil() as i32;
        (-steps..=steps).all(|i| {
            let x = f64::from(i) / f64::from(steps.max(1)) * length / 2.0;
            [-0.5, 0.5].iter().all(|side| {
                let [x, y, _] = pose.apply([x, side * width, 0.0]);
                self.roads.clearance_m(x, y) > 0.15
            })
        })
    }

    fn buildings(&mut self, path: &Path, turn: f64, [from, to]: [f64; 2], random: &mut Random) {
        let setback = if random.chance(0.5) {
            0.3
        } else {
            random.between(1.5, 6.0)
        };
        let mut at = from;
        while at < to {
            let length: f64 = random.between(7.0, 22.0);
            let depth = random.between(8.0, 14.0);
            let height = random.between(4.0, 17.0);
            let out = setback + depth / 2.0 + random.between(0.0, 0.8);
            let pose = path
                .at(at + length / 2.0)
                .then(&Pose::on_ground(0.0, -turn * out, 0.0));
            at += length
                + if random.chance(0.4) {
                    random.between(1.5, 7.0)
                } else {
                    0.05
                };
            if !self.free_box(pose, [length, depth]) {
                continue;
            }
            let colour = random.between(0.25, 0.7);
            let mut parts = vec![
                Part::cuboid([0.0, 0.0], [length, depth], 0.0, height)
                    .reflecting(colour)
                    .of(Material::House),
            ];
            // Doorways and bays that stand out a little.
            for _ in 0..random.below(3) {
                let x = random.between(-0.4, 0.4) * length;
                let bay = Part::cuboid([x, turn * depth / 2.0], [random.between(1.0, 2.5), 0.5], 0.0, 2.8);
                parts.push(bay.reflecting(0.35).of(Material::Porch));
            }
            self.place(parts, pose.x_m, pose.y_m, pose.yaw_rad);
        }
    }

    fn wall(&mut self, path: &Path, turn: f64, [from, to]: [f64; 2], random: &mut Random) {
        let height = random.between(0.8, 2.6);
        let fence = random.chance(0.4);
        let mut at = from;
        while at < to {
            let length = random.between(4.0, 9.0);
            let pose = path
                .at(at + length / 2.0)
                .then(&Pose::on_ground(0.0, -turn * 0.6, 0.0));
            at += length + if random.chance(0.15) { 3.0 } else { 0.0 };
            if self.free_box(pose, [length, 0.2]) {
                let wall = Part::cuboid([0.0, 0.0], [length, if fence { 0.06 } else { 0.25 }], 0.0, height);
                let stuff = if fence { Material::Fence } else { Material::Masonry };
                let wall = wall
                    .reflecting(0.4)
                    .porous(if fence { 0.65 } else { 0.0 })
                    .of(stuff);
                self.place(vec![wall], pose.x_m, pose.y_m, pose.yaw_rad);
            }
        }
    }

    fn hedge(&mut self, path: &Path, turn: f64, [from, to]: [f64; 2], random: &mut Random) {
        let height = random.between(0.9, 2.0);
        let mut at = from;
        while at < to {
            let pose = path.at(at).then(&Pose::on_ground(0.0, -turn * 1.1, 0.0));
            at += random.between(1.2, 2.4);
            if self.roads.clearance_m(pose.x_m, pose.y_m) > 0.9 {
                self.bush(pose.x_m, pose.y_m, height * random.between(0.8, 1.2), random);
            }
        }
    }

    /// Grass with trees, bushes and now and then a pole.
    fn green(&mut self, path: &Path, turn: f64, [from, to]: [f64; 2], nearest: f64, random: &mut Random) {
        let mut at = from;
        while at < to {
            let out = nearest + random.between(0.0, 14.0);
            let pose = path.at(at).then(&Pose::on_ground(0.0, -turn * out, 0.0));
            at += random.between(2.0, 7.0);
            let (x, y) = (pose.x_m, pose.y_m);
            if self.roads.clearance_m(x, y) < 0.8 {
                continue;
            }
            match random.unit() {
                u if u < 0.45 => self.tree(x, y, false, random),
                u if u < 0.85 => {
                    let height = random.between(0.5, 1.8);
                    self.bush(x, y, height, random);
                }
                u if u < 0.93 => self.lamp(pose, random),
                _ => self.cabinet(pose, random),
            }
        }
    }

    fn tree(&mut self, x: f64, y: f64, street: bool, random: &mut Random) {
        let low = if street {
            random.between(2.4, 3.6)
        } else {
            random.between(1.2, 3.0)
        };
        let crown = random.between(1.1, 2.6);
        let tall = crown * random.between(1.0, 1.6);
        let trunk = random.between(0.1, 0.28);
        let middle = low + tall * 0.85;
        let lean = [random.between(-0.3, 0.3), random.between(-0.3, 0.3)];
        let parts = vec![
            Part::cylinder([0.0, 0.0], trunk, 0.0, middle)
                .reflecting(0.3)
                .of(Material::Bark),
            Part::ellipsoid([lean[0], lean[1], middle], [crown, crown * 0.9, tall])
                .reflecting(0.45)
                .porous(0.5)
                .of(Material::Leaves),
        ];
        self.place(parts, x, y, random.between(0.0, 3.1));
    }

    fn bush(&mut self, x: f64, y: f64, height: f64, random: &mut Random) {
        let width = random.between(0.4, 0.85);
        let parts = vec![
            Part::ellipsoid([0.0, 0.0, height * 0.48], [width, width * 0.8, height * 0.52])
                .reflecting(0.45)
                .porous(0.25)
                .of(Material::Leaves),
        ];
        self.place(parts, x, y, random.between(0.0, 3.1));
    }

    fn lamp(&mut self, pose: Pose, random: &mut Random) {
        let radius = random.between(0.05, 0.13);
        let height = random.between(4.0, 9.0);
        let mut parts = vec![Part::cylinder([0.0, 0.0], radius, 0.0, height).reflecting(0.4)];
        if random.chance(0.4) {
            parts.push(
                Part::cylinder([0.0, 0.0], radius + 0.1, 0.0, random.between(0.6, 1.2)).reflecting(0.3),
            );
        }
        self.place(parts, pose.x_m, pose.y_m, pose.yaw_rad);
    }

    fn bollard(&mut self, x: f64, y: f64, random: &mut Random) {
        let radius = random.between(0.06, 0.14);
        let parts = vec![Part::cylinder([0.0, 0.0], radius, 0.0, random.between(0.7, 1.15)).reflecting(0.4)];
        self.place(parts, x, y, 0.0);
    }

    fn bin(&mut self, pose: Pose, random: &mut Random) {
        let height = random.between(0.85, 1.35);
        let part = if random.chance(0.5) {
            Part::cylinder([0.0, 0.0], random.between(0.22, 0.35), 0.0, height)
        } else {
            let size = [random.between(0.5, 0.8), random.between(0.5, 0.75)];
            Part::cuboid([0.0, 0.0], size, 0.0, height)
        };
        self.place(
            vec![part.reflecting(0.35).of(Material::Casing)],
            pose.x_m,
            pose.y_m,
            pose.yaw_rad,
        );
    }

    fn sign(&mut self, pose: Pose, random: &mut Random) {
        let height = random.between(1.6, 2.9);
        let plate = random.between(0.3, 0.7);
        let parts = vec![
            Part::cylinder([0.0, 0.0], 0.04, 0.0, height).reflecting(0.4),
            Part::cuboid([0.05, 0.0], [0.04, plate], height - plate, height)
                .reflecting(0.95)
                .of(Material::Sign),
        ];
        self.place(parts, pose.x_m, pose.y_m, pose.yaw_rad);
    }

    fn cabinet(&mut self, pose: Pose, random: &mut Random) {
        let size = [random.between(0.6, 1.6), random.between(0.3, 0.5)];
        let part = Part::cuboid([0.0, 0.0], size, 0.0, random.between(0.9, 1.6));
        self.place(
            vec![part.reflecting(0.5).of(Material::Casing)],
            pose.x_m,
            pose.y_m,
            pose.yaw_rad,
        );
    }

    /// A pole with signals at each corner of a crossing.
    fn signal_poles(&mut self, middle: Pose, random: &mut Random, aside: f64) {
        let [outside, inside] = self.roads.sides.map(|side| side.kerb_m + 0.45);
        for (out, left) in [
            (outside, aside),
            (outside, -aside),
            (-inside, aside),
            (-inside, -aside),
        ] {
            if out.abs() > CROSS_REACH_M {
                continue;
            }
            let [x, y, _] = middle.apply([out, left, 0.0]);
            let height = random.between(2.9, 3.6);
            let parts = vec![
                Part::cylinder([0.0, 0.0], 0.08, 0.0, height).reflecting(0.4),
                Part::cuboid([0.0, 0.0], [0.3, 0.3], height - 0.9, height)
                    .reflecting(0.2)
                    .of(Material::Signal),
            ];
            self.place(parts, x, y, middle.yaw_rad);
        }
    }
}
