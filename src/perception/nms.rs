//! Greedy non-maximum suppression.

use super::candidate::Candidate;

/// Which boxes can suppress each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NmsMode {
    /// Only boxes of the same class. The YOLOX demo's class-aware variant: a cell takes part in every class
    /// that it scores high enough for.
    ClassAware,
    /// Any box any other; a cell takes part with its best class alone.
    ClassAgnostic,
}

/// What the sides of a box are when its area is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BoxExtent {
    /// `right - left`: edges are lines.
    Continuous,
    /// `right - left + 1`: edges are pixels that belong to the box, as the YOLOX and FastestDet demos
    /// have it. Overlaps come out a little larger, noticeably so for small boxes.
    InclusivePixels,
}

/// How to suppress.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NmsParams {
    /// A box goes if it overlaps a better kept one by more than this intersection over union.
    pub iou_threshold: f32,
    /// Which boxes can suppress each other.
    pub mode: NmsMode,
    /// How areas are computed.
    pub extent: BoxExtent,
    /// Only that many best candidates are looked at; bounds the time that a bad frame can take.
    pub max_candidates: usize,
}

/// What became of the candidates of one image.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NmsCounts {
    /// Candidates given.
    pub candidates: usize,
    /// Of those, left out by `max_candidates`.
    pub over_cap: usize,
    /// Of the rest, suppressed by a better box.
    pub suppressed: usize,
}

/// Keeps the candidates that no better one suppresses, best first.
///
/// The order is by falling score, then class, then cell, so the result does not depend on the order of the
/// input. Scores and coordinates are expected to be finite, as decoders make them.
pub fn nms(candidates: &mut Vec<Candidate>, params: &NmsParams) -> NmsCounts {
    let given = candidates.len();
    candidates.sort_unstable_by(best_first);
    candidates.truncate(params.max_candidates);
    let looked_at = candidates.len();
    if params.mode == NmsMode::ClassAware {
        // Stable: within a class the best stays first.
        candidates.sort_by_key(|c| c.label_id);
    }

    // Kept boxes move to the front; those of the current group lie in `group..kept`.
    let (mut group, mut kept) = (0, 0);
    let mut areas: Vec<f32> = Vec::new();
    for i in 0..looked_at {
        let candidate = candidates[i];
        let new_class = kept > group && candidates[kept - 1].label_id != candidate.label_id;
        if params.mode == NmsMode::ClassAware && new_class {
            group = kept;
            areas.clear();
        }
        let area = area(&candidate.box_xyxy, params.extent);
        let suppressed = candidates[group..kept]
            .iter()
            .zip(&areas)
            .any(|(better, &better_area)| {
                let inter = intersection(&better.box_xyxy, &candidate.box_xyxy, params.extent);
                inter / (better_area + area - inter) > params.iou_threshold
            });
        if !suppressed {
            candidates[kept] = candidate;
            areas.push(area);
            kept += 1;
        }
    }
    candidates.truncate(kept);
    candidates.sort_unstable_by(best_first);
    NmsCounts {
        candidates: given,
        over_cap: given - looked_at,
        suppressed: looked_at - kept,
    }
}

/// Intersection over union of two boxes (left, top, right, bottom), 0 to 1.
#[must_use]
pub fn iou(a: &[f32; 4], b: &[f32; 4], extent: BoxExtent) -> f32 {
    let inter = intersection(a, b, extent);
    inter / (area(a, extent) + area(b, extent) - inter)
}

fn best_first(a: &Candidate, b: &Candidate) -> std::cmp::Ordering {
    b.score
        .total_cmp(&a.score)
        .then_with(|| (a.label_id, a.cell).cmp(&(b.label_id, b.cell)))
}

const fn border(extent: BoxExtent) -> f32 {
    match extent {
        BoxExtent::Continuous => 0.0,
        BoxExtent::InclusivePixels => 1.0,
    }
}

fn area([x1, y1, x2, y2]: &[f32; 4], extent: BoxExtent) -> f32 {
    (x2 - x1 + border(extent)) * (y2 - y1 + border(extent))
}

fn intersection(a: &[f32; 4], b: &[f32; 4], extent: BoxExtent) -> f32 {
    let width = a[2].min(b[2]) - a[0].max(b[0]) + border(extent);
    let height = a[3].min(b[3]) - a[1].max(b[1]) + border(extent);
    width.max(0.0) * height.max(0.0)
}
