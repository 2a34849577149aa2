//! `sensorium run` from outside: a bag in, detections out on every sink.

use crate::support;
use crate::tiny;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use sensorium::image::{encode_jpeg, encode_png};
use sensorium::io::bag::Bag;
use serde_json::Value;
use tiny::{Lab, Outcome, START_NS, found, outcome, picture, sensorium};

const PERIOD_NS: u64 = 100_000_000;

/// Three frames with one square of each class, as three kinds of message.
fn three_frames() -> Vec<tiny::Frame> {
    let red = picture(&[(2, [8, 16]), (2, [48, 56])]);
    let green = picture(&[(1, [32, 16])]);
    let blue = picture(&[(0, [32, 0])]);
    vec![
        tiny::raw("/camera/image", 0, &red),
        tiny::raw_as("/camera/image", PERIOD_NS, &green, |_| {}),
        tiny::raw("/camera/image", 2 * PERIOD_NS, &blue),
    ]
}

fn yolox_yaml() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("pipelines/yolox.yaml")
}

/// `sensorium run pipelines/yolox.yaml` in fp32 with the public weights, without a network.
fn yolox(bag: &Path, folder: &Path, arguments: &[&str]) -> Option<Outcome> {
    let model = support::data("models/yolox_nano_416.onnx")?;
    let mut command = sensorium();
    command.current_dir(folder).arg("run").arg(yolox_yaml());
    command.arg("--model").arg(model).arg("--bag").arg(bag);
    command.args(["--format", "json", "--rate", "max"]);
    // Runs of other tests on this machine need not hear of this one.
    command.args(["--set", "nodes.zenoh.connect=[tcp/127.0.0.1:1]"]);
    Some(outcome(command.args(arguments)))
}

fn read_back(path: &Path) -> Option<Vec<Value>> {
    let output = support::run(support::oracle("read_bag.py")?.arg("mcap").arg(path));
    Some(tiny::json_lines(&String::from_utf8(output).unwrap()))
}

#[test]
fn squares_in_a_bag_come_out_as_json_lines_of_the_documented_form() {
    let lab = Lab::new();
    lab.bag(&three_frames());
    let run = lab.run(&["--jsonl", "out.jsonl", "--no-latency"]);
    assert_eq!((run.code, run.told.as_str()), (Some(0), ""));
    assert_eq!(run.frames(), [3, 3, 0, 0]);
    let lines = lab.lines("out.jsonl");
    let named = |name: &str, square: [f64; 4]| (name.to_owned(), square);
    assert_eq!(
        lines.iter().map(found).collect::<Vec<_>>(),
        [
            vec![
                named("red", [8.0, 16.0, 16.0, 24.0]),
                named("red", [48.0, 56.0, 56.0, 64.0])
            ],
            vec![named("green", [32.0, 16.0, 48.0, 32.0])],
            vec![named("blue", [32.0, 0.0, 64.0, 32.0])],
        ]
    );
    // Fields in their documented order, and nothing else.
    let text = std::fs::read_to_string(lab.path("out.jsonl")).unwrap();
    let second = text.lines().nth(1).unwrap();
    let score = lines[1]["detections"][0]["score"].to_string();
    assert_eq!(
        second.replace(&score, "S"),
        concat!(
            r#"{"stream":"/camera/image","seq":1,"stamp_ns":1700000000100000000,"frame_id":"camera","#,
            r#""detections":[{"label":"green","label_id":1,"score":S,"box_xyxy":[32.0,16.0,48.0,32.0]}],"#,
            r#""dropped_before":0}"#
        )
    );
}

#[test]
fn weights_of_any_format_find_the_same_squares() {
    let lab = Lab::new();
    lab.bag(&three_frames());
    // The weights of this network are two magnitudes that every format but the shortest tells well.
    for format in ["bf16", "fp16", "bfp8"] {
        let set = format!("models.squares.weight_format={format}");
        let run = lab.run(&["--jsonl", "out.jsonl", "--set", &set]);
        assert_eq!((run.code, run.told.as_str()), (Some(0), ""), "{format}");
        let boxes: Vec<Vec<Value>> = lab
            .lines("out.jsonl")
            .iter()
            .map(|line| {
                let detections = line["detections"].as_array().unwrap().iter();
                detections.map(|d| d["box_xyxy"].clone()).collect()
            })
            .collect();
        assert_eq!(
            serde_json::json!(boxes),
            serde_json::json!([
                [[8.0, 16.0, 16.0, 24.0], [48.0, 56.0, 56.0, 64.0]],
                [[32.0, 16.0, 48.0, 32.0]],
                [[32.0, 0.0, 64.0, 32.0]],
            ]),
            "{format}"
        );
        let told = run.summary().to_string();
        assert!(told.contains(&format!("fp32, weights {format}")), "{told}");
    }
}

#[test]
fn the_environment_changes_the_device_of_a_run_and_the_summary_says_what_was_used() {
    let lab = Lab::new();
    lab.bag(&three_frames());
    let mut command = lab.command(&["--set", "device.trace_region_mib=2"]);
    let run = outcome(command.envs([
        ("SENSORIUM_DEVICE_QUEUES", "1"),
        ("SENSORIUM_DEVICE_TRACE_REGION_MIB", "8"),
    ]));
    assert_eq!(run.frames(), [3, 3, 0, 0]);
    let device = &run.summary()["run"]["device_details"];
    assert_eq!(
        (&device["requested"], &device["used"], &device["fallback"]),
        (&"cpu".into(), &"cpu".into(), &Value::Null)
    );
    assert_eq!(device["queues"], 1, "the environment changes what the file says");
    assert_eq!(
        device["trace_region"]["bytes"],
        2 << 20,
        "and the command line what the environment says"
    );
    assert!(
        device["trace_region"]["used"].as_u64() > Some(0) && device["programs"].as_u64() > Some(0),
        "{device}"
    );

    let mut command = lab.command(&["--jsonl", "none.jsonl"]);
    let refused = outcome(command.env("SENSORIUM_DEVICE_THREADS", "0"));
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.told.contains(
            "SENSORIUM_DEVICE_THREADS cannot be `0`: expected `auto`, or a whole number from 1 to 256"
        ),
        "{refused:?}"
    );
    let mut command = lab.command(&["--jsonl", "none.jsonl"]);
    let refused = outcome(command.env("SENSORIUM_DEVICE_BACKEND", "sim"));
    assert!(
        refused.code == Some(1)
            && refused
                .told
                .contains("the sim device works only while it is called"),
        "{refused:?}"
    );
    assert!(!lab.path("none.jsonl").exists());
}

#[test]
fn latencies_of_the_stages_add_up_to_the_total() {
    let lab = Lab::new();
    lab.bag(&three_frames());
    let run = lab.run(&["--jsonl", "out.jsonl"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let text = std::fs::read_to_string(lab.path("out.jsonl")).unwrap();
    for (line, parsed) in text.lines().zip(lab.lines("out.jsonl")) {
        let keys = [
            "stream",
            "seq",
            "stamp_ns",
            "frame_id",
            "detections",
            "latency_us",
            "ingest",
            "prepare",
            "upload",
            "replay",
            "readback",
            "finish",
            "total",
            "dropped_before",
        ];
        let places: Vec<usize> = keys
            .iter()
            .map(|key| {
                line.find(&format!("\"{key}\":"))
                    .unwrap_or_else(|| panic!("{key} in {line}"))
            })
            .collect();
        assert!(places.is_sorted(), "{line}");
        let latency = parsed["latency_us"].as_object().unwrap();
        let us = |key: &str| latency[key].as_f64().unwrap();
        let sum: f64 = latency
            .keys()
            .filter(|key| *key != "total")
            .map(|key| us(key))
            .sum();
        assert!(us("total") > 0.0 && us("total") < 30e6, "{line}");
        assert!((sum - us("total")).abs() < 0.01, "{sum} in {line}");
    }
}

#[test]
fn every_kind_of_image_message_gives_the_same_detections() {
    let lab = Lab::new();
    let image = picture(&[(2, [8, 16]), (1, [32, 32]), (0, [32, 0])]);
    let png = encode_png(&image.view()).unwrap();
    let jpeg = encode_jpeg(&image.view(), 100).unwrap();
    let mut padded = Vec::new();
    for y in 0..image.height() {
        padded.extend_from_slice(image.view().row(y));
        padded.extend([255; 64]);
    }
    let bgr: Vec<u8> = image.data().chunks(3).flat_map(|p| [p[2], p[1], p[0]]).collect();
    let rgba: Vec<u8> = image
        .data()
        .chunks(3)
        .flat_map(|p| [p[0], p[1], p[2], 9])
        .collect();
    let frames = [
        tiny::raw("/c", 0, &image),
        tiny::compressed("/c/compressed", 1, "rgb8; png compressed ", &png),
        // A format text that is wrong does not matter: the file says what it is.
        tiny::compressed("/c/compressed", 2, "png", &jpeg),
        tiny::raw_as("/c", 3, &image, |m| {
            (m.step, m.data) = (m.step + 64, &padded);
        }),
        tiny::raw_as("/c", 4, &image, |m| (m.encoding, m.data) = ("bgr8", &bgr)),
        tiny::raw_as("/c", 5, &image, |m| (m.encoding, m.data) = ("8UC3", &bgr)),
        tiny::raw_as("/c", 6, &image, |m| {
            (m.encoding, m.data, m.step) = ("rgba8", &rgba, 64 * 4);
        }),
    ];
    lab.bag(&frames);
    let run = lab.run(&["--jsonl", "out.jsonl"]);
    assert_eq!((run.code, run.frames()), (Some(0), [7, 7, 0, 0]), "{run:?}");
    let mut wanted = vec![
        ("blue".to_owned(), [32.0, 0.0, 64.0, 32.0]),
        ("green".to_owned(), [32.0, 32.0, 48.0, 48.0]),
        ("red".to_owned(), [8.0, 16.0, 16.0, 24.0]),
    ];
    wanted.sort_by(|a, b| a.0.cmp(&b.0));
    for line in lab.lines("out.jsonl") {
        let mut found: Vec<_> = line["detections"]
            .as_array()
            .unwrap()
            .iter()
            .map(|d| {
                let edges: Vec<f64> = serde_json::from_value(d["box_xyxy"].clone()).unwrap();
                (d["label"].as_str().unwrap().to_owned(), edges.try_into().unwrap())
            })
            .collect::<Vec<(String, [f64; 4])>>();
        found.sort_by(|a, b| a.0.cmp(&b.0));
        assert_eq!(found, wanted, "{line}");
    }
}

#[test]
fn a_recording_holds_the_messages_of_the_bag_and_a_box_for_each_detection() {
    let lab = Lab::new();
    let bag = lab.bag(&three_frames());
    let run = lab.run(&["--record", "tape.mcap", "--jsonl", "out.jsonl"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let read = |path: &Path, topic: &str| -> Vec<(u64, Vec<u8>)> {
        let bag = Bag::open(path).unwrap();
        let messages = bag.messages(&[topic]).unwrap().map(Result::unwrap);
        messages.map(|m| (m.log_time_ns, m.data)).collect()
    };
    let tape = lab.path("tape.mcap");
    assert!(read(&tape, "/camera/image") == read(&bag, "/camera/image"));
    let boxes = read(&tape, "/camera/image/detections");
    let counts: Vec<usize> = boxes
        .iter()
        .map(|(_, json)| {
            let annotations: Value = serde_json::from_slice(json).unwrap();
            let list = |key: &str| annotations[key].as_array().unwrap().len();
            assert_eq!(list("points"), list("texts"));
            list("points")
        })
        .collect();
    assert_eq!(counts, [2, 1, 1]);

    let Some(messages) = read_back(&tape) else { return };
    assert_eq!(messages.len(), 6);
    let annotations: Vec<&Value> = messages.iter().filter(|m| m["encoding"] == "json").collect();
    assert_eq!(annotations[0]["type"], "foxglove.ImageAnnotations");
    assert_eq!(annotations[0]["json"]["texts"][0]["text"], "red 0.96");
    assert_eq!(annotations[1]["publish_time"], START_NS + PERIOD_NS);
    let corner = &annotations[2]["json"]["points"][0]["points"][2];
    assert_eq!((&corner["x"], &corner["y"]), (&64.0.into(), &32.0.into()));
}

#[test]
fn a_recording_is_a_bag_that_can_be_run_again() {
    let lab = Lab::new();
    lab.bag(&three_frames());
    let first = lab.run(&["--record", "tape.mcap", "--jsonl", "a.jsonl", "--no-latency"]);
    let again = lab.run(&["--bag", "tape.mcap", "--jsonl", "b.jsonl", "--no-latency"]);
    assert_eq!((first.code, again.code), (Some(0), Some(0)), "{again:?}");
    let read = |name: &str| std::fs::read_to_string(lab.path(name)).unwrap();
    assert_eq!(read("a.jsonl"), read("b.jsonl"));
}

#[test]
fn a_grey_image_has_no_detections_and_still_a_line() {
    let lab = Lab::new();
    lab.bag(&[tiny::raw("/camera/image", 0, &picture(&[]))]);
    let run = lab.run(&["--jsonl", "out.jsonl"]);
    assert_eq!((run.code, run.frames()), (Some(0), [1, 1, 0, 0]), "{run:?}");
    assert_eq!(found(&lab.lines("out.jsonl")[0]), []);
}

#[test]
fn a_paced_run_takes_the_time_of_the_bag_over_the_rate() {
    let lab = Lab::new();
    lab.bag(&tiny::film("/camera/image", 21, PERIOD_NS));
    let started = Instant::now();
    let run = lab.run(&["--rate", "4", "--jsonl", "out.jsonl"]);
    assert_eq!((run.code, run.frames()), (Some(0), [21, 21, 0, 0]), "{run:?}");
    // Two seconds of bag at four times the speed; never faster, and slower only by what a busy machine costs.
    let took = started.elapsed();
    assert!(
        took >= Duration::from_millis(500) && took < Duration::from_secs(20),
        "{took:?}"
    );
    assert_eq!(run.summary()["run"]["rate"], 4.0);
}

#[test]
fn a_report_is_whole_and_loads_nothing() {
    let lab = Lab::new();
    lab.bag(&three_frames());
    let run = lab.run(&["--report", "out/report"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let read = |name: &str| std::fs::read_to_string(lab.path("out/report").join(name)).unwrap();
    let summary: Value = serde_json::from_str(&read("report.json")).unwrap();
    assert_eq!(summary["frames"], run.summary()["frames"]);
    assert!(read("timeline.svg").starts_with("<svg") || read("timeline.svg").starts_with("<?xml"));
    let page = read("report.html");
    assert!(page.contains("red 0.96") && page.contains("data:image/jpeg;base64,"));
    for reference in [
        "src=\"http",
        "href=\"http",
        "url(http",
        "@import",
        "<script src",
        "<link",
    ] {
        assert!(!page.contains(reference), "{reference}");
    }
}

#[test]
fn the_summary_is_a_table_for_people() {
    let lab = Lab::new();
    lab.bag(&three_frames());
    let mut command = sensorium();
    command
        .current_dir(lab.path(""))
        .args(["run", "tiny.yaml", "--bag", "bag.mcap"]);
    let run = outcome(&mut command);
    assert_eq!(run.code, Some(0), "{run:?}");
    for word in [
        "p50",
        "p99.9",
        "prepare",
        "replay",
        "3 frames in",
        "/camera/image",
    ] {
        assert!(run.out.contains(word), "{word} in {}", run.out);
    }
}

/// An endpoint that nobody listens on.
fn free_endpoint() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    format!("tcp/{}", listener.local_addr().unwrap())
}

/// A pipeline with a publisher that connects to an endpoint, and nothing else.
fn publishing_lab(endpoint: &str, count: usize) -> Lab {
    let lab = Lab::new();
    let text = std::fs::read_to_string(lab.path("tiny.yaml")).unwrap();
    let publisher = format!(
        "nodes:\n  air: {{ kind: publisher, transport: zenoh, input: detector, connect: ['{endpoint}'] }}\n"
    );
    std::fs::write(lab.path("tiny.yaml"), text.replace("nodes:\n", &publisher)).unwrap();
    // A little less than the whole at first, so that the subscription is known before the last frames.
    lab.bag(&tiny::film("/front/image", count, PERIOD_NS));
    lab
}

/// What a subscriber received must be what the file of JSON lines says.
fn check_published(lab: &Lab, received: &[(String, String)], count: usize) {
    let file = std::fs::read_to_string(lab.path("out.jsonl")).unwrap();
    let lines: Vec<&str> = file.lines().collect();
    assert_eq!((lines.len(), received.len()), (count, count));
    for ((key, payload), line) in received.iter().zip(lines) {
        assert_eq!(key, "sensorium/tiny/air/front/image/detections");
        assert_eq!(payload, line);
    }
}

#[test]
fn a_zenoh_subscriber_receives_every_result() {
    const COUNT: usize = 10;
    let endpoint = free_endpoint();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let received = runtime.block_on(async {
        let mut config = zenoh::Config::default();
        config
            .insert_json5("listen/endpoints", &format!("[\"{endpoint}\"]"))
            .unwrap();
        config
            .insert_json5("scouting/multicast/enabled", "false")
            .unwrap();
        let session = zenoh::open(config).await.unwrap();
        let subscriber = session.declare_subscriber("sensorium/tiny/**").await.unwrap();
        let lab = publishing_lab(&endpoint, COUNT);
        let run = tokio::task::block_in_place(|| lab.run(&["--jsonl", "out.jsonl", "--no-latency"]));
        assert_eq!((run.code, run.frames()), (Some(0), [10, 10, 0, 0]), "{run:?}");
        let mut received = Vec::new();
        while received.len() < COUNT {
            let sample = tokio::time::timeout(Duration::from_secs(10), subscriber.recv_async()).await;
            let sample = sample.unwrap_or_else(|_| panic!("only {received:?}")).unwrap();
            assert_eq!(sample.encoding(), &zenoh::bytes::Encoding::APPLICATION_JSON);
            let payload = sample.payload().try_to_string().unwrap().into_owned();
            received.push((sample.key_expr().to_string(), payload));
        }
        check_published(&lab, &received, COUNT);
        received
    });
    assert_eq!(received.len(), COUNT);
}

#[test]
fn the_python_package_of_zenoh_receives_every_result() {
    const COUNT: usize = 10;
    let Some(mut oracle) = support::oracle("subscribe.py") else {
        return;
    };
    let endpoint = free_endpoint();
    let mut subscriber = oracle
        .args([&endpoint, "sensorium/tiny/**", &COUNT.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (tell, told) = mpsc::channel();
    let output = BufReader::new(subscriber.stdout.take().unwrap());
    let reader = std::thread::spawn(move || {
        for line in output.lines() {
            tell.send(line.unwrap()).unwrap();
        }
    });
    assert_eq!(told.recv_timeout(Duration::from_secs(60)).unwrap(), "ready");
    let lab = publishing_lab(&endpoint, COUNT);
    let run = lab.run(&["--jsonl", "out.jsonl", "--no-latency"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(subscriber.wait().unwrap().success());
    reader.join().unwrap();
    let received: Vec<(String, String)> = told
        .iter()
        .map(|line| {
            let (key, payload) = line.split_once('\t').unwrap();
            (key.to_owned(), payload.to_owned())
        })
        .collect();
    check_published(&lab, &received, COUNT);
}

/// Label and score of each detection of a line.
fn scored(line: &Value) -> Vec<(String, f64)> {
    let detections = line["detections"].as_array().unwrap();
    let each = detections.iter().map(|d| {
        (
            d["label"].as_str().unwrap().to_owned(),
            d["score"].as_f64().unwrap(),
        )
    });
    each.collect()
}

#[test]
fn photos_become_a_bag_and_the_objects_in_them_are_found() {
    let Some(photos) = support::data("camera/photos") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let bag = folder.path().join("out/p.mcap");
    let made = support::run(
        sensorium()
            .args(["bag", "from-images"])
            .arg(&photos)
            .arg("--out")
            .arg(&bag)
            .args(["--hz", "5"]),
    );
    assert!(String::from_utf8(made).unwrap().contains("7 images"));
    let outputs = ["--jsonl", "p.jsonl", "--report", "report", "--record", "r.mcap"];
    let Some(run) = yolox(&bag, folder.path(), &outputs) else {
        return;
    };
    assert_eq!((run.code, run.frames()), (Some(0), [7, 7, 0, 0]), "{run:?}");
    let lines = tiny::json_lines(&std::fs::read_to_string(folder.path().join("p.jsonl")).unwrap());
    let mut names: Vec<String> = std::fs::read_dir(&photos)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let of = |name: &str| scored(&lines[names.iter().position(|n| n == name).unwrap()]);
    // Measured with ONNX Runtime after OpenCV's decoding and resize. The JPEG decoders differ by a few levels in
    // a pixel, which moves these scores by up to 0.0022; on equal pixels they are equal (`network.rs`).
    let dog = of("dog.jpg");
    for (label, score) in [("dog", 0.855), ("bicycle", 0.803), ("car", 0.798)] {
        let found = dog.iter().any(|(l, s)| l == label && (s - score).abs() <= 0.003);
        assert!(found, "{label} {score} in {dog:?}");
    }
    let people = of("peds_0.jpg")
        .iter()
        .filter(|(label, _)| label == "person")
        .count();
    assert_eq!(people, 4);
    let page = std::fs::read_to_string(folder.path().join("report/report.html")).unwrap();
    assert!(page.contains("dog 0.8") && page.matches("data:image/jpeg").count() == 7);

    let (Some(tape), Some(source)) = (read_back(&folder.path().join("r.mcap")), read_back(&bag)) else {
        return;
    };
    let images = |messages: &[Value]| -> Vec<(Value, Value)> {
        let images = messages.iter().filter(|m| m["encoding"] == "cdr");
        images
            .map(|m| (m["log_time"].clone(), m["crc32"].clone()))
            .collect()
    };
    assert_eq!(images(&tape), images(&source));
    let boxes: Vec<usize> = tape
        .iter()
        .filter(|m| m["encoding"] == "json")
        .map(|m| m["json"]["points"].as_array().unwrap().len())
        .collect();
    assert_eq!(boxes, lines.iter().map(|l| scored(l).len()).collect::<Vec<_>>());
}

#[test]
fn real_bags_run_as_they_are() {
    let Some(bags) = support::data("bags") else { return };
    let folder = tempfile::tempdir().unwrap();
    let run = |bag: &str, name: &str| {
        let run = yolox(&bags.join(bag), folder.path(), &["--jsonl", name])?;
        assert_eq!(run.code, Some(0), "{run:?}");
        let text = std::fs::read_to_string(folder.path().join(name)).unwrap();
        Some((run, tiny::json_lines(&text)))
    };
    // A raw bgr8 image and the same scene as JPEG, among messages that are no images.
    let Some((sample, lines)) = run("rosbag2js_sample/sample.db3", "a.jsonl") else {
        return;
    };
    assert_eq!(sample.frames(), [2, 2, 0, 0]);
    let mut streams: Vec<&str> = lines.iter().map(|l| l["stream"].as_str().unwrap()).collect();
    streams.sort_unstable();
    assert_eq!(streams, ["/image", "/image/compressed"]);

    // Thirteen files are named, one is here; its messages are zstd-compressed one by one.
    let (soccer, lines) = run("amber_soccer_goal", "b.jsonl").unwrap();
    assert_eq!(soccer.frames(), [2, 2, 0, 0]);
    assert!(soccer.told.contains("12 of 13 files"), "{}", soccer.told);
    assert_eq!(lines.len(), 2);
}

#[test]
fn a_deterministic_run_of_real_weights_writes_the_same_bytes() {
    let Some(bag) = support::data("bags/rosbag2js_sample/sample.db3") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let texts = ["1", "2"].map(|threads| {
        let name = format!("{threads}.jsonl");
        let settings = [
            "--jsonl",
            &name,
            "--set",
            "nodes.camera.clock=deterministic",
            "--set",
            &format!("device.threads={threads}"),
        ];
        yolox(&bag, folder.path(), &settings).map(|run| {
            assert_eq!(run.code, Some(0), "{run:?}");
            std::fs::read_to_string(folder.path().join(name)).unwrap()
        })
    });
    assert_eq!(texts[0], texts[1]);
}
