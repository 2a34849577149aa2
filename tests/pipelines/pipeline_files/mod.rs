//! Pipeline files: what a good one becomes, and what is said about a bad one.

mod command;
mod diff;
mod hostile;
mod mistakes;
mod overrides;
mod plan;
mod sets;
mod yolox_params;

use crate::support;
use std::env::VarError;
use std::path::{Path, PathBuf};

use miette::{Diagnostic, GraphicalReportHandler, GraphicalTheme};
use sensorium::device::{
    Cq, DeviceConfig, DeviceLayer, Fault, FaultAt, FaultCall, FaultKind, FaultPlan, Threads,
};
use sensorium::pipeline::{
    CameraSettings, DeviceSettings, Family, ModelSettings, NodeKind, OnFull, Overrides, Pipeline,
    PipelineError, Rate, Topics, WeightFormat, pipeline_schema,
};
use sensorium::weights;

const GOOD: &str = r#"pipeline: front
device: { backend: cpu, threads: 2, queues: 2, arena_mib: 64 }
models:
  nano:
    type: yolox
    weights: ""
    preprocess: yolox_opencv
    labels: coco80
    score_threshold: 0.3
    nms_threshold: 0.45
nodes:
  out:
    kind: publisher
    transport: zenoh
    input: detector
  camera:
    kind: source
    rate: 1.0
    topics: [/a, /b]
  detector:
    kind: detector
    model: nano
    input: camera
    prepare_workers: 2
  tape: { kind: recorder, input: detector }
channels:
  default: { capacity: 4, on_full: block }
  edges:
    - { from: camera, to: detector, capacity: 8, on_full: drop_oldest }
"#;

fn no_environment(_: &str) -> Result<String, VarError> {
    Err(VarError::NotPresent)
}

fn parse(text: &str, overrides: &Overrides) -> Result<Pipeline, PipelineError> {
    Pipeline::parse(Path::new("p.yaml"), text.to_owned(), overrides, &no_environment)
}

fn set(changes: &[(&str, &str)]) -> Overrides {
    Overrides {
        set: changes
            .iter()
            .map(|&(k, v)| (k.to_owned(), v.to_owned()))
            .collect(),
        ..Overrides::default()
    }
}

/// The errors as `file:line:column: message | expected`, one a line.
fn lines(error: &PipelineError) -> Vec<String> {
    let records = error.problems().iter().map(|problem| problem.to_record());
    records
        .map(|r| {
            format!(
                "{}:{}:{}: {} | {}",
                r.file, r.line, r.column, r.message, r.expected
            )
        })
        .collect()
}

fn errors(text: &str) -> Vec<String> {
    lines(&parse(text, &Overrides::default()).expect_err(text))
}

fn render(diagnostic: &dyn Diagnostic) -> String {
    let mut text = String::new();
    GraphicalReportHandler::new_themed(GraphicalTheme::unicode_nocolor())
        .with_width(100)
        .render_report(&mut text, diagnostic)
        .unwrap();
    text
}

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

#[test]
fn a_good_file_becomes_the_data_that_it_describes() {
    let pipeline = parse(GOOD, &Overrides::default()).unwrap();
    assert_eq!(pipeline.name, "front");
    assert_eq!(pipeline.device.file.threads, Some(Threads::Count(2)));
    assert_eq!(pipeline.device.command_line, DeviceLayer::default());
    let names: Vec<&str> = pipeline.nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, ["camera", "detector", "out"], "each node after its inputs");
    assert_eq!(pipeline.inactive, ["tape"]);
    let NodeKind::Source(source) = &pipeline.nodes[0].kind else {
        panic!("{:?}", pipeline.nodes[0])
    };
    assert_eq!(source.topics, Topics::Listed(vec!["/a".into(), "/b".into()]));
    assert_eq!((source.rate, source.deadline_ms), (Rate::Times(1.0), None));
    let model = camera(&pipeline.models["nano"]);
    assert_eq!(
        (model.score_threshold, model.nms_threshold, model.max_detections),
        (0.3, 0.45, 300)
    );
    let edges: Vec<_> = pipeline
        .edges
        .iter()
        .map(|e| (e.from.as_str(), e.to.as_str(), e.capacity, e.on_full))
        .collect();
    assert_eq!(
        edges,
        [
            ("camera", "detector", 8, OnFull::DropOldest),
            ("detector", "out", 4, OnFull::Block)
        ]
    );
    assert!(pipeline.warnings.is_empty(), "{:?}", pipeline.warnings);
}

#[test]
fn left_out_sections_take_their_documented_defaults() {
    let short = GOOD
        .replace(
            "device: { backend: cpu, threads: 2, queues: 2, arena_mib: 64 }\n",
            "",
        )
        .split("channels:")
        .next()
        .unwrap()
        .to_owned();
    let pipeline = parse(&short, &Overrides::default()).unwrap();
    let defaults = |path: &str| pipeline_schema().pointer(path).unwrap().clone();
    assert_eq!(
        pipeline.device,
        DeviceSettings::default(),
        "the file says nothing"
    );
    let device = pipeline.device.config(&DeviceLayer::default());
    assert_eq!(device, DeviceConfig::default());
    let documented = |key: &str| defaults(&format!("/$defs/Device/properties/{key}/default"));
    assert_eq!(documented("backend"), device.backend.as_str());
    assert_eq!(documented("threads"), device.threads.to_string());
    assert_eq!(documented("queues"), device.queues);
    assert_eq!(documented("arena_mib"), device.arena_bytes >> 20);
    assert_eq!(documented("trace_region_mib"), device.trace_region_bytes >> 20);
    assert_eq!(documented("spin_us"), device.spin.as_micros() as u64);
    assert_eq!(documented("allow_fallback"), device.allow_fallback);
    assert_eq!(documented("bf16_dot"), device.bf16_dot.to_string());
    assert_eq!(documented("frame_deadline_ms"), pipeline.device.frame_deadline_ms);
    let restart = pipeline.device.restart;
    assert_eq!(documented("restart"), serde_json::to_value(restart).unwrap());
    assert_eq!(
        (restart.limit, restart.within_s, restart.backoff_ms),
        (3, 60, 200)
    );
    assert_eq!(defaults("/$defs/Restart/properties/limit/default"), restart.limit);
    assert_eq!(
        defaults("/$defs/Channel/properties/capacity/default"),
        pipeline.edges[0].capacity
    );
    assert_eq!(
        defaults("/$defs/Channel/properties/on_full/default"),
        pipeline.edges[0].on_full.as_str()
    );
}

#[test]
fn faults_become_the_plan_that_they_describe() {
    let fault = "{ seed: 9, faults: [
        { kind: refuse, at: { nth: 3 } },
        { kind: lose_event, queue: 1, at: { chance_per_million: 20 } },
        { kind: early_event, at: { from: 4 } },
        { kind: ignore_wait, queue: 0, at: { nth: 5 } },
        { kind: slow, factor: 6, at: { from: 1 } },
        { kind: partial_capture, launches: 0, at: { nth: 1 } },
        { kind: lose_device, call: record_event, at: { nth: 7 } } ] }";
    let pipeline = parse(
        GOOD,
        &set(&[
            ("device.fault", fault),
            ("device.frame_deadline_ms", "250"),
            ("device.restart.limit", "0"),
        ]),
    )
    .unwrap();
    let chance = FaultAt::Chance { per_million: 20 };
    let once = FaultAt::Nth;
    assert_eq!(
        pipeline.device.faults,
        FaultPlan {
            seed: 9,
            faults: vec![
                Fault::new(once(3), FaultKind::Refuse(FaultCall::Any)),
                Fault::new(chance, FaultKind::LoseEvent).on(Cq::IO),
                Fault::new(FaultAt::From(4), FaultKind::EarlyEvent),
                Fault::new(once(5), FaultKind::IgnoreWait).on(Cq::COMPUTE),
                Fault::new(FaultAt::From(1), FaultKind::Slow { factor: 6 }),
                Fault::new(once(1), FaultKind::PartialCapture { launches: 0 }),
                Fault::new(once(7), FaultKind::LoseDevice(FaultCall::RecordEvent)),
            ],
        }
    );
    let calls = [
        ("write", FaultCall::Write),
        ("read", FaultCall::Read),
        ("copy", FaultCall::Copy),
        ("launch", FaultCall::Launch),
        ("replay", FaultCall::Replay),
        ("wait_event", FaultCall::WaitEvent),
    ];
    for (word, call) in calls {
        let fault = format!("{{ faults: [ {{ kind: refuse, call: {word}, at: {{ nth: 1 }} }} ] }}");
        let plan = parse(GOOD, &set(&[("device.fault", &fault)]))
            .unwrap()
            .device
            .faults;
        assert_eq!(plan.faults, [Fault::new(once(1), FaultKind::Refuse(call))]);
    }
    let device = pipeline.device;
    assert_eq!((device.frame_deadline_ms, device.restart.limit), (250, 0));
    assert_eq!((device.restart.within_s, device.restart.backoff_ms), (60, 200));
}

/// What is peculiar to a camera network.
fn camera(model: &ModelSettings) -> &CameraSettings {
    match &model.family {
        Family::Yolox(camera) | Family::FastestDet(camera) => camera,
        other => panic!("{other:?}"),
    }
}

#[test]
fn weights_are_stored_in_full_unless_the_file_names_another_format() {
    let named = |format: &str| {
        let text = GOOD.replace(
            "    labels:",
            &format!("    weight_format: {format}\n    labels:"),
        );
        let pipeline = parse(&text, &Overrides::default()).unwrap();
        let model = &pipeline.models["nano"];
        (camera(model).weight_format, model.numbers())
    };
    let default = &parse(GOOD, &Overrides::default()).unwrap().models["nano"];
    assert_eq!(
        (camera(default).weight_format, default.numbers().as_str()),
        (WeightFormat::Fp32, "fp32")
    );
    assert_eq!(
        named("bfp8"),
        (WeightFormat::Bfp8, "fp32, weights bfp8".to_owned())
    );
    // The words here are the names of the formats themselves.
    let formats = weights::WeightFormat::ALL.map(weights::WeightFormat::name);
    let words = formats.map(|format| named(format).0.as_str());
    assert_eq!(words, formats);
}

#[test]
fn the_shipped_schema_is_the_one_of_the_types() {
    let path = repository("pipelines/pipeline.schema.json");
    let shipped: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert!(
        &shipped == pipeline_schema(),
        "out of date: sensorium schema pipeline > pipelines/pipeline.schema.json"
    );
}

#[test]
fn every_shipped_pipeline_is_good() {
    let mut count = 0;
    for entry in std::fs::read_dir(repository("pipelines")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            let text = std::fs::read_to_string(&path).unwrap();
            let pipeline = Pipeline::parse(&path, text, &Overrides::default(), &no_environment)
                .unwrap_or_else(|error| panic!("{}", render(&error)));
            assert!(pipeline.warnings.is_empty(), "{}", path.display());
            count += 1;
        }
    }
    assert!(count > 0);
}
