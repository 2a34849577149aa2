//! The OpenAPI document, also as Schemathesis sees it.

use crate::support;
use crate::tiny;
use std::path::Path;

use std::sync::Arc;
use std::time::Duration;

use sensorium::io::forms::{BodyForm, BodyTiming, ToBody};
use sensorium::outputs::{
    DetectedObject, DetectedObjects, Detection2D, Detection3D, Detections, Detections2D,
    Detections2DWithMasks, Detections3D, Mask2D, ObjectLabel, OrientationAvailability, Segmentation3D,
    Trajectory, Twist2D,
};
use sensorium::perception::Sensor;
use sensorium::server::openapi;
use sensorium::tensor::HostTensor;
use serde_json::{Map, Value, json};
use tiny::Lab;

use super::{
    ByHand, PATIENCE, Service, engine_of, facts, options, outcome, png, points as some_points, squares,
};

/// Schemathesis makes requests of the document, good and bad ones, and holds the answers against it.
fn fuzzed(service: &Service) {
    let Some(mut fuzz) = support::oracle("fuzz_service.py") else {
        return;
    };
    let out = support::run(fuzz.arg(format!("http://{}", service.address)));
    let told = String::from_utf8_lossy(&out).into_owned();
    assert!(told.contains("checked"), "{told}");
}

#[test]
fn schemathesis_finds_no_answer_of_a_camera_model_that_the_document_does_not_have() {
    fuzzed(&squares(&Lab::new()));
}

#[test]
fn schemathesis_finds_no_answer_of_a_lidar_model_that_the_document_does_not_have() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("pipelines/centerpoint.yaml");
    let service = Service::start(engine_of(&file, None), options());
    service.client().wait_ready(PATIENCE).unwrap();
    fuzzed(&service);
}

#[test]
fn the_document_is_what_the_command_prints() {
    let out = tiny::sensorium().args(["schema", "openapi"]).output().unwrap();
    let printed: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(&printed, openapi());
    let mut text = printed.to_string();
    for name in ["PredictRequest", "Points", "Image", "Problem"] {
        assert!(printed["components"]["schemas"][name].is_object(), "{name}");
    }
    // Every reference leads somewhere.
    while let Some(at) = text.find("\"$ref\":\"#/components/schemas/") {
        text = text.split_off(at + 29);
        let name = text.split('"').next().unwrap();
        assert!(printed["components"]["schemas"][name].is_object(), "{name}");
    }
}

/// What `/info` says. The parts that differ from run to run and from machine to machine are held against what they are, and
/// left out.
fn told_of(service: &Service) -> String {
    let mut info = service.client().get("/info").unwrap().body;
    assert_eq!(faults(answer_of("get", "/info"), &info, "body"), [""; 0]);
    assert_eq!(info["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(info["device"]["backend"], "cpu");
    assert_eq!(info["warm_up_ms"], info["trace"]["timings_ms"]["warm_up"]);
    let times = [
        &info["boot_ms"],
        &info["warm_up_ms"],
        &info["trace"]["timings_ms"]["capture"],
    ];
    for time in times.map(|time| time.as_f64().unwrap()) {
        assert!(time > 0.0 && (time * 1e3).round() / 1e3 == time, "{time}");
    }
    for variant in info["trace"]["variants"].as_array_mut().unwrap() {
        for trace in variant["traces"].as_array_mut().unwrap() {
            assert!(trace["bytes"].as_u64().unwrap() > 0, "{trace}");
            trace["bytes"] = json!("BYTES");
        }
    }
    info["version"] = json!("VERSION");
    info["device"] = json!("DEVICE");
    info["trace"]["timings_ms"] = json!("TIMES");
    for name in ["boot_ms", "warm_up_ms"] {
        info[name] = json!("TIME");
    }
    serde_json::to_string_pretty(&info).unwrap()
}

#[test]
fn a_service_tells_what_its_model_is_and_takes() {
    let lab = Lab::new();
    insta::assert_snapshot!("info_of_a_camera_model", told_of(&squares(&lab)));
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("pipelines/centerpoint.yaml");
    let service = Service::start(engine_of(&file, None), options());
    service.client().wait_ready(PATIENCE).unwrap();
    insta::assert_snapshot!("info_of_centerpoint", told_of(&service));
}

/// What is not as a schema of the document has it, by its path. Knows the keywords that the answers' schemas use.
fn faults(schema: &Value, value: &Value, path: &str) -> Vec<String> {
    let fault = |words: &str| vec![format!("{path} {words}: {value}")];
    let schema = match schema["$ref"].as_str() {
        Some(target) => openapi().pointer(target.trim_start_matches('#')).unwrap(),
        None => schema,
    };
    if let Some(any) = schema["anyOf"].as_array().or(schema["oneOf"].as_array()) {
        return match any.iter().any(|one| faults(one, value, path).is_empty()) {
            true => Vec::new(),
            false => fault("is none of several"),
        };
    }
    if let Some(allowed) = schema["enum"].as_array()
        && !allowed.contains(value)
    {
        return fault("is not one of the values");
    }
    if schema.get("const").is_some_and(|only| only != value) {
        return fault("is another value");
    }
    let is = |kind: &Value| match kind.as_str().unwrap() {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("{other}"),
    };
    let fits = match &schema["type"] {
        Value::Null => true,
        Value::Array(kinds) => kinds.iter().any(is),
        kind => is(kind),
    };
    if !fits {
        return fault("is of another type");
    }
    if let Some(items) = value.as_array() {
        let within = |limit: &str, fits: fn(u64, u64) -> bool| {
            schema[limit]
                .as_u64()
                .is_none_or(|limit| fits(items.len() as u64, limit))
        };
        if !(within("minItems", |len, limit| len >= limit) && within("maxItems", |len, limit| len <= limit)) {
            return fault("is of another length");
        }
        let all = items.iter().enumerate();
        return all
            .flat_map(|(at, item)| faults(&schema["items"], item, &format!("{path}[{at}]")))
            .collect();
    }
    let Some(entries) = value.as_object() else {
        return Vec::new();
    };
    let required = schema["required"].as_array().into_iter().flatten();
    let missing = required.filter(|name| !entries.contains_key(name.as_str().unwrap()));
    let mut found: Vec<String> = missing.map(|name| format!("{path}.{name} is missing")).collect();
    for (name, value) in entries {
        let (path, known) = (format!("{path}.{name}"), schema["properties"].get(name));
        match known.or(schema.get("additionalProperties")) {
            Some(schema) => found.extend(faults(schema, value, &path)),
            // A free object has no properties in its schema; any other names all of them.
            None if schema.get("properties").is_none() => {}
            None => found.push(format!("{path} is not in the document")),
        }
    }
    found
}

/// The schema of what a route answers with 200.
fn answer_of(method: &str, path: &str) -> &'static Value {
    &openapi()["paths"][path][method]["responses"]["200"]["content"]["application/json"]["schema"]
}

fn names(names: &[&str]) -> Arc<[String]> {
    names.iter().map(|&name| name.to_owned()).collect()
}

fn boxes() -> Detections2D {
    let found = Detection2D {
        label_id: 0,
        score: 0.5,
        box_xyxy: [0.0, 0.0, 1.0, 1.0],
    };
    Detections2D::new(vec![found], names(&["car"]), "m".into(), "camera".into(), [2, 1])
}

fn objects(velocity: bool) -> DetectedObjects {
    let twist = Twist2D {
        linear_x_mps: 1.5,
        linear_y_mps: 0.0,
        angular_z_radps: 0.0,
    };
    DetectedObjects {
        objects: vec![DetectedObject {
            label: ObjectLabel::Car,
            score: 0.5,
            position_m: [1.0, 2.0, 3.0],
            yaw_rad: 0.25,
            size_m: [4.0, 2.0, 1.5],
            orientation: OrientationAvailability::Available,
            twist: velocity.then_some(twist),
            pose_variance: None,
            twist_variance: None,
        }],
        model: "m".into(),
        frame_id: "base_link".into(),
    }
}

fn mask(labels: Vec<u16>) -> Mask2D {
    Mask2D::new(
        labels,
        [2, 1],
        names(&["road", "car"]),
        "m".into(),
        "camera".into(),
    )
    .unwrap()
}

#[test]
fn every_class_of_results_has_bodies_that_the_document_describes() {
    let predict = answer_of("post", "/predict");
    let in_space = Detection3D {
        label_id: 0,
        score: 0.5,
        box_xyzlwhy: [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 0.7],
        velocity_mps: None,
    };
    let in_space = Detections3D::new(vec![in_space], names(&["car"]), "m".into(), "base_link".into());
    let classes = Segmentation3D {
        label_ids: vec![0, 1],
        class_names: names(&["road", "car"]),
        scores: Some(vec![0.5, 0.25]),
        model: "m".into(),
        frame_id: "base_link".into(),
    };
    let unsure = Segmentation3D {
        scores: None,
        ..classes.clone()
    };
    let columns = Trajectory::COLUMNS.map(str::to_owned).to_vec();
    let path = Trajectory::new(vec![0.0, 1.0, 0.5], columns, "m".into(), "map".into()).unwrap();
    let mut with_agents = path.clone();
    with_agents.turn_indicator = Some(2);
    with_agents.predicted_agents = Some(HostTensor::from_slice(&[1, 2], &[4.0_f32, 5.0]).unwrap());
    let masked = Detections2DWithMasks {
        detections: boxes(),
        masks: [("semseg".to_owned(), mask(vec![0, 1]))].into(),
    };
    let results: [(&str, &dyn ToBody); 10] = [
        ("boxes", &boxes()),
        ("boxes with masks", &masked),
        ("boxes in space", &in_space),
        ("objects", &objects(true)),
        ("mask", &mask(vec![0, 1])),
        ("mask of many classes", &mask(vec![0, 300])),
        ("points", &classes),
        ("points without scores", &unsure),
        ("trajectory", &path),
        ("trajectory with agents", &with_agents),
    ];
    let timing = BodyTiming {
        total: Duration::from_micros(1500),
        ..BodyTiming::default()
    };
    for (what, result) in results {
        for form in [BodyForm::Json, BodyForm::Npz] {
            let body = result.to_body(form, &timing, Map::new()).unwrap();
            assert_eq!(faults(predict, &body, "body"), [""; 0], "{what} {form:?}");
            // What is named is a key of its own, and not taken for a mask.
            let known = openapi()["components"]["schemas"]["PredictAnswer"]["properties"]
                .as_object()
                .unwrap();
            let others: Vec<&String> = body
                .as_object()
                .unwrap()
                .keys()
                .filter(|key| !known.contains_key(*key))
                .collect();
            let masks: &[&str] = if what == "boxes with masks" {
                &["semseg"]
            } else {
                &[]
            };
            assert_eq!(others, masks, "{what} {form:?}");
        }
    }
    // The check finds what is wrong.
    let mut body = boxes().to_body(BodyForm::Json, &timing, Map::new()).unwrap();
    body["image_size"] = json!([2]);
    body["semseg"] = json!("png");
    body["detections"][0]["score"] = json!("high");
    body.as_object_mut().unwrap().remove("model");
    assert_eq!(faults(predict, &body, "body").len(), 4);
}

#[test]
fn a_service_answers_with_each_class_of_results_as_the_document_describes_it() {
    let outcomes = [
        (Sensor::Camera, png(1).0, Detections::Image(boxes())),
        (Sensor::Lidar, some_points(), Detections::Objects(objects(true))),
        (Sensor::Lidar, some_points(), Detections::Objects(objects(false))),
    ];
    for (sensor, mut body, detections) in outcomes {
        for (format, has_arrays) in [("json", false), ("npz", true)] {
            let (engine, jobs, _told) = ByHand::new(facts(sensor));
            let service = Service::start(engine, options());
            body["output_format"] = json!(format);
            let reply = std::thread::scope(|scope| {
                let reply = scope.spawn(|| service.predict(&body));
                let job = jobs.recv_timeout(PATIENCE).unwrap();
                let mut answer = outcome(0.5);
                answer.detections = detections.clone();
                answer.within_capacity = Some(true);
                job.reply.send(Ok(answer)).unwrap();
                reply.join().unwrap()
            });
            assert_eq!(reply.status, 200, "{}", reply.body);
            assert_eq!(
                faults(answer_of("post", "/predict"), &reply.body, "body"),
                [""; 0]
            );
            let body = &reply.body;
            assert_eq!(body["num_detections"], 1);
            assert_eq!(body.get("arrays").is_some(), has_arrays, "{body}");
            assert_eq!(body["meta"]["within_capacity"], true);
            match &detections {
                Detections::Image(_) => assert_eq!(body["image_size"], json!([2, 1])),
                Detections::Objects(found) => {
                    let row = &body["detections"][0];
                    assert_eq!(row["center"], json!([1.0, 2.0, 3.0]));
                    assert_eq!(
                        row["velocity"].is_null(),
                        found.objects[0].twist.is_none(),
                        "{row}"
                    );
                }
            }
        }
    }
}
