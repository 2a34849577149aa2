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
    /// A box goes if it overlaps a better kept one by more than this intersection over union, 0 to 1.
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

    let mut kept = 0;
    let mut rivals = KeptBoxes::default();
    for i in 0..looked_at {
        let candidate = candidates[i];
        let new_class = kept > 0 && candidates[kept - 1].label_id != candidate.label_id;
        if params.mode == NmsMode::ClassAware && new_class {
            rivals.clear();
        }
        if !rivals.suppress(&candidate.box_xyxy, params) {
            rivals.push(&candidate.box_xyxy, params.extent);
            // Kept candidates move to the front.
            candidates[kept] = candidate;
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

/// Boxes compared at once.
const BLOCK: usize = 8;

/// The kept boxes that a candidate is compared with, laid out so that a compiler can compare a block of them
/// in vector registers: more than three times faster than one by one where a whole grid fires.
#[derive(Debug, Default)]
struct KeptBoxes {
    blocks: Vec<BoxBlock>,
    len: usize,
}

#[derive(Debug, Clone, Copy)]
struct BoxBlock {
    /// Left, top, right, bottom of every box.
    sides: [[f32; BLOCK]; 4],
    areas: [f32; BLOCK],
}

impl BoxBlock {
    /// Boxes that overlap nothing: turned inside out.
    const EMPTY: Self = Self {
        sides: [
            [f32::INFINITY; BLOCK],
            [f32::INFINITY; BLOCK],
            [f32::NEG_INFINITY; BLOCK],
            [f32::NEG_INFINITY; BLOCK],
        ],
        areas: [0.0; BLOCK],
    };
}

impl KeptBoxes {
    fn clear(&mut self) {
        self.blocks.clear();
        self.len = 0;
    }

    fn push(&mut self, box_xyxy: &[f32; 4], extent: BoxExtent) {
        let slot = self.len % BLOCK;
        if slot == 0 {
            self.blocks.push(BoxBlock::EMPTY);
        }
        if let Some(block) = self.blocks.last_mut() {
            for (side, &value) in block.sides.iter_mut().zip(box_xyxy) {
                side[slot] = value;
            }
            block.areas[slot] = area(box_xyxy, extent);
        }
        self.len += 1;
    }

    /// Whether any kept box overlaps this one by more than the threshold.
    fn suppress(&self, box_xyxy: &[f32; 4], params: &NmsParams) -> bool {
        let own_area = area(box_xyxy, params.extent);
        self.blocks.iter().any(|block| {
            let [x1, y1, x2, y2] = &block.sides;
            let mut hit = false;
            for i in 0..BLOCK {
                let inter = intersection(&[x1[i], y1[i], x2[i], y2[i]], box_xyxy, params.extent);
                hit |= inter / (block.areas[i] + own_area - inter) > params.iou_threshold;
            }
            hit
        })
    }
}
