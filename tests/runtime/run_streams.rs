//! `sensorium run` on several streams: order, repeatability, full channels, and who feeds whom.

use crate::tiny;
use sensorium::image::{Image, PixelFormat, encode_png};
use serde_json::Value;
use tiny::{Lab, film, found, picture};

const TOPIC: &str = "/camera/image";
const PERIOD_NS: u64 = 100_000_000;

/// Images of two cameras of different sizes, interleaved.
fn two_cameras(count: usize) -> Vec<tiny::Frame> {
    let mut frames = Vec::new();
    for i in 0..count {
        let (image, _) = tiny::numbered(i);
        let after_ns = i as u64 * PERIOD_NS;
        frames.push(tiny::raw("/front", after_ns, &image));
        let png = encode_png(&picture(&[(1, [i % 4 * 16, 16])]).view()).unwrap();
        frames.push(tiny::compressed("/rear", after_ns + 1, "png", &png));
    }
    frames
}

#[test]
fn a_deterministic_run_writes_the_same_bytes_every_time() {
    let lab = Lab::new();
    lab.bag(&two_cameras(40));
    let outputs = ["1", "2", "3"].map(|threads| {
        let name = format!("{threads}.jsonl");
        let report = format!("report-{threads}");
        let run = lab.run(&[
            "--jsonl",
            &name,
            "--report",
            &report,
            "--set",
            "nodes.camera.clock=deterministic",
            "--set",
            &format!("device.threads={threads}"),
            "--set",
            &format!("nodes.detector.prepare_workers={threads}"),
        ]);
        assert_eq!((run.code, run.frames()), (Some(0), [80, 80, 0, 0]), "{run:?}");
        std::fs::read_to_string(lab.path(&name)).unwrap()
    });
    assert_eq!(outputs[0].lines().count(), 80);
    assert!(outputs.iter().all(|text| *text == outputs[0]));
    assert!(!outputs[0].contains("latency_us"));
    let first = tiny::json_lines(&outputs[0]);
    let streams: Vec<&str> = first
        .iter()
        .map(|line| line["stream"].as_str().unwrap())
        .collect();
    assert_eq!(
        streams[..4],
        ["/front", "/rear", "/front", "/rear"],
        "in the order of the bag"
    );
}

#[test]
fn streams_keep_their_order_and_are_counted_apart() {
    let lab = Lab::new();
    lab.bag(&two_cameras(50));
    let run = lab.run(&[
        "--jsonl",
        "out.jsonl",
        "--set",
        "nodes.detector.prepare_workers=4",
        "--set",
        "nodes.detector.finish_workers=3",
    ]);
    assert_eq!((run.code, run.frames()), (Some(0), [100, 100, 0, 0]), "{run:?}");
    let lines = lab.lines("out.jsonl");
    for stream in ["/front", "/rear"] {
        let own: Vec<&Value> = lines.iter().filter(|l| l["stream"] == stream).collect();
        let seqs: Vec<u64> = own.iter().map(|l| l["seq"].as_u64().unwrap()).collect();
        assert_eq!(seqs, (0..50).collect::<Vec<_>>(), "{stream}");
        for (i, line) in own.iter().enumerate() {
            let square = match stream {
                "/front" => ("red".to_owned(), tiny::numbered(i).1),
                _ => {
                    let left = (i % 4 * 16) as f64;
                    ("green".to_owned(), [left, 16.0, left + 16.0, 32.0])
                }
            };
            assert_eq!(found(line), [square], "frame {i} of {stream}");
        }
    }
}

/// Frames that take long to decode and little room, all alike.
fn heavy(count: usize) -> Vec<tiny::Frame> {
    let side = 1_600;
    let image = Image::new(vec![60; side * side * 3], side, side, PixelFormat::Rgb8).unwrap();
    let png = encode_png(&image.view()).unwrap();
    (0..count)
        .map(|i| tiny::compressed(TOPIC, i as u64 * PERIOD_NS, "png", &png))
        .collect()
}

#[test]
fn a_channel_of_one_place_drops_by_its_policy_and_accounts_for_every_frame() {
    const COUNT: u64 = 60;
    let lab = Lab::new();
    lab.bag(&heavy(COUNT as usize));
    for (policy, reason) in [
        ("drop_oldest", "channel_full_oldest"),
        ("drop_newest", "channel_full_newest"),
    ] {
        let run = lab.run(&[
            "--rate",
            "1000",
            "--jsonl",
            "out.jsonl",
            "--set",
            "nodes.detector.prepare_workers=1",
            "--set",
            "channels.edges.0.capacity=1",
            "--set",
            &format!("channels.edges.0.on_full={policy}"),
        ]);
        let [came, out, dropped, lost] = run.frames();
        assert_eq!((run.code, came, lost), (Some(0), COUNT, 0), "{policy}: {run:?}");
        assert_eq!(came, out + dropped, "{policy}");
        assert!(dropped > 0 && out > 0, "{policy}: {out} out");
        assert_eq!(
            run.drops(),
            [("detector".into(), reason.into(), dropped)],
            "{policy}"
        );
        let lines = lab.lines("out.jsonl");
        let number = |line: &Value, key: &str| line[key].as_u64().unwrap();
        let seqs: Vec<u64> = lines.iter().map(|l| number(l, "seq")).collect();
        assert_eq!((seqs.len() as u64, seqs.is_sorted()), (out, true), "{policy}");
        let told: u64 = lines.iter().map(|l| number(l, "dropped_before")).sum();
        let after_last = COUNT - 1 - seqs.last().unwrap();
        assert_eq!(told + after_last, dropped, "{policy}");
        match policy {
            "drop_oldest" => assert_eq!(after_last, 0, "the newest frame is kept"),
            _ => assert_eq!(seqs[0], 0, "the first frame finds room and keeps it"),
        }
    }
}

#[test]
fn a_stream_beyond_the_models_room_is_rejected_and_counted() {
    let lab = Lab::new();
    let mut frames = film("/a", 5, PERIOD_NS);
    frames.extend(film("/b", 5, PERIOD_NS));
    frames.sort_by_key(|frame| frame.time_ns);
    lab.bag(&frames);
    let run = lab.run(&["--jsonl", "out.jsonl", "--set", "models.squares.max_streams=1"]);
    assert_eq!((run.code, run.frames()), (Some(0), [10, 5, 5, 0]), "{run:?}");
    assert_eq!(run.drops(), [("detector".into(), "stream_rejected".into(), 5)]);
    assert!(lab.lines("out.jsonl").iter().all(|line| line["stream"] == "/a"));
    assert!(
        run.told.contains("/b") && run.told.contains("max_streams=1"),
        "{}",
        run.told
    );
    let run = lab.run(&[
        "--set",
        "models.squares.max_streams=1",
        "--set",
        "models.squares.on_full=evict",
    ]);
    assert_eq!(run.frames(), [10, 10, 0, 0], "{run:?}");
}

#[test]
fn every_source_reaches_its_detector_and_every_detector_its_sink() {
    let lab = Lab::new();
    tiny::write_bag(&lab.path("left.mcap"), &film("/left", 20, PERIOD_NS));
    tiny::write_bag(&lab.path("right.mcap"), &film("/right", 30, PERIOD_NS));
    let text = std::fs::read_to_string(lab.path("tiny.yaml")).unwrap();
    let nodes = "  left: { kind: source, bag: left.mcap, rate: max }
  right: { kind: source, bag: right.mcap, rate: max }
  detector: { kind: detector, model: squares, input: [left, right] }
  second: { kind: detector, model: squares, input: right }
  jsonl: { kind: jsonl, input: [detector, second], path: out.jsonl }
";
    let (head, _) = text.split_once("  camera:").unwrap();
    std::fs::write(lab.path("tiny.yaml"), format!("{head}{nodes}")).unwrap();
    let mut command = tiny::sensorium();
    command
        .current_dir(lab.path(""))
        .args(["run", "tiny.yaml", "--format", "json"]);
    let run = tiny::outcome(&mut command);
    assert_eq!((run.code, run.frames()), (Some(0), [80, 80, 0, 0]), "{run:?}");
    let lines = lab.lines("out.jsonl");
    let count = |stream: &str| lines.iter().filter(|line| line["stream"] == stream).count();
    assert_eq!((count("/left"), count("/right"), lines.len()), (20, 60, 80));
    let streams = run.summary();
    let mut names: Vec<&str> = streams["streams"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| s["name"].as_str().unwrap())
        .collect();
    names.sort_unstable();
    assert_eq!(
        names,
        [
            "detector left /left",
            "detector right /right",
            "second right /right"
        ]
    );
}
