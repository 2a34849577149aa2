//! Sensor data as JSON: every form against a plain definition or NumPy, and what wrong ones are told.

use crate::support;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use sensorium::image::{Image, PixelFormat, encode_jpeg, encode_png};
use sensorium::io::cloud_file::{CloudFormat, CloudWriteOptions, PcdEncoding, encode};
use sensorium::io::forms::{
    ArrayEncoding, ArrayForm, BodyForm, BodyTiming, CalibrationForm, CameraRules, ImageForm, ImageLimits,
    InputsForm, PointLimits, PointTable, PointsForm, Presets, RoiForm, ToBody, decode_array, decode_base64,
    decode_cameras, decode_named_arrays, decode_pixels, decode_rois, encode_array, parse_intrinsics,
    parse_transform, round_f32,
};
use sensorium::lidar::PointCloud;
use sensorium::outputs::{
    Detection2D, Detection3D, Detections2D, Detections2DWithMasks, Detections3D, Mask2D, Segmentation3D,
    Trajectory,
};
use sensorium::perception::{InputArray, InputSchema};
use sensorium::tensor::{DType, HostTensor, Shape};
use sensorium::weights::{Array, ElementType, Values};
use serde_json::{Map, Value, json};

fn form<T: serde::de::DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap()
}

fn points(value: &Value) -> Result<PointTable, String> {
    form::<PointsForm>(value)
        .decode("points", &PointLimits::default())
        .map_err(|error| error.to_string())
}

// Base64.

#[test]
fn base64_is_held_against_its_limit_before_it_is_decoded() {
    assert_eq!(decode_base64("AQID\nBA==\n", "f", 4).unwrap(), [1, 2, 3, 4]);
    let error = decode_base64("AQIDBA==", "f", 3).unwrap_err().to_string();
    assert_eq!(error, "f: 4 bytes; at most 3 are taken");
    for bad in ["AQI", "A*ID", "AQ=="[..3].as_ref(), "=AAA"] {
        assert!(
            decode_base64(bad, "f", 100)
                .unwrap_err()
                .to_string()
                .starts_with("f: no base64"),
            "{bad}"
        );
    }
}

// Points.

#[test]
fn points_that_are_nowhere_are_left_out_by_their_coordinates() {
    let nan = f32::NAN;
    let rows = [
        [1.0, 2.0, 3.0, nan],
        [1.0, nan, 3.0, 4.0],
        [f32::INFINITY, 2.0, 3.0, 4.0],
        [5.0, 6.0, 7.0, 8.0],
    ];
    let bytes: Vec<u8> = rows
        .iter()
        .flatten()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    let data = STANDARD.encode(bytes);
    let table = points(&json!({ "format": "raw", "data": data })).unwrap();
    assert_eq!(
        (table.len(), table.dropped, &table.columns[0][..]),
        (2, 2, &[1.0, 5.0][..])
    );
    // With names, the coordinates are those of the names: here the first column is none of them.
    let table = points(&json!({ "data": data, "fields": ["intensity", "x", "y", "z"] })).unwrap();
    assert_eq!((table.len(), table.dropped), (2, 2));
    assert_eq!(table.columns[0], [f32::INFINITY, 5.0]);
}

#[test]
fn columns_are_chosen_by_name_and_filled_where_they_are_missing() {
    let table = points(&json!([[1, 2, 3], [4, 5, 6]])).unwrap();
    assert_eq!(table.fields, ["x", "y", "z"]);
    let columns = table.select(&["z", "intensity"], Some(0.5), "points").unwrap();
    assert_eq!(columns, [vec![3.0, 6.0], vec![0.5, 0.5]]);
    let error = table.select(&["ring"], None, "points").unwrap_err().to_string();
    assert_eq!(error, "points: the columns are x, y, z; expected a column `ring`");
    assert_eq!(
        points(&json!([[1, 2, 3, 4, 5, 6]])).unwrap().fields[4..],
        ["c4", "c5"]
    );
    assert_eq!(points(&json!([])).unwrap().len(), 0);
}

#[test]
fn files_of_points_give_the_cloud_that_was_written() {
    let cloud = PointCloud {
        x: vec![1.0, -2.0],
        y: vec![0.5, 4.0],
        z: vec![-1.5, 0.0],
        intensity: vec![7.0, 9.0],
        ..PointCloud::default()
    };
    for (format, name) in [
        (CloudFormat::Pcd, "pcd"),
        (CloudFormat::Npy, "npy"),
        (CloudFormat::Npz, "npz"),
        (CloudFormat::Bin, "bin"),
    ] {
        let data = STANDARD.encode(encode(&cloud, format, CloudWriteOptions::default()).unwrap());
        for body in [json!({ "format": name, "data": data }), json!({ "data": data })] {
            let table = points(&body).unwrap();
            let columns = table
                .select(&["x", "y", "z", "intensity"], None, "points")
                .unwrap();
            assert_eq!(
                columns,
                [&cloud.x[..], &cloud.y, &cloud.z, &cloud.intensity],
                "{name}"
            );
        }
    }
}

#[test]
fn no_more_points_are_taken_than_may_be() {
    let limits = PointLimits {
        max_points: 2,
        ..PointLimits::default()
    };
    let three = json!([[1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, 4]]);
    let raw = json!({ "data": STANDARD.encode([0; 48]) });
    for body in [three, raw] {
        let error = form::<PointsForm>(&body)
            .decode("points", &limits)
            .unwrap_err()
            .to_string();
        assert!(error.contains("3 points; at most 2 are taken"), "{error}");
    }
}

#[test]
fn a_packed_cloud_is_not_unpacked_beyond_the_limit_of_its_bytes() {
    let zeros = vec![0.0; 10_000];
    let cloud = PointCloud {
        x: zeros.clone(),
        y: zeros.clone(),
        z: zeros,
        ..PointCloud::default()
    };
    let options = CloudWriteOptions {
        pcd: PcdEncoding::BinaryCompressed,
        ..CloudWriteOptions::default()
    };
    let packed = encode(&cloud, CloudFormat::Pcd, options).unwrap();
    assert!(packed.len() < 4_000, "{}", packed.len());
    let body = json!({ "format": "pcd", "data": STANDARD.encode(packed) });
    let decode = |max_bytes| {
        let limits = PointLimits {
            max_bytes,
            ..PointLimits::default()
        };
        form::<PointsForm>(&body).decode("points", &limits)
    };
    assert_eq!(decode(120_000).unwrap().len(), 10_000);
    let error = decode(119_999).unwrap_err().to_string();
    assert_eq!(
        error,
        "points.data: the points take 120000 bytes unpacked, and at most 119999 are unpacked"
    );
}

proptest! {
    #[test]
    fn rows_raw_bytes_and_archives_of_points_say_the_same(
        rows in prop::collection::vec(prop::array::uniform4(-1e6_f32..1e6), 0..20),
        big in any::<bool>(),
    ) {
        let list = points(&json!(rows)).unwrap();
        let order = |value: &f32| if big { value.to_be_bytes() } else { value.to_le_bytes() };
        let bytes: Vec<u8> = rows.iter().flatten().flat_map(order).collect();
        let order = if big { "big" } else { "little" };
        let raw = points(&json!({ "format": "raw", "data": STANDARD.encode(bytes), "byte_order": order })).unwrap();
        prop_assert_eq!(&raw, &list);
        let values = Values::F32(rows.iter().flatten().copied().collect());
        let array = Array::new(Shape::new(&[rows.len(), 4]).unwrap(), ElementType::F32, values).unwrap();
        let encoded = encode_array(&array, ArrayEncoding::NpzCompressed, "points").unwrap();
        let npz = points(&json!({ "format": "npz", "data": encoded["data"] })).unwrap();
        prop_assert_eq!(&npz, &list);
    }

    /// Nothing that can be parsed makes a decoder panic.
    #[test]
    fn bytes_of_any_kind_are_points_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200), kind in 0..5_usize) {
        let starts: [&[u8]; 5] = [b"", b"\x93NUMPY\x01\x00", b"PK\x03\x04", b"VERSION .7\n", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"];
        let data = STANDARD.encode([starts[kind], &bytes].concat());
        let _ = points(&json!({ "data": data }));
        let _ = decode_pixels(&form::<ImageForm>(&json!({ "data": data })), "image", ImageLimits::default());
        let jpeg = STANDARD.encode([b"\xff\xd8\xff\xc0", &bytes[..]].concat());
        let _ = decode_pixels(&form::<ImageForm>(&json!({ "data": jpeg })), "image", ImageLimits::default());
        let _ = decode_array(&form::<ArrayForm>(&json!({ "data": data })), "array", 1 << 20);
    }
}

// Images.

#[test]
fn images_become_red_green_blue_whatever_they_were() {
    let rgb = [[255, 0, 0], [0, 255, 0], [0, 0, 255], [10, 20, 30]].concat();
    let image = Image::new(rgb.clone(), 2, 2, PixelFormat::Rgb8).unwrap();
    let decode =
        |value: &Value| decode_pixels(&form::<ImageForm>(value), "images[0]", ImageLimits::default());
    let png = STANDARD.encode(encode_png(&image.view()).unwrap());
    assert_eq!(decode(&json!({ "data": png })).unwrap().data(), rgb);
    let bgr: Vec<u8> = rgb
        .as_chunks::<3>()
        .0
        .iter()
        .flat_map(|&[r, g, b]| [b, g, r])
        .collect();
    let rgba: Vec<u8> = rgb
        .as_chunks::<3>()
        .0
        .iter()
        .flat_map(|&[r, g, b]| [r, g, b, 77])
        .collect();
    for (encoding, data) in [("rgb8", &rgb), ("bgr8", &bgr), ("rgba8", &rgba)] {
        let body = json!({ "format": "raw", "width": 2, "height": 2, "encoding": encoding, "data": STANDARD.encode(data) });
        assert_eq!(decode(&body).unwrap().data(), rgb, "{encoding}");
    }
    let grey = json!({ "format": "raw", "width": 2, "height": 1, "encoding": "mono8", "data": STANDARD.encode([3, 9]) });
    assert_eq!(decode(&grey).unwrap().data(), [3, 3, 3, 9, 9, 9]);
    let wrong = [
        (json!({ "data": "" }), "images[0].data: 0 bytes"),
        (json!({ "format": "jpeg", "data": png }), "no JPEG"),
        (
            json!({ "data": png, "width": 2 }),
            "images[0].width: only raw pixels have it",
        ),
        (
            json!({ "format": "raw", "data": "", "width": 2 }),
            "images[0].height: missing",
        ),
        (
            json!({ "format": "raw", "data": "", "width": 2, "height": 9000 }),
            "2 x 9000 px; expected at most 8192",
        ),
        (
            json!({ "format": "raw", "data": "AA==", "width": 2, "height": 2 }),
            "images[0].data",
        ),
        (
            json!({ "format": "raw", "data": "", "width": 1, "height": 1, "encoding": "cmyk" }),
            "images[0].encoding",
        ),
    ];
    for (body, words) in wrong {
        let error = decode(&body).unwrap_err().to_string();
        assert!(error.contains(words), "{body}: {error}");
    }
}

#[test]
fn a_size_that_a_header_claims_is_refused_before_pixels_are_decoded() {
    let image = Image::new(vec![9; 40 * 10 * 3], 40, 10, PixelFormat::Rgb8).unwrap();
    let limits = ImageLimits {
        max_side_px: 39,
        ..ImageLimits::default()
    };
    for file in [
        encode_png(&image.view()).unwrap(),
        encode_jpeg(&image.view(), 90).unwrap(),
    ] {
        // What follows the header is gone, but for a JPEG's end: only the header can have been read.
        let cut = file
            .windows(2)
            .position(|pair| pair == b"\xff\xda" || pair == b"ID")
            .unwrap();
        let header = [&file[..cut], b"\xff\xd9"].concat();
        let body = json!({ "data": STANDARD.encode(header) });
        let error = decode_pixels(&form::<ImageForm>(&body), "image", limits)
            .unwrap_err()
            .to_string();
        assert_eq!(error, "image.data: 40 x 10 px; expected at most 39 px a side");
    }
}

#[test]
fn cameras_come_in_the_models_order_each_once_with_the_nearest_calibration() {
    let png = STANDARD
        .encode(encode_png(&Image::new(vec![0; 3], 1, 1, PixelFormat::Rgb8).unwrap().view()).unwrap());
    let image = |camera: &str| json!({ "camera": camera, "data": png });
    let mut left = image("left");
    left["intrinsics"] = json!({ "fx": 1, "fy": 1, "cx": 0, "cy": 0 });
    let images: Vec<ImageForm> = form(&json!([image("right"), left]));
    let camera =
        |f: f64| json!({ "intrinsics": [[f, 0, 0], [0, f, 0], [0, 0, 1]], "T_ref_from_camera": { "z": f } });
    let calibration: CalibrationForm =
        form(&json!({ "cameras": { "left": camera(5.0), "right": camera(6.0) } }));
    let rules = CameraRules {
        order: Some(&["left", "right"]),
        require_calibration: true,
        ..CameraRules::default()
    };
    let cameras = decode_cameras(&images, Some(&calibration), &Presets::default(), rules).unwrap();
    let focal: Vec<f64> = cameras
        .iter()
        .map(|it| it.calibration.intrinsics.unwrap()[0][0])
        .collect();
    let height: Vec<f64> = cameras
        .iter()
        .map(|it| it.calibration.ref_from_camera.unwrap()[11])
        .collect();
    assert_eq!(
        (focal, height),
        (vec![1.0, 6.0], vec![5.0, 6.0]),
        "inline goes before, and what it lacks comes after"
    );
    let refused = |images: Value, words: &str| {
        let images: Vec<ImageForm> = form(&images);
        let error = decode_cameras(&images, None, &Presets::default(), rules)
            .unwrap_err()
            .to_string();
        assert!(error.contains(words), "{error}");
    };
    refused(
        json!([image("left"), image("left")]),
        "images[1].camera: camera `left` is there twice",
    );
    refused(json!([image("left")]), "an image of camera `right`");
    refused(
        json!([image("left"), image("rear")]),
        "images[1].camera: `rear`; expected one of left, right",
    );
    refused(json!([{ "data": png }]), "images[0].camera: missing");
    refused(
        json!([image("left"), image("right")]),
        "images[0].intrinsics: missing",
    );
}

// Transforms and intrinsics.

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

// Detections as an input.

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

// Arrays.

fn arrays(
    value: &Value,
    schema: &InputSchema,
) -> Result<std::collections::BTreeMap<String, HostTensor>, String> {
    decode_named_arrays(&form::<InputsForm>(value), schema, "inputs", 1 << 20)
        .map_err(|error| error.to_string())
}

#[test]
fn named_arrays_are_held_against_the_schema() {
    const SCHEMA: InputSchema = InputSchema(&[
        InputArray {
            name: "ego",
            dims: &[None, Some(2)],
            dtype: DType::F32,
            about: "poses",
        },
        InputArray {
            name: "kind",
            dims: &[Some(3)],
            dtype: DType::U8,
            about: "kinds",
        },
    ]);
    let good = json!({ "arrays": { "ego": [[1, 2.5]], "kind": [0, 255.0, 7] } });
    let decoded = arrays(&good, &SCHEMA).unwrap();
    assert_eq!(decoded["ego"].as_slice::<f32>().unwrap(), [1.0, 2.5]);
    assert_eq!(decoded["kind"].as_slice::<u8>().unwrap(), [0, 255, 7]);
    let with = |name: &str, value: Value| {
        let mut body = good.clone();
        body["arrays"][name] = value;
        arrays(&body, &SCHEMA).unwrap_err()
    };
    let nan = STANDARD.encode(f32::NAN.to_le_bytes().repeat(2));
    for (error, words) in [
        (
            with("goal", json!([1])),
            "inputs.goal: the model takes no such array: it takes ego, kind",
        ),
        (
            with("ego", json!([[1, 2, 3]])),
            "inputs.ego: an array of shape [1, 3]; expected",
        ),
        (
            with("ego", json!([[1], [2, 3]])),
            "inputs.arrays.ego: lists of one level differ",
        ),
        (
            with("ego", json!([[1e300, 0]])),
            "inputs.ego: element 0 is too large",
        ),
        (
            with(
                "ego",
                json!({ "encoding": "raw", "dtype": "float32", "shape": [1, 2], "data": nan }),
            ),
            "inputs.ego: element 0 is not finite",
        ),
        (with("kind", json!([0, 1, 256])), "inputs.kind: element 2 is 256"),
        (with("kind", json!([0, 1, -1])), "inputs.kind: element 2 is -1"),
        (with("kind", json!([0, 1, 0.5])), "inputs.kind: element 2 is 0.5"),
        (
            arrays(&json!({ "arrays": { "ego": [[1, 2]] } }), &SCHEMA).unwrap_err(),
            "inputs.kind: missing",
        ),
    ] {
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn what_an_array_says_of_itself_is_held_against_what_it_is() {
    let decode = |value: &Value| {
        decode_array(&form::<ArrayForm>(value), "a", 1 << 20).map_err(|error| error.to_string())
    };
    let eight = STANDARD.encode([0; 8]);
    for (value, words) in [
        (
            json!({ "encoding": "raw", "data": eight, "dtype": "float32" }),
            "a.shape: missing",
        ),
        (
            json!({ "encoding": "raw", "data": eight, "shape": [2] }),
            "a.dtype: missing",
        ),
        (
            json!({ "encoding": "raw", "data": eight, "shape": [3], "dtype": "float32" }),
            "a.data: 8 bytes; expected 12",
        ),
        (
            json!({ "encoding": "raw", "data": eight, "shape": [4_000_000_000_u64, 4_000_000_000_u64], "dtype": "float32" }),
            "a.shape",
        ),
        (
            json!({ "data": [1, 2], "shape": [3] }),
            "a.shape: [3]; expected [2]",
        ),
        (json!({ "data": [1, 2.5], "dtype": "int8" }), "element 1 is 2.5"),
        (
            json!({ "data": [1, 70000], "dtype": "float16" }),
            "element 1 is too large",
        ),
        (
            json!({ "data": [1, 2], "order": "F" }),
            "a.order: only raw bytes have it",
        ),
        (json!({ "encoding": "list", "data": eight }), "a.data: text"),
        (json!({ "encoding": "npz", "data": eight }), "a.data"),
        (
            json!({ "encoding": "raw", "data": STANDARD.encode([0xFF; 8]), "shape": [1], "dtype": "uint64" }),
            "18446744073709551615",
        ),
        (json!([[1, 2], [3]]), "a: lists of one level differ"),
        (json!([1, [2]]), "a: lists of one level differ"),
        (json!([[], 1]), "a: lists of one level differ"),
    ] {
        let error = decode(&value).unwrap_err();
        assert!(error.contains(words), "{value}: {error}");
    }
    assert_eq!(&decode(&json!([[], []])).unwrap().shape()[..], [2, 0]);
    assert_eq!(decode(&json!([true, false])).unwrap().as_i64().unwrap(), [1, 0]);
    assert!(
        serde_json::from_value::<ArrayForm>(json!([[[[[[[1]]]]]]])).is_err(),
        "seven levels"
    );
}

const ELEMENTS: [ElementType; 12] = [
    ElementType::Bool,
    ElementType::I8,
    ElementType::U8,
    ElementType::I16,
    ElementType::U16,
    ElementType::I32,
    ElementType::U32,
    ElementType::I64,
    ElementType::U64,
    ElementType::F16,
    ElementType::F32,
    ElementType::F64,
];

fn sample(element: ElementType, dims: &[usize], seed: i64) -> Array {
    let shape = Shape::new(dims).unwrap();
    let number = |at: usize| (at as i64 * 7919 + seed) % 120;
    let all = 0..shape.elements();
    let values = match element {
        ElementType::F16 | ElementType::F32 => Values::F32(all.map(|at| number(at) as f32 / 8.0).collect()),
        ElementType::F64 => Values::F64(all.map(|at| number(at) as f64 / 7.0).collect()),
        ElementType::Bool => Values::I64(all.map(|at| number(at) & 1).collect()),
        _ => Values::I64(all.map(|at| number(at).abs()).collect()),
    };
    Array::new(shape, element, values).unwrap()
}

proptest! {
    #[test]
    fn an_array_comes_back_from_every_encoding(
        element in prop::sample::select(&ELEMENTS[..]),
        dims in prop::collection::vec(0..4_usize, 0..4),
        seed in 0..1000_i64,
    ) {
        let array = sample(element, &dims, seed);
        for encoding in [ArrayEncoding::Npz, ArrayEncoding::NpzCompressed, ArrayEncoding::Raw, ArrayEncoding::List] {
            let encoded = encode_array(&array, encoding, "a").unwrap();
            // An empty list tells the lengths above its first empty level alone, and a list's shape is held against it.
            if encoding == ArrayEncoding::List && (dims.is_empty() || dims.contains(&0)) {
                continue;
            }
            let decoded = decode_array(&form::<ArrayForm>(&encoded), "a", 1 << 20).unwrap();
            prop_assert_eq!(&decoded, &array, "{}", encoded);
        }
    }
}

#[test]
fn numpy_reads_what_is_written_and_what_numpy_writes_is_read() {
    let Some(mut python) = support::oracle("forms.py") else {
        return;
    };
    let mut ours = Map::new();
    for element in ELEMENTS {
        for encoding in [
            ArrayEncoding::Npz,
            ArrayEncoding::NpzCompressed,
            ArrayEncoding::Raw,
            ArrayEncoding::List,
        ] {
            let name = format!("{element}.{encoding:?}");
            ours.insert(
                name,
                encode_array(&sample(element, &[2, 3, 2], 5), encoding, "a").unwrap(),
            );
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ours.json");
    std::fs::write(&file, Value::Object(ours.clone()).to_string()).unwrap();
    let out = support::run(python.arg(&file));
    let told: Value = serde_json::from_slice(&out).unwrap();
    let numbers = |array: &Array| -> Vec<f64> {
        match array.values() {
            Values::F32(values) => values.iter().map(|&v| v.into()).collect(),
            Values::F64(values) => values.clone(),
            Values::I64(values) => values.iter().map(|&v| v as f64).collect(),
        }
    };
    let floats =
        |bits: &Value| -> Vec<f64> { form::<Vec<u64>>(bits).into_iter().map(f64::from_bits).collect() };
    // What NumPy read of ours.
    assert_eq!(told["read"].as_object().unwrap().len(), ours.len());
    for element in ELEMENTS {
        let expected = numbers(&sample(element, &[2, 3, 2], 5));
        for encoding in ["Npz", "NpzCompressed", "Raw", "List"] {
            let read = floats(&told["read"][format!("{element}.{encoding}")]);
            assert_eq!(read, expected, "{element} {encoding}");
        }
    }
    // What we read of NumPy's: either order of elements, either order of bytes.
    let written = told["written"].as_array().unwrap();
    assert!(written.len() > 80, "{}", written.len());
    for case in written {
        let array = decode_array(&form::<ArrayForm>(&case["form"]), "a", 1 << 20).unwrap();
        let decoded = numbers(&array);
        let values = floats(&case["values"]);
        assert_eq!(decoded.len(), values.len(), "{}", case["form"]);
        // A decimal number is read to within the last bit of a float64; bytes are exact.
        let last_bits = if case["form"]["encoding"] == "list" { 1 } else { 0 };
        let apart = |(a, b): (&f64, &f64)| a.to_bits().abs_diff(b.to_bits()) > last_bits;
        assert!(
            !decoded.iter().zip(&values).any(apart),
            "{}: {decoded:?} {values:?}",
            case["form"]
        );
        assert_eq!(json!(array.shape()[..]), case["shape"], "{}", case["form"]);
    }
    // Rounding to six digits, as `float(f"{x:.6g}")` does it.
    let rounded: Vec<(u32, u64)> = form(&told["rounded"]);
    assert!(rounded.len() > 2000);
    for (bits, expected) in rounded {
        assert_eq!(
            round_f32(f32::from_bits(bits)),
            f64::from_bits(expected),
            "{bits:#x}"
        );
    }
}

// Results.

fn body(result: &impl ToBody, form: BodyForm) -> Result<Value, String> {
    let timing = BodyTiming {
        total: Duration::from_micros(1500),
        ..BodyTiming::default()
    };
    result
        .to_body(form, &timing, Map::new())
        .map_err(|error| error.to_string())
}

fn names(names: &[&str]) -> Arc<[String]> {
    names.iter().map(|&name| name.to_owned()).collect()
}

fn floats_of(encoded: &Value) -> Vec<f32> {
    decode_array(&form::<ArrayForm>(encoded), "a", 1 << 20)
        .unwrap()
        .to_f32()
        .unwrap()
}

#[test]
fn boxes_in_space_are_sorted_rounded_and_finite() {
    let one = |score: f32, x: f32| Detection3D {
        label_id: 1,
        score,
        box_xyzlwhy: [x, 2.0, 3.0, 4.0, 5.0, 6.0, 0.7],
        velocity_mps: Some([1.0, -1.0]),
    };
    let all = |found| Detections3D::new(found, names(&["car"]), "m".into(), "base_link".into());
    let found = all(vec![one(0.25, 1.0), one(0.123_456_78, 1.0), one(0.5, 12_345.678)]);
    let json = body(&found, BodyForm::Json).unwrap();
    let scores: Vec<f64> = json["detections"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["score"].as_f64().unwrap())
        .collect();
    assert_eq!(scores, [0.5, 0.25, 0.123457]);
    let first = &json["detections"][0];
    assert_eq!(first["center"], json!([12345.7, 2.0, 3.0]));
    assert_eq!(first["size"], json!([4.0, 5.0, 6.0]));
    assert_eq!(
        (&first["yaw"], &first["velocity"]),
        (&json!(0.7), &json!([1.0, -1.0]))
    );
    assert_eq!(
        (&first["label"], &first["label_id"]),
        (&json!("1"), &json!(1)),
        "a number that has no name is its own"
    );
    assert_eq!(
        (&json["num_detections"], &json["timing_ms"]["total"]),
        (&json!(3), &json!(1.5))
    );
    assert!(json.get("arrays").is_none());
    let npz = body(&found, BodyForm::Npz).unwrap();
    assert_eq!(
        floats_of(&npz["arrays"]["boxes"])[..7],
        [12_345.678, 2.0, 3.0, 4.0, 5.0, 6.0, 0.7]
    );
    assert_eq!(floats_of(&npz["arrays"]["velocities"]).len(), 6);
    let error = body(&all(vec![one(0.5, f32::NAN)]), BodyForm::Json).unwrap_err();
    assert_eq!(error, "non-finite value at body.detections[0].center[0]");
}

#[test]
fn masks_classes_and_trajectories_have_bodies() {
    let mask = |labels: Vec<u16>| {
        Mask2D::new(
            labels,
            [2, 1],
            names(&["road", "car"]),
            "m".into(),
            "camera".into(),
        )
        .unwrap()
    };
    let png = body(&mask(vec![1, 1]), BodyForm::Json).unwrap();
    assert_eq!(
        (&png["mask"]["encoding"], &png["class_counts"]),
        (&json!("png"), &json!({ "car": 2 }))
    );
    assert_eq!(
        body(&mask(vec![1, 1]), BodyForm::Npz).unwrap()["mask"]["dtype"],
        "uint8"
    );
    assert_eq!(
        body(&mask(vec![1, 300]), BodyForm::Json).unwrap()["mask"]["dtype"],
        "uint16"
    );
    assert!(Mask2D::new(vec![1], [2, 1], names(&[]), "m".into(), "f".into()).is_none());

    let points = Segmentation3D {
        label_ids: vec![0, 1, 1],
        class_names: names(&["road", "car"]),
        scores: Some(vec![0.5, 0.25, 1.0]),
        model: "m".into(),
        frame_id: "base_link".into(),
    };
    let json = body(&points, BodyForm::Json).unwrap();
    assert_eq!(
        (&json["labels"]["dtype"], &json["class_counts"]),
        (&json!("uint8"), &json!({ "road": 1, "car": 2 }))
    );
    assert_eq!(floats_of(&json["scores"]), [0.5, 0.25, 1.0]);
    let odd = Segmentation3D {
        scores: Some(vec![f32::NAN]),
        ..points
    };
    assert_eq!(
        body(&odd, BodyForm::Json).unwrap_err(),
        "non-finite value at body.scores[0]"
    );

    let columns = || Trajectory::COLUMNS.map(str::to_owned).to_vec();
    let mut path = Trajectory::new(
        vec![0.0, 1.0, 0.5, 2.0, 3.0, 0.25],
        columns(),
        "m".into(),
        "map".into(),
    )
    .unwrap();
    path.turn_indicator = Some(2);
    path.predicted_agents = Some(HostTensor::from_slice(&[1, 2], &[4.0_f32, 5.0]).unwrap());
    let json = body(&path, BodyForm::Npz).unwrap();
    assert_eq!(json["trajectory"], json!([[0.0, 1.0, 0.5], [2.0, 3.0, 0.25]]));
    assert_eq!(
        (&json["num_poses"], &json["columns"][2], &json["turn_indicator"]),
        (&json!(2), &json!("yaw"), &json!(2))
    );
    assert_eq!(floats_of(&json["predicted_agents"]), [4.0, 5.0]);
    assert_eq!(floats_of(&json["arrays"]["trajectory"]).len(), 6);
    assert!(Trajectory::new(vec![0.0; 4], columns(), "m".into(), "f".into()).is_none());

    let found = Detection2D {
        label_id: 0,
        score: 0.5,
        box_xyxy: [0.0, 0.0, 1.0, 1.0],
    };
    let detections = Detections2D::new(vec![found], names(&["car"]), "m".into(), "camera".into(), [2, 1]);
    let masks = [("semseg".to_owned(), mask(vec![0, 1]))].into();
    let json = body(&Detections2DWithMasks { detections, masks }, BodyForm::Json).unwrap();
    assert_eq!(
        (&json["detections"][0]["label"], &json["semseg"]["encoding"]),
        (&json!("car"), &json!("png"))
    );
}
