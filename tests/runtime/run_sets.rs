//! Pipelines with nodes that put sets together and make clouds of them.

use crate::tiny;
use std::collections::BTreeMap;

use sensorium::io::cloud::{ReadOptions, encode_cloud, read_cloud};
use sensorium::io::drive_bag::{LIDAR_FRAME, POINTS_TOPIC, TF_STATIC_TOPIC, TF_TOPIC, drive_messages};
use sensorium::io::messages::{
    HeaderMsg, POINT_CLOUD_TYPE, PointCloud2Msg, QuaternionMsg, TF_TYPE, TfMsg, TransformMsg,
    TransformStampedMsg, Vector3Msg,
};
use sensorium::io::sim::{Drive, DriveConfig};
use sensorium::lidar::PointCloud;
use serde_json::Value;
use tiny::{Frame, Lab, Outcome, outcome, sensorium};

const LEFT: &str = "/lidar/left";
const RIGHT: &str = "/lidar/right";
/// Where the two halves of the sweeps are said to be taken: a shift, and a half turn about z with a shift.
const LEFT_AT_M: [f64; 3] = [1.5, 0.25, -0.5];
const RIGHT_AT_M: [f64; 3] = [-0.75, 2.0, 0.125];

/// Points of a sweep on one side of the sensor, as a sensor at another place has them.
fn half(whole: &PointCloud, left: bool) -> PointCloud {
    let mut cloud = PointCloud::default();
    for at in 0..whole.len() {
        let [x, y, z] = [whole.x[at], whole.y[at], whole.z[at]];
        if (y > 0.0) != left {
            continue;
        }
        let [tx, ty, tz] = if left { LEFT_AT_M } else { RIGHT_AT_M }.map(|t| t as f32);
        let turn = if left { 1.0 } else { -1.0 };
        cloud.x.push(turn * (x - tx));
        cloud.y.push(turn * (y - ty));
        cloud.z.push(z - tz);
        cloud.intensity.push(whole.intensity[at]);
        cloud.ring.push(whole.ring[at]);
        cloud.return_type.push(whole.return_type[at]);
    }
    cloud
}

fn mount(
    child: &'static str,
    [x, y, z]: [f64; 3],
    turned: bool,
    stamp_ns: i64,
) -> TransformStampedMsg<'static> {
    let (qz, qw) = if turned { (1.0, 0.0) } else { (0.0, 1.0) };
    TransformStampedMsg {
        header: HeaderMsg::new(stamp_ns, LIDAR_FRAME).unwrap(),
        child_frame_id: child,
        transform: TransformMsg {
            translation: Vector3Msg { x, y, z },
            rotation: QuaternionMsg {
                x: 0.0,
                y: 0.0,
                z: qz,
                w: qw,
            },
        },
    }
}

/// A drive as a bag: the sweeps whole, and in two halves by sensors of their own, the right one 4 ms later.
pub(crate) fn bag(lab: &Lab, sweeps: usize, change: impl Fn(usize, &mut Vec<Frame>)) {
    let mut drive = Drive::new(&DriveConfig::default(), 7);
    let mut all = Vec::new();
    for number in 0..sweeps {
        let frame = drive.next_frame();
        let mut frames = Vec::new();
        for message in drive_messages(&frame, number == 0).unwrap() {
            let topic = match &*message.topic {
                TF_TOPIC => TF_TOPIC,
                TF_STATIC_TOPIC => TF_STATIC_TOPIC,
                POINTS_TOPIC => POINTS_TOPIC,
                _ => continue,
            };
            let type_name = if topic == POINTS_TOPIC {
                POINT_CLOUD_TYPE
            } else {
                TF_TYPE
            };
            frames.push(Frame {
                topic,
                type_name,
                time_ns: message.log_time_ns,
                data: message.data,
            });
        }
        if number == 0 {
            let stamp_ns = frame.stamp_ns as i64;
            let transforms = vec![
                mount("left", LEFT_AT_M, false, stamp_ns),
                mount("right", RIGHT_AT_M, true, stamp_ns),
            ];
            let data = TfMsg { transforms }.encode().unwrap();
            let first = frames[0].clone();
            frames.insert(
                0,
                Frame {
                    topic: TF_STATIC_TOPIC,
                    type_name: TF_TYPE,
                    data,
                    ..first
                },
            );
        }
        let whole = frames
            .iter()
            .find(|frame| frame.topic == POINTS_TOPIC)
            .unwrap()
            .clone();
        let message = PointCloud2Msg::decode(&whole.data).unwrap();
        let mut cloud = PointCloud::default();
        read_cloud(&message, ReadOptions::default(), &mut cloud).unwrap();
        for (topic, frame_id, left, after_ns) in [(LEFT, "left", true, 0), (RIGHT, "right", false, 4_000_000)]
        {
            let header = HeaderMsg::new(frame.stamp_ns as i64 + after_ns, frame_id).unwrap();
            frames.push(Frame {
                topic,
                type_name: POINT_CLOUD_TYPE,
                time_ns: whole.time_ns + after_ns as u64,
                data: encode_cloud(&half(&cloud, left), header).unwrap(),
            });
        }
        change(number, &mut frames);
        all.extend(frames);
    }
    lab.bag(&all);
}

const MODEL: &str = concat!(
    "{ type: centerpoint, weights: ",
    env!("CARGO_MANIFEST_DIR"),
    "/pipelines/weights/centerpoint_sim.safetensors, precision: bf16 }"
);

fn run(lab: &Lab, nodes: &str, arguments: &[&str]) -> Outcome {
    let text = format!(
        "pipeline: halves\ndevice: {{ queues: 2, arena_mib: 512, frame_deadline_ms: 600000 }}\nmodels:\n  centerpoint: \
         {MODEL}\nnodes:\n  bag: {{ kind: source, bag: bag.mcap, clock: deterministic }}\n{nodes}"
    );
    std::fs::write(lab.path("halves.yaml"), text).unwrap();
    let mut command = sensorium();
    command
        .current_dir(lab.path(""))
        .args(["run", "halves.yaml", "--format", "json"]);
    outcome(command.args(arguments))
}

const HALVES: &str = "  \
  pair: { kind: sync, input: bag, members: [{ topic: /lidar/left }, { topic: /lidar/right }] }
  cloud: { kind: concat, input: pair, output_frame: velodyne_top, stream: /lidar/all }
  detector: { kind: detector, model: centerpoint, input: cloud }
  jsonl: { kind: jsonl, input: detector, path: halves.jsonl }
  tape: { kind: recorder, input: detector, path: halves.mcap }
";

/// Frames in, out and dropped of each stream.
fn streams(run: &Outcome) -> BTreeMap<String, [u64; 3]> {
    let summary = run.summary();
    let streams = summary["streams"].as_array().unwrap();
    let counts = |stream: &Value| ["in", "out", "dropped"].map(|key| stream["frames"][key].as_u64().unwrap());
    streams
        .iter()
        .map(|stream| (stream["name"].as_str().unwrap().to_owned(), counts(stream)))
        .collect()
}

/// What is told of an object's place: label, centre, sides and heading.
#[derive(Debug)]
struct Found {
    label: String,
    centre_m: [f64; 3],
    size_m: [f64; 3],
    yaw_rad: f64,
}

/// The objects of a line with a score above this one.
fn objects(line: &Value, score: f64) -> Vec<Found> {
    let objects = line["objects"].as_array().unwrap();
    let clear = objects
        .iter()
        .filter(|object| object["score"].as_f64().unwrap() > score);
    clear
        .map(|object| {
            let three = |key: &str| [0, 1, 2].map(|axis| object[key][axis].as_f64().unwrap());
            Found {
                label: object["label"].as_str().unwrap().to_owned(),
                centre_m: three("position_m"),
                size_m: three("size_m"),
                yaw_rad: object["yaw_rad"].as_f64().unwrap(),
            }
        })
        .collect()
}

impl Found {
    /// Whether both are one object, as far as a network can tell: a heading may be told the wrong way round, and one
    /// who is as wide as long has none that could be seen.
    fn is_near(&self, other: &Self) -> bool {
        let near = |one: [f64; 3], other: [f64; 3], most: f64| {
            (0..3).all(|axis| (one[axis] - other[axis]).abs() < most)
        };
        self.label == other.label
            && near(self.centre_m, other.centre_m, 0.2)
            && near(self.size_m, other.size_m, 0.5)
            && (self.size_m[0] < 1.5 * self.size_m[1] || (self.yaw_rad - other.yaw_rad).sin().abs() < 0.25)
    }
}

/// The sweeps of one sensor, and those of two that see half of it each from places of their own.
///
/// Public report: autoware_ai_perception issue 36 (parts of an object in the sensor's frame, with the name of another).
#[test]
fn two_sensors_that_see_a_half_each_find_what_one_finds_that_sees_the_whole() {
    let lab = Lab::new();
    bag(&lab, 3, |_, _| ());
    let whole = run(
        &lab,
        "  detector: { kind: detector, model: centerpoint, input: whole }\n  jsonl: { kind: jsonl, input: detector, \
         path: whole.jsonl }\n"
            .replace("input: whole", "input: bag")
            .as_str(),
        &["--set", "nodes.bag.topics=[/sensing/lidar/concatenated/pointcloud]"],
    );
    assert_eq!((whole.code, whole.frames()), (Some(0), [3, 3, 0, 0]), "{whole:?}");
    let halves = run(&lab, HALVES, &[]);
    // Two members a set, the set, and the cloud.
    assert_eq!(
        (halves.code, halves.frames()),
        (Some(0), [12, 12, 0, 0]),
        "{halves:?}"
    );
    let expected = [LEFT, RIGHT, "pair", "/lidar/all"].map(|name| (name.to_owned(), [3, 3, 0]));
    assert_eq!(streams(&halves), BTreeMap::from(expected));
    let bytes = || std::fs::read(lab.path("halves.jsonl")).unwrap();
    let first = bytes();
    let again = run(&lab, HALVES, &["--set", "device.threads=1"]);
    assert_eq!(again.code, Some(0), "{again:?}");
    assert!(bytes() == first, "the same sets and clouds make the same bytes");
    let (whole, halves) = (lab.lines("whole.jsonl"), lab.lines("halves.jsonl"));
    let mut found = 0;
    for (whole, halves) in whole.iter().zip(&halves) {
        assert_eq!(whole["stamp_ns"], halves["stamp_ns"]);
        assert_eq!(
            (&halves["stream"], &halves["frame_id"]),
            (&"/lidar/all".into(), &LIDAR_FRAME.into())
        );
        assert!(halves.get("missing").is_none());
        // Points stand in another order, which decides those that a full pillar keeps.
        for (one, other) in [(whole, halves), (halves, whole)] {
            let others = objects(other, 0.4);
            for object in objects(one, 0.6) {
                let is_there = others.iter().any(|other| object.is_near(other));
                assert!(is_there, "{object:?} in {others:?}");
                found += 1;
            }
        }
    }
    assert!(found > 20, "{found}");
}

#[test]
fn clouds_are_made_where_no_detector_takes_them() {
    let lab = Lab::new();
    bag(&lab, 3, |_, _| ());
    let (nodes, _) = HALVES.split_once("  detector:").unwrap();
    let done = run(&lab, nodes, &[]);
    assert_eq!((done.code, done.drops()), (Some(0), Vec::new()), "{done:?}");
    assert_eq!(streams(&done)["pair"], [3, 3, 0]);
}

#[test]
fn a_closed_loop_goes_on_where_members_wait_for_others() {
    let lab = Lab::new();
    bag(&lab, 2, |_, _| ());
    let nodes = HALVES.split_once("  jsonl:").unwrap().0;
    let text = format!(
        "pipeline: halves\ndevice: {{ queues: 2, arena_mib: 512, frame_deadline_ms: 600000 }}\nmodels:\n  centerpoint: \
         {MODEL}\nnodes:\n  bag: {{ kind: source, bag: bag.mcap, topics: [{LEFT}, {RIGHT}] }}\n{nodes}"
    );
    std::fs::write(lab.path("halves.yaml"), text).unwrap();
    let mut command = sensorium();
    command.current_dir(lab.path("")).args(["bench", "halves.yaml"]);
    command.args(["--scenario", "single-stream", "--queries", "6", "--warm-up", "0"]);
    let done = outcome(command.args(["--format", "json"]));
    assert_eq!(done.code, Some(0), "{done:?}");
    let result: Value = serde_json::from_str(&done.out).unwrap();
    let queries = &result["queries"];
    // Three sets of two members each, with one result each.
    let counted = ["offered", "frames", "completed", "dropped"].map(|key| queries[key].as_u64());
    assert_eq!(counted, [Some(6), Some(3), Some(3), Some(0)], "{queries}");
}

#[test]
fn a_sensor_that_drops_makes_clouds_that_say_what_is_missing() {
    let lab = Lab::new();
    bag(&lab, 4, |number, frames| match number {
        1 => frames.retain(|frame| frame.topic != RIGHT),
        2 => {
            // A cloud that cannot be read is missing, too.
            let cloud = frames.iter_mut().find(|frame| frame.topic == LEFT).unwrap();
            let length = cloud.data.len();
            cloud.data.truncate(length / 2);
        }
        _ => {}
    });
    let done = run(&lab, HALVES, &[]);
    assert_eq!((done.code, done.frames()), (Some(0), [15, 15, 0, 0]), "{done:?}");
    let missing: Vec<Value> = lab
        .lines("halves.jsonl")
        .iter()
        .map(|line| line["missing"].clone())
        .collect();
    assert_eq!(
        missing,
        [Value::Null, vec![RIGHT].into(), vec![LEFT].into(), Value::Null]
    );
    assert!(
        done.told.contains(LEFT) && done.told.contains("left out"),
        "{}",
        done.told
    );
    let recorded = sensorium::io::bag::Bag::open(&lab.path("halves.mcap")).unwrap();
    let count = |name: &str| {
        recorded
            .topics()
            .iter()
            .find(|topic| topic.name == name)
            .map(|topic| topic.messages)
    };
    assert_eq!(count("/lidar/all"), Some(4));
    // Where partial sets are not wanted, they are dropped with a reason, and so are their members.
    let strict = HALVES.replace("kind: sync,", "kind: sync, on_partial: drop,");
    let done = run(&lab, &strict, &[]);
    assert_eq!(done.frames(), [13, 12, 1, 0], "{done:?}");
    assert_eq!(done.drops(), [("pair".to_owned(), "unmatched".to_owned(), 1)]);
}

#[test]
fn a_sensor_without_a_synchronised_clock_is_told_of_with_both_times() {
    let lab = Lab::new();
    bag(&lab, 3, |_, frames| {
        for frame in frames.iter_mut().filter(|frame| frame.topic == RIGHT) {
            // Seconds of the stamp stand behind the four bytes of the encapsulation.
            let seconds = i32::from_le_bytes(frame.data[4..8].try_into().unwrap());
            frame.data[4..8].copy_from_slice(&(seconds - 622_129_844).to_le_bytes());
        }
    });
    let done = run(&lab, HALVES, &[]);
    let told = done.told.matches("is not synchronised").count();
    assert_eq!((done.code, told), (Some(0), 1), "{done:?}");
    assert_eq!(streams(&done)[RIGHT], [3, 0, 3]);
    assert_eq!(
        done.drops(),
        [("pair".to_owned(), "unsynchronised".to_owned(), 3)]
    );
    assert_eq!(streams(&done)["/lidar/all"], [3, 3, 0]);
}

/// Cameras and LiDAR of a simulated drive: sets of all four, whatever takes them.
#[test]
fn the_cameras_and_the_lidar_of_a_drive_make_sets() {
    let lab = Lab::new();
    let topics =
        ["front", "front_left", "front_right"].map(|name| format!("/sensing/camera/{name}/image_raw"));
    let members: Vec<String> = topics
        .iter()
        .map(|topic| format!("{{ topic: {topic}, sensor: camera }}"))
        .collect();
    let text = format!(
        "pipeline: around\ndevice: {{ threads: 1, queues: 2, arena_mib: 16 }}\nmodels:\n  squares: {{ type: yolox, weights: \
         squares.onnx, preprocess: yolox_opencv, labels: colours.txt, score_threshold: 0.3, nms_threshold: 0.45 }}\nnodes:\n  \
         drive: {{ kind: source, simulate: {{ seconds: 0.6, cameras: three, camera_hz: 5 }}, clock: deterministic }}\n  \
         around: {{ kind: sync, input: drive, policy: exact, members: [{}, {{ topic: {POINTS_TOPIC}, sensor: lidar }}] }}\n  \
         eyes: {{ kind: detector, model: squares, input: drive }}\n  jsonl: {{ kind: jsonl, input: eyes, path: out.jsonl }}\n",
        members.join(", ")
    );
    std::fs::write(lab.path("around.yaml"), text).unwrap();
    let mut command = sensorium();
    let run = outcome(
        command
            .current_dir(lab.path(""))
            .args(["run", "around.yaml", "--format", "json"]),
    );
    assert_eq!(run.code, Some(0), "{run:?}");
    let streams = streams(&run);
    for topic in &topics {
        for node in ["eyes", "around"] {
            assert_eq!(streams[&format!("{node} {topic}")], [3, 3, 0], "{streams:?}");
        }
    }
    // Every second sweep has no images: those sets are partial.
    assert_eq!(
        streams[&format!("around {POINTS_TOPIC}")],
        [6, 6, 0],
        "{streams:?}"
    );
}

#[test]
fn members_that_nobody_plays_or_that_are_no_clouds_are_refused() {
    let lab = Lab::new();
    bag(&lab, 1, |_, _| ());
    for (from, to, words) in [
        (
            "/lidar/right",
            "/lidar/rear",
            "member /lidar/rear comes from none of its sources",
        ),
        (
            "{ topic: /lidar/left }",
            "{ topic: /lidar/left, sensor: camera }",
            "should send images, and sends point clouds",
        ),
    ] {
        let done = run(&lab, &HALVES.replace(from, to), &[]);
        assert!(done.code != Some(0) && done.told.contains(words), "{done:?}");
    }
}
