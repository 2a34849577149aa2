//! `sensorium bench`: what is offered, what is counted, what is compared.

use crate::support;
use crate::tiny;
use std::path::Path;

use hdrhistogram::serialization::Deserializer;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use sensorium::image::{Image, PixelFormat, encode_png};
use sensorium::telemetry::bench::BenchResult;
use serde_json::Value;
use tiny::{Lab, Outcome, film, outcome, sensorium};

const TOPIC: &str = "/camera/image";
const PERIOD_NS: u64 = 100_000_000;

/// `bench` on the pipeline file and `bag.mcap` of the folder, with the result as JSON.
fn bench(lab: &Lab, arguments: &[&str]) -> Outcome {
    let mut command = sensorium();
    command
        .current_dir(lab.path(""))
        .args(["bench", "tiny.yaml", "--bag", "bag.mcap", "--format", "json"])
        .args(arguments);
    outcome(&mut command)
}

fn result(run: &Outcome) -> BenchResult {
    serde_json::from_str(&run.out).unwrap_or_else(|e| panic!("{e}: {run:?}"))
}

/// Frames that take long to decode.
fn heavy(lab: &Lab) {
    let side = 1_200;
    let pixels = (0..side * side * 3).map(|i| (i * 7 % 251) as u8).collect();
    let image = Image::new(pixels, side, side, PixelFormat::Rgb8).unwrap();
    let png = encode_png(&image.view()).unwrap();
    let frames: Vec<_> = (0..4)
        .map(|i| tiny::compressed(TOPIC, i * PERIOD_NS, "png", &png))
        .collect();
    lab.bag(&frames);
}

#[test]
fn a_single_stream_is_a_closed_loop_and_leaves_its_files() {
    let lab = Lab::new();
    lab.bag(&film(TOPIC, 20, PERIOD_NS));
    let run = bench(
        &lab,
        &[
            "--scenario",
            "single-stream",
            "--queries",
            "45",
            "--warm-up",
            "0",
            "--out",
            "out",
        ],
    );
    assert_eq!(run.code, Some(0), "{run:?}");
    let result = result(&run);
    assert_eq!(
        (
            result.queries.offered,
            result.queries.completed,
            result.queries.dropped
        ),
        (45, 45, 0)
    );
    assert!(
        result.scenario.r#loop.starts_with("closed loop"),
        "{}",
        result.scenario.r#loop
    );
    assert_eq!((result.scenario.rate_hz, result.queries.released_late), (None, 0));
    assert_eq!((result.load.messages, result.load.cut_off), (20, false));
    assert_eq!(result.latencies_us.len(), 45);
    assert!(
        result.claim.text.contains("not enough samples for p99: n = 45"),
        "{}",
        result.claim.text
    );
    assert_eq!(result.settings["models"]["squares"]["type"], "yolox");
    assert_eq!(result.ros2_benchmark.num_missed_frames, 0.0);
    assert!(result.incomplete.is_empty() && result.scenario.changes.is_empty());

    let stored: BenchResult =
        serde_json::from_slice(&std::fs::read(lab.path("out/bench.json")).unwrap()).unwrap();
    assert_eq!(stored, result);
    let page = std::fs::read_to_string(lab.path("out/bench.html")).unwrap();
    for part in [
        "Towards the tail",
        "Over time",
        "By stage",
        "not enough samples for p99",
        "single-stream",
    ] {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.to_lowercase().contains("mlperf result") && !page.contains("<script"));

    // The log is read by the library that defines it.
    let log = std::fs::read(lab.path("out/latency.hlog")).unwrap();
    let mut counts = std::collections::BTreeMap::new();
    for entry in IntervalLogIterator::new(&log) {
        if let LogEntry::Interval(interval) = entry.unwrap() {
            let bytes = base64_decode(interval.encoded_histogram());
            let histogram: hdrhistogram::Histogram<u64> =
                Deserializer::new().deserialize(&mut bytes.as_slice()).unwrap();
            let tag = interval.tag().map_or("", |tag| tag.as_str()).to_owned();
            *counts.entry(tag).or_insert(0) += histogram.len();
        }
    }
    for tag in [
        "",
        "stage:prepare:service",
        "stage:replay:wait",
        "stream:/camera/image",
    ] {
        assert_eq!(counts.get(tag), Some(&45), "{tag}: {counts:?}");
    }
}

/// Standard base64, from its definition.
fn base64_decode(text: &str) -> Vec<u8> {
    let value = |c: u8| match c {
        b'A'..=b'Z' => c - b'A',
        b'a'..=b'z' => c - b'a' + 26,
        b'0'..=b'9' => c - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        other => panic!("{other}"),
    };
    let mut bytes = Vec::new();
    for group in text.trim_end_matches('=').as_bytes().chunks(4) {
        let bits = group
            .iter()
            .fold(0_u32, |bits, &c| bits << 6 | u32::from(value(c)));
        let bits = bits << (6 * (4 - group.len()));
        bytes.extend(&bits.to_be_bytes()[1..group.len()]);
    }
    bytes
}

#[test]
fn a_constant_stream_offers_what_its_schedule_says_and_stamps_go_on() {
    let lab = Lab::new();
    lab.bag(&film(TOPIC, 10, PERIOD_NS));
    let run = bench(
        &lab,
        &[
            "--rate",
            "50",
            "--duration",
            "0.5",
            "--warm-up",
            "0.2",
            "--keep-sinks",
            "--set",
            "nodes.jsonl.path=out.jsonl",
        ],
    );
    assert_eq!(run.code, Some(0), "{run:?}");
    let result = result(&run);
    // 10 in the warm-up, 25 after it.
    assert_eq!((result.queries.offered, result.queries.frames), (25, 25));
    assert_eq!(result.queries.completed + result.queries.dropped, 25);
    assert_eq!(result.scenario.rate_hz, Some(50.0));
    let lines = lab.lines("out.jsonl");
    assert_eq!(lines.len(), 35);
    let stamps: Vec<i64> = lines
        .iter()
        .map(|line| line["stamp_ns"].as_i64().unwrap())
        .collect();
    let first = tiny::START_NS as i64;
    let expected: Vec<i64> = (0..35).map(|i| first + i * PERIOD_NS as i64).collect();
    assert_eq!(stamps, expected, "three and a half rounds, one after the other");
    for (i, line) in lines.iter().enumerate() {
        assert_eq!(tiny::found(line), [("red".to_owned(), tiny::numbered(i % 10).1)]);
    }
}

#[test]
fn streams_share_the_period_and_are_told_apart() {
    let lab = Lab::new();
    lab.bag(&film(TOPIC, 10, PERIOD_NS));
    let run = bench(
        &lab,
        &[
            "--scenario",
            "multi-stream",
            "--streams",
            "12",
            "--rate",
            "10",
            "--duration",
            "1",
            "--warm-up",
            "0",
        ],
    );
    assert_eq!(run.code, Some(0), "{run:?}");
    let result = result(&run);
    assert_eq!((result.scenario.streams, result.queries.offered), (12, 120));
    let names: Vec<&str> = result.streams.iter().map(|stream| stream.name.as_str()).collect();
    assert_eq!(names[..2], ["/camera/image", "/camera/image/copy_2"]);
    assert!(
        result.streams.iter().all(|stream| stream.frames.frames_in == 10),
        "{:?}",
        result.streams
    );
    // The model has room for 8 by itself.
    assert!(
        result
            .scenario
            .changes
            .iter()
            .any(|change| change.contains("max_streams 12 in place of 8"))
    );
}

#[test]
fn a_schedule_is_kept_where_the_pipeline_is_too_slow() {
    let lab = Lab::new();
    heavy(&lab);
    let policy = |policy: &str| {
        let set = format!("channels.edges.0.on_full={policy}");
        let run = bench(
            &lab,
            &[
                "--rate",
                "400",
                "--queries",
                "120",
                "--warm-up",
                "0",
                "--set",
                &set,
                "--set",
                "channels.edges.0.capacity=1",
                "--set",
                "nodes.detector.prepare_workers=1",
            ],
        );
        assert_eq!(run.code, Some(0), "{run:?}");
        result(&run)
    };
    let dropping = policy("drop_newest");
    assert_eq!((dropping.queries.offered, dropping.queries.frames), (120, 120));
    assert!(dropping.queries.dropped > 0, "{:?}", dropping.queries);
    assert_eq!(dropping.queries.completed + dropping.queries.dropped, 120);
    let told: u64 = dropping.drops.iter().map(|drop| drop.count).sum();
    assert_eq!(told, dropping.queries.dropped);
    assert!(dropping.queries.failed_share >= dropping.queries.dropped as f64 / 120.0);

    // A channel that blocks drops nothing: messages get away late, and their latency counts from their time.
    let blocking = policy("block");
    assert_eq!((blocking.queries.offered, blocking.queries.completed), (120, 120));
    assert!(
        blocking.queries.overruns > 0 && blocking.queries.failed_share > 0.0,
        "{:?}",
        blocking.queries
    );
    let latency = blocking.latency.unwrap();
    assert!(
        latency.max_us >= blocking.queries.max_release_delay_us,
        "{latency:?} {:?}",
        blocking.queries
    );
}

/// A result with every latency multiplied.
fn scaled(path: &Path, factor: f64, to: &Path) {
    let mut value: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    for latency in value["latencies_us"].as_array_mut().unwrap() {
        *latency = Value::from((latency.as_f64().unwrap() * factor).round() as u64);
    }
    std::fs::write(to, value.to_string()).unwrap();
}

#[test]
fn a_condition_that_holds_beyond_chance_fails_the_command() {
    let lab = Lab::new();
    lab.bag(&film(TOPIC, 10, PERIOD_NS));
    let load = [
        "--scenario",
        "single-stream",
        "--queries",
        "100",
        "--warm-up",
        "0",
    ];
    let run = bench(&lab, &[&load[..], &["--out", "first"]].concat());
    assert_eq!(run.code, Some(0), "{run:?}");
    scaled(&lab.path("first/bench.json"), 0.01, &lab.path("fast.json"));
    scaled(&lab.path("first/bench.json"), 100.0, &lab.path("slow.json"));
    let against = |baseline: &str| {
        let compared = [
            "--baseline",
            baseline,
            "--fail-if",
            "p50>+5%",
            "--fail-if",
            "drops > 1%",
            "--out",
            "second",
        ];
        bench(&lab, &[&load[..], &compared].concat())
    };
    let slower = against("fast.json");
    assert_eq!(slower.code, Some(1), "{slower:?}");
    let conditions = result(&slower).conditions;
    assert_eq!(
        conditions.iter().map(|c| c.fails).collect::<Vec<_>>(),
        [true, false],
        "{conditions:?}"
    );
    assert!(conditions[0].interval.unwrap()[0] > 0.05 && conditions[0].method.contains("bootstrap"));
    let page = std::fs::read_to_string(lab.path("second/bench.html")).unwrap();
    assert!(page.contains("Since the baseline") && page.contains("p50&gt;+5%"));
    let faster = against("slow.json");
    assert_eq!(faster.code, Some(0), "{faster:?}");
    let comparison = result(&faster).comparison.unwrap();
    assert!(comparison.differences.is_empty(), "{comparison:?}");
    assert!(comparison.changes.iter().any(|change| change.significant));
    // What cannot be compared is told before anything is measured.
    let other = ["--scenario", "constant-stream", "--baseline", "first/bench.json"];
    let refused = bench(&lab, &other);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(
        refused.told.contains("is a result of single-stream"),
        "{refused:?}"
    );
    let first = std::fs::read_to_string(lab.path("first/bench.json")).unwrap();
    std::fs::write(
        lab.path("later.json"),
        first.replacen("\"form\":1", "\"form\":2", 1),
    )
    .unwrap();
    let later = against("later.json");
    assert_eq!(later.code, Some(1), "{later:?}");
    assert!(later.told.contains("a result of form 2"), "{later:?}");
    // What cannot be decided fails, and what was measured is told all the same.
    let undecided = bench(&lab, &[&load[..], &["--fail-if", "peak<10hz"]].concat());
    assert_eq!(undecided.code, Some(1), "{undecided:?}");
    assert!(undecided.told.contains("cannot be decided"), "{undecided:?}");
    assert_eq!(result(&undecided).queries.frames, 100);
}

/// A detector that takes 60 ms for every frame, whatever the machine: above 17 Hz frames must go.
#[test]
fn the_peak_drops_less_than_one_frame_in_a_thousand_and_a_higher_rate_more() {
    let lab = Lab::new();
    lab.bag(&film(TOPIC, 20, PERIOD_NS));
    let run = bench(
        &lab,
        &[
            "--scenario",
            "peak-rate",
            "--rate",
            "4",
            "--duration",
            "2",
            "--warm-up",
            "0",
            "--set",
            "channels.edges.0.on_full=drop_newest",
            "--set",
            "channels.edges.0.capacity=1",
            "--set",
            "nodes.detector.prepare_workers=1",
            "--set",
            "supervision.fault=[{ actor: detector/prepare, kind: stall, nth: 1, times: 1000000000, for_ms: 60 }]",
        ],
    );
    assert_eq!(run.code, Some(0), "{run:?}");
    let result = result(&run);
    let peak = result.peak.unwrap();
    let rate_hz = peak.rate_hz.unwrap_or_else(|| panic!("{peak:?}"));
    let last = peak.points.last().unwrap();
    assert!(
        last.confirms && last.kept_up && (last.rate_hz / rate_hz - 1.0).abs() < 1e-6,
        "{peak:?}"
    );
    // The numbers of the result are those of the run that confirmed.
    assert_eq!(
        (result.queries.failed_share, result.queries.offered),
        (last.failed_share, last.offered)
    );
    assert!(
        peak.permitted_share == 0.001 && last.failed_share < 0.001,
        "{peak:?}"
    );
    let failed: Vec<f64> = peak
        .points
        .iter()
        .filter(|p| !p.kept_up)
        .map(|p| p.rate_hz)
        .collect();
    assert_eq!(peak.fails_at_hz, failed.iter().copied().reduce(f64::min));
    assert!(rate_hz < peak.fails_at_hz.unwrap(), "{peak:?}");
    for point in &peak.points {
        assert!(
            !point.kept_up || point.failed_share < peak.permitted_share,
            "{point:?}"
        );
    }
    let mut higher = peak.points.iter().filter(|point| point.rate_hz > rate_hz);
    assert!(higher.any(|point| point.failed_share >= 0.001), "{peak:?}");
}

#[test]
fn what_cannot_be_benched_is_told() {
    let lab = Lab::new();
    lab.bag(&film(TOPIC, 3, PERIOD_NS));
    let refused = |arguments: &[&str], parts: &[&str]| {
        let run = bench(&lab, arguments);
        assert!(matches!(run.code, Some(1 | 2)), "{run:?}");
        for part in parts {
            assert!(run.told.contains(part), "{part}: {run:?}");
        }
    };
    refused(&["--fail-if", "p99>5%"], &["+5% or -5%"]);
    refused(&["--fail-if", "p98>+5%"], &["no metric `p98`"]);
    refused(
        &["--fail-if", "p99>+5%"],
        &["nothing to compare with", "--baseline FILE"],
    );
    refused(&["--baseline", "missing.json"], &["missing.json cannot be read"]);
    refused(
        &["--baseline", "tiny.yaml"],
        &["tiny.yaml is no result of a benchmark"],
    );
    refused(&["--rate", "0"], &["a rate in Hz above 0"]);
    refused(&["--queries", "5", "--duration", "5"], &["cannot be used with"]);
    refused(
        &[
            "--scenario",
            "single-stream",
            "--queries",
            "3",
            "--warm-up",
            "0",
            "--fail-if",
            "peak<3hz",
        ],
        &["--scenario peak-rate"],
    );
    let two = std::fs::read_to_string(lab.path("tiny.yaml")).unwrap().replace(
        "  detector:",
        "  second: { kind: source, bag: bag.mcap, rate: max }\n  detector:",
    );
    let two = two
        .replace("input: camera,", "input: [camera, second],")
        .replace("bag: ''", "bag: bag.mcap");
    std::fs::write(lab.path("two.yaml"), two).unwrap();
    let run = outcome(
        sensorium()
            .current_dir(lab.path(""))
            .args(["bench", "two.yaml", "--queries", "3"]),
    );
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(
        run.told.contains("takes the place of one source") && run.told.contains("has 2"),
        "{run:?}"
    );
}

#[test]
fn memory_for_messages_is_bounded_and_told() {
    let lab = Lab::new();
    let big = Image::new(vec![60; 700 * 700 * 3], 700, 700, PixelFormat::Rgb8).unwrap();
    let frames: Vec<_> = (0..3).map(|i| tiny::raw(TOPIC, i * PERIOD_NS, &big)).collect();
    lab.bag(&frames);
    let load = ["--scenario", "single-stream", "--queries", "4", "--warm-up", "0"];
    let run = bench(&lab, &[&load[..], &["--memory", "3"]].concat());
    let result = result(&run);
    assert_eq!(
        (result.load.messages, result.load.cut_off),
        (2, true),
        "{:?}",
        result.load
    );
    assert_eq!(result.queries.completed, 4);
    let run = bench(&lab, &[&load[..], &["--memory", "1"]].concat());
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(
        run.told.contains("no message to offer within 1048576 bytes"),
        "{run:?}"
    );
}

#[test]
fn percentiles_are_those_of_numpy() {
    let Some(mut oracle) = support::oracle("bench_statistics.py") else {
        return;
    };
    let lab = Lab::new();
    lab.bag(&film(TOPIC, 10, PERIOD_NS));
    let run = bench(
        &lab,
        &[
            "--scenario",
            "single-stream",
            "--queries",
            "300",
            "--warm-up",
            "0",
            "--out",
            "out",
        ],
    );
    assert_eq!(run.code, Some(0), "{run:?}");
    let output = oracle.arg(lab.path("out/bench.json")).output().unwrap();
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
