//! A service from its start to its end, and models that fail.

use crate::tiny;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use sensorium::outputs::Detections;
use sensorium::perception::{
    CallParams, HeadError, HostModel, ModelParts, Outcome, Placement, PrepareError, PreparedFrame, Sensor,
    SensorData,
};
use sensorium::pipeline::RestartSettings;
use sensorium::runtime::load_model;
use sensorium::server::{EngineError, LoadedModel, ModelEngine, ModelEngineOptions, Phase, ServeOptions};
use serde_json::{Value, json};
use tiny::Lab;

use super::{ByHand, PATIENCE, Service, await_that, box_of, facts, load, options, outcome, png, points};

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
