//! `sensorium run` where several streams and models share the device: nobody holds the others, late frames are given up
//! where that was asked for, and frames that go together come out as they do alone.
#![cfg(unix)]

use crate::support;
use crate::tiny;
use std::io::Read;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use tiny::{Lab, await_end, numbered, picture};

const PERIOD_NS: u64 = 100_000_000;
const TOPICS: [&str; 4] = ["/front", "/left", "/right", "/rear"];

/// Images of four cameras, all different, at the same moments.
fn four_cameras(count: usize) -> Vec<tiny::Frame> {
    let frame = |i: usize| {
        let topics = TOPICS.iter().enumerate();
        topics.map(move |(place, topic)| {
            let (image, _) = numbered(i + 16 * place);
            tiny::raw(topic, i as u64 * PERIOD_NS + place as u64, &image)
        })
    };
    (0..count).flat_map(frame).collect()
}

/// Waits until the file has so many lines.
fn await_lines(path: &Path, count: usize) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while std::fs::read_to_string(path).map_or(0, |text| text.lines().count()) < count {
        assert!(
            Instant::now() < deadline,
            "{} never had {count} lines",
            path.display()
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The lines of each stream in their order.
fn by_stream(lines: Vec<Value>) -> Vec<Vec<Value>> {
    let own = |topic: &&str| {
        lines
            .iter()
            .filter(|line| line["stream"] == **topic)
            .cloned()
            .collect()
    };
    TOPICS.iter().map(own).collect()
}

#[test]
fn a_model_whose_results_nobody_takes_holds_no_other_model() {
    const COUNT: usize = 1_500;
    let lab = Lab::new();
    // Red all over, for a line of some kilobytes: a dozen of them fill the pipe.
    let cells: Vec<(usize, [usize; 2])> = (0..64).map(|i| (2, [i % 8 * 8, i / 8 * 8])).collect();
    let red = tiny::raw(TOPICS[0], 0, &picture(&cells));
    let (image, _) = numbered(3);
    let frames = (0..COUNT as u64).flat_map(|i| {
        let at = |frame: &tiny::Frame, topic| tiny::Frame {
            topic,
            time_ns: tiny::START_NS + i * PERIOD_NS,
            ..frame.clone()
        };
        [
            at(&red, TOPICS[0]),
            tiny::raw(TOPICS[1], i * PERIOD_NS + 1, &image),
        ]
    });
    lab.bag(&frames.collect::<Vec<_>>());
    support::run(Command::new("mkfifo").arg(lab.path("pipe")));
    let pipeline = std::fs::read_to_string(lab.path("tiny.yaml")).unwrap();
    let pipeline = pipeline
        .replace(
            "  camera: { kind: source, bag: '', rate: max }\n",
            "  stuck_camera: { kind: source, bag: bag.mcap, topics: [/front], rate: max }\n  \
             camera: { kind: source, bag: bag.mcap, topics: [/left], rate: max }\n",
        )
        .replace(
            "  recorder: { kind: recorder, input: detector }\n  jsonl: { kind: jsonl, input: detector }\n",
            "  stuck: { kind: detector, model: squares, input: stuck_camera, prepare_workers: 2 }\n  \
             pipe: { kind: jsonl, input: stuck, path: pipe }\n  \
             jsonl: { kind: jsonl, input: detector, path: out.jsonl }\n",
        );
    std::fs::write(lab.path("tiny.yaml"), pipeline).unwrap();
    let child = {
        let mut command = tiny::sensorium();
        command
            .current_dir(lab.path(""))
            .args(["run", "tiny.yaml", "--format", "json"]);
        let piped = std::process::Stdio::piped;
        command.stdout(piped()).stderr(piped()).spawn().unwrap()
    };
    // The pipe is open, and nobody reads.
    let mut pipe = std::fs::File::open(lab.path("pipe")).unwrap();
    await_lines(&lab.path("out.jsonl"), COUNT);
    let mut taken = String::new();
    pipe.read_to_string(&mut taken).unwrap();
    let run = await_end(child);
    let count = COUNT as u64;
    assert_eq!(
        (run.code, run.frames()),
        (Some(0), [2 * count, 2 * count, 0, 0]),
        "{run:?}"
    );
    assert_eq!(tiny::json_lines(&taken).len(), COUNT);
}

#[test]
fn frames_that_go_together_come_out_as_they_do_alone() {
    const COUNT: usize = 60;
    let lab = Lab::new();
    lab.bag(&four_cameras(COUNT));
    for images in [Some(1), None] {
        std::fs::write(lab.path("squares.onnx"), tiny::network_of_images(images)).unwrap();
        let mut results = Vec::new();
        for batch in [
            None,
            Some("{ sizes: [2, 4], timeout_us: 1000000 }"),
            Some("{ sizes: [3], timeout_us: 0 }"),
        ] {
            let mut arguments = vec![
                "--jsonl",
                "out.jsonl",
                "--set",
                "nodes.detector.prepare_workers=4",
            ];
            let set = batch.map(|batch| format!("models.squares.batch={batch}"));
            arguments.extend(set.iter().flat_map(|set| ["--set", set]));
            let mut command = lab.command(&arguments);
            let run = tiny::outcome(command.env("SENSORIUM_LOG", "info"));
            let frames = 4 * COUNT as u64;
            assert_eq!(
                (run.code, run.frames()),
                (Some(0), [frames, frames, 0, 0]),
                "{run:?}"
            );
            // Frames that had company, as the owner of the device counted them.
            let told = run
                .told
                .split("frames_together=")
                .nth(1)
                .and_then(|told| told.split(' ').next());
            let together: u64 = told.map_or(0, |told| told.parse().unwrap());
            match batch {
                None => assert_eq!(together, 0, "{run:?}"),
                Some(batch) if batch.contains('4') => {
                    assert!(together > frames / 2, "{together} of {frames}")
                }
                Some(_) => {}
            }
            let mut lines = lab.lines("out.jsonl");
            for line in &mut lines {
                line.as_object_mut().unwrap().remove("latency_us");
            }
            results.push(by_stream(lines));
        }
        for stream in &results[0] {
            let seqs: Vec<u64> = stream.iter().map(|line| line["seq"].as_u64().unwrap()).collect();
            assert_eq!(seqs, (0..COUNT as u64).collect::<Vec<_>>());
        }
        assert!(results.iter().all(|other| *other == results[0]), "{images:?}");
    }
}

#[test]
fn a_deterministic_run_with_batches_writes_the_bytes_of_one_without() {
    let lab = Lab::new();
    lab.bag(&four_cameras(30));
    std::fs::write(lab.path("squares.onnx"), tiny::network_of_images(None)).unwrap();
    let outputs = [None, Some("[2, 4]"), Some("[3]")].map(|sizes| {
        let set = sizes.map(|sizes| format!("models.squares.batch={{ sizes: {sizes}, timeout_us: 500 }}"));
        let mut arguments = vec![
            "--jsonl",
            "out.jsonl",
            "--set",
            "nodes.camera.clock=deterministic",
        ];
        arguments.extend(set.iter().flat_map(|set| ["--set", set]));
        let run = lab.run(&arguments);
        assert_eq!((run.code, run.frames()), (Some(0), [120, 120, 0, 0]), "{run:?}");
        std::fs::read_to_string(lab.path("out.jsonl")).unwrap()
    });
    for text in &outputs[1..] {
        let mut lines = outputs[0].lines().zip(text.lines());
        assert_eq!(lines.find(|(alone, together)| alone != together), None);
        assert_eq!(outputs[0].len(), text.len());
    }
}

/// The device is away for half a second in the middle of the run: whatever waits for it is late by then.
fn with_outage(on_late: &str) -> tiny::Outcome {
    let lab = Lab::new();
    lab.bag(&four_cameras(40));
    let fault = "{ faults: [{ kind: lose_device, call: replay, at: { nth: 30 } }] }";
    lab.run(&[
        "--jsonl",
        "out.jsonl",
        "--set",
        "nodes.camera.deadline_ms=250",
        "--set",
        "device.restart.backoff_ms=500",
        "--set",
        &format!("device.fault={fault}"),
        "--set",
        &format!("nodes.detector.on_late={on_late}"),
    ])
}

#[test]
fn a_frame_whose_deadline_passes_while_it_waits_is_given_up_where_that_was_asked_for() {
    let missed = |run: &tiny::Outcome| -> u64 {
        let drops = run.drops();
        let late = drops
            .iter()
            .filter(|drop| (&*drop.0, &*drop.1) == ("device", "deadline_missed"));
        late.map(|drop| drop.2).sum()
    };
    let run = with_outage("drop");
    let [came, out, dropped, lost] = run.frames();
    assert_eq!((came, lost), (160, 0), "{run:?}");
    assert_eq!(came, out + dropped, "{run:?}");
    assert!(missed(&run) >= 1 && out > 30, "{run:?}");
    // Otherwise they are run, and only what was on the device is missing.
    let run = with_outage("run");
    assert_eq!(missed(&run), 0, "{run:?}");
    assert!(run.frames()[1] >= 158, "{run:?}");
}

#[test]
fn few_frames_in_flight_lose_none_and_keep_the_order() {
    let lab = Lab::new();
    lab.bag(&four_cameras(30));
    for most in ["1", "2"] {
        let set = format!("models.squares.max_in_flight={most}");
        let run = lab.run(&[
            "--jsonl",
            "out.jsonl",
            "--set",
            &set,
            "--set",
            "nodes.detector.prepare_workers=4",
            "--set",
            "nodes.detector.finish_workers=2",
        ]);
        assert_eq!((run.code, run.frames()), (Some(0), [120, 120, 0, 0]), "{run:?}");
        for stream in by_stream(lab.lines("out.jsonl")) {
            let seqs: Vec<u64> = stream.iter().map(|line| line["seq"].as_u64().unwrap()).collect();
            assert_eq!(seqs, (0..30).collect::<Vec<_>>());
        }
    }
}
