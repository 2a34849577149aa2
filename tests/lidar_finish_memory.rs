//! After the first frames, finishing a LiDAR head allocates nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

#[path = "support/allocations.rs"]
mod allocations;

use std::sync::atomic::Ordering;

use allocations::{ALLOCATIONS, ARMED};
use sensorium::lidar::{
    CenterHeadDecode, CenterHeadParams, CenterHeads, ClassRemapper, Gates, HeadChannels, IouBevNmsParams,
    NmsWorkspace, ObjectRules, PcdetBox, PcdetNmsParams, Peak, PeakParams, RemapParams, TransFusionDecode,
    TransFusionParams, YawRule, circle_nms, heatmap_peaks, iou_bev_nms, pcdet_nms, sort_by_score,
    to_detected_objects,
};

const SIDE: usize = 64;
const ROW: usize = 32;

#[test]
fn decoding_suppression_and_remapping_allocate_nothing() {
    let state = &mut (1_u64 << 40);
    let mut random = || {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        (*state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    // The largest frame comes first.
    let frames: Vec<Vec<f32>> = [1.0, 0.5, 0.7]
        .map(|busy| {
            let value = |i: usize| {
                let v = random();
                if i % ROW < 5 {
                    v * 5.0 - 9.0 * (1.0 - busy)
                } else {
                    v
                }
            };
            (0..SIDE * SIDE * ROW).map(value).collect()
        })
        .to_vec();
    let gates = Gates::new(5, &[100.0], &[0.35; 5], &[0.1; 5]).unwrap();
    let params = CenterHeadParams {
        voxel_size_m: [0.32; 2],
        range_min_m: [-20.0; 2],
        downsample_factor: 2,
        grid: [SIDE; 2],
        has_variance: false,
        has_twist: true,
    };
    let decoder = CenterHeadDecode::new(&params, gates).unwrap();
    let rules = ObjectRules::new(
        &["CAR", "TRUCK", "BUS", "BICYCLE", "PEDESTRIAN"],
        YawRule::CenterPoint,
        true,
    );
    let remapper = ClassRemapper::new(&RemapParams {
        allow_remapping_by_area_matrix: vec![1; 64],
        min_area_matrix: vec![2.0; 64],
        max_area_matrix: vec![3.0; 64],
    })
    .unwrap();
    let transfusion = TransFusionDecode::new(&TransFusionParams {
        voxel_size_m: [0.24; 2],
        range_min_m: [0.0; 2],
        out_size_factor: 4,
        proposals: 200,
        score_threshold: 0.1,
        yaw_norm_thresholds: &[0.3; 5],
    })
    .unwrap();
    let iou_params = IouBevNmsParams::default();
    let channels = HeadChannels::centerpoint(5, false);
    let mut workspace = NmsWorkspace::default();
    let (mut boxes, mut objects, mut proposals) = (Vec::new(), Vec::new(), Vec::new());
    let (mut peaks, mut kept, mut rotated, mut scores): (Vec<Peak>, Vec<u32>, Vec<PcdetBox>, Vec<f32>) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut frame = |data: &[f32]| {
        boxes.clear();
        objects.clear();
        proposals.clear();
        rotated.clear();
        scores.clear();
        let heads = CenterHeads::packed_rows(data, ROW, channels, SIDE * SIDE).unwrap();
        decoder.decode(&heads, &mut boxes).unwrap();
        sort_by_score(&mut boxes);
        circle_nms(&mut boxes, 0.5, &mut workspace);
        to_detected_objects(&boxes, &rules, &mut objects);
        rotated.extend(boxes.iter().map(|b| PcdetBox {
            centre_m: [b.position_m[0], b.position_m[1]],
            size_m: [b.size_m[0], b.size_m[1]],
            heading_rad: b.yaw_rad,
        }));
        scores.extend(boxes.iter().map(|b| b.score));
        let nms = PcdetNmsParams {
            iou_threshold: 0.2,
            most_before: 1000,
            most_after: 100,
        };
        pcdet_nms(&rotated, &scores, &nms, &mut workspace, &mut kept);
        iou_bev_nms(&mut objects, &iou_params, &mut workspace);
        let changed = remapper.apply(&mut objects);
        heatmap_peaks(&data[..2 * 4096], [2, 64, 64], &PeakParams::default(), &mut peaks).unwrap();
        transfusion
            .decode(&data[..1000], &data[..1600], &data[..400], &mut proposals)
            .unwrap();
        (
            boxes.len(),
            objects.len(),
            changed,
            kept.len(),
            peaks.len(),
            proposals.len(),
        )
    };
    frame(&frames[0]);
    ALLOCATIONS.store(0, Ordering::SeqCst);
    ARMED.store(true, Ordering::SeqCst);
    let sizes = [0, 1, 2, 0].map(|i: usize| frame(&frames[i]));
    ARMED.store(false, Ordering::SeqCst);
    assert_eq!(ALLOCATIONS.load(Ordering::SeqCst), 0);
    for (boxes, objects, _, kept, _, proposals) in sizes {
        assert!(
            boxes > 50 && objects > 20 && kept > 20 && proposals > 10,
            "{sizes:?}"
        );
    }
}
