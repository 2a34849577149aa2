//! `sensorium bag play`: messages of a bag reach other processes on the ROS 2 graph, unchanged and in time.
#![cfg(unix)]

use crate::ros;
use crate::tiny;
use std::process::{Child, Command, Stdio};

use ros::{PATIENCE, endpoint, free_port, listen, session, settings, wait_for};
use sensorium::io::bag::Bag;
use sensorium::io::messages::{CLOCK_TYPE, ClockMsg, IMAGE_TYPE};
use sensorium::io::ros::zenoh::ZenohNode;
use sensorium::io::ros::{Qos, RosNode};
use tiny::{Lab, Outcome, await_end, found, numbered, outcome, sensorium};

const TOPIC: &str = "/camera/image";

/// `bag play` in the folder of a lab, listening on a port, in domain 42.
fn play(lab: &Lab, port: u16, arguments: &[&str]) -> Child {
    let mut command = play_command(lab, port, arguments);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn play_command(lab: &Lab, port: u16, arguments: &[&str]) -> Command {
    let mut command = sensorium();
    command
        .current_dir(lab.path(""))
        .args(["bag", "play", "bag.mcap", "--domain", "42", "--wait", "120"])
        .args(["--listen", &format!("tcp/127.0.0.1:{port}")])
        .args(arguments)
        .env("ZENOH_CONFIG_OVERRIDE", "connect/endpoints=[]");
    command
}

/// Raw pictures of numbered frames.
fn pictures(count: usize, period_ns: u64) -> Vec<tiny::Frame> {
    let picture = |i: usize| tiny::raw(TOPIC, i as u64 * period_ns, &numbered(i).0);
    (0..count).map(picture).collect()
}

#[test]
fn every_message_arrives_as_the_bag_has_it_with_the_clock_before_it() {
    let lab = Lab::new();
    let bag = lab.bag(&pictures(12, 20_000_000));
    let port = free_port();
    let node = ZenohNode::open(&settings("reader", session(None, Some(port)))).unwrap();
    let (_a, images) = listen(&node, &endpoint("/renamed", IMAGE_TYPE, Qos::reliable(10)));
    let (clock, ticks) = listen(&node, &endpoint("/clock", CLOCK_TYPE, Qos::reliable(10)));
    let player = play(&lab, port, &["--remap", "/camera/image:=/renamed", "--clock"]);
    wait_for("the player is there", || clock.has_publishers());
    let recorded: Vec<_> = Bag::open(&bag)
        .unwrap()
        .all_messages()
        .map(Result::unwrap)
        .collect();
    for message in &recorded {
        let received = images.recv_timeout(PATIENCE).unwrap();
        assert_eq!((received.data == message.data, received.missed_before), (true, 0));
        let tick = ticks.recv_timeout(PATIENCE).unwrap();
        let time_ns = ClockMsg::decode(&tick.data).unwrap().time_ns();
        assert_eq!(time_ns as u64, message.log_time_ns);
    }
    let played = await_end(player);
    assert_eq!(played.code, Some(0), "{played:?}");
    assert!(played.out.contains("played 12 messages"), "{played:?}");
    assert!(played.out.contains("12 of /clock"), "{played:?}");
    node.close().unwrap();
}

#[test]
fn a_bag_that_is_played_and_a_pipeline_that_runs_are_two_processes() {
    let lab = Lab::new();
    lab.bag(&pictures(20, 50_000_000));
    let port = free_port();
    let pipeline = format!(
        "\
pipeline: tiny
device: {{ threads: 1, queues: 2, arena_mib: 16 }}
ros2: {{ domain: 42, connect: ['tcp/127.0.0.1:{port}'], remap: {{ '~/in/image': {TOPIC} }} }}
models:
  squares:
    type: yolox
    weights: squares.onnx
    preprocess: yolox_opencv
    labels: colours.txt
    score_threshold: 0.3
    nms_threshold: 0.45
nodes:
  camera: {{ kind: source, subscribe: ros2, topics: ['~/in/image'] }}
  detector: {{ kind: detector, model: squares, input: camera }}
  objects: {{ kind: publisher, transport: ros2, input: detector, topic: '~/out/objects' }}
  jsonl: {{ kind: jsonl, input: detector, path: out.jsonl }}
"
    );
    std::fs::write(lab.path("live.yaml"), pipeline).unwrap();
    let run = sensorium()
        .current_dir(lab.path(""))
        .args(["run", "live.yaml", "--format", "json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let played = await_end(play(&lab, port, &[]));
    assert_eq!(played.code, Some(0), "{played:?}");
    wait_for("the last picture is through", || {
        let lines = lab.lines("out.jsonl");
        lines
            .last()
            .is_some_and(|line| found(line)[0].1 == numbered(19).1)
    });
    let sent = Command::new("kill")
        .args(["-INT", &run.id().to_string()])
        .status();
    assert!(sent.unwrap().success());
    let ran: Outcome = await_end(run);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let [came, out, dropped, lost] = ran.frames();
    // What is not there is told of.
    assert_eq!((came, lost, came), (20, 0, out + dropped), "{ran:?}");
    let lines = lab.lines("out.jsonl");
    assert_eq!(lines.len() as u64, out);
    let stamp = |i: u64| tiny::START_NS + i * 50_000_000;
    for line in &lines {
        let i = (0..20)
            .find(|i| line["stamp_ns"].as_u64() == Some(stamp(*i)))
            .unwrap();
        assert_eq!(found(line)[0].1, numbered(i as usize).1, "{line}");
    }
}

#[test]
fn what_was_latched_before_the_start_is_there_for_who_comes() {
    use sensorium::io::drive_bag::DriveBag;
    use sensorium::io::messages::TF_TYPE;
    use sensorium::io::recorder::RecordCompression;
    use sensorium::io::sim::{Drive, DriveConfig};

    let lab = Lab::new();
    let mut drive = Drive::new(&DriveConfig::default(), 3);
    let mut bag = DriveBag::create(&lab.path("bag.mcap"), RecordCompression::None, &[]).unwrap();
    for _ in 0..4 {
        bag.write(&drive.next_frame()).unwrap();
    }
    bag.finish().unwrap();
    let port = free_port();
    let node = ZenohNode::open(&settings("reader", session(None, Some(port)))).unwrap();
    let (_a, fixed) = listen(&node, &endpoint("/tf_static", TF_TYPE, Qos::latched(1)));
    let player = play(&lab, port, &["--start", "0.25", "--topics", "/tf,/tf_static"]);
    let bytes = fixed.recv_timeout(PATIENCE).unwrap().data;
    assert_eq!(
        sensorium::io::messages::TfMsg::decode(&bytes)
            .unwrap()
            .transforms
            .len(),
        1
    );
    let played = await_end(player);
    assert_eq!(played.code, Some(0), "{played:?}");
    assert!(played.out.contains("played 1 messages"), "{played:?}");
    assert!(
        played.out.contains("1 latched ones from before the start"),
        "{played:?}"
    );
    node.close().unwrap();
}

#[test]
fn what_cannot_be_played_is_told_before_anything_is_sent() {
    let lab = Lab::new();
    lab.bag(&pictures(2, 50_000_000));
    for (arguments, told) in [
        (&["--topics", "/no"][..], "the bag has no topic /no"),
        (&["--start", "100"][..], "the start lies 100.000 s into the bag"),
        (
            &["--remap", "/no:=/x"][..],
            "/no is to be renamed but is not played",
        ),
        (&["--connect", "nowhere"][..], "connect/endpoints"),
    ] {
        let refused = outcome(&mut play_command(&lab, free_port(), arguments));
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(refused.told.contains(told), "{told}: {refused:?}");
    }
    let wrong = outcome(&mut play_command(&lab, free_port(), &["--rate", "0"]));
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
}
