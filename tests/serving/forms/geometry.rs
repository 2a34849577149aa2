//! Cameras, transforms, intrinsics and regions.

use super::form;
use proptest::prelude::*;
use sensorium::io::forms::{RoiForm, decode_rois, parse_intrinsics, parse_transform};
use serde_json::{Value, json};

#[test]
fn a_transform_in_every_spelling_is_the_same() {
    // A quarter turn to the left, and a shift.
    let rows = json!([[0, -1, 0, 1], [1, 0, 0, 2], [0, 0, 1, 3]]);
    let half = std::f64::consts::FRAC_1_SQRT_2;
    let spellings = [
        json!([[0, -1, 0, 1], [1, 0, 0, 2], [0, 0, 1, 3], [0, 0, 0, 1]]),
        rows.clone(),
        json!({ "matrix": rows }),
        json!({ "translation": [1, 2, 3], "rotation_wxyz": [half, 0, 0, half] }),
        json!({ "translation": [1, 2, 3], "rotation_xyzw": [0, 0, 2, 2] }),
        json!({ "translation": [1, 2, 3], "rotation": [[0, -1, 0], [1, 0, 0], [0, 0, 1]] }),
        json!({ "x": 1, "y": 2, "z": 3, "yaw": std::f64::consts::FRAC_PI_2 }),
    ];
    let expected = [
        0.0, -1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 2.0, 0.0, 0.0, 1.0, 3.0, 0.0, 0.0, 0.0, 1.0,
    ];
    for spelling in spellings {
        let found = parse_transform(&spelling, "T").unwrap();
        assert!(
            found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12),
            "{spelling}: {found:?}"
        );
    }
    let wrong = [
        (json!(7), "T: 7; expected"),
        (json!([]), "T: a list of 0"),
        (
            json!([[1, 0, 0], [0, 1, 0], [0, 0, 1]]),
            "T[0]: a list of 3; expected a list of 4 numbers",
        ),
        (
            json!([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1]]),
            "T[3]",
        ),
        (
            json!([[2, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]]),
            "T: its rotation is none",
        ),
        (
            json!([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, -1, 0]]),
            "T: its rotation is none",
        ),
        (json!({ "matrix": rows, "x": 1 }), "T.x: not expected"),
        (
            json!({ "translation": [1, 2, 3], "rotation_wxyz": [0, 0, 0, 0] }),
            "T.rotation_wxyz: a quaternion of length 0",
        ),
        (json!({ "rotation_wxyz": [1, 0, 0, 0] }), "T.translation: missing"),
        (
            json!({ "translation": [1, 2, 3], "rotation_wxyz": [1, 0, 0, 0], "rotation_xyzw": [0, 0, 0, 1] }),
            "more than one rotation",
        ),
        (json!({ "x": 1, "jaw": 2 }), "T.jaw"),
        (json!({}), "T: missing"),
        (json!({ "x": "1" }), "T.x: the text"),
    ];
    for (spelling, words) in wrong {
        let error = parse_transform(&spelling, "T").unwrap_err().to_string();
        assert!(error.contains(words), "{spelling}: {error}");
    }
}

proptest! {
    /// Roll, pitch and yaw are turns about x, y and z, the first innermost.
    #[test]
    fn angles_turn_about_x_then_y_then_z(roll in -3.0..3.0_f64, pitch in -3.0..3.0_f64, yaw in -3.0..3.0_f64) {
        let turn = |axis: usize, angle: f64, v: [f64; 3]| {
            let (sin, cos) = angle.sin_cos();
            let (a, b) = ((axis + 1) % 3, (axis + 2) % 3);
            let mut out = v;
            out[a] = cos * v[a] - sin * v[b];
            out[b] = sin * v[a] + cos * v[b];
            out
        };
        let m = parse_transform(&json!({ "roll": roll, "pitch": pitch, "yaw": yaw }), "T").unwrap();
        let v = [0.3, -0.7, 1.9];
        let turned = turn(2, yaw, turn(1, pitch, turn(0, roll, v)));
        for row in 0..3 {
            let product: f64 = (0..3).map(|k| m[4 * row + k] * v[k]).sum();
            prop_assert!((product - turned[row]).abs() < 1e-12);
        }
        // The matrix is taken as it is, for it is a rotation.
        let rows: Vec<&[f64]> = m.chunks(4).collect();
        prop_assert_eq!(parse_transform(&json!(rows), "T").unwrap(), m);
    }
}

#[test]
fn intrinsics_in_every_spelling_are_the_same() {
    let rows = json!([[500, 0, 320], [0, 510, 240], [0, 0, 1]]);
    let flat = json!([500, 0, 320, 0, 510, 240, 0, 0, 1]);
    let spellings = [
        rows.clone(),
        flat.clone(),
        json!({ "matrix": rows }),
        json!({ "k": flat }),
        json!({ "fx": 500, "fy": 510, "cx": 320, "cy": 240 }),
        json!({ "fx": 500, "fy": 510, "cx": 320, "cy": 240, "skew": 0 }),
    ];
    for spelling in spellings {
        let found = parse_intrinsics(&spelling, "K").unwrap();
        assert_eq!(
            found,
            [[500.0, 0.0, 320.0], [0.0, 510.0, 240.0], [0.0, 0.0, 1.0]],
            "{spelling}"
        );
    }
    for (spelling, words) in [
        (
            json!([[0, 0, 0], [0, 1, 0], [0, 0, 1]]),
            "K: focal lengths 0 and 1 px",
        ),
        (json!([[1, 0, 0], [0, 1, 0], [0, 0, 2]]), "K: "),
        (json!({ "fx": 1, "fy": 1, "cx": 0 }), "K.cy: missing"),
        (json!({ "fx": 1, "fy": 1, "cx": 0, "cy": 0, "f": 1 }), "K.f"),
        (json!([1, 2]), "K: a list of 2; expected 3 rows"),
        (json!("K"), "K: the text"),
    ] {
        let error = parse_intrinsics(&spelling, "K").unwrap_err().to_string();
        assert!(error.contains(words), "{spelling}: {error}");
    }
}

#[test]
fn rois_name_cameras_and_classes_by_name_or_number() {
    let rois: Vec<RoiForm> = form(&json!([
        { "camera": "rear", "label": 0, "score": 0.5, "box_xyxy": [1, 2, 3, 4] },
        { "camera": 0, "label": "bus", "score": 1, "box_xyxy": [1, 2, 1, 2] },
    ]));
    let decoded = decode_rois(&rois, &["front", "rear"], &["car", "bus"], 10, "rois").unwrap();
    assert_eq!(
        (
            decoded[0].camera,
            decoded[0].label_id,
            decoded[1].camera,
            decoded[1].label_id
        ),
        (1, 0, 0, 1)
    );
    let refused = |roi: Value, words: &str| {
        let rois: Vec<RoiForm> = form(&json!([roi]));
        let error = decode_rois(&rois, &["front"], &["car"], 10, "rois")
            .unwrap_err()
            .to_string();
        assert!(error.contains(words), "{error}");
    };
    let roi = |camera: Value, label: Value, score: f64, corners: [f64; 4]| json!({ "camera": camera, "label": label, "score": score, "box_xyxy": corners });
    refused(
        roi(json!("side"), json!(0), 0.5, [0.0; 4]),
        "rois[0].camera: `side`; expected one of front",
    );
    refused(
        roi(json!(0), json!(1), 0.5, [0.0; 4]),
        "rois[0].label: 1; expected one of car",
    );
    refused(roi(json!(0), json!(0), 1.5, [0.0; 4]), "rois[0].score: 1.5");
    refused(
        roi(json!(0), json!(0), 0.5, [3.0, 0.0, 1.0, 1.0]),
        "rois[0].box_xyxy",
    );
    assert!(
        decode_rois(&rois, &["front", "rear"], &["car", "bus"], 1, "rois")
            .unwrap_err()
            .to_string()
            .contains("2 detections")
    );
}
