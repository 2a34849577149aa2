//! Shadows on the ground.

use super::super::solid::{Form, Part};
use super::mesh::{MAX_CORNERS, faces};
use super::raster::{Canvas, project};
use super::view::{Frame, Vec3, View};

/// The shadow of a part on the level that its body stands on: the hull of its corners, moved along the light.
pub(super) fn cast(
    part: &Part,
    sun: Vec3,
    (view, frame): (&View, &Frame),
    canvas: &mut Canvas,
    [points, hull]: &mut [Vec<[f32; 2]>; 2],
) {
    points.clear();
    let slope = [sun[0] / sun[2], sun[1] / sun[2]];
    let mut add = |[x, y, z]: Vec3| {
        let height = z.max(0.0);
        points.push([x - slope[0] * height, y - slope[1] * height]);
    };
    match part.form {
        Form::Ellipsoid { radii: [rx, ry, rz] } => {
            let [x, y, z] = [part.middle[0], part.middle[1], (part.low + part.high) / 2.0];
            // Seen from the sun an ellipsoid is little else than its diagonals.
            let (a, b) = (rx * 0.7, ry * 0.7);
            for (dx, dy) in [
                (rx, 0.0),
                (-rx, 0.0),
                (0.0, ry),
                (0.0, -ry),
                (a, b),
                (-a, b),
                (a, -b),
                (-a, -b),
            ] {
                add([x + dx, y + dy, z]);
            }
            add([x, y, z + rz * 0.9]);
            add([x, y, (z - rz * 0.9).max(0.0)]);
        }
        _ => faces(part, &mut |_, _, corners| {
            corners.iter().for_each(|&corner| add(corner))
        }),
    }
    surround(points, hull);
    // A hull of more corners than a face may have loses those that matter least to the eye.
    let step = hull.len().div_ceil(MAX_CORNERS).max(1);
    let mut corners = [[0.0; 3]; MAX_CORNERS];
    let mut count = 0;
    for &[x, y] in hull.iter().step_by(step) {
        corners[count] = frame.point([x, y, 0.0]);
        count += 1;
    }
    let mut pixels = [[0.0; 2]; MAX_CORNERS + 2];
    if let Some(corners) = project(view, &corners[..count], &mut pixels) {
        canvas.darken(corners);
    }
}

/// Finds the convex hull of points, in order (Andrew's monotone chain).
fn surround(points: &mut Vec<[f32; 2]>, hull: &mut Vec<[f32; 2]>) {
    points.sort_unstable_by(|a, b| a[0].total_cmp(&b[0]).then(a[1].total_cmp(&b[1])));
    points.dedup();
    hull.clear();
    if points.len() < 3 {
        return;
    }
    let turns = |a: [f32; 2], b: [f32; 2], c: [f32; 2]| {
        (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0]) > 0.0
    };
    let mut add = |kept: usize, point: [f32; 2]| {
        while hull.len() >= kept + 2 && !turns(hull[hull.len() - 2], hull[hull.len() - 1], point) {
            hull.pop();
        }
        hull.push(point);
        hull.len() - 1
    };
    let mut below = 0;
    for &point in points.iter() {
        below = add(0, point);
    }
    for &point in points[..points.len() - 1].iter().rev() {
        add(below, point);
    }
    hull.pop();
}
