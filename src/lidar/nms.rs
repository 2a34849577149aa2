//! Suppression of boxes that say the same object, as Autoware does it.
//!
//! Both functions take boxes in the order in which they suppress each other, best first, and keep the order. They compare
//! only boxes that lie near each other, and keep what comparing all pairs would keep.

use super::boxes::Box3d;
use super::neighbours::Neighbours;
use super::rotated::{BevBox, Footprint};
use crate::outputs::{DetectedObject, ObjectLabel};

/// Memory of the suppression; grows with the first frames, then stays.
#[derive(Debug, Clone, Default)]
pub struct NmsWorkspace {
    pub(super) grid: Neighbours,
    footprints: Vec<Option<Footprint>>,
    keep: Vec<bool>,
}

/// Removes every box whose middle lies closer than `distance_m` to that of a kept box before it, whatever the classes;
/// returns how many. In float32: `dx*dx + dy*dy < distance*distance`. Nothing is removed by a distance of 0 or less, nor
/// by coordinates that are no numbers.
pub fn circle_nms(boxes: &mut Vec<Box3d>, distance_m: f32, workspace: &mut NmsWorkspace) -> usize {
    if distance_m.is_nan() || distance_m <= 0.0 {
        return 0;
    }
    let limit = distance_m * distance_m;
    let grid = &mut workspace.grid;
    grid.reset(boxes.len(), f64::from(distance_m));
    let mut kept = 0;
    for i in 0..boxes.len() {
        let [x, y, _] = boxes[i].position_m;
        let located = x.is_finite() && y.is_finite();
        let suppressed = located
            && grid.any(f64::from(x), f64::from(y), |earlier| {
                let [other_x, other_y, _] = boxes[earlier as usize].position_m;
                let (dx, dy) = (other_x - x, other_y - y);
                dx * dx + dy * dy < limit
            });
        if suppressed {
            continue;
        }
        if located {
            grid.insert(kept as u32, f64::from(x), f64::from(y));
        }
        boxes.swap(kept, i);
        kept += 1;
    }
    let removed = boxes.len() - kept;
    boxes.truncate(kept);
    removed
}

/// Why parameters of [`iou_bev_nms`] are refused.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum NmsParamsError {
    /// A distance that is none.
    #[error("iou_nms_search_distance_2d is {0}; give a finite distance in metres, 0 or more")]
    SearchDistance(f64),
    /// A threshold that no overlap has.
    #[error("iou_nms_threshold is {0}; give an overlap from 0 to 1")]
    IouThreshold(f64),
}

/// What decides in [`iou_bev_nms`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct IouBevNmsParams {
    search_distance_m: f64,
    iou_threshold: f64,
}

impl Default for IouBevNmsParams {
    /// Autoware's: 10 m, 0.1.
    fn default() -> Self {
        Self {
            search_distance_m: 10.0,
            iou_threshold: 0.1,
        }
    }
}

impl IouBevNmsParams {
    /// Objects up to `search_distance_m` apart suppress each other above `iou_threshold`.
    ///
    /// # Errors
    /// [`NmsParamsError`].
    pub fn new(search_distance_m: f64, iou_threshold: f64) -> Result<Self, NmsParamsError> {
        if !(search_distance_m.is_finite() && search_distance_m >= 0.0) {
            return Err(NmsParamsError::SearchDistance(search_distance_m));
        }
        if !(0.0..=1.0).contains(&iou_threshold) {
            return Err(NmsParamsError::IouThreshold(iou_threshold));
        }
        Ok(Self {
            search_distance_m,
            iou_threshold,
        })
    }

    /// Whether two objects are compared at all: a pedestrian only with pedestrians, and only up to the search distance.
    #[must_use]
    pub fn compares(&self, a: &DetectedObject, b: &DetectedObject) -> bool {
        let pedestrian = ObjectLabel::Pedestrian;
        if a.label != b.label && (a.label == pedestrian || b.label == pedestrian) {
            return false;
        }
        let (dx, dy) = (
            a.position_m[0] - b.position_m[0],
            a.position_m[1] - b.position_m[1],
        );
        dx * dx + dy * dy <= self.search_distance_m * self.search_distance_m
    }

    /// Overlap above which the later object goes.
    #[must_use]
    pub const fn iou_threshold(&self) -> f64 {
        self.iou_threshold
    }
}

/// The box of an object from above.
#[must_use]
pub fn bev_box(object: &DetectedObject) -> BevBox {
    let [x, y, _] = object.position_m;
    let [length_m, width_m, _] = object.size_m;
    BevBox {
        centre_m: [x, y],
        length_m,
        width_m,
        yaw_rad: object.yaw_rad,
    }
}

/// Removes every object that overlaps an earlier one by more than the threshold; returns how many. As in Autoware's
/// `perception_utils::IouBevNms`, an object that was itself removed still removes others.
pub fn iou_bev_nms(
    objects: &mut Vec<DetectedObject>,
    params: &IouBevNmsParams,
    workspace: &mut NmsWorkspace,
) -> usize {
    let NmsWorkspace {
        grid,
        footprints,
        keep,
    } = workspace;
    footprints.clear();
    footprints.extend(objects.iter().map(|object| Footprint::new(&bev_box(object))));
    let largest = footprints
        .iter()
        .flatten()
        .map(|f| f.radius_m)
        .fold(0.0, f64::max);
    // Above 0 whatever the parameters, for a grid has squares.
    let reach = params.search_distance_m.min(2.0 * largest).max(1e-3);
    grid.reset(objects.len(), reach);
    keep.clear();
    for (i, (object, footprint)) in objects.iter().zip(footprints.iter()).enumerate() {
        let Some(footprint) = footprint else {
            keep.push(true);
            continue;
        };
        let [x, y] = footprint.centre_m;
        let suppressed = grid.any(x, y, |earlier| {
            let earlier = earlier as usize;
            params.compares(object, &objects[earlier])
                && footprints[earlier].is_some_and(|other| footprint.iou(&other) > params.iou_threshold)
        });
        keep.push(!suppressed);
        grid.insert(i as u32, x, y);
    }
    let before = objects.len();
    let mut kept = keep.iter();
    objects.retain(|_| kept.next().copied().unwrap_or(true));
    before - objects.len()
}
