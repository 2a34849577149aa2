//! `sensorium serve` and its client: every status, limits, clients that are slow or gone, and answers held against those of
//! the model itself.

use crate::support;
use crate::tiny;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sensorium::device::DeviceConfig;
use sensorium::image::{ImageRef, PixelFormat, encode_jpeg, encode_png};
use sensorium::io::forms::Presets;
use sensorium::outputs::{Detection2D, Detections, Detections2D};
use sensorium::perception::{
    CallParams, HeadError, HostModel, Model, ModelOptions, ModelParts, Outcome, Placement, PrepareError,
    PreparedFrame, RunTiming, Sensor, SensorData, Sweep,
};
use sensorium::pipeline::{Overrides, Pipeline, RestartSettings};
use sensorium::runtime::load_model;
use sensorium::server::client::{
    Client, Expected, Gates, Reply, check_bad_request, check_service, compare_with_reference,
};
use sensorium::server::{
    Engine, EngineError, Job, LoadedModel, ModelEngine, ModelEngineOptions, ModelFacts, Phase, Refused,
    ServeOptions, Server, ServiceFacts, Token,
};
use serde_json::{Value, json};
use tiny::Lab;
use tokio::sync::{oneshot, watch};

/// Longest wait for anything that has to come.
const PATIENCE: Duration = Duration::from_secs(300);

/// A service on a port of its own, until it is dropped.
struct Service {
    address: SocketAddr,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<Phase>>,
}

fn options() -> ServeOptions {
    ServeOptions {
        listen: (Ipv4Addr::LOCALHOST, 0).into(),
        request_timeout: PATIENCE,
        body_timeout: PATIENCE,
        ..ServeOptions::default()
    }
}

impl Service {
    fn start(engine: Arc<dyn Engine>, options: ServeOptions) -> Self {
        Self::with_facts(engine, options, ServiceFacts::default())
    }

    fn with_facts(engine: Arc<dyn Engine>, options: ServeOptions, facts: ServiceFacts) -> Self {
        let (end, ended) = oneshot::channel();
        let (told, address) = channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let server = Server::bind(engine, options, facts).await.unwrap();
                told.send(server.address()).unwrap();
                server.run(async { drop(ended.await) }).await
            })
        });
        Self {
            address: address.recv_timeout(PATIENCE).unwrap(),
            end: Some(end),
            thread: Some(thread),
        }
    }

    fn client(&self) -> Client {
        self.client_with(None)
    }

    fn client_with(&self, token: Option<&str>) -> Client {
        Client::new(
            &format!("http://{}", self.address),
            token.map(|token| Token::new(token).unwrap()),
            PATIENCE,
        )
    }

    fn predict(&self, body: &Value) -> Reply {
        self.client()
            .post("/predict", body.to_string().as_bytes())
            .unwrap()
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Asks the service to end, and gives what its engine was doing.
    fn end(mut self) -> Phase {
        drop(self.end.take());
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(std::thread::panicking() || ended.is_ok(), "the service panicked");
        }
    }
}

/// An engine whose jobs the test takes and answers.
#[derive(Debug)]
struct ByHand {
    jobs: Mutex<Option<Sender<Job>>>,
    phase: watch::Receiver<Phase>,
    closed: AtomicBool,
}

impl ByHand {
    fn new(phase: Phase) -> (Arc<Self>, Receiver<Job>, watch::Sender<Phase>) {
        let (jobs, taken) = channel();
        let (told, phase) = watch::channel(phase);
        let engine = Self {
            jobs: Mutex::new(Some(jobs)),
            phase,
            closed: AtomicBool::new(false),
        };
        (Arc::new(engine), taken, told)
    }
}

impl Engine for ByHand {
    fn phase(&self) -> watch::Receiver<Phase> {
        self.phase.clone()
    }

    fn submit(&self, job: Job) -> Result<(), Refused> {
        let jobs = self.jobs.lock().unwrap();
        jobs.as_ref()
            .ok_or(Refused::NotReady)?
            .send(job)
            .map_err(|_| Refused::NotReady)
    }

    fn close(&self) {
        drop(self.jobs.lock().unwrap().take());
        self.closed.store(true, Ordering::SeqCst);
    }
}

/// A model on paper.
fn facts(sensor: Sensor) -> Phase {
    Phase::Ready(Arc::new(ModelFacts {
        name: "paper".into(),
        sensor,
        past_sweeps: 0,
        labels: vec!["car".to_owned()],
        params: Vec::new(),
        schema: sensorium::perception::InputSchema::of(sensor),
        info: json!({ "variants": ["default"], "warm": ["default"] }),
        weights: Value::Null,
        bundle: None,
        boot: Duration::from_millis(5),
    }))
}

fn outcome(score: f32) -> Outcome {
    let found = Detection2D {
        label_id: 0,
        score,
        box_xyxy: [1.0, 2.0, 3.0, 4.0],
    };
    let labels = Arc::from(vec!["car".to_owned()]);
    Outcome {
        detections: Detections::Image(Detections2D::new(
            vec![found],
            labels,
            "paper".into(),
            "camera".into(),
            [8, 8],
        )),
        timing: RunTiming::default(),
        variant: 0,
        within_capacity: None,
        freshness: None,
    }
}

/// A body that every model on paper takes.
fn points() -> Value {
    json!({ "points": [[1.0, 2.0, 3.0, 4.0]] })
}

/// A model of a pipeline file.
fn load(file: &Path, weights: Option<&Path>) -> (String, sensorium::pipeline::ModelSettings, DeviceConfig) {
    let overrides = Overrides {
        model: weights.map(Path::to_owned),
        ..Overrides::default()
    };
    let pipeline = Pipeline::load(file, &overrides).unwrap();
    let device = pipeline.device.config(&sensorium::device::DeviceLayer::default());
    let (name, settings) = pipeline.models.into_iter().next().unwrap();
    (name, settings, device)
}

fn engine_of(file: &Path, weights: Option<&Path>) -> Arc<dyn Engine> {
    let (name, settings, device) = load(file, weights);
    let options = ModelEngineOptions {
        device,
        max_waiting: 8,
        ..ModelEngineOptions::default()
    };
    let load = move || {
        let parts = load_model(&name, &settings).map_err(|error| error.to_string())?;
        Ok(LoadedModel {
            parts,
            weights: json!({ "sha256": "0123" }),
            bundle: None,
        })
    };
    Arc::new(ModelEngine::start(load, options).unwrap())
}

fn squares(lab: &Lab) -> Service {
    let engine = engine_of(&lab.path("tiny.yaml"), Some(&lab.path("squares.onnx")));
    let service = Service::start(engine, options());
    service.client().wait_ready(PATIENCE).unwrap();
    service
}

fn png(i: usize) -> (Value, [f64; 4]) {
    let (image, square) = tiny::numbered(i);
    (
        json!({ "images": [{ "data": STANDARD.encode(encode_png(&image.view()).unwrap()) }] }),
        square,
    )
}

fn box_of(reply: &Reply) -> [f64; 4] {
    assert_eq!(reply.status, 200, "{}", reply.body);
    let found = reply.body["detections"].as_array().unwrap();
    assert_eq!(found.len(), 1, "{}", reply.body);
    serde_json::from_value(found[0]["box_xyxy"].clone()).unwrap()
}

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
            [("score_threshold", 0.05.into())],
        )
        .unwrap();
    let Detections::Objects(direct) = direct.detections else {
        panic!("objects are expected")
    };

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
    let forms = [
        json!(rows),
        json!({ "data": rows, "fields": ["x", "y", "z", "intensity"] }),
        json!({ "data": STANDARD.encode(&bytes) }),
        json!({ "format": "bin", "data": STANDARD.encode(&bytes) }),
        json!({ "format": "raw", "dtype": "float64", "byte_order": "big", "data": STANDARD.encode(doubles) }),
    ];
    for form in forms {
        let mut body = json!({ "params": { "score_threshold": 0.05 } });
        body["points"] = form;
        let reply = service.predict(&body);
        assert_eq!(reply.status, 200, "{}", reply.body);
        assert_eq!(reply.body["meta"]["points_dropped"], 0);
        let found = reply.body["detections"].as_array().unwrap();
        assert_eq!(found.len(), direct.objects.len());
        for (row, object) in found.iter().zip(&direct.objects) {
            assert_eq!(row["label"], object.label.name());
            for axis in 0..3 {
                let center = row["center"][axis].as_f64().unwrap();
                assert!(
                    (center - object.position_m[axis]).abs() < 1e-3,
                    "{row} {object:?}"
                );
            }
        }
    }
    let reply = service.predict(&json!({ "points": [[1, 2, 3, 4]], "sweeps": [
        { "points": [[1, 2, 3, 4]], "time_lag_s": 0.1, "T_ref_from_sweep": { "x": 1 } }] }));
    let past = service.client().get("/info").unwrap().body["input"]["past_sweeps"]
        .as_u64()
        .unwrap();
    assert_eq!(reply.status, if past == 0 { 400 } else { 200 }, "{}", reply.body);
}

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
    let mut body = json!({ "arrays": { "x".repeat(100_000): 7 } });
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
fn a_body_that_is_too_long_is_refused_by_its_length_and_while_it_comes() {
    let (engine, _jobs, _told) = ByHand::new(facts(Sensor::Lidar));
    let limits = ServeOptions {
        max_body_bytes: 1 << 20,
        ..options()
    };
    let service = Service::start(engine, limits);
    let long = vec![b' '; (1 << 20) + 1];
    let reply = service.client().post("/predict", &long).unwrap();
    assert_eq!(reply.status, 400, "{}", reply.body);
    assert!(
        reply.body["detail"]
            .as_str()
            .unwrap()
            .contains("at most 1048576 are taken"),
        "{}",
        reply.body
    );

    let mut stream = service.connect();
    stream
        .write_all(b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        .unwrap();
    let chunk = vec![b' '; 1 << 16];
    for _ in 0..17 {
        stream
            .write_all(format!("{:x}\r\n", chunk.len()).as_bytes())
            .unwrap();
        stream.write_all(&chunk).unwrap();
        stream.write_all(b"\r\n").unwrap();
    }
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line).unwrap();
    assert!(line.contains(" 400 "), "{line}");
}

#[test]
fn bodies_of_all_requests_together_have_a_limit() {
    let (engine, jobs, _told) = ByHand::new(facts(Sensor::Lidar));
    let limits = ServeOptions {
        max_buffered_bytes: 1 << 20,
        ..options()
    };
    let service = Service::start(engine, limits);
    let mut holding = service.connect();
    let head = format!(
        "POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        1 << 20
    );
    holding.write_all(head.as_bytes()).unwrap();
    holding.write_all(&vec![b' '; (1 << 20) - 1024]).unwrap();
    // Once what is held has arrived, others of more than the rest are refused.
    let long = json!({ "points": [[1, 2, 3, 4]], "frame_id": " ".repeat(100_000) });
    await_that(|| service.predict(&long).status == 503);
    drop(holding);
    await_that(|| service.predict(&long).status == 400);
    drop(jobs);
}

/// Waits until something is so.
fn await_that(mut so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !so() {
        assert!(began.elapsed() < PATIENCE, "it never came to that");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn clients_that_drip_do_not_delay_others() {
    let lab = Lab::new();
    let service = squares(&lab);
    let (body, square) = png(5);
    // More than may run and wait together, all of them with an unfinished body.
    let slow: Vec<TcpStream> = (0..64)
        .map(|_| {
            let mut stream = service.connect();
            stream
                .write_all(b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{")
                .unwrap();
            stream
        })
        .collect();
    for _ in 0..3 {
        for mut stream in &slow {
            stream.write_all(b" ").unwrap();
        }
        assert_eq!(box_of(&service.predict(&body)), square);
    }
    drop(slow);
}

#[test]
fn a_body_that_does_not_come_in_time_is_given_up() {
    let (engine, _jobs, _told) = ByHand::new(facts(Sensor::Lidar));
    let limits = ServeOptions {
        body_timeout: Duration::from_millis(50),
        ..options()
    };
    let service = Service::start(engine, limits);
    let mut stream = service.connect();
    stream
        .write_all(b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(answer.contains("did not come in time"), "{answer}");
}

#[test]
fn a_head_that_does_not_come_in_time_ends_the_connection() {
    let (engine, _jobs, _told) = ByHand::new(facts(Sensor::Lidar));
    let limits = ServeOptions {
        header_timeout: Duration::from_millis(50),
        ..options()
    };
    let service = Service::start(engine, limits);
    let mut stream = service.connect();
    stream.write_all(b"GET /health HTTP/1.1\r\nHo").unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert!(!rest.starts_with(b"HTTP/1.1 200"));
}

#[test]
fn a_client_that_takes_nothing_is_cut_off() {
    let (engine, _jobs, _told) = ByHand::new(facts(Sensor::Lidar));
    let limits = ServeOptions {
        write_timeout: Duration::from_millis(100),
        ..options()
    };
    let service = Service::start(engine, limits);
    let mut stream = service.connect();
    // Answers that nobody reads fill the buffers of both sides, and then requests do.
    let request = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n";
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    let error = loop {
        if let Err(error) = stream.write_all(request) {
            break error;
        }
    };
    assert!(
        matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe),
        "{error}"
    );
}

#[test]
fn no_more_requests_wait_than_may_and_the_rest_are_told_to_come_again() {
    let (engine, jobs, _told) = ByHand::new(facts(Sensor::Lidar));
    let limits = ServeOptions {
        max_concurrent: 1,
        max_waiting: 1,
        ..options()
    };
    let service = Service::start(engine, limits);
    std::thread::scope(|scope| {
        let asked: Vec<_> = (0..5)
            .map(|_| scope.spawn(|| service.predict(&points())))
            .collect();
        // One runs, one waits; nothing is answered yet, so those that are done were refused.
        await_that(|| asked.iter().filter(|asked| asked.is_finished()).count() == 3);
        for _ in 0..2 {
            jobs.recv_timeout(PATIENCE)
                .unwrap()
                .reply
                .send(Ok(outcome(0.5)))
                .unwrap();
        }
        let mut statuses: Vec<u16> = asked
            .into_iter()
            .map(|asked| asked.join().unwrap().status)
            .collect();
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 200, 503, 503, 503]);
    });
}

/// Whether no request is under way.
fn jobs_empty(service: &Service) -> bool {
    let mut stream = service.connect();
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text.contains("sensorium_http_in_flight 0")
}

#[test]
fn a_request_that_takes_too_long_is_told_so() {
    let (engine, jobs, _told) = ByHand::new(facts(Sensor::Lidar));
    let limits = ServeOptions {
        request_timeout: Duration::from_millis(100),
        ..options()
    };
    let service = Service::start(engine, limits);
    let reply = service.predict(&points());
    assert_eq!(reply.status, 503, "{}", reply.body);
    assert!(
        reply.body["detail"].as_str().unwrap().contains("not done within"),
        "{}",
        reply.body
    );
    let job = jobs.recv_timeout(PATIENCE).unwrap();
    await_that(|| job.reply.is_closed());
}

#[test]
fn work_of_a_client_that_is_gone_is_dropped() {
    let (engine, jobs, _told) = ByHand::new(facts(Sensor::Lidar));
    let service = Service::start(engine, options());
    let mut stream = service.connect();
    let body = points().to_string();
    let head = format!(
        "POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    let job = jobs.recv_timeout(PATIENCE).unwrap();
    assert!(!job.reply.is_closed());
    stream.shutdown(Shutdown::Both).unwrap();
    drop(stream);
    await_that(|| job.reply.is_closed());
    await_that(|| jobs_empty(&service));
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

#[test]
fn until_there_is_a_model_and_when_there_is_none_that_is_told() {
    let (engine, _jobs, told) = ByHand::new(Phase::Starting);
    let service = Service::start(engine, options());
    let client = service.client();
    assert_eq!(client.get("/health").unwrap().body["status"], "starting");
    for reply in [client.get("/info").unwrap(), service.predict(&points())] {
        assert_eq!(reply.status, 503, "{}", reply.body);
        assert!(
            reply.body["detail"].as_str().unwrap().contains("starting"),
            "{}",
            reply.body
        );
    }
    let mut stream = service.connect();
    stream
        .write_all(b"GET /info HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.to_lowercase().contains("retry-after: 1"), "{answer}");
    told.send_replace(Phase::Failed("no such file".to_owned()));
    let health = client.get("/health").unwrap();
    assert_eq!(
        (health.status, &health.body["status"], &health.body["error"]),
        (200, &json!("error"), &json!("no such file"))
    );
    assert!(
        service.predict(&points()).body["detail"]
            .as_str()
            .unwrap()
            .contains("no such file")
    );
    assert!(
        client
            .wait_ready(PATIENCE)
            .unwrap_err()
            .to_string()
            .contains("no such file")
    );
    assert!(matches!(service.end(), Phase::Failed(_)));
}

#[test]
fn a_model_that_cannot_be_loaded_is_told_by_health() {
    let engine =
        ModelEngine::start(|| Err("no such file".to_owned()), ModelEngineOptions::default()).unwrap();
    let service = Service::start(Arc::new(engine), options());
    assert!(
        service
            .client()
            .wait_ready(PATIENCE)
            .unwrap_err()
            .to_string()
            .contains("no such file")
    );
    assert_eq!(service.predict(&points()).status, 503);
}

#[test]
fn what_a_model_does_wrong_is_an_inference_that_failed() {
    let (engine, jobs, _told) = ByHand::new(facts(Sensor::Lidar));
    let service = Service::start(engine, options());
    let answer = |with: Result<Outcome, EngineError>| {
        std::thread::scope(|scope| {
            let asked = scope.spawn(|| service.predict(&points()));
            jobs.recv_timeout(PATIENCE).unwrap().reply.send(with).unwrap();
            asked.join().unwrap()
        })
    };
    let reply = answer(Err(EngineError::Panic("at the disco".to_owned())));
    assert_eq!(
        (reply.status, &reply.body["detail"]),
        (500, &json!("inference failed: the model panicked: at the disco"))
    );
    let reply = answer(Ok(outcome(f32::NAN)));
    assert_eq!(
        (reply.status, &reply.body["detail"]),
        (
            500,
            &json!("inference failed: non-finite value at body.detections[0].score")
        )
    );
    let reply = answer(Ok(outcome(f32::INFINITY)));
    assert_eq!(reply.status, 500);
    let reply = answer(Err(EngineError::Model(
        PrepareError::NoPose { stamp_ns: 7 }.into(),
    )));
    assert_eq!(reply.status, 400, "{}", reply.body);
    assert_eq!(answer(Err(EngineError::Reopening)).status, 503);
    assert_eq!(
        answer(Ok(outcome(0.123_456_78))).body["detections"][0]["score"],
        0.123457
    );
}

/// A model that panics at its first frame.
#[derive(Debug)]
struct Panicking(Arc<dyn HostModel>, AtomicBool);

impl HostModel for Panicking {
    fn name(&self) -> &Arc<str> {
        self.0.name()
    }

    fn sensor(&self) -> Sensor {
        self.0.sensor()
    }

    fn prepare(
        &self,
        data: &SensorData<'_>,
        inputs: &mut [&mut [u8]],
    ) -> Result<PreparedFrame, PrepareError> {
        assert!(!self.1.swap(false, Ordering::SeqCst), "as it was told to");
        self.0.prepare(data, inputs)
    }

    fn finish(
        &self,
        output: &[f32],
        placement: &Placement,
        frame_id: &Arc<str>,
    ) -> Result<Detections, HeadError> {
        self.0.finish(output, placement, frame_id)
    }

    fn finish_with(
        &self,
        output: &[f32],
        placement: &Placement,
        frame_id: &Arc<str>,
        params: &CallParams,
    ) -> Result<Detections, HeadError> {
        self.0.finish_with(output, placement, frame_id, params)
    }
}

#[test]
fn a_model_that_panics_costs_its_request_and_is_opened_again() {
    let lab = Lab::new();
    let (name, settings, device) = load(&lab.path("tiny.yaml"), Some(&lab.path("squares.onnx")));
    let loads = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&loads);
    let load = move || {
        let ModelParts {
            host,
            device,
            weights,
        } = load_model(&name, &settings).map_err(|error| error.to_string())?;
        let first = counted.fetch_add(1, Ordering::SeqCst) == 0;
        let host = Arc::new(Panicking(host, AtomicBool::new(first)));
        let parts = ModelParts {
            host,
            device,
            weights,
        };
        Ok(LoadedModel {
            parts,
            weights: Value::Null,
            bundle: None,
        })
    };
    let restart = RestartSettings {
        limit: 2,
        within_s: 3600,
        backoff_ms: 0,
    };
    let engine = ModelEngineOptions {
        device,
        restart,
        max_waiting: 4,
        ..ModelEngineOptions::default()
    };
    let service = Service::start(Arc::new(ModelEngine::start(load, engine).unwrap()), options());
    service.client().wait_ready(PATIENCE).unwrap();
    let (body, square) = png(9);
    let reply = service.predict(&body);
    assert_eq!(reply.status, 500, "{}", reply.body);
    assert!(
        reply.body["detail"]
            .as_str()
            .unwrap()
            .contains("as it was told to"),
        "{}",
        reply.body
    );
    await_that(|| service.predict(&body).status == 200);
    assert_eq!(box_of(&service.predict(&body)), square);
    assert_eq!(loads.load(Ordering::SeqCst), 2);
}

#[test]
fn at_the_end_requests_under_way_are_answered_and_no_others_are_taken() {
    let (engine, jobs, _told) = ByHand::new(facts(Sensor::Lidar));
    let limits = ServeOptions {
        drain: PATIENCE,
        ..options()
    };
    let watched = Arc::clone(&engine);
    let service = Service::start(engine, limits);
    let address = service.address;
    let asked = {
        let client = service.client();
        std::thread::spawn(move || client.post("/predict", points().to_string().as_bytes()).unwrap())
    };
    let job = jobs.recv_timeout(PATIENCE).unwrap();
    let ended = std::thread::spawn(move || service.end());
    await_that(|| TcpStream::connect(address).is_err());
    assert!(
        !watched.closed.load(Ordering::SeqCst),
        "the engine is closed before its last request"
    );
    job.reply.send(Ok(outcome(0.5))).unwrap();
    assert_eq!(asked.join().unwrap().status, 200);
    assert!(matches!(ended.join().unwrap(), Phase::Ready(_)));
    assert!(watched.closed.load(Ordering::SeqCst));
}

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

/// `sensorium serve` in a folder, and where it listens.
fn command(lab: &Lab, more: &[&str]) -> (Child, String) {
    let mut child = tiny::sensorium()
        .current_dir(lab.path(""))
        .args(["serve", "tiny.yaml", "--listen", "127.0.0.1:0"])
        .args(more)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    let url = line.trim().rsplit(' ').next().unwrap().to_owned();
    (child, url)
}

#[test]
fn an_address_that_is_taken_is_told_before_a_model_is_loaded() {
    let lab = Lab::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    // Weights that take for ever to read: they would be waited for.
    let made = Command::new("mkfifo")
        .arg(lab.path("endless.onnx"))
        .status()
        .unwrap();
    assert!(made.success());
    let out = tiny::sensorium()
        .current_dir(lab.path(""))
        .args([
            "serve",
            "tiny.yaml",
            "--weights",
            "endless.onnx",
            "--listen",
            &address,
        ])
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(1), "{out:?}");
    let told = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(told.contains("cannot listen on"), "{told}");
}

#[cfg(unix)]
#[test]
fn a_second_interrupt_ends_a_service_at_once() {
    let lab = Lab::new();
    let made = Command::new("mkfifo")
        .arg(lab.path("endless.onnx"))
        .status()
        .unwrap();
    assert!(made.success());
    // The model is never loaded, so that the first interrupt alone would wait for it.
    let (mut child, _) = command(&lab, &["--weights", "endless.onnx"]);
    let status = loop {
        let told = Command::new("kill")
            .args(["-TERM", &child.id().to_string()])
            .status();
        // One that has ended already cannot be told.
        drop(told);
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(status.code(), Some(130));
}

/// Asks a command to end as a service manager does.
#[cfg(unix)]
fn terminate(child: Child) -> std::process::Output {
    let killed = Command::new("kill")
        .args(["-TERM", &child.id().to_string()])
        .status()
        .unwrap();
    assert!(killed.success());
    child.wait_with_output().unwrap()
}

#[cfg(unix)]
#[test]
fn the_command_serves_until_it_is_asked_to_end() {
    let lab = Lab::new();
    std::fs::write(lab.path("token"), "correct-horse-battery\n").unwrap();
    let (child, url) = command(&lab, &["--token-file", "token", "--max-body-mb", "1"]);
    let client = Client::new(&url, Some(Token::new("correct-horse-battery").unwrap()), PATIENCE);
    client.wait_ready(PATIENCE).unwrap();
    let (body, square) = png(7);
    assert_eq!(
        box_of(&client.post("/predict", body.to_string().as_bytes()).unwrap()),
        square
    );
    let info = client.get("/info").unwrap().body;
    assert_eq!(info["input"]["max_body_bytes"], 1 << 20);
    let digest = sensorium::weights::file_sha256(lab.path("squares.onnx")).unwrap();
    assert_eq!(
        info["weights"],
        json!({ "file": "squares.onnx", "sha256": digest })
    );
    assert_eq!(
        Client::new(&url, None, PATIENCE).get("/info").unwrap().status,
        401
    );
    let out = terminate(child);
    assert!(out.status.success(), "{out:?}");
}

#[cfg(unix)]
#[test]
fn a_command_without_a_model_says_so_and_ends_with_a_failure() {
    let lab = Lab::new();
    std::fs::write(lab.path("broken.onnx"), "no network").unwrap();
    let (child, url) = command(&lab, &["--weights", "broken.onnx"]);
    let client = Client::new(&url, None, PATIENCE);
    let error = client.wait_ready(PATIENCE).unwrap_err().to_string();
    assert!(error.contains("has no model"), "{error}");
    let out = terminate(child);
    assert_eq!(out.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&out.stderr).contains("could not be served"),
        "{out:?}"
    );
}

// The client.

#[test]
fn the_client_tells_a_service_that_is_another() {
    let lab = Lab::new();
    let service = squares(&lab);
    let client = service.client();
    let expected = Expected {
        weights_sha256: Some("0123".to_owned()),
        ..Expected::default()
    };
    let (info, failures) = check_service(&client, &expected).unwrap();
    assert_eq!((&info["weights"]["sha256"], failures.len()), (&json!("0123"), 0));
    let expected = Expected {
        model: Some("other".to_owned()),
        variant: Some("large".to_owned()),
        ..expected
    };
    let (_, failures) = check_service(&client, &expected).unwrap();
    assert_eq!(failures.len(), 2, "{failures:?}");
    assert_eq!(check_bad_request(&client).unwrap(), Vec::<String>::new());
}

#[test]
fn an_answer_is_held_against_a_stored_one() {
    let row = |label: &str, score: f64, center: [f64; 3]| json!({ "label": label, "score": score, "center": center });
    let stored = json!({ "model": "m", "frame_id": "f", "detections": [
        row("CAR", 0.9, [1.0, 0.0, 0.0]), row("CAR", 0.8, [1.4, 0.0, 0.0]), row("BUS", 0.7, [9.0, 9.0, 0.0])] });
    let gates = Gates::default();
    let (metrics, failures) = compare_with_reference(&stored, &stored, &gates);
    assert_eq!(
        (failures.len(), metrics["recall"], metrics["precision"]),
        (0, 1.0, 1.0)
    );

    // The best row of the reference chooses first: 1.3 is nearer to 1.4, and goes to 1.0.
    let mut other = stored.clone();
    other["detections"] = json!([
        row("CAR", 0.88, [1.3, 0.0, 0.0]),
        row("CAR", 0.5, [1.8, 0.0, 0.0]),
        row("TRUCK", 0.7, [9.0, 9.0, 0.0])
    ]);
    other["frame_id"] = json!("g");
    let (metrics, failures) = compare_with_reference(&other, &stored, &gates);
    assert!(
        (metrics["recall"] - 2.0 / 3.0).abs() < 1e-12 && (metrics["score_err_max"] - 0.3).abs() < 1e-12,
        "{metrics:?}"
    );
    assert_eq!(failures.len(), 4, "{failures:?}");

    let boxes = |left: f64| json!({ "detections": [{ "label": "car", "score": 0.5, "box_xyxy": [left, 0, left + 10.0, 10] }] });
    assert!(
        compare_with_reference(&boxes(3.0), &boxes(0.0), &gates)
            .1
            .is_empty(),
        "their overlap is 7 / 13"
    );
    assert_eq!(
        compare_with_reference(&boxes(4.0), &boxes(0.0), &gates).1.len(),
        2,
        "their overlap is 6 / 14"
    );

    let path = |end: f64| json!({ "trajectory": [[0, 0, 0], [1, 0, 0], [2, end, 0]] });
    let (metrics, failures) = compare_with_reference(&path(1.5), &path(0.0), &gates);
    assert_eq!((metrics["ade"], metrics["fde"], failures.len()), (0.5, 1.5, 1));
    for broken in [
        json!({}),
        json!({ "trajectory": 7 }),
        json!({ "trajectory": [[0, 0]] }),
        json!(null),
    ] {
        assert!(
            !compare_with_reference(&broken, &path(0.0), &gates).1.is_empty(),
            "{broken}"
        );
    }

    let labels = |last: u8| json!({ "labels": { "encoding": "raw", "dtype": "uint8", "shape": [4], "data": STANDARD.encode([1, 2, 3, last]) } });
    let (metrics, failures) = compare_with_reference(&labels(9), &labels(4), &gates);
    assert_eq!((metrics["labels.agreement"], failures.len()), (0.75, 1));
    let floats = |values: [f32; 3]| {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        json!({ "a": { "b": { "encoding": "raw", "dtype": "float32", "shape": [3], "data": STANDARD.encode(bytes) } } })
    };
    let inf = f32::INFINITY;
    let (metrics, failures) =
        compare_with_reference(&floats([inf, 1.0, 2.5]), &floats([inf, 1.0, 2.0]), &gates);
    assert_eq!((metrics["a.b.max_abs_err"], failures.len()), (0.5, 0));
    let mut strict = gates;
    strict.set("max_abs_err", 0.1).unwrap();
    assert_eq!(
        compare_with_reference(&floats([inf, 1.0, 2.5]), &floats([inf, 1.0, 2.0]), &strict)
            .1
            .len(),
        1
    );
    assert_eq!(
        compare_with_reference(&floats([f32::NAN, 1.0, 2.0]), &floats([inf, 1.0, 2.0]), &gates)
            .1
            .len(),
        1
    );
    assert!(strict.set("max_abs", 1.0).is_err());

    let mask = |grey: u8| {
        let pixels = [0, 1, 2, grey];
        let image = ImageRef::new(&pixels, 2, 2, 2, PixelFormat::Mono8).unwrap();
        json!({ "mask": sensorium::io::forms::encode_png_form(&image, "mask").unwrap() })
    };
    assert_eq!(
        compare_with_reference(&mask(9), &mask(3), &gates).0["mask.agreement"],
        0.75
    );
}

#[test]
fn the_smoke_command_sends_a_frame_and_ends_with_what_it_found() {
    let lab = Lab::new();
    let service = squares(&lab);
    let url = format!("http://{}", service.address);
    let (image, _) = tiny::numbered(4);
    std::fs::write(lab.path("frame.png"), encode_png(&image.view()).unwrap()).unwrap();
    let smoke = |more: &[&str]| {
        let mut command = tiny::sensorium();
        command
            .current_dir(lab.path(""))
            .args(["smoke", &url, "--image", "frame.png"])
            .args(more);
        command.output().unwrap()
    };
    let out = smoke(&["--out", "frame.reference.json", "--expect-backend", "cpu"]);
    assert!(out.status.success(), "{out:?}");
    assert!(
        String::from_utf8_lossy(&out.stdout).contains(": ok n=1"),
        "{out:?}"
    );
    let out = smoke(&[]);
    assert!(
        String::from_utf8_lossy(&out.stdout).contains("recall=1.0000"),
        "{out:?}"
    );
    let out = smoke(&["--param", "score_threshold=0.99", "--expect-model", "other"]);
    assert_eq!(out.status.code(), Some(1));
    let told = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(
        told.contains("recall 0.0000 is below 0.95") && told.contains("expected \"other\""),
        "{told}"
    );
}

// The document.

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
    assert_eq!(&printed, sensorium::server::openapi());
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
