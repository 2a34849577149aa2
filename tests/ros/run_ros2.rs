//! `sensorium run` as a node of the ROS 2 graph: another process sends it images and sweeps and reads what it finds,
//! as an Autoware system would.
#![cfg(unix)]

use crate::ros;
use crate::tiny;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use ros::{PATIENCE, endpoint, free_port, listen, session, settings, wait_for};
use sensorium::io::cdr::CdrReader;
use sensorium::io::drive_bag::{POINTS_TOPIC, drive_messages};
use sensorium::io::messages::*;
use sensorium::io::ros::zenoh::ZenohNode;
use sensorium::io::ros::{Endpoint, Qos, Received, RosNode, RosPublisher};
use sensorium::io::sim::{Drive, DriveConfig};
use tiny::{Lab, Outcome, await_end, film, numbered};

const CAMERA: &str = "\
pipeline: tiny
device: { threads: 1, queues: 2, arena_mib: 16 }
ros2:
  node: tensorrt_yolox
  namespace: /perception
  domain: 42
  listen: ['tcp/127.0.0.1:PORT']
  remap: { '~/in/image': /sensing/camera/image_raw, '~/out/objects': /perception/rois0 }
models:
  squares:
    type: yolox
    weights: squares.onnx
    preprocess: yolox_opencv
    labels: colours.txt
    score_threshold: 0.3
    nms_threshold: 0.45
nodes:
  camera: { kind: source, subscribe: ros2, topics: ['~/in/image'] }
  detector: { kind: detector, model: squares, input: camera }
  objects: { kind: publisher, transport: ros2, input: detector, topic: '~/out/objects' }
  jsonl: { kind: jsonl, input: detector }
channels:
  default: { capacity: 4, on_full: block }
";

/// A lab whose pipeline listens on a port, and a node that is connected to it.
fn live(pipeline: &str) -> (Lab, u16) {
    let lab = Lab::new();
    let port = free_port();
    std::fs::write(lab.path("tiny.yaml"), pipeline.replace("PORT", &port.to_string())).unwrap();
    std::fs::write(lab.path("colours.txt"), "car\nperson\nkite").unwrap();
    (lab, port)
}

fn start(lab: &Lab, arguments: &[&str]) -> Child {
    use std::process::Stdio;
    tiny::sensorium()
        .current_dir(lab.path(""))
        .args(["run", "tiny.yaml", "--format", "json"])
        .args(arguments)
        .env("ZENOH_CONFIG_OVERRIDE", "connect/endpoints=[]")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn stop(child: Child) -> Outcome {
    let sent = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status();
    assert!(sent.unwrap().success());
    await_end(child)
}

fn next(messages: &Receiver<Received>) -> Vec<u8> {
    messages.recv_timeout(PATIENCE).unwrap().data
}

/// Sends frame after frame until one comes out, so that it does not matter when the program is ready.
fn until_it_answers(publisher: &dyn RosPublisher, frame: &[u8], answers: &Receiver<Received>) -> Vec<u8> {
    for _ in 0..600 {
        publisher.publish(frame.to_vec()).unwrap();
        if let Ok(message) = answers.recv_timeout(Duration::from_millis(100)) {
            return message.data;
        }
    }
    panic!("no answer");
}

/// The next message with this stamp in its header.
fn answer_to(stamp_ns: i64, messages: &Receiver<Received>) -> Vec<u8> {
    loop {
        let data = next(messages);
        let header = HeaderMsg::read(&mut CdrReader::new(&data).unwrap()).unwrap();
        if header.stamp_ns() == stamp_ns {
            return data;
        }
    }
}

fn sensor(topic: &str, type_name: &str) -> Endpoint {
    endpoint(topic, type_name, Qos::sensor_data(5))
}

#[test]
fn images_go_in_and_regions_come_out() {
    let (lab, port) = live(CAMERA);
    let child = start(&lab, &[]);
    let peer = ZenohNode::open(&settings("driver", session(None, Some(port)))).unwrap();
    let images = peer
        .publisher(&sensor("/sensing/camera/image_raw", IMAGE_TYPE))
        .unwrap();
    let reliable = |topic: &str, type_name: &str| endpoint(topic, type_name, Qos::reliable(1));
    let base = "/perception/tensorrt_yolox/debug";
    let (_a, objects) = listen(
        &peer,
        &reliable("/perception/rois0", DETECTED_OBJECTS_WITH_FEATURE_TYPE),
    );
    let (_b, cyclic) = listen(
        &peer,
        &reliable(&format!("{base}/cyclic_time_ms"), FLOAT64_STAMPED_TYPE),
    );
    let (_c, processing) = listen(
        &peer,
        &reliable(&format!("{base}/processing_time_ms"), FLOAT64_STAMPED_TYPE),
    );
    let (_d, latency) = listen(
        &peer,
        &reliable(&format!("{base}/pipeline_latency_ms"), FLOAT64_STAMPED_TYPE),
    );
    let (_e, published) = listen(
        &peer,
        &reliable("/perception/rois0/debug/published_time", PUBLISHED_TIME_TYPE),
    );
    let (_f, diagnostics) = listen(&peer, &reliable("/diagnostics", DIAGNOSTIC_ARRAY_TYPE));
    let first = tiny::raw("/unused", 0, &numbered(0).0);
    until_it_answers(&*images, &first.data, &objects);
    for i in 1..4 {
        let (picture, square) = numbered(i);
        let frame = tiny::raw("/unused", i as u64 * 100_000_000, &picture);
        images.publish(frame.data.clone()).unwrap();
        let sent = ImageMsg::decode(&frame.data).unwrap();
        // Answers to what was sent before may still be under way.
        let bytes = answer_to(sent.header.stamp_ns(), &objects);
        let message = DetectedObjectsWithFeatureMsg::decode(&bytes).unwrap();
        assert_eq!(message.header, sent.header);
        let [found] = &message.feature_objects[..] else {
            panic!("{message:?}");
        };
        let roi = found.feature.roi;
        let region = [
            roi.x_offset,
            roi.y_offset,
            roi.x_offset + roi.width,
            roi.y_offset + roi.height,
        ];
        assert_eq!(region.map(f64::from), square);
        // The third colour is a kite, which Autoware has no number for.
        assert_eq!(found.object.classification[0].label, 0);
    }
    let value = |bytes: Vec<u8>| Float64StampedMsg::decode(&bytes).unwrap().data;
    assert!(value(next(&cyclic)) > 0.0);
    let took_ms = value(next(&processing));
    assert!((0.0..60_000.0).contains(&took_ms), "{took_ms}");
    // The pictures are stamped some years ago.
    assert!(value(next(&latency)) > 1e9);
    let bytes = next(&published);
    let time = PublishedTimeMsg::decode(&bytes).unwrap();
    assert_eq!(time.header.frame_id, "camera");
    assert!(time.published_stamp.ns() > time.header.stamp_ns());
    wait_for("a status of the processing time", || {
        let bytes = next(&diagnostics);
        let array = DiagnosticArrayMsg::decode(&bytes).unwrap();
        array.status.iter().any(|status| {
            status.name == "tensorrt_yolox: processing_time_status"
                && status.hardware_id == "tensorrt_yolox"
                && status
                    .values
                    .iter()
                    .any(|v| v.key == "is_processing_time_ms_in_expected_range")
        })
    });
    let run = stop(child);
    assert_eq!(run.code, Some(0), "{run:?}");
    let [came, out, dropped, lost] = run.frames();
    assert_eq!((came, lost), (out + dropped, 0), "{run:?}");
    assert!(out >= 4, "{run:?}");
    assert!(
        run.summary()["incomplete"].as_array().unwrap().is_empty(),
        "{run:?}"
    );
    peer.close().unwrap();
}

#[test]
fn the_nodes_clock_may_be_the_one_of_a_bag() {
    let (lab, port) = live(&CAMERA.replace("  domain: 42", "  domain: 42\n  use_sim_time: true"));
    let child = start(&lab, &[]);
    let peer = ZenohNode::open(&settings("driver", session(None, Some(port)))).unwrap();
    let images = peer
        .publisher(&sensor("/sensing/camera/image_raw", IMAGE_TYPE))
        .unwrap();
    let clock = peer
        .publisher(&endpoint("/clock", CLOCK_TYPE, Qos::reliable(1)))
        .unwrap();
    let latency = "/perception/tensorrt_yolox/debug/pipeline_latency_ms";
    let (_a, latency) = listen(&peer, &endpoint(latency, FLOAT64_STAMPED_TYPE, Qos::reliable(1)));
    let objects = endpoint(
        "/perception/rois0",
        DETECTED_OBJECTS_WITH_FEATURE_TYPE,
        Qos::reliable(1),
    );
    let (_b, objects) = listen(&peer, &objects);
    wait_for("the program takes clocks", || clock.has_subscribers());
    let now_ns = tiny::START_NS as i64 + 250_000_000;
    clock.publish(ClockMsg::new(now_ns).unwrap().encode()).unwrap();
    let frame = tiny::raw("/unused", 0, &numbered(0).0);
    until_it_answers(&*images, &frame.data, &objects);
    let told = Float64StampedMsg::decode(&next(&latency)).unwrap();
    assert_eq!((told.data, told.stamp.ns()), (250.0, now_ns));
    assert_eq!(stop(child).code, Some(0));
    peer.close().unwrap();
}

/// The camera's pipeline under way, with a node that it gets images from and nobody who subscribes to results.
fn driven() -> (Lab, Child, ZenohNode, Arc<dyn RosPublisher>) {
    let (lab, port) = live(CAMERA);
    let child = start(&lab, &[]);
    let peer = ZenohNode::open(&settings("driver", session(None, Some(port)))).unwrap();
    let images = peer
        .publisher(&sensor("/sensing/camera/image_raw", IMAGE_TYPE))
        .unwrap();
    wait_for("the program subscribes", || images.has_subscribers());
    (lab, child, peer, images)
}

#[test]
fn nothing_is_computed_while_nobody_subscribes() {
    let (_lab, child, peer, images) = driven();
    let frame = tiny::raw("/unused", 0, &numbered(0).0);
    for _ in 0..5 {
        images.publish(frame.data.clone()).unwrap();
        std::thread::sleep(Duration::from_millis(50));
    }
    let objects = endpoint(
        "/perception/rois0",
        DETECTED_OBJECTS_WITH_FEATURE_TYPE,
        Qos::reliable(1),
    );
    let (subscription, answers) = listen(&peer, &objects);
    until_it_answers(&*images, &frame.data, &answers);
    drop(subscription);
    let run = stop(child);
    assert_eq!(run.code, Some(0), "{run:?}");
    let skipped = run
        .drops()
        .into_iter()
        .find(|(_, reason, _)| reason == "no_subscriber");
    assert!(
        skipped.as_ref().is_some_and(|(_, _, count)| *count >= 1),
        "{run:?}"
    );
    let [came, out, dropped, lost] = run.frames();
    assert_eq!((came, lost), (out + dropped, 0), "{run:?}");
    assert!(out >= 1, "{run:?}");
    peer.close().unwrap();
}

#[test]
fn a_sink_that_is_opened_while_nobody_subscribes_gets_results() {
    let (lab, child, peer, images) = driven();
    let frame = tiny::raw("/unused", 0, &numbered(0).0);
    images.publish(frame.data.clone()).unwrap();
    let file = std::fs::read_to_string(lab.path("tiny.yaml")).unwrap();
    let more = "  more: { kind: jsonl, input: detector, path: more.jsonl }\nchannels:";
    std::fs::write(lab.path("tiny.yaml"), file.replace("channels:", more)).unwrap();
    let asked = Command::new("kill")
        .args(["-HUP", &child.id().to_string()])
        .status();
    assert!(asked.unwrap().success());
    wait_for("lines of the new sink", || {
        images.publish(frame.data.clone()).unwrap();
        std::fs::read_to_string(lab.path("more.jsonl")).is_ok_and(|text| text.contains('\n'))
    });
    let run = stop(child);
    assert_eq!(run.code, Some(0), "{run:?}");
    let [came, out, dropped, lost] = run.frames();
    assert_eq!((came, lost), (out + dropped, 0), "{run:?}");
    peer.close().unwrap();
}

#[test]
fn a_bag_is_played_under_the_names_that_the_node_subscribes_to() {
    let (lab, _) = live(CAMERA);
    lab.bag(&film("/bag/camera", 5, 100_000_000));
    let arguments = [
        "--bag",
        "bag.mcap",
        "--jsonl",
        "out.jsonl",
        "--remap",
        "~/in/image:=/bag/camera",
    ];
    let run = await_end(start(&lab, &arguments));
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(run.frames()[..2], [5, 5]);
    assert_eq!(lab.lines("out.jsonl").len(), 5);
    let missing = await_end(start(&lab, &["--bag", "bag.mcap"]));
    assert_eq!(missing.code, Some(1));
    assert!(
        missing
            .told
            .contains("/sensing/camera/image_raw is not in the bag"),
        "{missing:?}"
    );
}

#[test]
fn models_are_built_without_a_frame() {
    let (lab, _) = live(CAMERA);
    let run = await_end(start(&lab, &["--build-only"]));
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(run.frames(), [0, 0, 0, 0]);
    std::fs::write(lab.path("squares.onnx"), b"nothing").unwrap();
    assert_eq!(await_end(start(&lab, &["--build-only"])).code, Some(1));
}

const LIDAR: &str = "\
pipeline: lidar
ros2:
  node: lidar_centerpoint
  domain: 42
  listen: ['tcp/127.0.0.1:PORT']
  remap: { '~/input/pointcloud': /lidar/points }
models:
  centerpoint: { type: centerpoint, weights: WEIGHTS, precision: bf16 }
nodes:
  lidar: { kind: source, subscribe: ros2, topics: ['~/input/pointcloud'] }
  detector: { kind: detector, model: centerpoint, input: lidar }
  objects: { kind: publisher, transport: ros2, input: detector }
channels:
  default: { capacity: 4, on_full: block }
";

#[test]
fn sweeps_go_in_and_objects_come_out() {
    let weights = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/pipelines/weights/centerpoint_sim.safetensors"
    );
    let (lab, port) = live(&LIDAR.replace("WEIGHTS", weights));
    let child = start(&lab, &[]);
    let peer = ZenohNode::open(&settings("driver", session(None, Some(port)))).unwrap();
    let points = peer
        .publisher(&sensor("/lidar/points", POINT_CLOUD_TYPE))
        .unwrap();
    let tf = peer
        .publisher(&endpoint("/tf", TF_TYPE, Qos::reliable(100)))
        .unwrap();
    let tf_static = peer
        .publisher(&endpoint("/tf_static", TF_TYPE, Qos::latched(1)))
        .unwrap();
    let objects = endpoint(
        "/lidar_centerpoint/output/objects",
        DETECTED_OBJECTS_TYPE,
        Qos::reliable(1),
    );
    let (_a, found) = listen(&peer, &objects);
    let (_b, diagnostics) = listen(
        &peer,
        &endpoint("/diagnostics", DIAGNOSTIC_ARRAY_TYPE, Qos::reliable(1)),
    );
    let mut drive = Drive::new(&DriveConfig::default(), 7);
    let mut answered = 0;
    for i in 0..400 {
        let scene = drive.next_frame();
        for message in drive_messages(&scene, i == 0).unwrap() {
            match &*message.topic {
                "/tf" => tf.publish(message.data).unwrap(),
                "/tf_static" => tf_static.publish(message.data).unwrap(),
                POINTS_TOPIC => {
                    wait_for("somebody takes sweeps", || points.has_subscribers());
                    points.publish(message.data.clone()).unwrap();
                    let sent = PointCloud2Msg::decode(&message.data).unwrap().header;
                    let mut answers = std::iter::from_fn(|| found.recv_timeout(Duration::from_secs(20)).ok());
                    let answer = answers.find(|answer| {
                        let answer = DetectedObjectsMsg::decode(&answer.data).unwrap();
                        answer.header.stamp_ns() == sent.stamp_ns()
                    });
                    let Some(answer) = answer else { continue };
                    let answer = DetectedObjectsMsg::decode(&answer.data).unwrap();
                    assert_eq!(answer.header, sent);
                    assert!(
                        answer
                            .objects
                            .iter()
                            .all(|object| object.existence_probability > 0.1)
                    );
                    answered += usize::from(!answer.objects.is_empty());
                }
                _ => {}
            }
        }
        if answered == 5 {
            break;
        }
    }
    assert_eq!(answered, 5);
    wait_for("a status of the pillars", || {
        let bytes = next(&diagnostics);
        let array = DiagnosticArrayMsg::decode(&bytes).unwrap();
        array.status.iter().any(|status| {
            status.name == "lidar_centerpoint: centerpoint_trt"
                && status.level == diagnostic_level::OK
                && status.values[0].key == "is_num_pillars_within_range"
                && status.values[0].value == "True"
        })
    });
    let run = stop(child);
    assert_eq!(run.code, Some(0), "{run:?}");
    peer.close().unwrap();
}
