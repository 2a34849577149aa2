//! The plan of the roads: one closed main road and roads that cross it, with pavements a kerb above them.

use std::f64::consts::{FRAC_PI_2, PI};

use super::path::{Course, Path};
use super::pose::Pose;
use super::random::{Random, floor, fraction};

/// How far a crossing road goes on either side of the main road's middle; beyond what a LiDAR sees from there.
pub(super) const CROSS_REACH_M: f64 = 115.0;
/// Height of pavements and of everything beyond them.
pub(super) const KERB_M: f64 = 0.12;
pub(super) const CYCLE_LANE_M: f64 = 1.4;

/// What the ground is covered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cover {
    Asphalt,
    Line,
    CycleLane,
    Parking,
    Pavement,
    Grass,
}

impl Cover {
    /// Whether a kerb raises it above the road.
    pub(super) const fn raised(self) -> bool {
        matches!(self, Self::Pavement | Self::Grass)
    }
}

/// Half the width of a marking that a camera sees.
const HALF_LINE_M: f64 = 0.08;

/// Where people cross a road: a stretch between a kerb and the far edge of its pavement, drawn out over the road.
struct Walk {
    inside: bool,
    /// How far its edges are.
    alone_m: f64,
}

impl Walk {
    fn over(at: f64, kerb_m: f64, edge_m: f64) -> Self {
        let (near, far) = (kerb_m + 0.4, edge_m - 0.2);
        Self {
            inside: at > near && at < far,
            alone_m: (at - near).abs().min((at - far).abs()),
        }
    }
}

/// Whether a place lies on the first half of a period of 1, and how far the halves' nearest end is.
fn stripe(at: f64) -> (bool, f64) {
    let part = f64::from(fraction(at as f32));
    (part < 0.5, part.min((part - 0.5).abs()).min(1.0 - part))
}

/// How vehicles stand at the side of the main road.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Parking {
    None,
    Parallel,
    /// At a right angle to the road, on its straight parts.
    Perpendicular,
}

impl Parking {
    pub(super) const fn depth_m(self) -> f64 {
        match self {
            Self::None => 0.0,
            Self::Parallel => 2.7,
            Self::Perpendicular => 5.7,
        }
    }
}

/// One side of the main road.
#[derive(Debug, Clone, Copy)]
pub(super) struct Roadside {
    /// 1 outside of the course, -1 inside.
    pub(super) sign: f64,
    pub(super) parking: Parking,
    /// From the middle of the road to the kerb.
    pub(super) kerb_m: f64,
    pub(super) pavement_m: f64,
}

impl Roadside {
    /// From the middle of the road to the far edge of the pavement.
    pub(super) fn edge_m(&self) -> f64 {
        self.kerb_m + self.pavement_m
    }
}

/// A road that crosses the main road at a right angle on a straight part of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct CrossRoad {
    pub(super) side: usize,
    /// Place along that side.
    pub(super) along: f64,
    /// Where the two middles meet, heading out of the course.
    pub(super) middle: Pose,
    /// From the middle of the crossing road to its kerb.
    pub(super) kerb_m: f64,
    pub(super) pavement_m: f64,
}

impl CrossRoad {
    /// Half the length of main road that nobody may stop on.
    pub(super) fn half_zone_m(&self) -> f64 {
        self.kerb_m + self.pavement_m + 1.0
    }
}

#[derive(Debug, Clone)]
pub(super) struct Roads {
    pub(super) course: Course,
    /// Lanes in each direction.
    pub(super) lanes: usize,
    pub(super) lane_m: f64,
    /// Outside first.
    pub(super) sides: [Roadside; 2],
    pub(super) crossings: Vec<CrossRoad>,
}

impl Roads {
    pub(super) fn new(random: &mut Random) -> Self {
        let course = Course {
            half_x_m: random.between(165.0, 215.0),
            half_y_m: random.between(165.0, 215.0),
            radius_m: random.between(45.0, 75.0),
        };
        let lanes = [1, 1, 2, 2, 3][random.below(5)];
        let lane_m = random.between(3.2, 3.6);
        let sides = [1.0, -1.0].map(|sign| {
            let parking = match random.unit() {
                u if u < 0.4 => Parking::None,
                u if u < 0.8 => Parking::Parallel,
                _ => Parking::Perpendicular,
            };
            Roadside {
                sign,
                parking,
                kerb_m: lanes as f64 * lane_m + CYCLE_LANE_M + parking.depth_m(),
                pavement_m: random.between(2.6, 4.2),
            }
        });
        let mut crossings = Vec::new();
        for side in 0..4 {
            if random.chance(0.85) {
                let along = random.between(-45.0, 45.0);
                let yaw = FRAC_PI_2 * side as f64;
                let (sin, cos) = yaw.sin_cos();
                let out = if side % 2 == 0 {
                    course.half_x_m
                } else {
                    course.half_y_m
                };
                let middle = if side % 2 == 0 {
                    Pose::on_ground(cos * out, along, yaw)
                } else {
                    Pose::on_ground(along, sin * out, yaw)
                };
                crossings.push(CrossRoad {
                    side,
                    along,
                    middle,
                    kerb_m: lane_m + CYCLE_LANE_M,
                    pavement_m: random.between(2.6, 3.6),
                });
            }
        }
        Self {
            course,
            lanes,
            lane_m,
            sides,
            crossings,
        }
    }

    /// The line along the main road that lies `outside_m` of its middle.
    pub(super) const fn main_path(&self, outside_m: f64, clockwise: bool) -> Path {
        Path::Round {
            course: self.course.outside(outside_m),
            clockwise,
        }
    }

    /// The line along a crossing road that lies `right_m` to the right of its middle, in or against its heading.
    pub(super) fn cross_path(road: &CrossRoad, right_m: f64, inward: bool) -> Path {
        let heading = Pose::on_ground(0.0, 0.0, if inward { PI } else { 0.0 });
        let start = road
            .middle
            .then(&heading)
            .then(&Pose::on_ground(-CROSS_REACH_M, -right_m, 0.0));
        Path::Straight {
            start,
            length_m: 2.0 * CROSS_REACH_M,
        }
    }

    /// Distances along a main path at which a crossing begins and ends for those who follow it.
    pub(super) fn main_stop(&self, path: &Path, road: &CrossRoad) -> [f64; 2] {
        let half = road.half_zone_m();
        let middle = match *path {
            Path::Round { course, clockwise } => {
                let at = course.distance_at(road.side, road.along);
                if clockwise { course.length() - at } else { at }
            }
            Path::Straight { .. } => 0.0,
        };
        [middle - half, middle + half]
    }

    /// The same along a path of the crossing road.
    pub(super) fn cross_stop(&self, inward: bool) -> [f64; 2] {
        let [outside, inside] = self.sides.map(|side| side.edge_m() + 1.0);
        let (before, after) = if inward {
            (outside, inside)
        } else {
            (inside, outside)
        };
        [CROSS_REACH_M - before, CROSS_REACH_M + after]
    }

    /// A place relative to a crossing road: outwards along it, and aside of its middle.
    fn beside(road: &CrossRoad, x: f64, y: f64) -> (f64, f64) {
        let (dx, dy) = (x - road.middle.x_m, y - road.middle.y_m);
        match road.side {
            0 => (dx, dy),
            1 => (dy, -dx),
            2 => (-dx, -dy),
            _ => (-dy, dx),
        }
    }

    /// Height of the ground.
    pub(super) fn ground_m(&self, x: f64, y: f64) -> f64 {
        let outside = self.course.outside_m(x, y);
        if outside <= self.sides[0].kerb_m && outside >= -self.sides[1].kerb_m {
            return 0.0;
        }
        for road in &self.crossings {
            let (out, aside) = Self::beside(road, x, y);
            if aside.abs() <= road.kerb_m && out.abs() <= CROSS_REACH_M {
                return 0.0;
            }
        }
        KERB_M
    }

    /// How far a place is from every road, pavements included; negative on one.
    pub(super) fn clearance_m(&self, x: f64, y: f64) -> f64 {
        let outside = self.course.outside_m(x, y);
        let side = &self.sides[usize::from(outside < 0.0)];
        let mut clearance = outside.abs() - side.edge_m();
        for road in &self.crossings {
            let (out, aside) = Self::beside(road, x, y);
            if out.abs() < CROSS_REACH_M + 5.0 {
                clearance = clearance.min(aside.abs() - road.kerb_m - road.pavement_m);
            }
        }
        clearance
    }

    /// What covers the ground at a place, as a camera sees it, and a distance within which that is all there is.
    pub(super) fn cover(&self, x: f64, y: f64) -> (Cover, f64) {
        let outside = self.course.outside_m(x, y);
        let side = &self.sides[usize::from(outside < 0.0)];
        let aside = outside.abs();
        let mut alone_m = (aside - side.kerb_m).abs().min((aside - side.edge_m()).abs());
        let on_main = aside <= side.kerb_m;
        let beside_main = !on_main && aside <= side.edge_m();
        let mut pavement = beside_main;
        for road in &self.crossings {
            let (out, across) = Self::beside(road, x, y);
            let across = across.abs();
            if out.abs() > CROSS_REACH_M {
                alone_m = alone_m.min(out.abs() - CROSS_REACH_M);
                continue;
            }
            let edge = road.kerb_m + road.pavement_m;
            if across > edge {
                alone_m = alone_m.min(across - edge);
                continue;
            }
            alone_m = alone_m.min(edge - across).min((across - road.kerb_m).abs());
            // Nobody crosses on the outermost hand's breadths of a pavement.
            let walk = if on_main {
                Walk::over(across, road.kerb_m, edge)
            } else if across <= road.kerb_m {
                Walk::over(aside, side.kerb_m, side.edge_m())
            } else {
                pavement = true;
                continue;
            };
            alone_m = alone_m.min(walk.alone_m);
            if walk.inside {
                let (line, edge_m) = stripe(if on_main { outside } else { across });
                let cover = if line { Cover::Line } else { Cover::Asphalt };
                return (cover, alone_m.min(edge_m));
            }
            if on_main {
                return (Cover::Asphalt, alone_m);
            }
            let lane = road.kerb_m - CYCLE_LANE_M;
            alone_m = alone_m
                .min((across - lane).abs())
                .min((across - HALF_LINE_M).abs());
            let cover = if across < HALF_LINE_M && !beside_main {
                Cover::Line
            } else if across > lane {
                Cover::CycleLane
            } else {
                Cover::Asphalt
            };
            return (cover, alone_m);
        }
        if on_main {
            let (cover, lane_m) = self.lanes_cover(aside, x + y);
            (cover, alone_m.min(lane_m))
        } else if pavement {
            (Cover::Pavement, alone_m)
        } else {
            (Cover::Grass, alone_m)
        }
    }

    /// The same for the main road at a distance from its middle, and at a place along it.
    fn lanes_cover(&self, aside: f64, along: f64) -> (Cover, f64) {
        let line = f64::from(floor((aside / self.lane_m + 0.5) as f32));
        let lanes = self.lanes as f64;
        let edge = lanes * self.lane_m;
        let lane = edge + CYCLE_LANE_M;
        let from_line = (aside - line * self.lane_m).abs();
        let alone_m = (aside - edge).abs().min((aside - lane).abs());
        if line <= lanes && from_line < HALF_LINE_M {
            let alone_m = alone_m.min(HALF_LINE_M - from_line);
            if line == 0.0 || line == lanes {
                return (Cover::Line, alone_m);
            }
            let (dash, end) = stripe(along / 6.0);
            // `along` grows by up to 1.5 for each metre on the ground.
            let cover = if dash { Cover::Line } else { Cover::Asphalt };
            return (cover, alone_m.min(end * 4.0));
        }
        // Beyond the last line others have none.
        let alone_m = alone_m.min((from_line - HALF_LINE_M).abs());
        if aside <= edge {
            (Cover::Asphalt, alone_m)
        } else if aside <= lane {
            (Cover::CycleLane, alone_m)
        } else {
            (Cover::Parking, alone_m)
        }
    }

    /// Reflectivity of the ground: asphalt, its markings, paving, grass.
    pub(super) fn ground_reflectivity(&self, x: f64, y: f64) -> f32 {
        let outside = self.course.outside_m(x, y);
        let side = &self.sides[usize::from(outside < 0.0)];
        let aside = outside.abs();
        if aside <= side.kerb_m {
            let across = aside / self.lane_m;
            let line = across.round();
            let lanes = self.lanes as f64;
            let on_line = line <= lanes && (aside - line * self.lane_m).abs() < 0.1;
            // One of the two coordinates stays the same along a straight part.
            let dash = ((x + y) / 6.0).rem_euclid(1.0) < 0.5 || line == 0.0 || line == lanes;
            return if on_line && dash { 0.75 } else { 0.12 };
        }
        for road in &self.crossings {
            let (out, across) = Self::beside(road, x, y);
            if across.abs() <= road.kerb_m && out.abs() <= CROSS_REACH_M {
                return if across.abs() < 0.1 { 0.75 } else { 0.12 };
            }
        }
        if aside <= side.edge_m() { 0.3 } else { 0.45 }
    }
}
