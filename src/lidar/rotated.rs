//! Overlap of rectangles that stand at an angle, seen from above, in float64.

use smallvec::SmallVec;

/// A point (x, y) in metres.
pub type Point2 = [f64; 2];

/// Corners of a convex polygon. Two rectangles meet in at most eight; more are possible, on the heap.
pub type ConvexPolygon = SmallVec<[Point2; 16]>;

/// Boxes and overlaps below this area in m² are none (`MIN_AREA` of Autoware's `get2dIoU`).
const SMALLEST_AREA_M2: f64 = 1e-6;

/// Unions below this area in m² have no overlap (`min_union_area` of Autoware's `get2dIoU`).
const SMALLEST_UNION_M2: f64 = 0.01;

/// A box seen from above.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BevBox {
    /// Middle in metres.
    pub centre_m: Point2,
    /// Along the heading, in metres.
    pub length_m: f64,
    /// Across it, in metres.
    pub width_m: f64,
    /// Heading in radians, counter-clockwise from x.
    pub yaw_rad: f64,
}

/// Corners in metres, counter-clockwise from the front left one.
#[must_use]
pub fn bev_box_corners(bev_box: &BevBox) -> [Point2; 4] {
    let [x, y] = bev_box.centre_m;
    local_corners(bev_box).map(|[dx, dy]| [x + dx, y + dy])
}

/// Corners relative to the middle.
fn local_corners(bev_box: &BevBox) -> [Point2; 4] {
    let (sin, cos) = bev_box.yaw_rad.sin_cos();
    let (l, w) = (0.5 * bev_box.length_m, 0.5 * bev_box.width_m);
    [[l, w], [-l, w], [-l, -w], [l, -w]].map(|[x, y]| [cos * x - sin * y, sin * x + cos * y])
}

/// Area in m²: positive where the corners go counter-clockwise, 0 for fewer than three.
#[must_use]
pub fn polygon_area(corners: &[Point2]) -> f64 {
    let Some(&[x0, y0]) = corners.first() else {
        return 0.0;
    };
    // Relative to the first corner, so that a distant polygon loses no digits.
    let relative = |&[x, y]: &Point2| [x - x0, y - y0];
    let pairs = corners.windows(2).map(|pair| match pair {
        [a, b] => {
            let ([ax, ay], [bx, by]) = (relative(a), relative(b));
            ax * by - bx * ay
        }
        _ => 0.0,
    });
    0.5 * pairs.sum::<f64>()
}

/// The part of `subject` inside `window`; both convex, `window` counter-clockwise. Sutherland and Hodgman's way: one edge
/// of the window after the other cuts.
#[must_use]
pub fn clip_convex(subject: &[Point2], window: &[Point2]) -> ConvexPolygon {
    let mut polygon = ConvexPolygon::from_slice(subject);
    let mut cut = ConvexPolygon::new();
    for (i, &[ax, ay]) in window.iter().enumerate() {
        let [bx, by] = window[(i + 1) % window.len()];
        // Above 0 to the left of the edge, which is inside.
        let side = |&[x, y]: &Point2| (bx - ax) * (y - ay) - (by - ay) * (x - ax);
        cut.clear();
        let Some(mut from) = polygon.last().copied() else {
            break;
        };
        let mut from_side = side(&from);
        for &to in &polygon {
            let to_side = side(&to);
            if (from_side < 0.0) != (to_side < 0.0) {
                let t = from_side / (from_side - to_side);
                cut.push([from[0] + t * (to[0] - from[0]), from[1] + t * (to[1] - from[1])]);
            }
            if to_side >= 0.0 {
                cut.push(to);
            }
            (from, from_side) = (to, to_side);
        }
        std::mem::swap(&mut polygon, &mut cut);
    }
    polygon
}

/// Intersection over union of two boxes from above, 0 to 1, as Autoware's `get2dIoU` has it: 0 where a box or the overlap
/// has less than 1e-6 m², or the union less than 0.01 m². 0 also where a number is NaN or infinite.
#[must_use]
pub fn iou_bev(a: &BevBox, b: &BevBox) -> f64 {
    match (Footprint::new(a), Footprint::new(b)) {
        (Some(a), Some(b)) => a.iou(&b),
        _ => 0.0,
    }
}

/// A box with what every comparison needs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Footprint {
    pub(super) centre_m: Point2,
    /// No part of the box is further from its middle.
    pub(super) radius_m: f64,
    /// Relative to the middle, counter-clockwise.
    corners: [Point2; 4],
    area_m2: f64,
}

impl Footprint {
    /// `None` for a box that overlaps nothing: with numbers that are none, or without area.
    pub(super) fn new(bev_box: &BevBox) -> Option<Self> {
        let [x, y] = bev_box.centre_m;
        let BevBox {
            length_m,
            width_m,
            yaw_rad,
            ..
        } = *bev_box;
        if ![x, y, length_m, width_m, yaw_rad].iter().all(|v| v.is_finite()) {
            return None;
        }
        let corners = local_corners(bev_box);
        let area_m2 = polygon_area(&corners);
        (area_m2 >= SMALLEST_AREA_M2).then(|| Self {
            centre_m: bev_box.centre_m,
            radius_m: 0.5 * length_m.hypot(width_m) * (1.0 + 1e-12),
            corners,
            area_m2,
        })
    }

    /// Whether the circles around both boxes meet; boxes overlap only then.
    pub(super) fn is_near(&self, other: &Self) -> bool {
        let (dx, dy) = (
            other.centre_m[0] - self.centre_m[0],
            other.centre_m[1] - self.centre_m[1],
        );
        let reach = self.radius_m + other.radius_m;
        dx * dx + dy * dy <= reach * reach
    }

    pub(super) fn iou(&self, other: &Self) -> f64 {
        if !self.is_near(other) {
            return 0.0;
        }
        // In the frame of the other box's middle: coordinates stay small wherever the pair is.
        let (dx, dy) = (
            self.centre_m[0] - other.centre_m[0],
            self.centre_m[1] - other.centre_m[1],
        );
        let moved = self.corners.map(|[x, y]| [x + dx, y + dy]);
        let overlap = polygon_area(&clip_convex(&moved, &other.corners));
        if overlap < SMALLEST_AREA_M2 {
            return 0.0;
        }
        let union = self.area_m2 + other.area_m2 - overlap;
        if union < SMALLEST_UNION_M2 {
            0.0
        } else {
            (overlap / union).min(1.0)
        }
    }
}
