//! Suppression and selection of boxes: what is kept, what is dropped, and that the counts add up.

use proptest::prelude::*;
use sensorium::image::{BackMap, LetterboxPlan};
use sensorium::perception::{BoxExtent, Candidate, NmsMode, NmsParams, SelectionParams, iou, nms, select};

fn params(mode: NmsMode) -> SelectionParams {
    SelectionParams {
        nms: NmsParams {
            iou_threshold: 0.45,
            mode,
            extent: BoxExtent::InclusivePixels,
            max_candidates: 4096,
        },
        max_detections: 300,
    }
}

/// A map that leaves boxes as they are, in an image of that size.
fn same_pixels(width: usize, height: usize) -> BackMap {
    LetterboxPlan::stretch(width, height, width, height)
        .unwrap()
        .back_map()
}

fn candidate(box_xyxy: [f32; 4], score: f32, label_id: u32, cell: u32) -> Candidate {
    Candidate {
        box_xyxy,
        score,
        label_id,
        cell,
    }
}

#[test]
fn classes_suppress_each_other_only_when_asked_to() {
    let both = [
        candidate([10.0, 10.0, 50.0, 50.0], 0.9, 2, 0),
        candidate([11.0, 10.0, 50.0, 50.0], 0.8, 7, 1),
        candidate([10.0, 11.0, 50.0, 50.0], 0.7, 2, 2),
    ];
    let labels = |mode| {
        let mut candidates = both.to_vec();
        let counts = nms(&mut candidates, &params(mode).nms);
        assert_eq!(counts.suppressed, 3 - candidates.len());
        candidates.iter().map(|c| c.label_id).collect::<Vec<_>>()
    };
    assert_eq!(labels(NmsMode::ClassAware), [2, 7]);
    assert_eq!(labels(NmsMode::ClassAgnostic), [2]);
}

#[test]
fn the_extent_decides_a_close_call() {
    // Two 4 x 4 boxes one apart: 12 of 20 as lines, 20 of 30 as pixels.
    let pair = [
        candidate([0.0, 0.0, 4.0, 4.0], 0.9, 0, 0),
        candidate([1.0, 0.0, 5.0, 4.0], 0.8, 0, 1),
    ];
    assert_eq!(
        iou(&pair[0].box_xyxy, &pair[1].box_xyxy, BoxExtent::Continuous),
        0.6
    );
    let kept = |extent| {
        let mut candidates = pair.to_vec();
        let nms_params = NmsParams {
            iou_threshold: 0.63,
            extent,
            ..params(NmsMode::ClassAware).nms
        };
        nms(&mut candidates, &nms_params);
        candidates.len()
    };
    assert_eq!(kept(BoxExtent::Continuous), 2);
    assert_eq!(kept(BoxExtent::InclusivePixels), 1);
}

#[test]
fn every_candidate_is_accounted_for() {
    let mut candidates = vec![
        candidate([-20.0, -20.0, 30.0, 30.0], 0.95, 0, 0),
        candidate([-19.0, -20.0, 30.0, 30.0], 0.9, 0, 1),
        candidate([150.0, 10.0, 180.0, 40.0], 0.85, 0, 2),
        candidate([60.0, 60.0, 140.0, 100.0], 0.8, 1, 3),
        candidate([10.0, 60.0, 30.0, 90.0], 0.7, 2, 4),
        candidate([0.0, 0.0, 5.0, 5.0], 0.6, 3, 5),
    ];
    let mut limits = params(NmsMode::ClassAware);
    limits.nms.max_candidates = 5;
    limits.max_detections = 2;
    let (detections, counts) = select(&mut candidates, &limits, &same_pixels(100, 100));
    assert_eq!(
        (counts.nms.candidates, counts.nms.over_cap, counts.nms.suppressed),
        (6, 1, 1)
    );
    assert_eq!((counts.outside_image, counts.over_cap), (1, 1));
    let boxes: Vec<_> = detections.iter().map(|d| d.box_xyxy).collect();
    // Both reach over the border: cut, not dropped.
    assert_eq!(boxes, [[0.0, 0.0, 30.0, 30.0], [60.0, 60.0, 100.0, 100.0]]);
}

fn any_candidates() -> impl Strategy<Value = Vec<Candidate>> {
    // Few distinct scores, so that ties are the rule.
    let one = (0_u32..60, 0_u32..60, 1_u32..40, 1_u32..40, 1_u32..6, 0_u32..3);
    prop::collection::vec(one, 0..60).prop_map(|list| {
        let make = |(cell, (x, y, w, h, score, label)): (usize, (u32, u32, u32, u32, u32, u32))| {
            let [x1, y1, x2, y2] = [x, y, x + w, y + h].map(|v| v as f32);
            candidate([x1, y1, x2, y2], score as f32 / 8.0, label, cell as u32)
        };
        list.into_iter().enumerate().map(make).collect()
    })
}

fn any_mode() -> impl Strategy<Value = NmsMode> {
    prop::sample::select(vec![NmsMode::ClassAware, NmsMode::ClassAgnostic])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn kept_boxes_do_not_overlap_and_dropped_ones_overlap_a_better_one(
        candidates in any_candidates(),
        mode in any_mode(),
        iou_threshold in 0.1_f32..0.9,
    ) {
        let nms_params = NmsParams { iou_threshold, ..params(mode).nms };
        let mut kept = candidates.clone();
        nms(&mut kept, &nms_params);
        let rivals = |a: &Candidate, b: &Candidate| {
            (mode == NmsMode::ClassAgnostic || a.label_id == b.label_id)
                && iou(&a.box_xyxy, &b.box_xyxy, nms_params.extent) > iou_threshold
        };
        for (i, a) in kept.iter().enumerate() {
            prop_assert!(kept[i + 1..].iter().all(|b| !rivals(a, b)));
        }
        for dropped in candidates.iter().filter(|c| !kept.contains(c)) {
            prop_assert!(kept.iter().any(|k| k.score >= dropped.score && rivals(k, dropped)));
        }
    }

    #[test]
    fn the_order_of_the_candidates_does_not_matter(
        (candidates, mut shuffled) in any_candidates().prop_flat_map(|c| (Just(c.clone()), Just(c).prop_shuffle())),
        mode in any_mode(),
    ) {
        let mut sorted = candidates;
        nms(&mut sorted, &params(mode).nms);
        nms(&mut shuffled, &params(mode).nms);
        prop_assert_eq!(sorted, shuffled);
    }
}
