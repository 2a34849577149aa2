//! Rotated suppression as OpenPCDet does it: greedy, with its own overlap in float32.

use super::nms::NmsWorkspace;
use super::rounded::{atan2, sin_cos};

/// Differences of cross products below this are parallel edges, and unions are at least this.
const EPSILON: f32 = 1e-8;

/// A corner this far outside a box, in metres, still counts as inside.
const MARGIN_M: f32 = 1e-2;

/// A box as OpenPCDet's overlap takes it, seen from above.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PcdetBox {
    /// Middle in metres.
    pub centre_m: [f32; 2],
    /// Along the heading and across it, in metres.
    pub size_m: [f32; 2],
    /// Heading in radians.
    pub heading_rad: f32,
}

/// What decides in [`pcdet_nms`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PcdetNmsParams {
    /// Overlap above which the later box goes; 0 or more.
    pub iou_threshold: f32,
    /// Only so many of the best boxes are looked at (`NMS_PRE_MAXSIZE`).
    pub most_before: usize,
    /// Only so many are kept (`NMS_POST_MAXSIZE`).
    pub most_after: usize,
}

type Point = [f32; 2];

/// Overlap of two boxes from above, in float32 with the steps of OpenPCDet's `iou_bev`. Its tolerances make it a little
/// larger than the exact one where edges nearly touch; where edges lie on top of each other, one pair in several thousand
/// comes out above 1, as it does there.
#[must_use]
pub fn pcdet_iou_bev(a: &PcdetBox, b: &PcdetBox) -> f32 {
    let areas = a.size_m[0] * a.size_m[1] + b.size_m[0] * b.size_m[1];
    let overlap = box_overlap(a, b);
    overlap / (areas - overlap).max(EPSILON)
}

/// Numbers of the boxes that are kept, best first, written to `kept`. Boxes are taken by falling score, equal ones in
/// their order; a box goes if a kept one overlaps it by more than the threshold. Boxes whose score is NaN are left out.
pub fn pcdet_nms(
    boxes: &[PcdetBox],
    scores: &[f32],
    params: &PcdetNmsParams,
    workspace: &mut NmsWorkspace,
    kept: &mut Vec<u32>,
) {
    kept.clear();
    kept.extend((0..boxes.len().min(scores.len()) as u32).filter(|&i| !scores[i as usize].is_nan()));
    kept.sort_unstable_by(|&a, &b| scores[b as usize].total_cmp(&scores[a as usize]).then(a.cmp(&b)));
    kept.truncate(params.most_before);

    let located = |b: &PcdetBox| {
        let ([x, y], [l, w]) = (b.centre_m, b.size_m);
        [x, y, l, w, b.heading_rad].iter().all(|v| v.is_finite())
    };
    // Two boxes with no corner and no edge of one near the other overlap by 0 exactly; the slack is for the margin and
    // for float32 coordinates that round.
    let radius = |b: &PcdetBox| 0.5 * f64::from(b.size_m[0]).hypot(f64::from(b.size_m[1]));
    let (mut largest, mut furthest) = (0.0_f64, 0.0_f64);
    for b in kept.iter().map(|&i| &boxes[i as usize]).filter(|b| located(b)) {
        largest = largest.max(radius(b));
        let [x, y] = b.centre_m.map(|v| f64::from(v).abs());
        furthest = furthest.max(x).max(y);
    }
    let slack = 0.05 + 1e-5 * (furthest + largest);
    let grid = &mut workspace.grid;
    grid.reset(kept.len(), 2.0 * largest + slack);

    let mut count = 0;
    for i in 0..kept.len() {
        if count == params.most_after {
            break;
        }
        let this = &boxes[kept[i] as usize];
        let located = located(this);
        let [x, y] = this.centre_m.map(f64::from);
        let suppressed = located
            && grid.any(x, y, |earlier| {
                let other = &boxes[kept[earlier as usize] as usize];
                let [other_x, other_y] = other.centre_m.map(f64::from);
                (other_x - x).hypot(other_y - y) <= radius(this) + radius(other) + slack
                    && pcdet_iou_bev(other, this) > params.iou_threshold
            });
        if suppressed {
            continue;
        }
        if located {
            grid.insert(count as u32, x, y);
        }
        kept.swap(count, i);
        count += 1;
    }
    kept.truncate(count);
}

fn cross(p1: Point, p2: Point, p0: Point) -> f32 {
    (p1[0] - p0[0]) * (p2[1] - p0[1]) - (p2[0] - p0[0]) * (p1[1] - p0[1])
}

fn corners(b: &PcdetBox) -> [Point; 5] {
    let ([x, y], [half_x, half_y]) = (b.centre_m, b.size_m.map(|v| v / 2.0));
    let (sin, cos) = sin_cos(b.heading_rad);
    let (x1, y1, x2, y2) = (x - half_x, y - half_y, x + half_x, y + half_y);
    let turned = [[x1, y1], [x2, y1], [x2, y2], [x1, y2]].map(|[px, py]| {
        [
            (px - x) * cos + (py - y) * -sin + x,
            (px - x) * sin + (py - y) * cos + y,
        ]
    });
    let [a, b, c, d] = turned;
    [a, b, c, d, a]
}

fn contains(b: &PcdetBox, p: Point) -> bool {
    let (sin, cos) = sin_cos(-b.heading_rad);
    let (dx, dy) = (p[0] - b.centre_m[0], p[1] - b.centre_m[1]);
    let (x, y) = (dx * cos + dy * -sin, dx * sin + dy * cos);
    x.abs() < b.size_m[0] / 2.0 + MARGIN_M && y.abs() < b.size_m[1] / 2.0 + MARGIN_M
}

/// Where the edges p0-p1 and q0-q1 cross.
fn crossing(p1: Point, p0: Point, q1: Point, q0: Point) -> Option<Point> {
    let apart = |axis: usize| {
        p0[axis].min(p1[axis]) > q0[axis].max(q1[axis]) || q0[axis].min(q1[axis]) > p0[axis].max(p1[axis])
    };
    if apart(0) || apart(1) {
        return None;
    }
    let (s1, s2) = (cross(q0, p1, p0), cross(p1, q1, p0));
    let (s3, s4) = (cross(p0, q1, q0), cross(q1, p1, q0));
    if !(s1 * s2 > 0.0 && s3 * s4 > 0.0) {
        return None;
    }
    let s5 = cross(q1, p1, p0);
    if (s5 - s1).abs() > EPSILON {
        return Some([0, 1].map(|axis| (s5 * q0[axis] - s1 * q1[axis]) / (s5 - s1)));
    }
    let line = |p: Point, q: Point| (p[1] - q[1], q[0] - p[0], p[0] * q[1] - q[0] * p[1]);
    let ((a0, b0, c0), (a1, b1, c1)) = (line(p0, p1), line(q0, q1));
    let d = a0 * b1 - a1 * b0;
    Some([(b0 * c1 - b1 * c0) / d, (a1 * c0 - a0 * c1) / d])
}

fn box_overlap(a: &PcdetBox, b: &PcdetBox) -> f32 {
    let (a_corners, b_corners) = (corners(a), corners(b));
    // At most 16 crossings are stored by the original and 8 corners can follow; real pairs have 8 in all.
    let mut points = [[0.0_f32; 2]; 24];
    let mut count = 0;
    let mut sum = [0.0_f32; 2];
    let mut add = |p: Point| {
        sum = [sum[0] + p[0], sum[1] + p[1]];
        points[count] = p;
        count += 1;
    };
    for i in 0..4 {
        for j in 0..4 {
            if let Some(p) = crossing(a_corners[i + 1], a_corners[i], b_corners[j + 1], b_corners[j]) {
                add(p);
            }
        }
    }
    for k in 0..4 {
        if contains(a, b_corners[k]) {
            add(b_corners[k]);
        }
        if contains(b, a_corners[k]) {
            add(a_corners[k]);
        }
    }
    let points = &mut points[..count];
    let centre = sum.map(|v| v / count as f32);
    let angle = |p: &Point| atan2(p[1] - centre[1], p[0] - centre[0]);
    let mut angled = [(0.0_f32, [0.0_f32; 2]); 24];
    for (slot, p) in angled.iter_mut().zip(points.iter()) {
        *slot = (angle(p), *p);
    }
    let angled = &mut angled[..count];
    // The original's bubble sort keeps equal angles in their order, and so does inserting.
    for i in 1..angled.len() {
        let mut j = i;
        while j > 0 && angled[j - 1].0 > angled[j].0 {
            angled.swap(j - 1, j);
            j -= 1;
        }
    }
    let mut area = 0.0_f32;
    for pair in angled.windows(2) {
        let [p, q] = [pair[0].1, pair[1].1].map(|p| [p[0] - angled[0].1[0], p[1] - angled[0].1[1]]);
        area += p[0] * q[1] - p[1] * q[0];
    }
    area.abs() / 2.0
}
