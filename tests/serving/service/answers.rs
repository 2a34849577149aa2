//! Answers of a service, held against those of the model itself, and its presets.

use crate::tiny;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sensorium::image::encode_jpeg;
use sensorium::io::cloud_file::{CloudFormat, CloudWriteOptions, encode};
use sensorium::io::forms::Presets;
use sensorium::lidar::PointCloud;
use sensorium::outputs::Detections;
use sensorium::perception::{Model, ModelOptions, SensorData, Sweep};
use sensorium::runtime::load_model;
use sensorium::server::ServiceFacts;
use serde_json::{Value, json};
use tiny::Lab;

use super::{PATIENCE, Service, box_of, engine_of, load, options, png, squares};

#[test]
fn an_image_in_every_form_is_answered_with_its_box() {
    let lab = Lab::new();
    let service = squares(&lab);
    let (body, square) = png(11);
    let reply = service.predict(&body);
    assert_eq!(box_of(&reply), square);
    let first = &reply.body["detections"][0];
    assert_eq!(first["label"], "red");
    assert_eq!(first["label_id"], 2);
    let score = sensorium::io::forms::round_f32(tiny::SCORE as f32);
    assert!((first["score"].as_f64().unwrap() - score).abs() < 1e-5, "{first}");
    assert_eq!(reply.body["num_detections"], 1);
    assert_eq!(reply.body["frame_id"], "camera");
    for part in ["preprocess", "device", "postprocess", "total"] {
        assert!(reply.body["timing_ms"][part].as_f64().unwrap() >= 0.0);
    }

    let (image, _) = tiny::numbered(11);
    let raw = json!({ "images": [{ "format": "raw", "width": 64, "height": 64, "camera": "front",
        "data": STANDARD.encode(image.data()) }] });
    let reply = service.predict(&raw);
    assert_eq!(box_of(&reply), square);
    assert_eq!(reply.body["frame_id"], "front");
    let jpeg = STANDARD.encode(encode_jpeg(&image.view(), 100).unwrap());
    let reply = service.predict(&json!({ "images": [{ "format": "jpeg", "data": jpeg }], "frame_id": "f" }));
    assert_eq!(box_of(&reply), square);
    assert_eq!(reply.body["frame_id"], "f");
    let array = json!({ "encoding": "raw", "dtype": "uint8", "shape": [64, 64, 3], "data": STANDARD.encode(image.data()) });
    let reply =
        service.predict(&json!({ "inputs": { "arrays": { "image": array } }, "output_format": "npz" }));
    assert_eq!(box_of(&reply), square);
    let boxes = &reply.body["arrays"]["boxes_xyxy"];
    assert_eq!(boxes["shape"], json!([1, 4]));
    let form: sensorium::io::forms::ArrayForm = serde_json::from_value(boxes.clone()).unwrap();
    let decoded = sensorium::io::forms::decode_array(&form, "boxes", 1 << 20).unwrap();
    assert_eq!(decoded.to_f32().unwrap(), square.map(|edge| edge as f32));
}

#[test]
fn parameters_hold_for_one_request_and_are_checked() {
    let lab = Lab::new();
    let service = squares(&lab);
    let (body, _) = png(3);
    let with = |params: Value| {
        let mut body = body.clone();
        body["params"] = params;
        service.predict(&body)
    };
    assert_eq!(with(json!({ "score_threshold": 0.99 })).body["num_detections"], 0);
    assert_eq!(
        with(json!({ "score_threshold": "0.5" })).body["num_detections"],
        1
    );
    assert_eq!(
        service.predict(&body).body["num_detections"],
        1,
        "the next one has its own"
    );
    for (params, words) in [
        (json!({ "score_threshold": 1.5 }), "score_threshold"),
        (json!({ "score_threshold": true }), "score_threshold"),
        (
            json!({ "score_treshold": 0.5 }),
            "did you mean `score_threshold`?",
        ),
        (json!({ "score_threshold": [1] }), "a list"),
    ] {
        let reply = with(params);
        assert_eq!(reply.status, 400, "{}", reply.body);
        assert!(
            reply.body["detail"].as_str().unwrap().contains(words),
            "{}",
            reply.body
        );
    }
    let info = service.client().get("/info").unwrap().body;
    assert_eq!(info["runtime_params"]["score_threshold"]["max"], 1.0);
}

#[test]
fn many_clients_each_get_their_own_answer() {
    let lab = Lab::new();
    let service = squares(&lab);
    std::thread::scope(|scope| {
        for client in 0..8 {
            let service = &service;
            scope.spawn(move || {
                for turn in 0..6 {
                    let (body, square) = png(client * 6 + turn);
                    assert_eq!(box_of(&service.predict(&body)), square);
                }
            });
        }
    });
}

#[test]
fn a_sweep_in_every_form_is_answered_as_the_model_itself_answers() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let file = root.join("pipelines/centerpoint.yaml");
    let engine = engine_of(&file, None);
    let service = Service::start(engine, options());
    service.client().wait_ready(PATIENCE).unwrap();

    // A car's flank and the road, as a LiDAR might see them.
    let mut rows: Vec<[f32; 4]> = Vec::new();
    for i in 0..60 {
        for j in 0..20 {
            rows.push([8.0 + 0.07 * i as f32, 3.0, -1.7 + 0.07 * j as f32, 0.3]);
            rows.push([0.6 * i as f32, -6.0 + 0.6 * j as f32, -1.8, 0.1]);
        }
    }
    let (name, settings, device) = load(&file, None);
    let mut model = Model::open(
        load_model(&name, &settings).unwrap(),
        &device,
        ModelOptions::default(),
    )
    .unwrap();
    let column = |axis: usize| rows.iter().map(|row| row[axis]).collect::<Vec<f32>>();
    let [x, y, z, intensity] = [column(0), column(1), column(2), column(3)];
    let sweep = Sweep {
        stream: "",
        stamp_ns: 0,
        points: sensorium::lidar::Columns {
            x: &x,
            y: &y,
            z: &z,
            intensity: &intensity,
        },
        // The model adds earlier sweeps, so it asks where the sensor was.
        world_from_sensor: Some([
            1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0,
        ]),
    };
    let direct = model
        .run(
            &SensorData::Sweep(sweep),
            "base_link",
            [("score_threshold", SWEEP_THRESHOLD.into())],
        )
        .unwrap();
    let Detections::Objects(direct) = direct.detections else {
        panic!("objects are expected")
    };
    assert!(direct.objects.len() > 4, "{} objects", direct.objects.len());

    let bytes: Vec<u8> = rows
        .iter()
        .flatten()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    let doubles: Vec<u8> = rows
        .iter()
        .flatten()
        .flat_map(|&value| f64::from(value).to_be_bytes())
        .collect();
    let cloud = PointCloud {
        x: x.clone(),
        y: y.clone(),
        z: z.clone(),
        intensity: intensity.clone(),
        ..PointCloud::default()
    };
    let file = |name: &str, format| {
        let bytes = encode(&cloud, format, CloudWriteOptions::default()).unwrap();
        json!({ "format": name, "data": STANDARD.encode(bytes) })
    };
    let array = json!({ "encoding": "raw", "dtype": "float32", "shape": [rows.len(), 4], "data": STANDARD.encode(&bytes) });
    let points = [
        json!(rows),
        json!({ "data": rows, "fields": ["x", "y", "z", "intensity"] }),
        json!({ "data": STANDARD.encode(&bytes) }),
        json!({ "format": "bin", "data": STANDARD.encode(&bytes) }),
        json!({ "format": "raw", "dtype": "float64", "byte_order": "big", "data": STANDARD.encode(doubles) }),
        file("npy", CloudFormat::Npy),
        file("npz", CloudFormat::Npz),
        file("pcd", CloudFormat::Pcd),
    ];
    let points = points.map(|points| json!({ "points": points }));
    let inputs = json!({ "inputs": { "arrays": { "points": array } } });
    let asked = |mut body: Value| {
        body["params"] = json!({ "score_threshold": SWEEP_THRESHOLD });
        let reply = service.predict(&body);
        assert_eq!(reply.status, 200, "{}", reply.body);
        reply.body
    };
    let answers = points.map(|body| {
        let answer = asked(body);
        assert_eq!(answer["meta"]["points_dropped"], 0);
        answer
    });
    for answer in answers.into_iter().chain([asked(inputs)]) {
        let found = answer["detections"].as_array().unwrap();
        assert_eq!(found.len(), direct.objects.len());
        for (row, object) in found.iter().zip(&direct.objects) {
            assert_eq!(row["label"], object.label.name());
            for axis in 0..3 {
                let center = row["center"][axis].as_f64().unwrap();
                assert!(
                    (center - object.position_m[axis]).abs() < 1e-3,
                    "{row} {object:?}"
                );
                let size = row["size"][axis].as_f64().unwrap();
                assert!((size - object.size_m[axis]).abs() < 1e-3, "{row} {object:?}");
            }
            let score = row["score"].as_f64().unwrap();
            assert!((score - f64::from(object.score)).abs() < 1e-5, "{row} {object:?}");
            let yaw = row["yaw"].as_f64().unwrap();
            assert!((yaw - object.yaw_rad).abs() < 1e-4, "{row} {object:?}");
        }
    }

    // What an earlier sweep saw, and where it was, makes a difference.
    let alone = asked(json!({ "points": rows }));
    let after = |pose: Value| {
        let sweep = json!({ "points": rows, "time_lag_s": 0.1, "T_ref_from_sweep": pose });
        asked(json!({ "points": rows, "sweeps": [sweep] }))["detections"].clone()
    };
    let (near, far) = (after(json!({ "x": 0.5 })), after(json!({ "x": 20 })));
    assert_ne!(near, alone["detections"]);
    assert_ne!(near, far);
    let again = asked(json!({ "points": rows }));
    assert_eq!(
        again["detections"], alone["detections"],
        "nothing is kept of them"
    );
}

/// Below the scores that the demo's network gives to a car that only one side is seen of.
const SWEEP_THRESHOLD: f64 = 0.01;

#[test]
fn presets_are_named_and_never_files() {
    let folder = tempfile::tempdir().unwrap();
    let camera = json!({ "intrinsics": { "fx": 500, "fy": 500, "cx": 32, "cy": 32 }, "T_ref_from_camera": { "x": 1 } });
    std::fs::write(
        folder.path().join("car.json"),
        json!({ "cameras": { "front": camera } }).to_string(),
    )
    .unwrap();
    let lab = Lab::new();
    let facts = ServiceFacts {
        presets: Presets::read(folder.path()).unwrap(),
        ..ServiceFacts::default()
    };
    let engine = engine_of(&lab.path("tiny.yaml"), Some(&lab.path("squares.onnx")));
    let service = Service::with_facts(engine, options(), facts);
    service.client().wait_ready(PATIENCE).unwrap();
    assert_eq!(
        service.client().get("/info").unwrap().body["calibration_presets"],
        json!(["car"])
    );
    let (mut body, square) = png(2);
    body["calibration"] = json!({ "preset": "car" });
    assert_eq!(box_of(&service.predict(&body)), square);
    for name in ["../car", "car.json", "bus"] {
        body["calibration"] = json!({ "preset": name });
        let reply = service.predict(&body);
        assert_eq!(reply.status, 400, "{}", reply.body);
        assert!(
            reply.body["detail"].as_str().unwrap().contains("one of car"),
            "{}",
            reply.body
        );
    }
    std::fs::write(
        folder.path().join("bad.json"),
        r#"{"cameras": {"front": {"intrinsics": [1]}}}"#,
    )
    .unwrap();
    let error = Presets::read(folder.path()).unwrap_err().to_string();
    assert!(
        error.contains("bad.json") && error.contains("cameras.front.intrinsics"),
        "{error}"
    );
}
