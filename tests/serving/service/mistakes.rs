//! What clients get wrong, and who may ask.

use std::io::{Read, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sensorium::perception::Sensor;
use sensorium::server::openapi;
use sensorium::server::{ServeOptions, Token};
use serde_json::{Value, json};

use super::{ByHand, PATIENCE, Service, facts, options, outcome, png};

#[test]
fn what_a_client_gets_wrong_is_told_with_its_place() {
    let (engine, _jobs, _told) = ByHand::new(facts(Sensor::Lidar));
    let service = Service::start(engine, options());
    let b64 = |bytes: &[u8]| STANDARD.encode(bytes);
    let wrong = [
        (json!({}), 400, "points: missing"),
        (json!({ "images": [{ "data": "" }] }), 400, "images: not expected"),
        (
            json!({ "points": [[1, 2, 3]], "inputs": { "arrays": {} } }),
            400,
            "not expected beside points",
        ),
        (
            json!({ "points": [[1, 2, 3, 4], [1, 2]] }),
            400,
            "row 1 has 2 values",
        ),
        (json!({ "points": [[1, 2]] }), 400, "2 columns"),
        (
            json!({ "points": { "data": "*" } }),
            400,
            "points.data: no base64",
        ),
        (
            json!({ "points": { "data": b64(&[0; 15]) } }),
            400,
            "15 bytes; expected a multiple of 16",
        ),
        (
            json!({ "points": { "format": "npy", "data": b64(&[0; 16]) } }),
            400,
            "points.data",
        ),
        (
            json!({ "points": { "format": "npz", "data": b64(&[0; 16]) } }),
            400,
            "points.data",
        ),
        (
            json!({ "points": { "format": "pcd", "data": b64(b"VERSION .7") } }),
            400,
            "points.data",
        ),
        (
            json!({ "points": { "data": "", "fields": ["x", "y"] } }),
            400,
            "points.fields",
        ),
        (
            json!({ "points": { "data": "", "fields": ["x", "y", "y"] } }),
            400,
            "`y` is there twice",
        ),
        (
            json!({ "points": { "data": [[1, 2, 3]], "dtype": "float32" } }),
            400,
            "points.dtype",
        ),
        (
            json!({ "points": { "data": "", "fields": ["a", "b", "c"] } }),
            400,
            "a column `x`",
        ),
        (
            json!({ "points": [[1, 2, 3]], "stream": { "id": "" } }),
            400,
            "stream.id",
        ),
        (
            json!({ "points": [[1, 2, 3]], "stream": { "id": "a", "T_world_from_sensor": [[1]] } }),
            400,
            "T_world_from_sensor",
        ),
        (
            json!({ "points": [[1, 2, 3]], "calibration": {} }),
            400,
            "calibration",
        ),
        (
            json!({ "inputs": { "arrays": { "pints": [[1]] } } }),
            400,
            "pints: the model takes no such array",
        ),
        (
            json!({ "inputs": { "arrays": { "points": [[1, 2, 3]] } } }),
            400,
            "shape [1, 3]",
        ),
        (json!({ "point": [[1, 2, 3]] }), 422, "point"),
        (json!({ "points": 7 }), 422, "points"),
        (
            json!({ "points": { "data": "", "format": "las" } }),
            422,
            "format",
        ),
        (json!({ "points": [["a"]] }), 422, "points"),
        (json!({ "output_format": "xml" }), 422, "output_format"),
        (json!([1]), 422, "body"),
    ];
    for (body, status, words) in wrong {
        let reply = service.predict(&body);
        assert_eq!(reply.status, status, "{body} -> {}", reply.body);
        let detail = reply.body["detail"].to_string();
        assert!(detail.contains(words), "{body} -> {detail}");
    }
    for (body, words) in [
        (&b"{"[..], "EOF"),
        (b"{} x", "trailing"),
        (b"\xff", "body"),
        (b"{\"points\": [[1e999]]}", "number"),
    ] {
        let reply = service.client().post("/predict", body).unwrap();
        assert_eq!(reply.status, 422, "{}", reply.body);
        assert!(reply.body["detail"].to_string().contains(words), "{}", reply.body);
    }
    // Not a byte of what is nested too deep is kept.
    let deep = format!("{{\"params\": {{\"a\": {}", "[".repeat(100_000));
    assert_eq!(
        service.client().post("/predict", deep.as_bytes()).unwrap().status,
        422
    );
    let many = format!("{{\"images\": [{}]}}", vec!["{\"data\": \"\"}"; 65].join(","));
    assert_eq!(
        service.client().post("/predict", many.as_bytes()).unwrap().status,
        422
    );
}

#[test]
fn every_route_answers_and_others_are_told() {
    let (engine, _jobs, _told) = ByHand::new(facts(Sensor::Lidar));
    let service = Service::start(engine, options());
    let client = service.client();
    for path in [
        "/",
        "/health",
        "/v1/health",
        "/info",
        "/v1/models",
        "/openapi.json",
    ] {
        let reply = client.get(path).unwrap();
        assert_eq!((reply.status, reply.body.is_object()), (200, true), "{path}");
    }
    assert_eq!(client.get("/health").unwrap().body["status"], "ok");
    assert_eq!(client.get("/v1/models").unwrap().body["data"][0]["id"], "paper");
    let info = client.get("/info").unwrap().body;
    assert_eq!(
        (&info["model"], &info["variant"], &info["input"]["kind"]),
        (&json!("paper"), &json!("default"), &json!("points"))
    );
    assert_eq!(client.get("/nowhere").unwrap().status, 404);
    let reply = client.get("/predict").unwrap();
    assert_eq!((reply.status, reply.body["detail"].is_string()), (405, true));
    let mut stream = service.connect();
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(
        text.contains("sensorium_http_requests_total{route=\"/info\",status=\"200\"} 2"),
        "{text}"
    );
    let document = client.get("/openapi.json").unwrap().body;
    assert_eq!(document["openapi"], "3.1.0");
    for path in [
        "/",
        "/health",
        "/v1/health",
        "/info",
        "/v1/models",
        "/metrics",
        "/predict",
        "/openapi.json",
    ] {
        assert!(document["paths"][path].is_object(), "{path}");
    }
}

/// A part of a request with null for all that the document lets a client leave out of it.
fn with_nulls(schema: &str, mut part: Value) -> Value {
    let schema = &openapi()["components"]["schemas"][schema];
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    for name in schema["properties"].as_object().unwrap().keys() {
        if part.get(name).is_none() {
            assert!(!required.contains(&json!(name)), "{name} is needed");
            part[name] = Value::Null;
        }
    }
    part
}

#[test]
fn null_is_what_is_left_out_for_every_key_that_may_be() {
    let rows = json!([[1.0, 2.0, 3.0, 4.0]]);
    let stream = || with_nulls("Stream", json!({ "id": "a" }));
    let points = with_nulls("EncodedPoints", json!({ "data": rows }));
    let array = with_nulls("EncodedArray", json!({ "data": rows }));
    let inputs = with_nulls("Inputs", json!({ "arrays": { "points": array } }));
    let (image, _) = png(1);
    let image = with_nulls("Image", image["images"][0].clone());
    let camera = with_nulls("CameraCalibration", json!({}));
    let cameras = with_nulls("Calibration", json!({ "cameras": { "front": camera } }));
    for (sensor, given) in [
        (Sensor::Lidar, json!({ "points": points, "stream": stream() })),
        (Sensor::Lidar, json!({ "inputs": inputs, "stream": stream() })),
        (
            Sensor::Camera,
            json!({ "images": [image], "calibration": cameras, "stream": stream() }),
        ),
        (
            Sensor::Camera,
            json!({ "images": [image], "calibration": with_nulls("Calibration", json!({})) }),
        ),
    ] {
        let (engine, jobs, _told) = ByHand::new(facts(sensor));
        let service = Service::start(engine, options());
        let body = with_nulls("PredictRequest", given);
        let (reply, job) = std::thread::scope(|scope| {
            let reply = scope.spawn(|| service.predict(&body));
            let mut job = jobs.recv_timeout(PATIENCE).unwrap();
            let answered = std::mem::replace(&mut job.reply, tokio::sync::oneshot::channel().0);
            answered.send(Ok(outcome(0.5))).unwrap();
            (reply.join().unwrap(), job)
        });
        assert_eq!(reply.status, 200, "{body} -> {}", reply.body);
        assert_eq!(
            (job.reset, job.last, job.params.len()),
            (false, false, 0),
            "{body}"
        );
    }
    // A map of no arrays is not one of all of them.
    let (engine, _jobs, _told) = ByHand::new(facts(Sensor::Lidar));
    let service = Service::start(engine, options());
    let reply = service.predict(&json!({ "inputs": with_nulls("Inputs", json!({})) }));
    assert_eq!(reply.status, 400, "{}", reply.body);
    assert!(
        reply.body["detail"].as_str().unwrap().contains("points: missing"),
        "{}",
        reply.body
    );
}

#[test]
fn a_stamp_in_seconds_is_one_in_nanoseconds() {
    let (engine, jobs, _told) = ByHand::new(facts(Sensor::Lidar));
    let service = Service::start(engine, options());
    let stamped = |stamp: Value| {
        let body = json!({ "points": [[1, 2, 3, 4]], "stream": stamp });
        std::thread::scope(|scope| {
            let reply = scope.spawn(|| service.predict(&body));
            let job = jobs.recv_timeout(PATIENCE).unwrap();
            job.reply.send(Ok(outcome(0.5))).unwrap();
            assert_eq!(reply.join().unwrap().status, 200);
            job.stamp_ns
        })
    };
    assert_eq!(
        stamped(json!({ "id": "a", "stamp_ns": 1_500_000_001 })),
        1_500_000_001
    );
    assert_eq!(
        stamped(json!({ "id": "a", "timestamp_s": 1.500_000_001 })),
        1_500_000_001
    );
    assert_eq!(stamped(json!({ "id": "a", "timestamp_s": -2 })), -2_000_000_000);
    for stream in [
        json!({ "id": "a", "timestamp_s": 1e11 }),
        json!({ "id": "a", "timestamp_s": 1.0, "stamp_ns": 1 }),
    ] {
        let reply = service.predict(&json!({ "points": [[1, 2, 3, 4]], "stream": stream }));
        assert_eq!(reply.status, 400, "{}", reply.body);
        let told = reply.body["detail"].as_str().unwrap();
        assert!(told.starts_with("stream.timestamp_s: "), "{told}");
    }
}

/// Asks for a path by the name of a host, and gives the line with the status.
fn asked_as(service: &Service, host: &str, headers: &str) -> String {
    let mut stream = service.connect();
    let request = format!("GET /info HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text.lines().next().unwrap().to_owned()
}

#[test]
fn a_service_of_this_machine_alone_is_not_asked_by_another_name() {
    let (engine, _jobs, _told) = ByHand::new(facts(Sensor::Lidar));
    let service = Service::start(engine, options());
    assert!(asked_as(&service, "rebound.example:8000", "").contains(" 403 "));
    assert!(asked_as(&service, "localhost:1", "").contains(" 200 "));
    // A token that is shown says more than a name.
    let (engine, _jobs, _told) = ByHand::new(facts(Sensor::Lidar));
    let token = "correct-horse-battery";
    let options = ServeOptions {
        token: Some(Token::new(token).unwrap()),
        ..options()
    };
    let service = Service::start(engine, options);
    let shown = format!("Authorization: Bearer {token}\r\n");
    assert!(asked_as(&service, "vehicle.example", &shown).contains(" 200 "));
    assert!(asked_as(&service, "vehicle.example", "").contains(" 401 "));
}

#[test]
fn the_place_of_a_problem_is_told_shortly() {
    let (engine, _jobs, _told) = ByHand::new(facts(Sensor::Lidar));
    let service = Service::start(engine, options());
    let mut body = json!({ "arrays": { "x".repeat(100_000): "seven" } });
    body = json!({ "inputs": body });
    let reply = service.predict(&body);
    assert_eq!(reply.status, 422, "{}", reply.body);
    let told = reply.body["detail"].to_string();
    assert!(told.len() < 1_000, "{} bytes", told.len());
    assert!(
        told.contains(&"x".repeat(64)) && !told.contains(&"x".repeat(65)),
        "{told}"
    );
}

#[test]
fn an_intensity_that_is_no_number_is_refused() {
    let (engine, _jobs, _told) = ByHand::new(facts(Sensor::Lidar));
    let service = Service::start(engine, options());
    let bytes: Vec<u8> = [1.0, 2.0, 3.0, f32::NAN]
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    let reply = service.predict(&json!({ "points": { "data": STANDARD.encode(bytes) } }));
    assert_eq!(reply.status, 400, "{}", reply.body);
    assert_eq!(reply.body["detail"], "points: an intensity is not finite");
}

#[test]
fn a_token_is_asked_for_by_everything_but_health() {
    let (engine, _jobs, _told) = ByHand::new(facts(Sensor::Lidar));
    let token = "correct-horse-battery";
    let limits = ServeOptions {
        token: Some(Token::new(token).unwrap()),
        ..options()
    };
    let service = Service::start(engine, limits);
    let (with, without) = (service.client_with(Some(token)), service.client());
    let other = service.client_with(Some("correct-horse-batterz"));
    for path in ["/health", "/v1/health"] {
        assert_eq!(without.get(path).unwrap().status, 200);
    }
    for path in [
        "/",
        "/info",
        "/v1/models",
        "/metrics",
        "/openapi.json",
        "/nowhere",
    ] {
        assert_eq!(without.get(path).unwrap().status, 401, "{path}");
        assert_eq!(other.get(path).unwrap().status, 401, "{path}");
        assert_ne!(with.get(path).unwrap().status, 401, "{path}");
    }
    assert_eq!(without.post("/predict", b"{}").unwrap().status, 401);
    assert_eq!(with.post("/predict", b"{}").unwrap().status, 400);
    for bad in ["short", "with a space in it", "ünïcödé-ünïcödé-ünïcödé"] {
        assert!(Token::new(bad).is_err(), "{bad}");
    }
}

#[test]
fn another_media_type_is_refused() {
    let (engine, _jobs, _told) = ByHand::new(facts(Sensor::Lidar));
    let service = Service::start(engine, options());
    let mut stream = service.connect();
    stream
        .write_all(b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 415 "), "{answer}");
}
