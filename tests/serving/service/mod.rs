//! `sensorium serve` and its client, and what its tests share: services on ports of their own, models on paper.

mod answers;
mod command;
mod document;
mod life;
mod limits;
mod mistakes;
mod streams;

use crate::tiny;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sensorium::device::DeviceConfig;
use sensorium::image::encode_png;
use sensorium::outputs::{Detection2D, Detections, Detections2D};
use sensorium::perception::{Outcome, RunTiming, Sensor};
use sensorium::pipeline::{Overrides, Pipeline};
use sensorium::runtime::load_model;
use sensorium::server::client::{Client, Reply};
use sensorium::server::{
    Engine, Job, LoadedModel, ModelEngine, ModelEngineOptions, ModelFacts, Phase, Refused, ServeOptions,
    Server, ServiceFacts, Token,
};
use serde_json::{Value, json};
use tiny::Lab;
use tokio::sync::{oneshot, watch};

/// Longest wait for anything that has to come.
pub(super) const PATIENCE: Duration = Duration::from_secs(300);

/// A service on a port of its own, until it is dropped.
pub(super) struct Service {
    pub(super) address: SocketAddr,
    pub(super) end: Option<oneshot::Sender<()>>,
    pub(super) thread: Option<JoinHandle<Phase>>,
}

pub(super) fn options() -> ServeOptions {
    ServeOptions {
        listen: (Ipv4Addr::LOCALHOST, 0).into(),
        request_timeout: PATIENCE,
        body_timeout: PATIENCE,
        ..ServeOptions::default()
    }
}

impl Service {
    pub(super) fn start(engine: Arc<dyn Engine>, options: ServeOptions) -> Self {
        Self::with_facts(engine, options, ServiceFacts::default())
    }

    pub(super) fn with_facts(engine: Arc<dyn Engine>, options: ServeOptions, facts: ServiceFacts) -> Self {
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

    pub(super) fn client(&self) -> Client {
        self.client_with(None)
    }

    pub(super) fn client_with(&self, token: Option<&str>) -> Client {
        Client::new(
            &format!("http://{}", self.address),
            token.map(|token| Token::new(token).unwrap()),
            PATIENCE,
        )
    }

    pub(super) fn predict(&self, body: &Value) -> Reply {
        self.client()
            .post("/predict", body.to_string().as_bytes())
            .unwrap()
    }

    pub(super) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Asks the service to end, and gives what its engine was doing.
    pub(super) fn end(mut self) -> Phase {
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
pub(super) struct ByHand {
    pub(super) jobs: Mutex<Option<Sender<Job>>>,
    pub(super) phase: watch::Receiver<Phase>,
    pub(super) closed: AtomicBool,
}

impl ByHand {
    pub(super) fn new(phase: Phase) -> (Arc<Self>, Receiver<Job>, watch::Sender<Phase>) {
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
pub(super) fn facts(sensor: Sensor) -> Phase {
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

pub(super) fn outcome(score: f32) -> Outcome {
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
pub(super) fn points() -> Value {
    json!({ "points": [[1.0, 2.0, 3.0, 4.0]] })
}

/// A model of a pipeline file.
pub(super) fn load(
    file: &Path,
    weights: Option<&Path>,
) -> (String, sensorium::pipeline::ModelSettings, DeviceConfig) {
    let overrides = Overrides {
        model: weights.map(Path::to_owned),
        ..Overrides::default()
    };
    let pipeline = Pipeline::load(file, &overrides).unwrap();
    let device = pipeline.device.config(&sensorium::device::DeviceLayer::default());
    let (name, settings) = pipeline.models.into_iter().next().unwrap();
    (name, settings, device)
}

pub(super) fn engine_of(file: &Path, weights: Option<&Path>) -> Arc<dyn Engine> {
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

pub(super) fn squares(lab: &Lab) -> Service {
    let engine = engine_of(&lab.path("tiny.yaml"), Some(&lab.path("squares.onnx")));
    let service = Service::start(engine, options());
    service.client().wait_ready(PATIENCE).unwrap();
    service
}

pub(super) fn png(i: usize) -> (Value, [f64; 4]) {
    let (image, square) = tiny::numbered(i);
    (
        json!({ "images": [{ "data": STANDARD.encode(encode_png(&image.view()).unwrap()) }] }),
        square,
    )
}

pub(super) fn box_of(reply: &Reply) -> [f64; 4] {
    assert_eq!(reply.status, 200, "{}", reply.body);
    let found = reply.body["detections"].as_array().unwrap();
    assert_eq!(found.len(), 1, "{}", reply.body);
    serde_json::from_value(found[0]["box_xyxy"].clone()).unwrap()
}

/// Waits until something is so.
pub(super) fn await_that(mut so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !so() {
        assert!(began.elapsed() < PATIENCE, "it never came to that");
        std::thread::sleep(Duration::from_millis(5));
    }
}
