//! Decoded boxes become objects as Autoware's nodes publish them; proposals of the query heads become boxes.

use crate::support;
use std::f64::consts::PI;

use sensorium::lidar::{
    BevFusionDecode, BevFusionParams, Box3d, Box3dVariance, ClassRemapper, DecodeConfigError, DecodeCounts,
    Gates, ObjectRules, RemapError, RemapParams, TransFusionDecode, TransFusionParams, YawRule,
    to_detected_objects,
};
use sensorium::outputs::{DetectedObject, ObjectLabel, OrientationAvailability};

const NAMES: [&str; 5] = ["CAR", "TRUCK", "BUS", "BICYCLE", "PEDESTRIAN"];

/// Pseudo-random numbers from -1 to 1.
fn random(state: &mut u64) -> f32 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (*state >> 40) as f32 / (1 << 23) as f32 - 1.0
}

fn exp(x: f32) -> f32 {
    f64::from(x).exp() as f32
}

fn close(a: f64, b: f64) {
    assert!((a - b).abs() < 1e-6, "{a} is not {b}");
}

#[test]
fn a_centerpoint_box_becomes_the_object_of_autowares_node() {
    let decoded = Box3d {
        label: 0,
        score: 0.75,
        position_m: [10.0, -4.0, 0.5],
        size_m: [4.5, 1.9, 1.6],
        yaw_rad: 0.5,
        velocity_mps: [3.0, 4.0],
        variance: Some(Box3dVariance {
            position_m2: [0.1, 0.2, 0.3],
            log_size: [9.0; 3],
            yaw_rad2: 0.4,
            velocity_m2ps2: [0.5, 0.2],
        }),
        ..Box3d::default()
    };
    let object = ObjectRules::new(&NAMES, YawRule::CenterPoint, true).object(&decoded);
    let heading = -0.5 - PI / 2.0;
    assert_eq!((object.label, object.score), (ObjectLabel::Car, 0.75));
    assert_eq!(object.orientation, OrientationAvailability::SignUnknown);
    assert_eq!(object.position_m, [10.0, -4.0, 0.5]);
    assert_eq!(object.size_m, [4.5, 1.9, 1.6].map(|v: f32| f64::from(v)));
    // The heading is a float32 number before it is anything else.
    assert_eq!(object.yaw_rad, f64::from(heading as f32));
    let twist = object.twist.unwrap();
    close(twist.linear_x_mps, heading.cos() * 3.0 + heading.sin() * 4.0);
    close(twist.linear_y_mps, -heading.sin() * 3.0 + heading.cos() * 4.0);
    assert_eq!(twist.angular_z_radps, 0.0);
    let pose = object.pose_variance.unwrap();
    assert_eq!(pose.position_m2, [0.1, 0.2, 0.3].map(|v: f32| f64::from(v)));
    assert_eq!(pose.yaw_rad2, f64::from(0.4_f32));
    let [forward, left] = object.twist_variance.unwrap();
    let (sin2, cos2) = (heading.sin().powi(2), heading.cos().powi(2));
    close(forward, 0.5 * cos2 + 0.2 * sin2);
    close(left, 0.5 * sin2 + 0.2 * cos2);

    let still = ObjectRules::new(&NAMES, YawRule::CenterPoint, false).object(&decoded);
    assert_eq!((still.twist, still.twist_variance), (None, None));
    assert!(still.pose_variance.is_some());
}

#[test]
fn each_detector_turns_its_angle_into_a_heading_between_minus_and_plus_pi() {
    for (rule, offset, sign) in [
        (YawRule::CenterPoint, -PI / 2.0, -1.0),
        (YawRule::TransFusion, PI / 2.0, 1.0),
        (YawRule::BevFusion, 0.0, 1.0),
    ] {
        for step in -100..=100 {
            let yaw_rad = (f64::from(step) * PI / 100.0) as f32;
            let object = ObjectRules::new(&NAMES, rule, false).object(&Box3d {
                yaw_rad,
                ..Box3d::default()
            });
            let expected = sign * f64::from(yaw_rad) + offset;
            assert!((-PI..=PI).contains(&object.yaw_rad), "{}", object.yaw_rad);
            close((object.yaw_rad - expected).sin(), 0.0);
            close((object.yaw_rad - expected).cos(), 1.0);
        }
    }
}

#[test]
fn class_names_mean_autowares_classes() {
    let names = [
        "CAR",
        "TRUCK",
        "BUS",
        "TRAILER",
        "MOTORBIKE",
        "MOTORCYCLE",
        "BICYCLE",
        "PEDESTRIAN",
        "BARRIER",
        "car",
    ];
    let rules = ObjectRules::new(&names, YawRule::BevFusion, false);
    let boxes: Vec<Box3d> = (0..11)
        .map(|label| Box3d {
            label,
            ..Box3d::default()
        })
        .collect();
    let mut objects = Vec::new();
    to_detected_objects(&boxes, &rules, &mut objects);
    use ObjectLabel::{Bicycle, Bus, Car, Motorcycle, Pedestrian, Trailer, Truck, Unknown};
    let labels: Vec<_> = objects.iter().map(|o| o.label).collect();
    assert_eq!(
        labels,
        [
            Car, Truck, Bus, Trailer, Motorcycle, Motorcycle, Bicycle, Pedestrian, Unknown, Unknown, Unknown
        ]
    );
    for object in objects {
        let car_like = matches!(object.label, Car | Truck | Bus | Trailer);
        let expected = if car_like {
            OrientationAvailability::SignUnknown
        } else {
            OrientationAvailability::Unavailable
        };
        assert_eq!(object.orientation, expected);
    }
}

/// The parameters of a ROS 2 file.
#[derive(serde::Deserialize)]
struct Params<T> {
    #[serde(rename = "/**")]
    node: Node<T>,
}

#[derive(serde::Deserialize)]
struct Node<T> {
    #[serde(rename = "ros__parameters")]
    parameters: T,
}

#[test]
fn the_deployed_remapper_makes_long_vehicles_trailers() {
    for detector in [
        "autoware_lidar_centerpoint",
        "autoware_lidar_transfusion",
        "autoware_bevfusion",
    ] {
        let path = format!(
            "autoware_params/2026-06/perception/{detector}/config/detection_class_remapper.param.yaml"
        );
        let Some(path) = support::data(&path) else { return };
        let text = std::fs::read_to_string(path).unwrap();
        let params: Params<RemapParams> = serde_saphyr::from_str(&text).unwrap();
        let remapper = ClassRemapper::new(&params.node.parameters).unwrap();
        use ObjectLabel::{Bicycle, Bus, Car, Pedestrian, Trailer, Truck, Unknown};
        for (from, length, width, to) in [
            (Car, 4.5, 1.9, Car),
            (Car, 5.5, 2.21, Truck),
            (Car, 12.0, 3.0, Truck),
            (Car, 12.1, 3.0, Trailer),
            (Truck, 8.0, 2.5, Truck),
            (Truck, 16.0, 2.5, Trailer),
            (Bus, 12.0, 3.0, Trailer),
            (Bus, 400.0, 3.0, Bus),
            (Unknown, 16.0, 2.5, Unknown),
            (Bicycle, 16.0, 2.5, Bicycle),
            (Pedestrian, 16.0, 2.5, Pedestrian),
            (Trailer, 1.0, 1.0, Trailer),
        ] {
            assert_eq!(
                remapper.remap(from, length, width),
                to,
                "{detector}: {from:?} of {length} x {width}"
            );
        }
    }
}

fn remap_params(allow: &[i64], smallest: &[f64], largest: &[f64]) -> RemapParams {
    RemapParams {
        allow_remapping_by_area_matrix: allow.to_vec(),
        min_area_matrix: smallest.to_vec(),
        max_area_matrix: largest.to_vec(),
    }
}

#[test]
fn the_area_is_a_float32_number_and_the_first_allowed_class_is_taken() {
    // Autoware's own test: 1 becomes 2 from 10 m², 2 becomes 1 up to 10 m².
    let allow = [0, 0, 0, 0, 0, 1, 0, 1, 0];
    let smallest = [0.0, 0.0, 0.0, 0.0, 0.0, 10.0, 0.0, 0.0, 0.0];
    let largest = [0.0, 0.0, 0.0, 0.0, 0.0, 999.0, 0.0, 10.0, 0.0];
    let remapper = ClassRemapper::new(&remap_params(&allow, &smallest, &largest)).unwrap();
    use ObjectLabel::{Bus, Car, Truck, Unknown};
    for (from, length, width, to) in [
        (Unknown, 2.0, 2.0, Unknown),
        (Car, 8.0, 2.0, Truck),
        (Truck, 3.0, 3.0, Car),
        (Truck, 4.0, 3.0, Truck),
        (Bus, 8.0, 2.0, Bus),
        // 10 - 4e-8 is 10 in float32, so it lies in both ranges.
        (Car, 5.0 - 2e-8, 2.0, Truck),
        (Car, f64::NAN, 2.0, Car),
    ] {
        assert_eq!(
            remapper.remap(from, length, width),
            to,
            "{from:?} of {length} x {width}"
        );
    }
    // Several classes are allowed: the lowest number wins. Limits that are no numbers are the largest there are.
    let anything = remap_params(&[0, 1, 1, 1], &[f64::NAN, 0.0, 0.0, 0.0], &[f64::INFINITY; 4]);
    let remapper = ClassRemapper::new(&anything).unwrap();
    assert_eq!(
        (remapper.remap(Car, 1.0, 1.0), remapper.remap(Unknown, 9e9, 9e9)),
        (Unknown, Car)
    );

    let object = |label| DetectedObject {
        label,
        ..ObjectRules::new(&NAMES, YawRule::BevFusion, false).object(&Box3d::default())
    };
    let mut objects = [object(Car), object(Truck), object(Unknown)];
    assert_eq!(remapper.apply(&mut objects), 2);
    assert_eq!(objects.map(|o| o.label), [Unknown, Truck, Car]);
}

#[test]
fn matrices_of_a_wrong_size_are_told() {
    for (params, expected) in [
        (remap_params(&[], &[], &[]), RemapError::Empty),
        (
            remap_params(&[0; 64], &[0.0; 63], &[0.0; 64]),
            RemapError::Length {
                name: "min_area_matrix",
                got: 63,
                expected: 64,
            },
        ),
        (
            remap_params(&[0; 64], &[0.0; 64], &[0.0; 65]),
            RemapError::Length {
                name: "max_area_matrix",
                got: 65,
                expected: 64,
            },
        ),
        (
            remap_params(&[0; 2], &[0.0; 2], &[0.0; 2]),
            RemapError::Square { got: 2 },
        ),
        (
            remap_params(&[0; 81], &[0.0; 81], &[0.0; 81]),
            RemapError::Classes { got: 9 },
        ),
    ] {
        let error = ClassRemapper::new(&params).unwrap_err();
        assert_eq!(error, expected);
        assert!(
            error.to_string().contains("8 rows of 8 classes") || error.to_string().contains("same number"),
            "{error}"
        );
    }
}

fn add_up(counts: &DecodeCounts) -> usize {
    counts.kept
        + counts.below_score
        + counts.out_of_range
        + counts.weak_heading
        + counts.non_finite
        + counts.bad_label
}

#[test]
fn transfusion_proposals_decode_to_the_bits_of_the_formula() {
    const N: usize = 500;
    let state = &mut (3_u64 << 40);
    let mut scores: Vec<f32> = (0..5 * N).map(|_| random(state) * 0.5 + 0.5).collect();
    let mut boxes: Vec<f32> = (0..8 * N).map(|_| random(state) * 1.5).collect();
    let mut rotations: Vec<f32> = (0..2 * N).map(|_| random(state)).collect();
    for score in scores.iter_mut().step_by(7) {
        *score = 0.25;
    }
    // A tie: the first class wins. A score of just the threshold goes.
    (scores[0], scores[N], scores[2 * N], scores[3 * N], scores[4 * N]) = (0.8, 0.9, 0.9, 0.1, 0.9);
    for class in 0..5 {
        scores[class * N + 1] = 0.1;
    }
    (rotations[0], rotations[N]) = (0.6, 0.8);
    let yaw_norm_thresholds = [0.3, 0.3, 0.3, 0.3, 0.0];
    let params = TransFusionParams {
        voxel_size_m: [0.24, 0.24],
        range_min_m: [-92.16, -92.16],
        out_size_factor: 4,
        proposals: N,
        score_threshold: 0.1,
        yaw_norm_thresholds: &yaw_norm_thresholds,
    };
    let decoder = TransFusionDecode::new(&params).unwrap();
    let expected: Vec<Box3d> = (0..N)
        .filter_map(|i| {
            let label = (1..5).fold(0, |best, c| {
                if scores[c * N + i] > scores[best * N + i] {
                    c
                } else {
                    best
                }
            });
            let (sin, cos) = (rotations[i], rotations[N + i]);
            let norm = (sin * sin + cos * cos).sqrt();
            let kept = norm >= yaw_norm_thresholds[label] as f32 && scores[label * N + i] > 0.1_f32;
            kept.then(|| Box3d {
                label: label as u32,
                score: scores[label * N + i],
                position_m: [
                    boxes[i] * 4.0 * 0.24_f32 + -92.16_f32,
                    boxes[N + i] * 4.0 * 0.24_f32 + -92.16_f32,
                    boxes[2 * N + i],
                ],
                size_m: [
                    exp(boxes[4 * N + i]),
                    exp(boxes[3 * N + i]),
                    exp(boxes[5 * N + i]),
                ],
                yaw_rad: f64::from(sin).atan2(f64::from(cos)) as f32,
                velocity_mps: [boxes[6 * N + i], boxes[7 * N + i]],
                cell: i as u32,
                ..Box3d::default()
            })
        })
        .collect();
    assert_eq!(expected[0].label, 1);
    let mut out = Vec::new();
    let counts = decoder.decode(&scores, &boxes, &rotations, &mut out).unwrap();
    assert_eq!(out, expected);
    assert_eq!((add_up(&counts), counts.seen, counts.non_finite), (N, N, 0));
    assert!(counts.weak_heading > 10 && counts.below_score > 0, "{counts:?}");

    // Without speeds.
    out.clear();
    decoder
        .decode(&scores, &boxes[..6 * N], &rotations, &mut out)
        .unwrap();
    assert_eq!(out.len(), expected.len());
    assert!(out.iter().all(|b| b.velocity_mps == [0.0; 2]));

    let kept: Vec<usize> = expected.iter().map(|b| b.cell as usize).collect();
    scores[2 * N + kept[3]] = f32::NAN;
    scores[kept[4]] = f32::INFINITY;
    boxes[3 * N + kept[5]] = f32::NEG_INFINITY;
    boxes[kept[6]] = f32::NAN;
    rotations[kept[7]] = f32::NAN;
    rotations[N + kept[8]] = f32::INFINITY;
    boxes[5 * N + kept[9]] = 200.0;
    out.clear();
    let counts = decoder.decode(&scores, &boxes, &rotations, &mut out).unwrap();
    assert_eq!((counts.non_finite, out.len()), (7, expected.len() - 7));
    assert!(!out.iter().any(|b| kept[3..10].contains(&(b.cell as usize))));

    let error = decoder
        .decode(&scores[1..], &boxes, &rotations, &mut out)
        .unwrap_err();
    assert!(
        error.to_string().contains("cls_score head has 2499 values"),
        "{error}"
    );
    let error = decoder
        .decode(&scores, &boxes[1..], &rotations, &mut out)
        .unwrap_err();
    assert!(
        error.to_string().contains("bbox_pred head has 3999 values"),
        "{error}"
    );
    let error = TransFusionDecode::new(&TransFusionParams {
        yaw_norm_thresholds: &[],
        ..params
    })
    .unwrap_err();
    assert_eq!(error, DecodeConfigError::NoClasses);
}

#[test]
fn a_transfusion_threshold_that_is_none_is_autowares_default() {
    let decode = |score_threshold: f64, score: f32| {
        let params = TransFusionParams {
            voxel_size_m: [0.24; 2],
            range_min_m: [0.0; 2],
            out_size_factor: 4,
            proposals: 1,
            score_threshold,
            yaw_norm_thresholds: &[0.0],
        };
        let mut out = Vec::new();
        let decoder = TransFusionDecode::new(&params).unwrap();
        decoder
            .decode(&[score], &[0.0; 6], &[0.0, 1.0], &mut out)
            .unwrap();
        out.len()
    };
    assert_eq!((decode(0.5, 0.5), decode(0.5, 0.51)), (0, 1));
    assert_eq!(
        (decode(0.0, 0.2), decode(0.0, 0.21), decode(-1.0, 0.2)),
        (0, 1, 0)
    );
}

#[test]
fn bevfusion_proposals_decode_to_the_bits_of_the_formula() {
    const N: usize = 500;
    let state = &mut (5_u64 << 40);
    let mut labels: Vec<i64> = (0..N as i64).map(|i| i % 5).collect();
    let mut scores: Vec<f32> = (0..N).map(|_| random(state) * 0.3 + 0.25).collect();
    let mut boxes: Vec<f32> = (0..10 * N).map(|_| random(state)).collect();
    for value in &mut boxes[..2 * N] {
        *value = *value * 100.0 + 90.0;
    }
    for score in scores.iter_mut().step_by(50) {
        *score = 0.0;
    }
    let limits = [50.0, 90.0, 121.0];
    let thresholds: Vec<f64> = (0..15).map(|i| f64::from(i) * 0.03).collect();
    let yaw = [0.3, 0.3, 0.3, 0.3, 0.0];
    let gates = Gates::new(5, &limits, &thresholds, &yaw).unwrap();
    let params = BevFusionParams {
        voxel_size_m: [0.17, 0.17],
        range_min_m: [-122.4, -122.4],
        out_size_factor: 8,
        proposals: N,
    };
    let decoder = BevFusionDecode::new(&params, gates).unwrap();
    let expected: Vec<Box3d> = (0..N)
        .filter_map(|i| {
            let label = labels[i] as usize;
            let (sin, cos) = (boxes[6 * N + i], boxes[7 * N + i]);
            let x = boxes[i] * 8.0 * 0.17_f32 + -122.4_f32;
            let y = boxes[N + i] * 8.0 * 0.17_f32 + -122.4_f32;
            let bin = limits.iter().position(|&l| x * x + y * y < l as f32 * l as f32)?;
            let kept = (sin * sin + cos * cos).sqrt() >= yaw[label] as f32
                && scores[i] > 0.0
                && scores[i] >= thresholds[bin * 5 + label] as f32;
            kept.then(|| Box3d {
                label: label as u32,
                score: scores[i],
                position_m: [x, y, boxes[2 * N + i]],
                size_m: [3, 4, 5].map(|row| exp(boxes[row * N + i])),
                yaw_rad: f64::from(sin).atan2(f64::from(cos)) as f32,
                velocity_mps: [boxes[8 * N + i], boxes[9 * N + i]],
                cell: i as u32,
                ..Box3d::default()
            })
        })
        .collect();
    let mut out = Vec::new();
    let counts = decoder.decode(&labels, &scores, &boxes, &mut out).unwrap();
    assert_eq!(out, expected);
    assert_eq!(
        (add_up(&counts), counts.seen, counts.kept),
        (N, N, expected.len())
    );
    assert!(
        counts.weak_heading > 5 && counts.below_score > 20 && counts.out_of_range > 20 && counts.kept > 100,
        "{counts:?}"
    );

    let kept: Vec<usize> = expected.iter().map(|b| b.cell as usize).collect();
    labels[kept[0]] = 5;
    labels[kept[1]] = -1;
    labels[kept[2]] = i64::MAX;
    scores[kept[3]] = f32::NAN;
    boxes[kept[4]] = f32::NAN;
    boxes[9 * N + kept[5]] = f32::INFINITY;
    boxes[4 * N + kept[6]] = f32::NEG_INFINITY;
    out.clear();
    let counts = decoder.decode(&labels, &scores, &boxes, &mut out).unwrap();
    assert_eq!(
        (counts.bad_label, counts.non_finite, out.len()),
        (3, 4, expected.len() - 7)
    );

    let error = decoder
        .decode(&labels[1..], &scores, &boxes, &mut out)
        .unwrap_err();
    assert!(
        error.to_string().contains("label_pred head has 499 values"),
        "{error}"
    );
    let error = decoder
        .decode(&labels, &scores, &boxes[10..], &mut out)
        .unwrap_err();
    assert!(
        error.to_string().contains("10 channels of 500 cells need 5000"),
        "{error}"
    );
}

#[test]
fn unused_places_of_a_fixed_size_output_are_no_boxes() {
    // Three proposals of 200; the rest is zero, as a network leaves it.
    let n = 200;
    let (mut scores, mut boxes, mut rotations) = (vec![0.0; 5 * n], vec![0.0; 8 * n], vec![0.0; 2 * n]);
    for i in 0..3 {
        (scores[n + i], boxes[3 * n + i], rotations[n + i]) = (0.9, 1.0, 1.0);
    }
    let params = TransFusionParams {
        voxel_size_m: [0.24; 2],
        range_min_m: [-92.16; 2],
        out_size_factor: 4,
        proposals: n,
        score_threshold: 0.1,
        yaw_norm_thresholds: &[0.0; 5],
    };
    let mut out = Vec::new();
    let counts = TransFusionDecode::new(&params)
        .unwrap()
        .decode(&scores, &boxes, &rotations, &mut out)
        .unwrap();
    assert_eq!((out.len(), counts.kept, counts.below_score), (3, 3, n - 3));

    let params = BevFusionParams {
        voxel_size_m: [0.17; 2],
        range_min_m: [-122.4; 2],
        out_size_factor: 8,
        proposals: n,
    };
    // Even where the parameters ask for no score and no heading at all.
    let gates = Gates::new(5, &[200.0], &[0.0; 5], &[0.0; 5]).unwrap();
    let mut one_each = vec![0.0; n];
    one_each[..3].fill(0.9);
    out.clear();
    let decoder = BevFusionDecode::new(&params, gates).unwrap();
    let counts = decoder
        .decode(&vec![0; n], &one_each, &vec![0.0; 10 * n], &mut out)
        .unwrap();
    assert_eq!((out.len(), counts.kept, counts.below_score), (3, 3, n - 3));
}
