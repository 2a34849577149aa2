//! Shapes of road users. Every vehicle has a front that is not its rear.

use super::material::Material;
use super::random::Random;
use super::solid::Part;

/// Length, width and height in metres.
pub(super) type Size = [f64; 3];

const GLASS_POROSITY: f64 = 0.45;

/// Wheels as boxes, as wide as the body.
fn axles(parts: &mut Vec<Part>, width: f64, diameter: f64, places: &[f64]) {
    for &x in places {
        for side in [-1.0, 1.0] {
            let wheel = Part::cuboid([x, side * (width / 2.0 - 0.13)], [diameter, 0.22], 0.0, diameter);
            parts.push(wheel.reflecting(0.08).of(Material::Wheel));
        }
    }
}

/// A saloon, an estate, a hatchback, an off-roader or a delivery van.
pub(super) fn car(random: &mut Random) -> (Size, Vec<Part>) {
    let paint = random.between(0.08, 0.85);
    let mut parts = Vec::with_capacity(8);
    if random.chance(0.14) {
        let (length, width, height) = (
            random.between(4.4, 5.6),
            random.between(1.85, 2.05),
            random.between(1.8, 2.45),
        );
        let (front, back) = (length / 2.0, -length / 2.0);
        let bonnet = random.between(0.55, 0.95);
        let body = [
            (back, 0.3),
            (front, 0.3),
            (front, 0.85),
            (front - bonnet, 1.1),
            (front - bonnet - 0.65, height),
            (back, height),
        ];
        parts.push(
            Part::profile(&body, width / 2.0, 0.05)
                .reflecting(paint)
                .of(Material::Paint),
        );
        axles(&mut parts, width, 0.66, &[front - 0.85, back + 0.95]);
        return ([length, width, height], parts);
    }
    let tall = random.chance(0.3);
    let length = random.between(3.7, 4.8);
    let width = random.between(1.68, 1.92);
    let height = if tall {
        random.between(1.58, 1.78)
    } else {
        random.between(1.42, 1.54)
    };
    let (front, back) = (length / 2.0, -length / 2.0);
    let clearance = if tall { 0.26 } else { 0.2 };
    let belt = height * random.between(0.58, 0.64);
    let nose = belt * random.between(0.72, 0.82);
    let bonnet = length * random.between(0.21, 0.27);
    let body = [
        (back, clearance + 0.08),
        (back + 0.12, clearance),
        (front - 0.15, clearance),
        (front, clearance + 0.14),
        (front - 0.06, nose),
        (front - bonnet, belt),
        (back + 0.04, belt),
    ];
    parts.push(
        Part::profile(&body, width / 2.0, 0.04)
            .reflecting(paint)
            .of(Material::Paint),
    );
    // Where the roof ends and where the rear window meets the body.
    let (roof_back, deck) = match random.below(3) {
        // A boot behind the rear window.
        0 => (back + length * 0.24, back + length * 0.12),
        // A steep tail gate.
        1 => (back + 0.35, back + 0.06),
        _ => (back + 0.5, back + 0.12),
    };
    let cabin_front = front - bonnet - 0.05;
    let roof_front = cabin_front - random.between(0.6, 0.85);
    let half = width / 2.0 - 0.06;
    let windows = [
        (deck, belt),
        (cabin_front, belt),
        (roof_front, height - 0.05),
        (roof_back, height - 0.05),
    ];
    parts.push(
        Part::profile(&windows, half, 0.32)
            .reflecting(0.15)
            .porous(GLASS_POROSITY)
            .of(Material::Glass),
    );
    let roof = [
        (roof_back - 0.08, height - 0.1),
        (roof_front + 0.12, height - 0.1),
        (roof_front - 0.15, height),
        (roof_back + 0.1, height),
    ];
    let roof_half = half - 0.32 * (height - 0.1 - belt);
    parts.push(
        Part::profile(&roof, roof_half, 0.3)
            .reflecting(paint)
            .of(Material::Paint),
    );
    // The pillars and seats behind the glass.
    let seats = [
        (deck + 0.25, belt),
        (cabin_front - 0.75, belt),
        (roof_front - 0.25, height - 0.2),
        (roof_back + 0.15, height - 0.2),
    ];
    parts.push(
        Part::profile(&seats, half - 0.15, 0.32)
            .reflecting(0.25)
            .porous(0.4)
            .of(Material::Chassis),
    );
    let wheel = if tall { 0.7 } else { 0.62 };
    axles(
        &mut parts,
        width,
        wheel,
        &[front - length * 0.19, back + length * 0.18],
    );
    ([length, width, height], parts)
}

/// A cab and, behind a gap, a box, a flat bed with a load, or a tank.
pub(super) fn truck(random: &mut Random) -> (Size, Vec<Part>) {
    let length = random.between(6.3, 9.8);
    let width = random.between(2.3, 2.55);
    let height = random.between(2.9, 3.7);
    let (front, back) = (length / 2.0, -length / 2.0);
    let paint = random.between(0.1, 0.85);
    let cab_length = random.between(1.8, 2.4);
    let cab_top = (height * random.between(0.76, 0.9)).min(3.0);
    let cab_back = front - cab_length;
    let load_front = cab_back - random.between(0.35, 0.65);
    let mut parts = Vec::with_capacity(12);
    let cab = [
        (cab_back, 0.45),
        (front - 0.05, 0.45),
        (front, 0.6),
        (front - 0.02, cab_top * 0.55),
        (front - 0.32, cab_top),
        (cab_back, cab_top),
    ];
    parts.push(
        Part::profile(&cab, width / 2.0 - 0.06, 0.0)
            .reflecting(paint)
            .of(Material::Paint),
    );
    let deck = random.between(0.95, 1.15);
    let frame = [length - 0.3, 1.0];
    parts.push(
        Part::cuboid([-0.15, 0.0], frame, 0.55, deck)
            .reflecting(0.15)
            .of(Material::Chassis),
    );
    let (load_middle, load_length) = ((load_front + back) / 2.0, load_front - back);
    let cargo_paint = random.between(0.2, 0.9);
    match random.below(4) {
        0 => {
            // A flat bed; what lies on it makes up the vehicle's height.
            let floor = Part::cuboid([load_middle, 0.0], [load_length, width], deck, deck + 0.18);
            parts.push(floor.reflecting(0.3).of(Material::Chassis));
            let board = Part::cuboid([load_front - 0.05, 0.0], [0.1, width], deck, height - 0.2);
            parts.push(board.reflecting(0.3).of(Material::Chassis));
            let pile = load_length * random.between(0.4, 0.8);
            let middle = load_front - 0.3 - pile / 2.0;
            let load = Part::cuboid([middle, 0.0], [pile, width * 0.8], deck, height);
            parts.push(load.reflecting(cargo_paint).of(Material::Cargo));
        }
        1 => {
            let radius = ((height - deck) / 2.0).min(width / 2.0);
            let tank = [
                load_length / 2.0,
                radius.max(width / 2.0 - 0.1),
                (height - deck) / 2.0,
            ];
            let middle = [load_middle, 0.0, (height + deck) / 2.0];
            parts.push(
                Part::ellipsoid(middle, tank)
                    .reflecting(cargo_paint)
                    .of(Material::Cargo),
            );
            let floor = Part::cuboid([load_middle, 0.0], [load_length, width], deck - 0.1, deck + 0.1);
            parts.push(floor.reflecting(0.2).of(Material::Chassis));
        }
        _ => {
            let cargo = Part::cuboid([load_middle, 0.0], [load_length, width], deck, height);
            parts.push(cargo.reflecting(cargo_paint).of(Material::Cargo));
            // An under-ride bar and doors make the rear.
            let bar = Part::cuboid([back + 0.1, 0.0], [0.12, width * 0.9], 0.45, 0.6);
            parts.push(bar.reflecting(0.6).of(Material::Chassis));
        }
    }
    axles(&mut parts, width, 0.95, &[front - 1.25, back + 1.7]);
    if length > 8.0 {
        axles(&mut parts, width, 0.95, &[back + 2.9]);
    }
    ([length, width, height], parts)
}

/// A leaning windscreen in front, an upright rear with its engine, the air conditioning on the front half of the roof.
pub(super) fn bus(random: &mut Random) -> (Size, Vec<Part>) {
    let length = random.between(9.8, 12.4);
    let width = random.between(2.5, 2.6);
    let height = random.between(3.0, 3.4);
    let (front, back) = (length / 2.0, -length / 2.0);
    let paint = random.between(0.2, 0.9);
    let roof = height - 0.28;
    let mut parts = Vec::with_capacity(12);
    let lower = [
        (back + 0.45, 0.32),
        (front - 0.08, 0.32),
        (front, 0.5),
        (front, 1.15),
        (back, 1.15),
        (back, 0.75),
    ];
    parts.push(
        Part::profile(&lower, width / 2.0, 0.0)
            .reflecting(paint)
            .of(Material::Paint),
    );
    let lean = random.between(0.3, 0.6);
    let windows = [
        (back + 0.03, 1.15),
        (front, 1.15),
        (front - lean * 0.8, roof - 0.3),
        (back + 0.06, roof - 0.3),
    ];
    let half = width / 2.0 - 0.03;
    parts.push(
        Part::profile(&windows, half, 0.0)
            .reflecting(0.2)
            .porous(0.3)
            .of(Material::Glass),
    );
    let inside = [
        (back + 0.5, 1.15),
        (front - 1.2, 1.15),
        (front - 1.6, 1.9),
        (back + 0.5, 1.9),
    ];
    parts.push(
        Part::profile(&inside, half - 0.3, 0.0)
            .reflecting(0.3)
            .porous(0.4)
            .of(Material::Chassis),
    );
    let top = [
        (back + 0.05, roof - 0.3),
        (front - lean * 0.8, roof - 0.3),
        (front - lean, roof - 0.05),
        (front - lean - 0.3, roof),
        (back + 0.2, roof),
    ];
    parts.push(
        Part::profile(&top, width / 2.0, 0.25)
            .reflecting(paint)
            .of(Material::Paint),
    );
    let unit = Part::cuboid([front - 3.2, 0.0], [random.between(1.8, 2.6), 1.7], roof, height);
    parts.push(unit.reflecting(0.5).of(Material::Cargo));
    // The engine's hatch: a closed rear, where the front is glass.
    let engine = Part::cuboid([back + 0.3, 0.0], [0.6, width], 0.75, 2.0);
    parts.push(engine.reflecting(paint).of(Material::Paint));
    axles(&mut parts, width, 0.95, &[front - 2.6, back + 3.0]);
    ([length, width, height], parts)
}

/// What a person's shape depends on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Build {
    pub(super) size: Size,
    pub(super) clothes: f64,
}

pub(super) fn pedestrian(random: &mut Random) -> Build {
    let child = random.chance(0.12);
    let height = if child {
        random.between(1.1, 1.45)
    } else {
        random.between(1.55, 1.92)
    };
    Build {
        size: [
            random.between(0.5, 0.72),
            random.between(0.55, 0.75) * if child { 0.85 } else { 1.0 },
            height,
        ],
        clothes: random.between(0.1, 0.7),
    }
}

/// A person in a step whose phase is given in radians; `swing` is 0 for one who stands.
pub(super) fn walker(build: &Build, phase: f64, swing: f64, parts: &mut Vec<Part>) {
    let [length, width, height] = build.size;
    parts.clear();
    let hips = height * 0.5;
    let stride = swing * (length / 2.0 - 0.1) * phase.sin();
    for (side, step) in [(1.0, stride), (-1.0, -stride)] {
        let leg = [(step - 0.09, 0.0), (step + 0.1, 0.0), (0.09, hips), (-0.09, hips)];
        let leg = Part::profile(&leg, 0.08, 0.0).moved_left(side * 0.1);
        parts.push(leg.reflecting(build.clothes * 0.7).of(Material::Trousers));
        // The arm swings against the leg.
        let arm = [
            (-step * 0.7 - 0.05, hips * 0.95),
            (-step * 0.7 + 0.05, hips * 0.95),
            (0.05, height * 0.8),
            (-0.05, height * 0.8),
        ];
        let arm = Part::profile(&arm, 0.05, 0.0).moved_left(side * (width / 2.0 - 0.05));
        parts.push(arm.reflecting(build.clothes).of(Material::Jacket));
    }
    let torso = [
        (-0.12, hips * 0.95),
        (0.13, hips * 0.95),
        (0.15, height * 0.74),
        (0.06, height * 0.84),
        (-0.13, height * 0.84),
    ];
    parts.push(
        Part::profile(&torso, width / 2.0 - 0.09, 0.08)
            .reflecting(build.clothes)
            .of(Material::Jacket),
    );
    let head = height * 0.075;
    let middle = [0.03, 0.0, height - head * 1.4];
    parts.push(
        Part::ellipsoid(middle, [head * 1.1, head * 0.9, head * 1.4])
            .reflecting(0.35)
            .of(Material::Head),
    );
}

pub(super) fn cyclist(random: &mut Random) -> Build {
    Build {
        size: [
            random.between(1.65, 1.9),
            random.between(0.55, 0.68),
            random.between(1.6, 1.85),
        ],
        clothes: random.between(0.15, 0.75),
    }
}

/// A bicycle and its rider, who leans forward.
pub(super) fn rider(build: &Build, phase: f64, parts: &mut Vec<Part>) {
    let [length, width, height] = build.size;
    let (front, back) = (length / 2.0, -length / 2.0);
    parts.clear();
    let wheel = 0.68;
    for x in [front - wheel / 2.0, back + wheel / 2.0] {
        let wheel = Part::cuboid([x, 0.0], [wheel, 0.06], 0.0, wheel);
        parts.push(wheel.reflecting(0.3).porous(0.55).of(Material::Spokes));
    }
    let frame = [
        (back + 0.35, 0.35),
        (front - 0.65, 0.32),
        (front - 0.48, 0.9),
        (back + 0.55, 0.9),
    ];
    parts.push(
        Part::profile(&frame, 0.04, 0.0)
            .reflecting(0.5)
            .porous(0.5)
            .of(Material::Tubes),
    );
    let bar = Part::cuboid([front - 0.5, 0.0], [0.08, width], 0.95, 1.04);
    parts.push(bar.reflecting(0.3).of(Material::Tubes));
    let saddle = back + 0.58;
    for (side, turn) in [(1.0, phase.sin()), (-1.0, -phase.sin())] {
        let foot = 0.25 + 0.14 * turn;
        let leg = [
            (saddle + 0.18, foot),
            (saddle + 0.42, foot),
            (saddle + 0.34, 0.95),
            (saddle - 0.06, 0.98),
        ];
        let leg = Part::profile(&leg, 0.07, 0.0).moved_left(side * 0.11);
        parts.push(leg.reflecting(build.clothes * 0.7).of(Material::Trousers));
        let arm = [
            (front - 0.56, 0.98),
            (front - 0.46, 1.0),
            (saddle + 0.45, height * 0.8),
            (saddle + 0.33, height * 0.8),
        ];
        let arm = Part::profile(&arm, 0.05, 0.0).moved_left(side * (width / 2.0 - 0.1));
        parts.push(arm.reflecting(build.clothes).of(Material::Jacket));
    }
    let torso = [
        (saddle - 0.14, 0.92),
        (saddle + 0.16, 0.92),
        (saddle + 0.5, height * 0.78),
        (saddle + 0.34, height * 0.86),
        (saddle + 0.1, height * 0.8),
    ];
    parts.push(
        Part::profile(&torso, 0.2, 0.0)
            .reflecting(build.clothes)
            .of(Material::Jacket),
    );
    let middle = [saddle + 0.5, 0.0, height - 0.15];
    parts.push(
        Part::ellipsoid(middle, [0.13, 0.1, 0.15])
            .reflecting(0.35)
            .of(Material::Head),
    );
}
