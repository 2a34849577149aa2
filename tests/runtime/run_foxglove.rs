//! The live server for Foxglove, as an independent client sees it: Python's websockets and Protobuf, by the schemas that
//! the server sends.

use crate::support;
use crate::tiny;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

use sensorium::image::{Image, PixelFormat};
use sensorium::io::bag::Bag;
use sensorium::io::messages::{PointCloud2Msg, TfMsg};
use serde_json::Value;
use tiny::{Lab, await_end, film};

const PERIOD_NS: u64 = 20_000_000;

/// Where a started run waits for Foxglove.
fn url_of(run: &mut Child) -> String {
    let told = run.stderr.as_mut().unwrap();
    let mut line = String::new();
    loop {
        line.clear();
        // Byte by byte, so that what follows is still there for whoever reads the rest.
        let read = BufReader::with_capacity(1, &mut *told)
            .read_line(&mut line)
            .unwrap();
        assert_ne!(read, 0, "the run ended before it listened");
        if let Some(start) = line.find("ws://") {
            return line[start..].trim().to_owned();
        }
    }
}

/// A client that has connected.
struct Client {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Client {
    fn connect(mut oracle: Command, url: &str, options: &[&str]) -> Self {
        let mut child = oracle
            .arg(url)
            .args(options)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let hello: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert!(
            hello["server"].as_str().unwrap().starts_with("sensorium "),
            "{hello}"
        );
        Self { child, lines }
    }

    fn next(&mut self) -> Option<Value> {
        self.lines
            .next()
            .map(|line| serde_json::from_str(&line.unwrap()).unwrap())
    }

    /// All that comes until the server goes.
    fn rest(mut self) -> Vec<Value> {
        let lines = std::iter::from_fn(|| self.next()).collect();
        assert!(self.child.wait().unwrap().success());
        lines
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Messages of a topic, by stamp; none comes twice.
fn of_topic<'a>(messages: &'a [Value], topic: &str, schema: &str) -> BTreeMap<u64, &'a Value> {
    let mut found = BTreeMap::new();
    for message in messages.iter().filter(|message| message["topic"] == topic) {
        assert_eq!(message["schema"], schema, "{topic}");
        assert_eq!(message["stamp_ns"], message["log_time"], "{topic}");
        let stamp_ns = message["stamp_ns"].as_u64().unwrap();
        assert!(
            found.insert(stamp_ns, &message["message"]).is_none(),
            "{topic} at {stamp_ns} twice"
        );
    }
    found
}

/// Lines of a stream, by stamp.
fn lines_of<'a>(lines: &'a [Value], stream: &str) -> BTreeMap<u64, &'a Value> {
    let own = lines.iter().filter(|line| line["stream"] == stream);
    own.map(|line| (line["stamp_ns"].as_u64().unwrap(), line))
        .collect()
}

/// Results that the viewer's publisher did not take, as the run says.
fn untaken(outcome: &tiny::Outcome) -> usize {
    let drops = outcome.drops();
    let own = drops.iter().filter(|(place, ..)| place == "foxglove");
    own.map(|(_, _, count)| *count as usize).sum()
}

/// Asserts that from the first message on, there is one for each line but those that the run says it has not shown; the
/// last one may have been on its way when the server went.
fn from_the_first_on<T, U>(
    messages: &BTreeMap<u64, T>,
    lines: &BTreeMap<u64, U>,
    (least, untaken): (usize, usize),
) {
    let first = messages.keys().next().expect("messages came");
    let last = lines.keys().next_back().unwrap();
    let missed: Vec<&u64> = lines
        .range(first..last)
        .map(|(stamp, _)| stamp)
        .filter(|stamp| !messages.contains_key(stamp))
        .collect();
    assert!(
        missed.len() <= untaken,
        "of {} came {}: {missed:?}",
        lines.len(),
        messages.len()
    );
    assert!(messages.keys().all(|stamp| lines.contains_key(stamp)));
    assert!(messages.len() >= least, "{} messages", messages.len());
}

fn numbers(point: &Value, keys: &[&str]) -> Vec<f64> {
    keys.iter().map(|key| point[key].as_f64().unwrap()).collect()
}

#[test]
fn images_and_their_boxes_arrive_as_they_are_in_the_json_lines() {
    let Some(oracle) = support::oracle("foxglove_client.py") else {
        return;
    };
    let lab = Lab::new();
    let mut frames = film("/front", 400, PERIOD_NS);
    frames.extend((0..400).map(|i| tiny::raw("/rear", i as u64 * PERIOD_NS, &tiny::numbered(i).0)));
    frames.sort_by_key(|frame| frame.time_ns);
    lab.bag(&frames);
    let mut run = lab.start(&["--rate", "1", "--jsonl", "out.jsonl", "--foxglove", "127.0.0.1:0"]);
    let url = url_of(&mut run);
    let messages = Client::connect(oracle, &url, &[]).rest();
    let outcome = await_end(run);
    assert_eq!(
        (outcome.code, outcome.frames()),
        (Some(0), [800, 800, 0, 0]),
        "{outcome:?}"
    );
    let lines = lab.lines("out.jsonl");

    for (stream, schema) in [
        ("/front", "foxglove.CompressedImage"),
        ("/rear", "foxglove.RawImage"),
    ] {
        let lines = lines_of(&lines, stream);
        let images = of_topic(&messages, stream, schema);
        from_the_first_on(&images, &lines, (60, untaken(&outcome)));
        let boxes = of_topic(
            &messages,
            &format!("{stream}/detections"),
            "foxglove.ImageAnnotations",
        );
        from_the_first_on(&boxes, &lines, (60, untaken(&outcome)));
        for (stamp, message) in boxes {
            let detections = lines[&stamp]["detections"].as_array().unwrap();
            let shown = message["points"].as_array().unwrap();
            assert_eq!((shown.len(), detections.len()), (1, 1), "{message}");
            let corners = shown[0]["points"].as_array().unwrap();
            let corners: Vec<Vec<f64>> = corners
                .iter()
                .map(|corner| numbers(corner, &["x", "y"]))
                .collect();
            let edges: Vec<f64> = detections[0]["box_xyxy"]
                .as_array()
                .unwrap()
                .iter()
                .map(|e| e.as_f64().unwrap())
                .collect();
            let [left, top, right, bottom] = edges[..] else {
                panic!("{edges:?}")
            };
            assert_eq!(
                corners,
                [[left, top], [right, top], [right, bottom], [left, bottom]]
            );
            assert_eq!(shown[0]["type"], "LINE_LOOP");
            let told = |key: &str| {
                let pairs = shown[0]["metadata"].as_array().unwrap();
                pairs.iter().find(|pair| pair["key"] == key).unwrap()["value"]
                    .as_str()
                    .unwrap()
                    .to_owned()
            };
            assert_eq!(told("label"), detections[0]["label"].as_str().unwrap());
            let score: f64 = told("score").parse().unwrap();
            assert!((score - detections[0]["score"].as_f64().unwrap()).abs() < 1e-6);
            assert!(
                message["texts"][0]["text"]
                    .as_str()
                    .unwrap()
                    .starts_with("red 0.96")
            );
        }
        for (stamp, image) in images {
            let i = ((stamp - tiny::START_NS) / PERIOD_NS) as usize;
            let (picture, _) = tiny::numbered(i);
            assert_eq!(image["frame_id"], "camera");
            match stream {
                "/front" => assert_eq!(image["format"], "png"),
                _ => {
                    let sum: u64 = picture.data().iter().map(|&byte| u64::from(byte)).sum();
                    let said =
                        ["width", "height", "step", "bytes", "sum"].map(|key| image[key].as_u64().unwrap());
                    assert_eq!(
                        (said, &image["encoding"]),
                        ([64, 64, 192, 64 * 64 * 3, sum], &"rgb8".into())
                    );
                }
            }
        }
    }
}

#[test]
fn a_client_that_reads_nothing_stalls_no_stream() {
    let Some(oracle) = support::oracle("foxglove_client.py") else {
        return;
    };
    let lab = Lab::new();
    // Together far more than any socket holds: 300 images of 3 MB.
    let side = 1_000;
    let image = Image::new(vec![60; side * side * 3], side, side, PixelFormat::Rgb8).unwrap();
    let frames: Vec<tiny::Frame> = (0..300)
        .map(|i| tiny::raw("/camera", i * PERIOD_NS, &image))
        .collect();
    lab.bag(&frames);
    let mut run = lab.start(&["--rate", "1", "--jsonl", "out.jsonl", "--foxglove", "127.0.0.1:0"]);
    let url = url_of(&mut run);
    let mut client = Client::connect(oracle, &url, &["--stall"]);
    assert_eq!(client.next().unwrap()["stalled"], true);
    let outcome = await_end(run);
    drop(client);
    assert_eq!(
        (outcome.code, outcome.frames()),
        (Some(0), [300, 300, 0, 0]),
        "{outcome:?}"
    );
    assert_eq!(lab.lines("out.jsonl").len(), 300);
}

#[test]
fn sweeps_boxes_in_space_and_transforms_of_a_drive_arrive() {
    let Some(oracle) = support::oracle("foxglove_client.py") else {
        return;
    };
    let lab = Lab::new();
    let demo = concat!(env!("CARGO_MANIFEST_DIR"), "/pipelines/demo.yaml");
    let mut command = tiny::sensorium();
    command
        .current_dir(lab.path(""))
        .args(["run", demo, "--format", "json", "--foxglove", "127.0.0.1:0"]);
    command.args(["--jsonl", "out.jsonl", "--record", "out.mcap", "--rate", "0.2"]);
    command.args([
        "--set",
        "nodes.drive.simulate.seconds=2",
        "--set",
        "nodes.drive.deadline_ms=60000",
    ]);
    let mut run = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let url = url_of(&mut run);
    let messages = Client::connect(oracle, &url, &[]).rest();
    let outcome = await_end(run);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let lines = lab.lines("out.jsonl");
    let sweeps: Vec<&Value> = lines.iter().filter(|line| line["objects"].is_array()).collect();
    let stream = sweeps[0]["stream"].as_str().unwrap();
    let lines = lines_of(&lines, stream);
    let boxes = of_topic(&messages, &format!("{stream}/detections"), "foxglove.SceneUpdate");
    from_the_first_on(&boxes, &lines, (5, untaken(&outcome)));
    let mut objects_seen = 0;
    for (stamp, message) in &boxes {
        let objects = lines[stamp]["objects"].as_array().unwrap();
        assert_eq!(message["deletions"][0]["type"], "ALL");
        let entities = message["entities"].as_array().map_or(&[][..], Vec::as_slice);
        assert_eq!(entities.len(), objects.len());
        for (entity, object) in entities.iter().zip(objects) {
            objects_seen += 1;
            let cube = &entity["cubes"][0];
            let near = |shown: Vec<f64>, told: &Value| {
                let told = told.as_array().unwrap().iter().map(|v| v.as_f64().unwrap());
                assert!(
                    shown.iter().zip(told).all(|(a, b)| (a - b).abs() < 1e-9),
                    "{entity} {object}"
                );
            };
            near(
                numbers(&cube["pose"]["position"], &["x", "y", "z"]),
                &object["position_m"],
            );
            near(numbers(&cube["size"], &["x", "y", "z"]), &object["size_m"]);
            let turned = &cube["pose"]["orientation"];
            let [z, w] = numbers(turned, &["z", "w"])[..] else {
                panic!()
            };
            let yaw = object["yaw_rad"].as_f64().unwrap();
            assert!((2.0 * z * w - yaw.sin()).abs() < 1e-9 && (w * w - z * z - yaw.cos()).abs() < 1e-9);
            assert_eq!(entity["metadata"][0]["value"], object["label"]);
        }
    }
    assert!(objects_seen > 10, "{objects_seen}");

    // The recording holds the same sweeps.
    let clouds = of_topic(&messages, stream, "foxglove.PointCloud");
    from_the_first_on(&clouds, &lines, (5, untaken(&outcome)));
    let bag = Bag::open(&lab.path("out.mcap")).unwrap();
    let mut compared = 0;
    for message in bag.messages(&[stream]).unwrap() {
        let message = message.unwrap();
        let cloud = PointCloud2Msg::decode(&message.data).unwrap();
        let Some(shown) = clouds.get(&(cloud.header.stamp_ns() as u64)) else {
            continue;
        };
        assert_eq!(
            shown["points"].as_u64(),
            Some(u64::from(cloud.width * cloud.height))
        );
        assert_eq!(shown["frame_id"], cloud.header.frame_id);
        for axis in ["x", "y", "z"] {
            let offset = cloud
                .fields
                .iter()
                .find(|field| field.name == axis)
                .unwrap()
                .offset as usize;
            let points = cloud.data.chunks_exact(cloud.point_step as usize);
            let sum: f64 = points
                .map(|point| f64::from(f32::from_le_bytes(point[offset..offset + 4].try_into().unwrap())))
                .sum();
            let told = shown["sums"][axis].as_f64().unwrap();
            assert!(
                (told - sum).abs() < 1e-6 * (1.0 + sum.abs()),
                "{axis}: {told} {sum}"
            );
        }
        compared += 1;
    }
    assert_eq!(compared, clouds.len());

    let moved = messages.iter().filter(|message| message["topic"] == "/tf");
    let moved: Vec<&Value> = moved
        .map(|message| &message["message"]["transforms"][0])
        .collect();
    assert!(moved.len() >= 5, "{}", moved.len());
    let mut recorded = BTreeMap::new();
    for message in bag.messages(&["/tf", "/tf_static"]).unwrap() {
        let message = message.unwrap();
        for transform in TfMsg::decode(&message.data).unwrap().transforms {
            let placed = transform.transform.translation;
            recorded.insert(
                (transform.header.stamp_ns(), transform.child_frame_id.to_owned()),
                [placed.x, placed.y, placed.z],
            );
        }
    }
    for transform in moved {
        let stamp = messages
            .iter()
            .find(|message| &message["message"]["transforms"][0] == transform)
            .unwrap();
        let key = (
            stamp["stamp_ns"].as_i64().unwrap(),
            transform["child_frame_id"].as_str().unwrap().to_owned(),
        );
        let placed = numbers(&transform["translation"], &["x", "y", "z"]);
        let known = recorded
            .get(&key)
            .unwrap_or_else(|| panic!("{key:?} of {recorded:?}"));
        assert!(
            known.iter().zip(&placed).all(|(a, b)| (a - b).abs() < 1e-9),
            "{transform}"
        );
    }
}

#[test]
fn that_others_can_look_is_told() {
    let lab = Lab::new();
    lab.bag(&film("/front", 2, PERIOD_NS));
    for (address, others) in [("127.0.0.1:0", false), ("0.0.0.0:0", true)] {
        let run = lab.run(&["--foxglove", address]);
        assert_eq!(run.code, Some(0), "{run:?}");
        assert_eq!(
            run.told
                .contains("everyone who reaches 0.0.0.0:0 can see what the sensors see"),
            others,
            "{run:?}"
        );
    }
}

#[test]
fn a_publisher_of_the_file_listens_where_it_says_and_wrong_keys_are_told() {
    let lab = Lab::new();
    lab.bag(&film("/camera", 5, PERIOD_NS));
    let file = std::fs::read_to_string(lab.path("tiny.yaml")).unwrap();
    let with = |publisher: &str| {
        let node = format!(
            "\n  viewer: {{ kind: publisher, transport: foxglove, input: detector{publisher} }}\nchannels:"
        );
        std::fs::write(lab.path("tiny.yaml"), file.replace("\nchannels:", &node)).unwrap();
        await_end(lab.start(&[]))
    };
    let run = with(", address: '127.0.0.1:0'");
    assert_eq!((run.code, run.frames()), (Some(0), [5, 5, 0, 0]), "{run:?}");
    assert!(
        run.told.contains("viewer waits for Foxglove at ws://127.0.0.1:"),
        "{}",
        run.told
    );
    let wrong = with(", address: somewhere");
    assert_eq!(wrong.code, Some(1));
    assert!(
        wrong.told.contains("\"somewhere\" is no address to listen on"),
        "{}",
        wrong.told
    );
    assert!(
        wrong
            .told
            .contains("expected ADDRESS:PORT, such as 127.0.0.1:8765"),
        "{}",
        wrong.told
    );
    let foreign = with(", key: a/b");
    assert!(
        foreign
            .told
            .contains("a publisher with transport `foxglove` has no `key`"),
        "{}",
        foreign.told
    );
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = with(&format!(", address: '{}'", taken.local_addr().unwrap()));
    assert_eq!(taken.code, Some(1));
    assert!(
        taken
            .told
            .contains("sink viewer: cannot listen for Foxglove on 127.0.0.1:"),
        "{}",
        taken.told
    );
}
