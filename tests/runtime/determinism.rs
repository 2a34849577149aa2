//! `sensorium run --deterministic`: the same bytes, whatever the threads do.

use crate::tiny;
use std::path::Path;

use sensorium::image::encode_png;
use sensorium::io::cloud::encode_cloud;
use sensorium::io::drive_bag::{TF_STATIC_TOPIC, TF_TOPIC};
use sensorium::io::messages::{
    HeaderMsg, POINT_CLOUD_TYPE, QuaternionMsg, TF_TYPE, TfMsg, TransformMsg, TransformStampedMsg, Vector3Msg,
};
use sensorium::lidar::PointCloud;
use serde_json::Value;
use tiny::{Frame, Lab, START_NS, picture};

/// Runs that are compared.
const RUNS: u64 = 50;
const PERIOD_NS: u64 = 100_000_000;
/// Paces of the sources.
const RATES: [&str; 4] = ["max", "1", "0.25", "20"];

/// Two sources, two detectors of which one sees both, and sinks that both feed.
const PIPELINE: &str = "\
pipeline: crossed
device: { threads: 1, queues: 2, arena_mib: 32 }
models:
  squares:
    type: yolox
    weights: squares.onnx
    preprocess: yolox_opencv
    labels: colours.txt
    score_threshold: 0.3
    nms_threshold: 0.45
nodes:
  ahead: { kind: source, bag: ahead.mcap }
  around: { kind: source, bag: around.mcap }
  quick: { kind: detector, model: squares, input: ahead }
  thorough: { kind: detector, model: squares, input: [ahead, around] }
  recorder: { kind: recorder, input: [thorough, quick], path: out.mcap }
  jsonl: { kind: jsonl, input: [quick, thorough], path: out.jsonl }
channels:
  default: { capacity: 2, on_full: drop_oldest }
";

/// Images that come at the same times on both sources, small ones and ones that take long to decode, and one that is none.
fn lab() -> Lab {
    let lab = Lab::new();
    let square = |i: usize| picture(&[(i % 2, [i % 4 * 16, 16])]);
    let mut ahead = Vec::new();
    let mut around = Vec::new();
    for i in 0..12 {
        let at_ns = i as u64 * PERIOD_NS;
        ahead.push(tiny::raw("/front", at_ns, &square(i)));
        let png = encode_png(&square(i + 1).view()).unwrap();
        around.push(tiny::compressed("/left", at_ns, "png", &png));
        if i == 5 {
            around.push(tiny::compressed("/left", at_ns + 1, "png", &png[..png.len() / 2]));
        }
        around.push(tiny::raw("/right", at_ns + PERIOD_NS / 3, &square(i + 2)));
    }
    tiny::write_bag(&lab.path("ahead.mcap"), &ahead);
    tiny::write_bag(&lab.path("around.mcap"), &around);
    std::fs::write(lab.path("crossed.yaml"), PIPELINE).unwrap();
    lab
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap()
}

/// JSON lines and recording of a run.
type Written = (Vec<u8>, Vec<u8>);

/// Runs a pipeline of the lab with these settings and so many tokio workers; what it wrote has to be what the first run wrote.
fn written_again(
    lab: &Lab,
    pipeline: &str,
    settings: &[String],
    workers: u64,
    first: &mut Option<Written>,
) -> tiny::Outcome {
    let mut command = tiny::sensorium();
    command
        .current_dir(lab.path(""))
        .args(["run", pipeline, "--deterministic", "--format", "json"])
        .env("TOKIO_WORKER_THREADS", workers.to_string());
    for setting in settings {
        command.args(["--set", setting]);
    }
    let outcome = tiny::outcome(&mut command);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let written = (read(&lab.path("out.jsonl")), read(&lab.path("out.mcap")));
    let first = first.get_or_insert_with(|| written.clone());
    assert!(written.0 == first.0, "JSON lines differ: {settings:?}");
    assert!(written.1 == first.1, "the recording differs: {settings:?}");
    outcome
}

#[test]
fn fifty_runs_under_disturbed_scheduling_write_the_same_bytes() {
    let lab = lab();
    let mut first: Option<Written> = None;
    for run in 0..RUNS {
        // Commands of the device take longer by chance, workers and threads are many or few, and so are the tokio workers.
        let slow = format!(
            "device.fault={{ seed: {run}, faults: [ {{ kind: slow, factor: {}, at: {{ chance_per_million: 300000 }} }} ] }}",
            2 + run % 7 * 3
        );
        let settings = [
            slow,
            format!("device.threads={}", 1 + run % 3),
            format!("device.queues={}", 1 + run % 2),
            format!("nodes.quick.prepare_workers={}", 1 + run % 4),
            format!("nodes.thorough.prepare_workers={}", 1 + run / 4 % 3),
            format!("nodes.thorough.finish_workers={}", 1 + run % 3),
            format!("channels.default.capacity={}", 1 + run % 5),
            format!("nodes.ahead.rate={}", RATES[run as usize % RATES.len()]),
            format!("nodes.around.rate={}", RATES[run as usize / 2 % RATES.len()]),
        ];
        let outcome = written_again(&lab, "crossed.yaml", &settings, 1 + run % 4, &mut first);
        // 12 images ahead go to both detectors, 24 and a broken one around to one.
        assert_eq!(outcome.frames(), [49, 48, 1, 0], "{outcome:?}");
    }
    let (lines, recording) = first.unwrap();
    let lines = tiny::json_lines(std::str::from_utf8(&lines).unwrap());
    assert_eq!(lines.len(), 48);
    assert!(lines.iter().all(|line| line.get("latency_us").is_none()));
    // In the order of the messages, each with the detectors in the order of the file.
    let stamps: Vec<i64> = lines
        .iter()
        .map(|line| line["stamp_ns"].as_i64().unwrap())
        .collect();
    assert!(stamps.is_sorted(), "{stamps:?}");
    let streams: Vec<&str> = lines[..4]
        .iter()
        .map(|line| line["stream"].as_str().unwrap())
        .collect();
    assert_eq!(streams, ["/front", "/front", "/left", "/right"]);

    let logged = mcap::MessageStream::new(&recording).unwrap().map(Result::unwrap);
    let times: Vec<(u64, u64)> = logged
        .map(|message| (message.log_time, message.publish_time))
        .collect();
    assert_eq!(times.len(), 96, "an image and its boxes for each result");
    assert!(times.iter().all(|(log, stamp)| log == stamp));
}

/// Two drives through one ring of maps, and two cameras through one memory.
const STATES: &str = "\
pipeline: states
device: { threads: 1, queues: 2, arena_mib: 192 }
models:
  ring: { type: bev_ring, seed: 3, memory_frames: 2, score_threshold: 0.1, max_streams: 2 }
  memory: { type: stream_queries, seed: 5, memory_frames: 2, score_threshold: 0.05, max_streams: 2 }
nodes:
  first: { kind: source, simulate: { seconds: 0.4, seed: 1 } }
  second: { kind: source, simulate: { seconds: 0.4, seed: 2 } }
  cameras: { kind: source, bag: bag.mcap, topics: auto }
  maps: { kind: detector, model: ring, input: [first, second] }
  queries: { kind: detector, model: memory, input: cameras }
  recorder: { kind: recorder, input: [maps, queries], path: out.mcap }
  jsonl: { kind: jsonl, input: [queries, maps], path: out.jsonl }
";

#[test]
fn what_models_remember_of_each_stream_does_not_depend_on_scheduling() {
    let lab = Lab::new();
    let frames = (0..6).flat_map(|i| {
        let after_ns = i as u64 * PERIOD_NS;
        let [front, rear] = [tiny::numbered(i).0, tiny::numbered(6 - i).0];
        // Both at once: the one that the bag names first comes first.
        [
            tiny::raw("/front", after_ns, &front),
            tiny::raw("/rear", after_ns, &rear),
        ]
    });
    lab.bag(&frames.collect::<Vec<_>>());
    std::fs::write(lab.path("states.yaml"), STATES).unwrap();
    let mut first: Option<Written> = None;
    for run in 0..5_u64 {
        let settings = [
            format!(
                "device.fault={{ seed: {run}, faults: [ {{ kind: slow, factor: 5, at: {{ chance_per_million: 300000 }} }} ] }}"
            ),
            format!("device.threads={}", 1 + run % 2),
            format!("nodes.maps.prepare_workers={}", 1 + run % 3),
            format!("nodes.queries.prepare_workers={}", 1 + run / 2 % 3),
            format!("nodes.queries.finish_workers={}", 1 + run % 2),
            format!("nodes.first.rate={}", RATES[run as usize % RATES.len()]),
            format!("nodes.cameras.rate={}", RATES[run as usize / 2 % RATES.len()]),
        ];
        let outcome = written_again(&lab, "states.yaml", &settings, 1 + run % 4, &mut first);
        assert_eq!(outcome.frames(), [20, 20, 0, 0], "{outcome:?}");
    }
    let lines = lab.lines("out.jsonl");
    let fresh = lines.iter().filter(|line| line.get("fresh").is_some()).count();
    assert_eq!(
        (lines.len(), fresh),
        (20, 4),
        "each stream begins from nothing once"
    );
}

#[test]
fn live_messages_cannot_be_played_in_a_fixed_order() {
    let lab = lab();
    let settings = [
        "nodes.ahead.subscribe=ros2",
        "nodes.ahead.bag=''",
        "nodes.ahead.topics=[/front]",
    ];
    let mut command = tiny::sensorium();
    command
        .arg("run")
        .arg(lab.path("crossed.yaml"))
        .arg("--deterministic");
    for setting in settings {
        command.args(["--set", setting]);
    }
    let outcome = tiny::outcome(&mut command);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(
        outcome.told.contains("the source `ahead` takes live messages"),
        "{outcome:?}"
    );
    assert!(outcome.told.contains("--bag"), "{outcome:?}");
}

#[test]
fn a_simulated_drive_repeats_itself() {
    let lab = lab();
    let weights = Path::new(env!("CARGO_MANIFEST_DIR")).join("pipelines/weights/centerpoint_sim.safetensors");
    let pipeline = format!(
        "pipeline: drive
device: {{ arena_mib: 512 }}
models:
  squares: {{ type: yolox, weights: squares.onnx, preprocess: yolox_opencv, labels: colours.txt, score_threshold: 0.3, nms_threshold: 0.45 }}
  objects: {{ type: centerpoint, weights: {} }}
nodes:
  car: {{ kind: source, simulate: {{ seconds: 0.6, seed: 3, cameras: front, camera_hz: 5 }} }}
  boxes: {{ kind: detector, model: squares, input: car }}
  road: {{ kind: detector, model: objects, input: car }}
  recorder: {{ kind: recorder, input: [boxes, road], path: drive.mcap }}
  jsonl: {{ kind: jsonl, input: [boxes, road], path: drive.jsonl }}
",
        weights.display()
    );
    std::fs::write(lab.path("drive.yaml"), pipeline).unwrap();
    let outputs: Vec<Written> = (1..=2)
        .map(|threads| {
            let mut command = tiny::sensorium();
            command
                .arg("run")
                .arg(lab.path("drive.yaml"))
                .arg("--deterministic");
            command.args(["--format", "json", "--set", &format!("device.threads={threads}")]);
            let outcome = tiny::outcome(&mut command);
            assert_eq!(outcome.code, Some(0), "{outcome:?}");
            assert_eq!(outcome.summary()["frames"]["out"], Value::from(9), "{outcome:?}");
            (read(&lab.path("drive.jsonl")), read(&lab.path("drive.mcap")))
        })
        .collect();
    assert!(outputs[0].0 == outputs[1].0, "the JSON lines differ");
    assert!(outputs[0].1 == outputs[1].1, "the recordings differ");
}

const LEFT: &str = "/lidar/left";
const RIGHT: &str = "/lidar/right";
const REAR: &str = "/lidar/rear";

/// Two LiDARs in bags of their own, whose sets become clouds in the frame of a moving vehicle; a third one goes to a model
/// alone. More of the poses becomes known while the clouds are under way, and what is left at the end is no whole set.
const CLOUDS: &str = "\
pipeline: clouds
device: { threads: 1, queues: 2, arena_mib: 128 }
models:
  ring: { type: bev_ring, seed: 3, memory_frames: 2, score_threshold: 0.1, max_streams: 4, world_frame: map }
  alone: { type: bev_ring, seed: 4, memory_frames: 2, score_threshold: 0.1, max_streams: 4 }
nodes:
  first: { kind: source, bag: first.mcap }
  second: { kind: source, bag: second.mcap }
  pair:
    kind: sync
    input: [first, second]
    timeout_ms: 5000
    members: [{ topic: /lidar/left }, { topic: /lidar/right }]
  cloud: { kind: concat, input: pair, output_frame: base_link, world_frame: map, stream: /lidar/all }
  together: { kind: detector, model: ring, input: cloud }
  apart: { kind: detector, model: alone, input: second }
  jsonl: { kind: jsonl, input: [together, apart], path: out.jsonl }
  tape: { kind: recorder, input: [together, apart], path: out.mcap }
";

/// A ring of points around a sensor, its radius by the number of the sweep.
fn cloud(topic: &'static str, frame_id: &str, at_ns: u64, number: usize) -> Frame {
    let mut cloud = PointCloud::default();
    for at in 0..400 {
        let angle = at as f32 * 0.0157;
        let radius = 4.0 + (number % 3) as f32 + (at % 7) as f32;
        cloud.x.push(radius * angle.cos());
        cloud.y.push(radius * angle.sin());
        cloud.z.push(at as f32 * 0.005 - 1.0);
        cloud.intensity.push(20.0);
        cloud.ring.push((at % 16) as u16);
        cloud.return_type.push(0);
    }
    let time_ns = START_NS + at_ns;
    Frame {
        topic,
        type_name: POINT_CLOUD_TYPE,
        time_ns,
        data: encode_cloud(&cloud, HeaderMsg::new(time_ns as i64, frame_id).unwrap()).unwrap(),
    }
}

fn transform(topic: &'static str, at_ns: u64, parent: &str, child: &str, x: f64) -> Frame {
    let time_ns = START_NS + at_ns;
    let transforms = vec![TransformStampedMsg {
        header: HeaderMsg::new(time_ns as i64, parent).unwrap(),
        child_frame_id: child,
        transform: TransformMsg {
            translation: Vector3Msg { x, y: 0.5, z: 0.0 },
            rotation: QuaternionMsg {
                x: 0.0,
                y: 0.0,
                z: 0.0,
                w: 1.0,
            },
        },
    }];
    Frame {
        topic,
        type_name: TF_TYPE,
        time_ns,
        data: TfMsg { transforms }.encode().unwrap(),
    }
}

#[test]
fn clouds_of_two_sources_are_the_same_bytes_whatever_has_come_meanwhile() {
    let lab = Lab::new();
    let (mut first, mut second) = (Vec::new(), Vec::new());
    for (child, x) in [("left", 1.0), ("right", -1.0), ("rear", 0.0)] {
        first.push(transform(TF_STATIC_TOPIC, 0, "base_link", child, x));
    }
    for i in 0..6 {
        let at_ns = (i as u64 + 1) * PERIOD_NS;
        first.push(transform(TF_TOPIC, at_ns - 1, "map", "base_link", i as f64));
        // Whether these are known decides where a cloud is put: a look at what has come by now may find any of them.
        for later in 1..4 {
            let after_ns = at_ns + later * PERIOD_NS / 8;
            second.push(transform(
                TF_TOPIC,
                after_ns,
                "map",
                "base_link",
                i as f64 + later as f64 * 0.1,
            ));
        }
        // As of sensors, clouds come a while after their stamps: once a transform on either side is there.
        let received = |frame: Frame| Frame {
            time_ns: frame.time_ns + PERIOD_NS / 8 + 2,
            ..frame
        };
        first.push(received(cloud(LEFT, "left", at_ns, i)));
        if i < 5 {
            second.push(received(cloud(RIGHT, "right", at_ns + PERIOD_NS / 8 + 1, i)));
        }
        second.push(cloud(REAR, "rear", at_ns + PERIOD_NS / 2, i));
    }
    for late in 7..9 {
        second.push(cloud(REAR, "rear", late * PERIOD_NS, 0));
    }
    second.sort_by_key(|frame| frame.time_ns);
    tiny::write_bag(&lab.path("first.mcap"), &first);
    tiny::write_bag(&lab.path("second.mcap"), &second);
    std::fs::write(lab.path("clouds.yaml"), CLOUDS).unwrap();
    let mut first: Option<Written> = None;
    for run in 0..8_u64 {
        let settings = [
            format!(
                "device.fault={{ seed: {run}, faults: [ {{ kind: slow, factor: {}, at: {{ chance_per_million: 300000 }} }} ] }}",
                2 + run % 4 * 5
            ),
            format!("device.queues={}", 1 + run % 2),
            format!("channels.default.capacity={}", 1 + run % 5),
        ];
        written_again(&lab, "clouds.yaml", &settings, 1 + run % 4, &mut first);
    }
    let (lines, _) = first.unwrap();
    let lines = tiny::json_lines(std::str::from_utf8(&lines).unwrap());
    let clouds: Vec<&Value> = lines
        .iter()
        .filter(|line| line["stream"] == "/lidar/all")
        .collect();
    let whole = clouds.iter().filter(|line| line.get("missing").is_none());
    assert_eq!((clouds.len(), whole.count()), (6, 5), "{clouds:?}");
    // The set that nothing completed comes after all that was played.
    let last = lines.last().unwrap();
    assert_eq!(
        (&last["stream"], &last["missing"]),
        (&Value::from("/lidar/all"), &Value::from(vec![RIGHT]))
    );
}
