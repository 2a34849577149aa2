//! Boxes and places, written down once more.

use std::collections::HashMap;

use sensorium::io::sim::{Pose, TrueObject};

/// A point relative to a box that moved since it was seen: along, across, up, from its middle.
pub(crate) fn in_box(truth: &TrueObject, point: [f64; 3], after_s: f64) -> [f64; 3] {
    let object = &truth.object;
    let moved = after_s - truth.seen_after_ns as f64 * 1e-9;
    let x = point[0] - object.position_m[0] - truth.velocity_mps[0] * moved;
    let y = point[1] - object.position_m[1] - truth.velocity_mps[1] * moved;
    let yaw = object.yaw_rad + object.twist.map_or(0.0, |twist| twist.angular_z_radps) * moved;
    let (sin, cos) = yaw.sin_cos();
    [
        cos * x + sin * y,
        cos * y - sin * x,
        point[2] - object.position_m[2],
    ]
}

/// Whether such a point is in the box, made larger by `margin` on every side.
pub(crate) fn holds(truth: &TrueObject, [along, across, up]: [f64; 3], margin: f64) -> bool {
    let [length, width, height] = truth.object.size_m;
    along.abs() <= length / 2.0 + margin
        && across.abs() <= width / 2.0 + margin
        && up.abs() <= height / 2.0 + margin
}

fn corners(truth: &TrueObject) -> [[f64; 2]; 4] {
    let [length, width, _] = truth.object.size_m;
    let [x, y, _] = truth.object.position_m;
    let (sin, cos) = truth.object.yaw_rad.sin_cos();
    [[0.5, 0.5], [0.5, -0.5], [-0.5, -0.5], [-0.5, 0.5]].map(|[a, b]| {
        let (along, across) = (a * length, b * width);
        [x + cos * along - sin * across, y + sin * along + cos * across]
    })
}

/// How deep two boxes are in each other, seen from above; negative for boxes that are apart.
pub(crate) fn overlap_m(a: &TrueObject, b: &TrueObject) -> f64 {
    let (of_a, of_b) = (corners(a), corners(b));
    let mut least = f64::INFINITY;
    for yaw in [a.object.yaw_rad, b.object.yaw_rad] {
        for turn in [0.0, std::f64::consts::FRAC_PI_2] {
            let (sin, cos) = (yaw + turn).sin_cos();
            let extent = |corners: &[[f64; 2]; 4]| {
                let along = corners.map(|[x, y]| x * cos + y * sin);
                (
                    along.iter().copied().fold(f64::INFINITY, f64::min),
                    along.iter().copied().fold(f64::NEG_INFINITY, f64::max),
                )
            };
            let ((low_a, high_a), (low_b, high_b)) = (extent(&of_a), extent(&of_b));
            least = least.min(high_a.min(high_b) - low_a.max(low_b));
        }
    }
    least
}

/// A rotation about z and a shift, from its pose.
pub(crate) fn moved(pose: &Pose, [x, y, z]: [f64; 3]) -> [f64; 3] {
    let (sin, cos) = pose.yaw_rad.sin_cos();
    [
        cos * x - sin * y + pose.x_m,
        sin * x + cos * y + pose.y_m,
        z + pose.z_m,
    ]
}

/// Share of `points` that have one of `others` within `reach`.
pub(crate) fn share_found(points: &[[f64; 3]], others: &[[f64; 3]], reach: f64) -> f64 {
    let cell = |point: &[f64; 3]| point.map(|value| (value / reach).floor() as i64);
    let mut grid: HashMap<[i64; 3], Vec<[f64; 3]>> = HashMap::new();
    for point in others {
        grid.entry(cell(point)).or_default().push(*point);
    }
    let near = |a: &[f64; 3], b: &[f64; 3]| {
        a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>() < reach * reach
    };
    let found = points.iter().filter(|point| {
        let [x, y, z] = cell(point);
        (-1..=1).any(|i| {
            (-1..=1).any(|j| {
                (-1..=1).any(|k| {
                    let there = grid.get(&[x + i, y + j, z + k]);
                    there.is_some_and(|list| list.iter().any(|other| near(point, other)))
                })
            })
        })
    });
    found.count() as f64 / points.len().max(1) as f64
}
