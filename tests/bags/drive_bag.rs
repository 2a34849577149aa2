//! Simulated drives as recordings, and `sensorium sim`.

use crate::support;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Output;

use sensorium::io::bag::Bag;
use sensorium::io::cloud::{ReadOptions, read_cloud};
use sensorium::io::drive_bag::{
    BASE_FRAME, DriveBag, DriveBagError, LIDAR_FRAME, MAP_FRAME, ODOMETRY_TOPIC, POINTS_TOPIC,
    TRUTH_MARKERS_TOPIC, TRUTH_TOPIC,
};
use sensorium::io::messages::{DetectedObjectMsg, DetectedObjectsMsg, OdometryMsg, PointCloud2Msg, TfMsg};
use sensorium::io::recorder::RecordCompression;
use sensorium::io::ros::Qos;
use sensorium::io::sim::{Drive, DriveConfig, DriveFrame, LidarConfig};
use sensorium::lidar::PointCloud;
use serde_json::{Value, json};

fn config() -> DriveConfig {
    let lidar = LidarConfig {
        rings: 16,
        azimuths: 360,
        ..LidarConfig::default()
    };
    DriveConfig {
        lidar,
        ..DriveConfig::default()
    }
}

/// Five frames of a drive, and what was written of them.
fn record(path: &Path, compression: RecordCompression) -> Vec<DriveFrame> {
    let mut drive = Drive::new(&config(), 4);
    let frames: Vec<DriveFrame> = (0..5).map(|_| drive.next_frame()).collect();
    let mut bag = DriveBag::create(path, compression, &[]).unwrap();
    for frame in &frames {
        bag.write(frame).unwrap();
    }
    bag.finish().unwrap();
    frames
}

fn messages(bag: &Bag, topic: &str) -> Vec<(u64, Vec<u8>)> {
    let all = bag.messages(&[topic]).unwrap();
    all.map(|message| {
        let message = message.unwrap();
        (message.log_time_ns, message.data.to_vec())
    })
    .collect()
}

#[test]
fn a_recorded_drive_is_read_back_as_it_was_driven() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("drive.mcap");
    for compression in [RecordCompression::None, RecordCompression::Zstd] {
        let frames = record(&path, compression);
        let bag = Bag::open(&path).unwrap();
        assert!(bag.warnings().is_empty(), "{:?}", bag.warnings());
        let clouds = messages(&bag, POINTS_TOPIC);
        let transforms = messages(&bag, "/tf");
        let odometry = messages(&bag, ODOMETRY_TOPIC);
        let truths = messages(&bag, TRUTH_TOPIC);
        let counts = [clouds.len(), transforms.len(), odometry.len(), truths.len()];
        assert_eq!(counts, [5; 4]);
        let mounts = messages(&bag, "/tf_static");
        assert_eq!(mounts.len(), 1);
        let mount = TfMsg::decode(&mounts[0].1).unwrap().transforms[0];
        assert_eq!(
            (mount.header.frame_id, mount.child_frame_id),
            (BASE_FRAME, LIDAR_FRAME)
        );
        assert_eq!(mount.transform.translation.z, 1.9);
        let latched = bag.topics().iter().filter(|topic| !topic.offered_qos.is_empty());
        let latched: Vec<_> = latched
            .map(|topic| (topic.name.as_str(), topic.offered_qos.as_slice()))
            .collect();
        assert_eq!(latched, [("/tf_static", &[Qos::latched(1)][..])]);
        let mut cloud = PointCloud::default();
        for (at, frame) in frames.iter().enumerate() {
            let stamp_ns = frame.stamp_ns as i64;
            let (logged_ns, bytes) = &clouds[at];
            assert_eq!(*logged_ns, frame.end_ns);
            let message = PointCloud2Msg::decode(bytes).unwrap();
            assert_eq!(
                (message.header.stamp_ns(), message.header.frame_id),
                (stamp_ns, LIDAR_FRAME)
            );
            read_cloud(&message, ReadOptions::default(), &mut cloud).unwrap();
            assert_eq!(cloud, frame.cloud);
            let place = TfMsg::decode(&transforms[at].1).unwrap().transforms[0];
            assert_eq!(
                (place.header.frame_id, place.child_frame_id),
                (MAP_FRAME, BASE_FRAME)
            );
            assert_eq!(place.header.stamp_ns(), stamp_ns);
            assert_eq!(place.transform.translation.x, frame.world_from_base.x_m);
            let moved = OdometryMsg::decode(&odometry[at].1).unwrap();
            assert_eq!(moved.pose.pose.position.y, frame.world_from_base.y_m);
            assert_eq!(moved.twist.twist.linear.x, frame.ego_speed_mps);
            let truth = DetectedObjectsMsg::decode(&truths[at].1).unwrap();
            let expected: Vec<DetectedObjectMsg> = frame.truth.iter().map(|of| (&of.object).into()).collect();
            assert_eq!(truth.header, message.header);
            assert_eq!(truth.objects, expected);
            assert!(!expected.is_empty());
        }
    }
}

fn crc(bytes: impl IntoIterator<Item = u8>) -> u32 {
    let bytes: Vec<u8> = bytes.into_iter().collect();
    crc32fast::hash(&bytes)
}

fn numbers(value: &Value) -> Vec<f64> {
    value
        .as_array()
        .unwrap()
        .iter()
        .map(|v| v.as_f64().unwrap())
        .collect()
}

/// Equal but for the last digit, which reading numbers as text may cost.
fn assert_close(value: &Value, expected: &[f64]) {
    let values = match value {
        Value::Array(_) => numbers(value),
        one => vec![one.as_f64().unwrap()],
    };
    assert_eq!(values.len(), expected.len());
    for (value, expected) in values.iter().zip(expected) {
        assert!(
            (value - expected).abs() <= 1e-15 * expected.abs().max(1e-3),
            "{value} {expected}"
        );
    }
}

fn upright(yaw_rad: f64) -> Vec<f64> {
    vec![0.0, 0.0, (yaw_rad / 2.0).sin(), (yaw_rad / 2.0).cos()]
}

#[test]
fn rosbags_and_mcap_read_what_was_driven() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("drive.mcap");
    let frames = record(&path, RecordCompression::Zstd);
    let Some(mut oracle) = support::oracle("read_drive.py") else {
        return;
    };
    let output = String::from_utf8(support::run(oracle.arg(&path))).unwrap();
    let mut topics: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for line in output.lines() {
        let value: Value = serde_json::from_str(line).unwrap();
        topics
            .entry(value["topic"].as_str().unwrap().to_owned())
            .or_default()
            .push(value);
    }
    let counts: BTreeMap<&str, usize> = topics
        .iter()
        .map(|(topic, all)| (topic.as_str(), all.len()))
        .collect();
    let expected = [
        ("/clock", 5),
        (TRUTH_TOPIC, 5),
        (TRUTH_MARKERS_TOPIC, 5),
        (ODOMETRY_TOPIC, 5),
        (POINTS_TOPIC, 5),
        ("/tf", 5),
        ("/tf_static", 1),
    ];
    assert_eq!(counts, BTreeMap::from(expected));
    for (at, frame) in frames.iter().enumerate() {
        let cloud = &topics[POINTS_TOPIC][at];
        assert_eq!(
            (&cloud["stamp"], &cloud["frame"]),
            (&json!(frame.stamp_ns), &json!(LIDAR_FRAME))
        );
        assert_eq!(cloud["log_time"], frame.end_ns);
        assert_eq!(
            (&cloud["points"], &cloud["point_step"]),
            (&json!(frame.cloud.len()), &json!(32))
        );
        let fields = json!({
            "x": [0, "<f4"], "y": [4, "<f4"], "z": [8, "<f4"], "intensity": [12, "u1"],
            "return_type": [13, "u1"], "channel": [14, "<u2"], "azimuth": [16, "<f4"],
            "elevation": [20, "<f4"], "distance": [24, "<f4"], "time_stamp": [28, "<u4"]
        });
        assert_eq!(cloud["fields"], fields);
        let columns = &cloud["columns"];
        let of = &frame.cloud;
        assert_eq!(columns["x"], crc(of.x.iter().flat_map(|v| v.to_le_bytes())));
        assert_eq!(columns["y"], crc(of.y.iter().flat_map(|v| v.to_le_bytes())));
        assert_eq!(columns["z"], crc(of.z.iter().flat_map(|v| v.to_le_bytes())));
        assert_eq!(columns["intensity"], crc(of.intensity.iter().map(|v| *v as u8)));
        assert_eq!(
            columns["channel"],
            crc(of.ring.iter().flat_map(|v| v.to_le_bytes()))
        );
        assert_eq!(
            columns["time_stamp"],
            crc(of.time_ns.iter().flat_map(|v| (*v as u32).to_le_bytes()))
        );

        let base = &frame.world_from_base;
        let place = &topics["/tf"][at]["transforms"][0];
        assert_eq!(
            (&place["parent"], &place["child"]),
            (&json!(MAP_FRAME), &json!(BASE_FRAME))
        );
        assert_close(&place["translation"], &[base.x_m, base.y_m, 0.0]);
        assert_close(&place["rotation"], &upright(base.yaw_rad));
        let moved = &topics[ODOMETRY_TOPIC][at];
        assert_close(&moved["speed"], &[frame.ego_speed_mps]);
        assert_close(&moved["position"], &[base.x_m, base.y_m, 0.0]);
        assert_eq!(topics["/clock"][at]["stamp"], frame.stamp_ns);

        let objects = topics[TRUTH_TOPIC][at]["objects"].as_array().unwrap();
        let markers = topics[TRUTH_MARKERS_TOPIC][at]["markers"].as_array().unwrap();
        assert_eq!(
            (objects.len(), markers.len()),
            (frame.truth.len(), 3 * frame.truth.len() + 1)
        );
        // Removes those of the frame before.
        assert_eq!(markers[0]["action"], 3);
        for ((object, shapes), truth) in objects.iter().zip(markers[1..].chunks(3)).zip(&frame.truth) {
            assert_eq!(object["label"], truth.object.label as u8);
            assert_close(&object["position"], &truth.object.position_m);
            assert_close(&object["orientation"], &upright(truth.object.yaw_rad));
            assert_close(&object["size"], &truth.object.size_m);
            assert_close(&object["speed"], &[truth.object.twist.unwrap().linear_x_mps]);
            let [cube, arrow, caption] = shapes else {
                panic!("{shapes:?}");
            };
            for (shape, kind) in [(cube, 1), (arrow, 0), (caption, 9)] {
                assert_eq!(
                    (&shape["type"], &shape["action"], &shape["rest"]),
                    (&json!(kind), &json!(0), &json!(0))
                );
                assert_eq!(
                    (&shape["id"], &shape["frame"]),
                    (&json!(truth.id), &json!(LIDAR_FRAME))
                );
                assert_eq!(shape["stamp"], frame.stamp_ns);
                assert_close(&shape["orientation"], &upright(truth.object.yaw_rad));
            }
            assert_close(&cube["position"], &truth.object.position_m);
            assert_close(&cube["scale"], &truth.object.size_m);
            assert!(cube["opacity"].as_f64().unwrap() < 1.0);
            assert!(
                numbers(&caption["position"])[2] > truth.object.position_m[2] + truth.object.size_m[2] / 2.0
            );
            assert_eq!(
                caption["text"],
                format!("{} {}", truth.object.label.name(), truth.id)
            );
        }
    }
    let mount = &topics["/tf_static"][0]["transforms"][0];
    assert_eq!(
        (&mount["parent"], &mount["child"]),
        (&json!(BASE_FRAME), &json!(LIDAR_FRAME))
    );
    assert_close(&mount["translation"], &[1.0, 0.0, 1.9]);
}

#[test]
fn a_drive_beyond_the_last_time_of_ros_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let config = DriveConfig {
        start_ns: 4_000_000_000_000_000_000,
        ..config()
    };
    let frame = Drive::new(&config, 1).next_frame();
    let mut bag = DriveBag::create(&folder.path().join("late.mcap"), RecordCompression::None, &[]).unwrap();
    let error = bag.write(&frame).unwrap_err();
    assert!(
        matches!(error, DriveBagError::Stamp { stamp_ns } if stamp_ns == config.start_ns),
        "{error}"
    );
}

fn sim(arguments: &[&str], folder: &Path) -> Output {
    let mut command = crate::tiny::sensorium();
    command
        .arg("sim")
        .args(arguments)
        .current_dir(folder)
        .env("NO_COLOR", "1")
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn the_command_writes_the_same_drive_twice() {
    let folder = tempfile::tempdir().unwrap();
    let size = [
        "--rings",
        "16",
        "--azimuths",
        "360",
        "--seconds",
        "1.5",
        "--seed",
        "3",
    ];
    for name in ["a/drive.mcap", "b.mcap"] {
        let output = sim(&[&size[..], &["--out", name]].concat(), folder.path());
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(text(&output.stdout).starts_with(&format!("{name}: 15 frames on {POINTS_TOPIC}, ")));
    }
    let read = |name: &str| std::fs::read(folder.path().join(name)).unwrap();
    assert!(read("a/drive.mcap") == read("b.mcap"));
    assert!(!folder.path().join("b.mcap.part").exists());
    let bag = Bag::open(&folder.path().join("b.mcap")).unwrap();
    assert_eq!(bag.message_count(), 15 * 6 + 1);
    // The drive lasts from the first stamp to the end of the last turn.
    assert_eq!(bag.duration_ns(), 1_500_000_000);
}

#[test]
fn the_command_writes_scenes() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = [
        "scenes",
        "--count",
        "3",
        "--seed",
        "2",
        "--shard",
        "2",
        "--rings",
        "16",
        "--azimuths",
        "180",
    ];
    let output = sim(&[&arguments[..], &["--out", "scenes"]].concat(), folder.path());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(
        text(&output.stdout).starts_with("scenes: 3 scenes, "),
        "{}",
        text(&output.stdout)
    );
    let mut names: Vec<String> = std::fs::read_dir(folder.path().join("scenes"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let parts = ["box_offsets", "boxes", "point_offsets", "points"];
    let mut expected = vec!["meta.json".to_owned()];
    expected.extend((0..2).flat_map(|shard| parts.map(|part| format!("shard_{shard:04}.{part}.npy"))));
    assert_eq!(names, expected);
}

#[test]
fn arguments_that_make_no_drive_are_refused_in_words() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), "").unwrap();
    let cases: [(&[&str], i32, &str); 8] = [
        (
            &["--seconds", "0", "--out", "a.mcap"],
            2,
            "a number of seconds between 0.1 and 3600",
        ),
        (
            &["--seconds", "nan", "--out", "a.mcap"],
            2,
            "a number of seconds between 0.1 and 3600",
        ),
        (&["--height", "-1", "--out", "a.mcap"], 2, "--height"),
        (&["--traffic", "9", "--out", "a.mcap"], 2, "between 0 and 2"),
        (&["--seconds", "1"], 2, "--out"),
        (
            &["--seconds", "1", "--out", "drive.bag"],
            1,
            "drive.bag is no .mcap file",
        ),
        (
            &["--seconds", "1", "--out", "file/drive.mcap"],
            1,
            "cannot make the folder file",
        ),
        (&["scenes", "--count", "0", "--out", "scenes"], 2, "--count"),
    ];
    for (arguments, code, words) in cases {
        let output = sim(arguments, folder.path());
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(words), "{arguments:?}: {said}");
        assert!(!said.contains("panicked"), "{said}");
    }
    let output = sim(&["scenes", "--count", "1", "--out", "file/scenes"], folder.path());
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("cannot write file/scenes"),
        "{}",
        text(&output.stderr)
    );
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}
