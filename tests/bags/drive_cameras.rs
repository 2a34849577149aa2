//! The cameras of a simulated drive: their messages, the bag, and pipelines that take images, sweeps or both.

use crate::tiny;
use std::collections::BTreeMap;

use sensorium::io::bag::{Bag, BagMessage};
use sensorium::io::drive_bag::{
    BASE_FRAME, LIDAR_FRAME, POINTS_TOPIC, TF_STATIC_TOPIC, camera_info_topic, drive_messages, image_topic,
};
use sensorium::io::messages::{CameraInfoMsg, ImageMsg, TfMsg, TransformMsg};
use sensorium::io::sim::{CameraConfig, Drive, DriveConfig, DriveFrame};
use tiny::{Lab, outcome, sensorium};

fn three_cameras() -> DriveConfig {
    DriveConfig {
        cameras: CameraConfig::three(),
        ..DriveConfig::default()
    }
}

fn first_frame(seed: u64) -> (DriveFrame, Vec<BagMessage>) {
    let frame = Drive::new(&three_cameras(), seed).next_frame();
    let messages = drive_messages(&frame, true).unwrap();
    (frame, messages)
}

fn message<'a>(messages: &'a [BagMessage], topic: &str) -> &'a [u8] {
    &messages
        .iter()
        .find(|message| *message.topic == *topic)
        .unwrap()
        .data
}

/// A point of the parent's frame in the child's, as the transform of a message has it.
fn into_child(transform: &TransformMsg, point: [f64; 3]) -> [f64; 3] {
    let t = &transform.translation;
    let q = &transform.rotation;
    // The inverse rotation has the opposite axis. v + 2w(a × v) + 2a × (a × v)
    let axis = [-q.x, -q.y, -q.z];
    let v = [point[0] - t.x, point[1] - t.y, point[2] - t.z];
    let cross = |a: [f64; 3], b: [f64; 3]| {
        [
            a[1] * b[2] - a[2] * b[1],
            a[2] * b[0] - a[0] * b[2],
            a[0] * b[1] - a[1] * b[0],
        ]
    };
    let once = cross(axis, v);
    let twice = cross(axis, once);
    [0, 1, 2].map(|i| v[i] + 2.0 * (q.w * once[i] + twice[i]))
}

#[test]
fn images_and_calibrations_are_what_the_cameras_are() {
    let (frame, messages) = first_frame(2);
    let stamp_ns = frame.stamp_ns as i64;
    for (camera, image) in frame.cameras.iter().zip(&frame.images) {
        let info = CameraInfoMsg::decode(message(&messages, &camera_info_topic(camera))).unwrap();
        assert_eq!(
            (info.width, info.height, info.distortion_model),
            (640, 400, "plumb_bob")
        );
        assert_eq!(info.k, [320.0, 0.0, 319.5, 0.0, 320.0, 199.5, 0.0, 0.0, 1.0]);
        assert_eq!(
            info.p,
            [320.0, 0.0, 319.5, 0.0, 0.0, 320.0, 199.5, 0.0, 0.0, 0.0, 1.0, 0.0]
        );
        assert_eq!(info.r, [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]);
        assert_eq!(info.d, [0.0; 5]);
        let pixels = ImageMsg::decode(message(&messages, &image_topic(camera))).unwrap();
        assert_eq!((pixels.width, pixels.height, pixels.step), (640, 400, 1920));
        assert_eq!((pixels.encoding, pixels.data), ("rgb8", &image.rgb[..]));
        for header in [info.header, pixels.header] {
            assert_eq!(
                (header.stamp_ns(), header.frame_id),
                (stamp_ns, &*camera.frame_id())
            );
        }
    }
    assert_eq!(
        image_topic(&frame.cameras[1]),
        "/sensing/camera/front_left/image_raw"
    );
    assert_eq!(
        camera_info_topic(&frame.cameras[0]),
        "/sensing/camera/front/camera_info"
    );
}

#[test]
fn transforms_say_where_the_cameras_are_and_which_way_they_look() {
    let (frame, messages) = first_frame(2);
    let mounts = TfMsg::decode(message(&messages, TF_STATIC_TOPIC))
        .unwrap()
        .transforms;
    let children: Vec<&str> = mounts.iter().map(|mount| mount.child_frame_id).collect();
    let expected = [
        LIDAR_FRAME,
        "camera_front_optical",
        "camera_front_left_optical",
        "camera_front_right_optical",
    ];
    assert_eq!(children, expected);
    assert!(mounts.iter().all(|mount| mount.header.frame_id == BASE_FRAME));
    for (camera, mount) in frame.cameras.iter().zip(&mounts[1..]) {
        let [x, y, z] = camera.position_m;
        let (sin, cos) = camera.yaw_rad.sin_cos();
        // A point ten metres ahead, two to the right and one below.
        let point = [x + 10.0 * cos + 2.0 * sin, y + 10.0 * sin - 2.0 * cos, z - 1.0];
        let seen = into_child(&mount.transform, point);
        for (seen, expected) in seen.iter().zip([2.0, 1.0, 10.0]) {
            assert!(
                (seen - expected).abs() < 1e-9,
                "{}: {seen} {expected}",
                camera.name
            );
        }
    }
    // Later frames bring no mounts.
    let later = drive_messages(&frame, false).unwrap();
    assert!(later.iter().all(|message| &*message.topic != TF_STATIC_TOPIC));
}

#[test]
fn the_middle_of_what_the_lidar_sees_lies_in_its_box_by_calibration_and_transforms() {
    let mut checked = 0;
    for seed in 0..5 {
        let (frame, messages) = first_frame(seed);
        let mounts = TfMsg::decode(message(&messages, TF_STATIC_TOPIC))
            .unwrap()
            .transforms;
        for image in &frame.images {
            let camera = &frame.cameras[image.camera];
            let info = CameraInfoMsg::decode(message(&messages, &camera_info_topic(camera))).unwrap();
            let mount = &mounts[1 + image.camera].transform;
            for seen in image.truth.iter().filter(|seen| seen.silhouette_px > 60) {
                let Some(truth) = frame.truth.iter().find(|truth| truth.id == seen.id) else {
                    continue;
                };
                let seen_s = truth.seen_after_ns as f64 * 1e-9;
                let [x, y, z] = truth.object.position_m;
                let [vx, vy] = truth.velocity_mps;
                let point = frame.base_from_lidar.apply([x - vx * seen_s, y - vy * seen_s, z]);
                let [x, y, depth] = into_child(mount, point);
                let (u, v) = (
                    info.k[0] * x / depth + info.k[2],
                    info.k[4] * y / depth + info.k[5],
                );
                let on_image = (0.0..639.0).contains(&u) && (0.0..399.0).contains(&v);
                if depth > 1.0 && on_image {
                    // A pixel's middle is half a pixel from its edge.
                    let (u, v) = (u as f32 + 0.5, v as f32 + 0.5);
                    let [x0, y0, x1, y1] = seen.box_px;
                    assert!(
                        (x0..x1).contains(&u) && (y0..y1).contains(&v),
                        "({u}, {v}) is not in {seen:?}"
                    );
                    checked += 1;
                }
            }
        }
    }
    assert!(checked > 40, "{checked}");
}

/// Messages of each topic of a bag.
fn topics(path: &std::path::Path) -> BTreeMap<String, u64> {
    let bag = Bag::open(path).unwrap();
    let topics = bag.topics().iter();
    topics.map(|topic| (topic.name.clone(), topic.messages)).collect()
}

#[test]
fn the_command_records_cameras_where_they_are_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let sim = |arguments: &[&str]| {
        let mut command = sensorium();
        let size = ["--rings", "16", "--azimuths", "90", "--seconds", "0.4"];
        outcome(
            command
                .current_dir(folder.path())
                .arg("sim")
                .args(size)
                .args(arguments),
        )
    };
    let run = sim(&["--out", "plain.mcap"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let plain = topics(&folder.path().join("plain.mcap"));
    assert!(plain.keys().all(|topic| !topic.contains("camera")), "{plain:?}");
    let run = sim(&["--cameras", "three", "--camera-hz", "5", "--out", "seen.mcap"]);
    assert!(run.code == Some(0) && run.out.contains("6 images"), "{run:?}");
    let mut seen = topics(&folder.path().join("seen.mcap"));
    for camera in ["front", "front_left", "front_right"] {
        for topic in ["camera_info", "image_raw"] {
            assert_eq!(seen.remove(&format!("/sensing/camera/{camera}/{topic}")), Some(2));
        }
    }
    assert_eq!(seen, plain, "the rest is as without cameras");
    for (wrong, words) in [
        (["--cameras", "four"], "three"),
        (["--camera-hz", "3"], "1, 2, 5, 10"),
    ] {
        let run = sim(&[&wrong[..], &["--out", "none.mcap"]].concat());
        assert!(run.code == Some(2) && run.told.contains(words), "{run:?}");
    }
}

#[test]
fn the_command_writes_training_images() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = sensorium();
    let arguments = [
        "sim",
        "frames",
        "--count",
        "3",
        "--threads",
        "2",
        "--out",
        "frames",
    ];
    let run = outcome(command.current_dir(folder.path()).args(arguments));
    assert!(
        run.code == Some(0) && run.out.starts_with("frames: 3 images, "),
        "{run:?}"
    );
    let size = |name: &str| {
        std::fs::metadata(folder.path().join("frames").join(name))
            .unwrap()
            .len()
    };
    assert_eq!(size("images.npy"), 128 + 3 * 640 * 400 * 3);
    assert_eq!(size("starts.npy"), 128 + 4 * 8);
    assert_eq!(size("boxes.npy") % 32, 0);
}

const CAMERAS_ONLY: &str = "\
pipeline: cameras
device: { threads: 1, queues: 2, arena_mib: 16 }
models:
  squares:
    type: yolox
    weights: squares.onnx
    preprocess: yolox_opencv
    labels: colours.txt
    score_threshold: 0.3
    nms_threshold: 0.45
nodes:
  drive:
    kind: source
    simulate: { seconds: 0.4, seed: 6, cameras: three, camera_hz: 5 }
    clock: deterministic
  eyes: { kind: detector, model: squares, input: drive }
  recorder: { kind: recorder, input: eyes, include_images: true }
  jsonl: { kind: jsonl, input: eyes }
";

/// Runs a pipeline file of the lab.
fn run(lab: &Lab, text: &str, arguments: &[&str]) -> tiny::Outcome {
    std::fs::write(lab.path("drive.yaml"), text).unwrap();
    let mut command = sensorium();
    command
        .current_dir(lab.path(""))
        .args(["run", "drive.yaml", "--format", "json"]);
    outcome(command.args(arguments))
}

/// Frames of each stream of a JSON lines file.
fn streams(lab: &Lab, name: &str) -> BTreeMap<String, usize> {
    let mut streams = BTreeMap::new();
    for line in lab.lines(name) {
        *streams
            .entry(line["stream"].as_str().unwrap().to_owned())
            .or_default() += 1;
    }
    streams
}

#[test]
fn a_detector_of_images_takes_the_cameras_of_a_drive() {
    let lab = Lab::new();
    let done = run(
        &lab,
        CAMERAS_ONLY,
        &["--jsonl", "out.jsonl", "--record", "out.mcap"],
    );
    assert_eq!((done.code, done.frames()), (Some(0), [6, 6, 0, 0]), "{done:?}");
    let cameras = ["front", "front_left", "front_right"];
    let expected = cameras.map(|name| (format!("/sensing/camera/{name}/image_raw"), 2));
    assert_eq!(streams(&lab, "out.jsonl"), BTreeMap::from(expected));
    let recorded = topics(&lab.path("out.mcap"));
    for camera in cameras {
        for topic in ["camera_info", "image_raw", "image_raw/detections"] {
            let topic = format!("/sensing/camera/{camera}/{topic}");
            assert_eq!(recorded.get(&topic), Some(&2), "{topic} of {recorded:?}");
        }
    }
    assert_eq!(recorded.get("/tf_static"), Some(&1), "{recorded:?}");
    assert!(!recorded.contains_key(POINTS_TOPIC), "{recorded:?}");
}

#[test]
fn a_drive_with_both_sensors_sends_each_detector_what_it_takes() {
    let lab = Lab::new();
    let weights = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/pipelines/weights/centerpoint_sim.safetensors"
    );
    let text = CAMERAS_ONLY
        .replace("threads: 1, queues: 2, arena_mib: 16", "queues: 2, arena_mib: 512, frame_deadline_ms: 600000")
        .replace("seconds: 0.4", "seconds: 0.2")
        .replace("camera_hz: 5", "camera_hz: 10")
        .replace("{ kind: recorder, input: eyes", "{ kind: recorder, input: [eyes, beams]")
        .replace("{ kind: jsonl, input: eyes", "{ kind: jsonl, input: [eyes, beams]")
        .replace(
            "nodes:\n",
            &format!(
                "  centerpoint: {{ type: centerpoint, weights: {weights}, precision: bf16 }}\nnodes:\n  beams: {{ kind: \
                 detector, model: centerpoint, input: drive }}\n"
            ),
        );
    let done = run(&lab, &text, &["--jsonl", "out.jsonl", "--record", "out.mcap"]);
    assert_eq!((done.code, done.frames()), (Some(0), [8, 8, 0, 0]), "{done:?}");
    let lines = lab.lines("out.jsonl");
    let of = |key: &str| lines.iter().filter(|line| line[key].is_array()).count();
    assert_eq!((of("detections"), of("objects")), (6, 2), "{lines:?}");
    let streams = streams(&lab, "out.jsonl");
    assert_eq!(streams.len(), 4, "{streams:?}");
    let recorded = topics(&lab.path("out.mcap"));
    assert_eq!(recorded.get(POINTS_TOPIC), Some(&2), "{recorded:?}");
    assert_eq!(recorded.get("/sensing/camera/front/camera_info"), Some(&2));
}

#[test]
fn what_a_drive_cannot_give_is_refused_in_words() {
    let lab = Lab::new();
    for (from, to, code, words) in [
        (
            "cameras: three, camera_hz: 5",
            "cameras: none",
            1,
            "give it some with `cameras: front` or `three`",
        ),
        ("camera_hz: 5", "camera_hz: 3", 1, "expected 1, 2, 5 or 10"),
        (
            "clock: deterministic",
            "clock: deterministic\n    topics: [/camera/none]",
            1,
            "the drive has /sensing/lidar",
        ),
    ] {
        let done = run(&lab, &CAMERAS_ONLY.replace(from, to), &[]);
        assert!(
            done.code == Some(code) && done.told.contains(words),
            "{to}: {done:?}"
        );
    }
    let one = CAMERAS_ONLY.replace(
        "clock: deterministic",
        "clock: deterministic\n    topics: [/sensing/camera/front_left/image_raw]",
    );
    let done = run(&lab, &one, &[]);
    assert_eq!((done.code, done.frames()), (Some(0), [2, 2, 0, 0]), "{done:?}");
}
