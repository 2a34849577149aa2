//! How road users move: each follows its lane behind the one ahead, and crossings belong to one road at a time.
//!
//! Speeds come from the intelligent driver model (Treiber, Hennecke, Helbing 2000), for people on foot too, with
//! distances of their own. Signals let a road go only when everybody of the other one has left the crossing, so bodies
//! never meet.

use super::path::Path;
use super::random::Random;

/// Deceleration beyond which nobody brakes for a signal that has just changed.
const COMMITTED_MPS2: f64 = 4.5;
const HARDEST_BRAKING_MPS2: f64 = 8.0;
/// Least time for which a crossing is closed to both roads.
const CLEARING_S: f64 = 1.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LaneKind {
    Road,
    Cycle,
    Foot,
}

/// Which of the two roads of a crossing somebody follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arm {
    Main,
    Cross,
}

/// A crossing on a lane, by distances along it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stop {
    pub(super) crossing: usize,
    pub(super) arm: Arm,
    pub(super) line_m: f64,
    pub(super) exit_m: f64,
}

#[derive(Debug, Clone)]
pub(super) struct Lane {
    pub(super) path: Path,
    pub(super) kind: LaneKind,
    pub(super) stops: Vec<Stop>,
    /// Numbers of its movers, each behind the next and the last behind the first.
    pub(super) order: Vec<usize>,
}

/// Something that follows a lane.
#[derive(Debug, Clone)]
pub(super) struct Mover {
    /// Distance of its middle along the lane, and how far it has gone altogether.
    pub(super) at_m: f64,
    pub(super) gone_m: f64,
    pub(super) speed_mps: f64,
    pub(super) wish_mps: f64,
    pub(super) length_m: f64,
    acceleration: f64,
    /// Times that it came back to the start of its lane.
    pub(super) laps: u32,
}

impl Mover {
    pub(super) const fn new(at_m: f64, speed_mps: f64, wish_mps: f64, length_m: f64) -> Self {
        Self {
            at_m,
            gone_m: 0.0,
            speed_mps,
            wish_mps,
            length_m,
            acceleration: 0.0,
            laps: 0,
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Manner {
    acceleration: f64,
    comfort: f64,
    headway_s: f64,
    standing_gap_m: f64,
}

const fn manner(kind: LaneKind, length_m: f64) -> Manner {
    match kind {
        LaneKind::Road => Manner {
            acceleration: if length_m > 6.0 { 0.9 } else { 1.6 },
            comfort: 2.0,
            headway_s: 1.3,
            standing_gap_m: 2.0,
        },
        LaneKind::Cycle => Manner {
            acceleration: 0.9,
            comfort: 1.5,
            headway_s: 1.0,
            standing_gap_m: 1.0,
        },
        LaneKind::Foot => Manner {
            acceleration: 0.8,
            comfort: 1.0,
            headway_s: 0.4,
            standing_gap_m: 0.5,
        },
    }
}

/// Acceleration of the intelligent driver model at a gap to something that goes at `other_mps`.
fn follow(manner: &Manner, speed: f64, wish: f64, gap: f64, other_mps: f64) -> f64 {
    let closing = speed * (speed - other_mps) / (2.0 * (manner.acceleration * manner.comfort).sqrt());
    let wanted = manner.standing_gap_m + (speed * manner.headway_s + closing).max(0.0);
    let ratio = wanted / gap.max(0.1);
    let free = (speed / wish.max(0.1)).powi(4);
    (manner.acceleration * (1.0 - free - ratio * ratio)).max(-HARDEST_BRAKING_MPS2)
}

/// The signals of a crossing.
#[derive(Debug, Clone)]
pub(super) struct Signals {
    /// Whose turn it is, or comes next.
    arm: Arm,
    /// Whether that road may go; else the crossing is being cleared.
    open: bool,
    since_s: f64,
    /// How far into its first turn the first road already is, so that worlds begin anywhere in it.
    head_start_s: f64,
    main_s: f64,
    cross_s: f64,
}

impl Signals {
    pub(super) fn new(random: &mut Random) -> Self {
        let mut signals = Self {
            arm: if random.chance(0.75) {
                Arm::Main
            } else {
                Arm::Cross
            },
            open: false,
            since_s: CLEARING_S,
            head_start_s: 0.0,
            main_s: random.between(18.0, 32.0),
            cross_s: random.between(8.0, 12.0),
        };
        signals.head_start_s = random.between(0.0, signals.turn_s());
        signals
    }

    fn turn_s(&self) -> f64 {
        match self.arm {
            Arm::Main => self.main_s,
            Arm::Cross => self.cross_s,
        }
    }

    fn lets_go(&self, stop: &Stop, kind: LaneKind) -> bool {
        self.open && self.arm == stop.arm && (kind != LaneKind::Foot || self.since_s < 0.5 * self.turn_s())
    }

    fn step(&mut self, dt_s: f64, others_inside: bool) {
        self.since_s += dt_s;
        if self.open {
            if self.since_s > self.turn_s() {
                self.arm = match self.arm {
                    Arm::Main => Arm::Cross,
                    Arm::Cross => Arm::Main,
                };
                self.open = false;
                self.since_s = 0.0;
            }
        } else if self.since_s >= CLEARING_S && !others_inside {
            self.open = true;
            self.since_s = std::mem::take(&mut self.head_start_s);
        }
    }
}

/// `metres` of a closed lane as the nearer of both ways round.
fn nearest(metres: f64, length: f64) -> f64 {
    let ahead = metres.rem_euclid(length);
    if ahead > length / 2.0 {
        ahead - length
    } else {
        ahead
    }
}

/// Lanes, who is on them, and signals.
#[derive(Debug, Clone)]
pub(super) struct Traffic {
    pub(super) lanes: Vec<Lane>,
    pub(super) movers: Vec<Mover>,
    pub(super) signals: Vec<Signals>,
}

impl Traffic {
    /// Whether anybody of the road that is not next is on a crossing, or too fast to stop before it.
    fn occupied(&self, crossing: usize, next: Arm) -> bool {
        self.lanes.iter().any(|lane| {
            let length = lane.path.length();
            let stops = lane.stops.iter();
            stops
                .filter(|stop| stop.crossing == crossing && stop.arm != next)
                .any(|stop| {
                    let inside = |&index: &usize| {
                        let mover = &self.movers[index];
                        let front = nearest(mover.at_m - stop.line_m, length) + mover.length_m / 2.0;
                        let committed = mover.speed_mps * mover.speed_mps / (2.0 * COMMITTED_MPS2);
                        front > -committed && front - mover.length_m < stop.exit_m - stop.line_m
                    };
                    lane.order.iter().any(inside)
                })
        })
    }

    /// Lets `dt_s` seconds pass.
    pub(super) fn step(&mut self, dt_s: f64) {
        for crossing in 0..self.signals.len() {
            let signals = &self.signals[crossing];
            let others_inside = !signals.open && self.occupied(crossing, signals.arm);
            self.signals[crossing].step(dt_s, others_inside);
        }
        for lane in &self.lanes {
            for (place, &index) in lane.order.iter().enumerate() {
                let ahead = lane.order[(place + 1) % lane.order.len()];
                self.movers[index].acceleration = self.acceleration(lane, index, ahead);
            }
        }
        for lane in &self.lanes {
            let length = lane.path.length();
            for &index in &lane.order {
                let mover = &mut self.movers[index];
                let speed = (mover.speed_mps + mover.acceleration * dt_s).max(0.0);
                let way = (mover.speed_mps + speed) / 2.0 * dt_s;
                mover.speed_mps = speed;
                mover.gone_m += way;
                mover.at_m += way;
                if mover.at_m >= length {
                    mover.at_m -= length;
                    mover.laps += 1;
                }
            }
        }
    }

    fn acceleration(&self, lane: &Lane, index: usize, ahead: usize) -> f64 {
        let length = lane.path.length();
        let (mover, leader) = (&self.movers[index], &self.movers[ahead]);
        let manner = manner(lane.kind, mover.length_m);
        let wish = match lane.path.radius() {
            Some(radius) => mover.wish_mps.min((3.0 * radius).sqrt()),
            None => mover.wish_mps,
        };
        let gap = if index == ahead {
            length - mover.length_m
        } else {
            (leader.at_m - mover.at_m).rem_euclid(length) - (leader.length_m + mover.length_m) / 2.0
        };
        let mut rate = follow(&manner, mover.speed_mps, wish, gap, leader.speed_mps);
        for stop in &lane.stops {
            let to_line = -(nearest(mover.at_m - stop.line_m, length) + mover.length_m / 2.0);
            if !(0.0..80.0).contains(&to_line) {
                continue;
            }
            let go = self.signals[stop.crossing].lets_go(stop, lane.kind);
            let committed = mover.speed_mps * mover.speed_mps / (2.0 * COMMITTED_MPS2) > to_line;
            // Nobody drives onto a crossing that they cannot leave.
            let beyond = gap - to_line - (stop.exit_m - stop.line_m);
            let jam = gap > to_line && beyond < mover.length_m + 1.5 && leader.speed_mps < 3.0;
            if committed || (go && !jam) {
                continue;
            }
            let gap = to_line + manner.standing_gap_m - 0.3;
            rate = rate.min(follow(&manner, mover.speed_mps, wish, gap, 0.0));
        }
        rate
    }
}
