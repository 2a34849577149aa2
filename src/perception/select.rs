//! From the candidates of a head to the detections in a camera image.

use crate::image::BackMap;
use crate::outputs::Detection2D;

use super::candidate::Candidate;
use super::nms::{NmsCounts, NmsParams, nms};

/// How candidates are selected.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SelectionParams {
    /// Suppression.
    pub nms: NmsParams,
    /// Only that many best detections come out.
    pub max_detections: usize,
}

/// What became of the candidates of one image. `nms.candidates = nms.over_cap + nms.suppressed +
/// outside_image + over_cap + detections`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SelectionCounts {
    /// Suppression.
    pub nms: NmsCounts,
    /// Kept boxes of which nothing lies in the image.
    pub outside_image: usize,
    /// Boxes in the image left out by `max_detections`.
    pub over_cap: usize,
}

/// Maps the candidates back to the source image, suppresses, clips, and caps; best first.
///
/// Suppression sees whole boxes in source pixels, before they are clipped, as in the YOLOX demo. A box that
/// reaches over the border is cut to the image, never dropped for it; a box of no area never comes out.
/// `candidates` is left in an unspecified state, its memory to be used again.
pub fn select(
    candidates: &mut Vec<Candidate>,
    params: &SelectionParams,
    back: &BackMap,
) -> (Vec<Detection2D>, SelectionCounts) {
    for candidate in candidates.iter_mut() {
        candidate.box_xyxy = back.to_source(candidate.box_xyxy);
    }
    let nms = nms(candidates, &params.nms);
    let kept = candidates.len();
    let mut detections: Vec<Detection2D> = candidates
        .iter()
        .filter_map(|candidate| {
            Some(Detection2D {
                label_id: candidate.label_id,
                score: candidate.score,
                box_xyxy: back.clip(candidate.box_xyxy)?,
            })
        })
        .collect();
    let inside = detections.len();
    detections.truncate(params.max_detections);
    let counts = SelectionCounts {
        nms,
        outside_image: kept - inside,
        over_cap: inside - detections.len(),
    };
    (detections, counts)
}
