//! Traces of runs for Perfetto: every frame's way, in order, on tracks whose slices do not overlap.

use crate::live_streams;
use crate::run_sets;
use crate::tiny;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::Value;
use tiny::{Lab, film};

const PERIOD_NS: u64 = 20_000_000;

/// A trace as a viewer reads it.
struct Trace {
    events: Vec<Value>,
    /// Names of tracks, by process and track.
    tracks: BTreeMap<(u64, u64), String>,
}

/// A slice on its track.
#[derive(Debug, Clone, PartialEq)]
struct Slice {
    track: String,
    name: String,
    start: f64,
    end: f64,
    seq: u64,
    stream: String,
}

fn number(event: &Value, key: &str) -> u64 {
    event[key].as_u64().unwrap_or_else(|| panic!("{key} of {event}"))
}

impl Trace {
    fn read(text: &str) -> Self {
        let events: Vec<Value> = serde_json::from_str(text).unwrap();
        let mut tracks = BTreeMap::new();
        for event in &events {
            if event["name"] == "thread_name" {
                let place = (number(event, "pid"), number(event, "tid"));
                let name = event["args"]["name"].as_str().unwrap().to_owned();
                assert_eq!(tracks.insert(place, name), None, "a track is named once");
            }
        }
        Self { events, tracks }
    }

    fn of_kind(&self, kind: &str) -> impl Iterator<Item = &Value> {
        self.events.iter().filter(move |event| event["ph"] == kind)
    }

    fn track(&self, event: &Value) -> &str {
        &self.tracks[&(number(event, "pid"), number(event, "tid"))]
    }

    fn slices(&self) -> Vec<Slice> {
        let slice = |event: &Value| {
            let start = event["ts"].as_f64().unwrap();
            Slice {
                track: self.track(event).to_owned(),
                name: event["name"].as_str().unwrap().to_owned(),
                start,
                end: start + event["dur"].as_f64().unwrap(),
                seq: number(&event["args"], "seq"),
                stream: event["args"]["stream"].as_str().unwrap().to_owned(),
            }
        };
        self.of_kind("X").map(slice).collect()
    }

    /// Asserts that slices of one track follow one another.
    fn nothing_overlaps(&self) {
        let mut tracks: BTreeMap<String, Vec<Slice>> = BTreeMap::new();
        for slice in self.slices() {
            assert!(slice.start >= 0.0 && slice.end >= slice.start, "{slice:?}");
            tracks.entry(slice.track.clone()).or_default().push(slice);
        }
        for slices in tracks.values_mut() {
            slices.sort_by(|a, b| (a.start, a.end).partial_cmp(&(b.start, b.end)).unwrap());
            for pair in slices.windows(2) {
                // Microseconds of three decimals are not exact in binary.
                assert!(pair[0].end <= pair[1].start + 1e-6, "{pair:?}");
            }
        }
    }

    /// The names of the slices that each frame's flow leads through, in order; asserts that each step is at the start of
    /// a slice of the same frame.
    fn flows(&self) -> BTreeMap<(String, u64), Vec<String>> {
        let mut at: BTreeMap<(String, u64, u64), Slice> = BTreeMap::new();
        let key = |event: &Value| {
            (
                event["ts"].to_string(),
                number(event, "pid"),
                number(event, "tid"),
            )
        };
        for (event, slice) in self.of_kind("X").zip(self.slices()) {
            at.insert(key(event), slice);
        }
        let mut flows: BTreeMap<u64, Vec<(f64, &str, &Slice)>> = BTreeMap::new();
        for event in &self.events {
            let kind = event["ph"].as_str().unwrap();
            if ["s", "t", "f"].contains(&kind) {
                let slice = &at[&key(event)];
                let step = (event["ts"].as_f64().unwrap(), kind, slice);
                flows.entry(number(event, "id")).or_default().push(step);
            }
        }
        let mut ways = BTreeMap::new();
        for mut steps in flows.into_values() {
            steps.sort_by(|a, b| a.0.partial_cmp(&b.0).unwrap());
            let first = steps[0].2.clone();
            assert_eq!(steps[0].1, "s", "{steps:?}");
            assert!(steps[1..].iter().all(|step| step.1 != "s"), "{steps:?}");
            assert!(
                steps
                    .iter()
                    .all(|(_, _, s)| (&s.stream, s.seq) == (&first.stream, first.seq))
            );
            let way: Vec<String> = steps
                .iter()
                .map(|(_, _, s)| format!("{}: {}", base(&s.track), s.name))
                .collect();
            assert_eq!(ways.insert((first.stream, first.seq), way), None);
        }
        ways
    }
}

/// A track's name without the number of its worker.
fn base(track: &str) -> &str {
    track.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end()
}

/// The steps of a frame without its waits.
fn worked(way: &[String]) -> Vec<&str> {
    way.iter()
        .filter(|step| !step.ends_with(": wait"))
        .map(String::as_str)
        .collect()
}

#[test]
fn every_frame_s_way_is_there_in_order_from_the_source_to_every_sink() {
    let lab = Lab::new();
    let mut frames = film("/front", 60, PERIOD_NS);
    frames.extend(film("/rear \"left\"", 60, PERIOD_NS));
    frames.sort_by_key(|frame| frame.time_ns);
    lab.bag(&frames);
    let run = lab.run(&[
        "--trace",
        "trace.json",
        "--jsonl",
        "out.jsonl",
        "--set",
        "nodes.detector.prepare_workers=3",
    ]);
    assert_eq!((run.code, run.frames()), (Some(0), [120, 120, 0, 0]), "{run:?}");
    let trace = Trace::read(&std::fs::read_to_string(lab.path("trace.json")).unwrap());
    trace.nothing_overlaps();
    let flows = trace.flows();
    assert_eq!(flows.len(), 120);
    for stream in ["/front", "/rear \"left\""] {
        for seq in 0..60 {
            let way = &flows[&(stream.to_owned(), seq)];
            assert_eq!(
                worked(way),
                [
                    "camera: ingest",
                    "detector/prepare: prepare",
                    "device upload: upload",
                    "device replay: replay",
                    "device readback: readback",
                    "detector/finish: finish",
                    "jsonl: write",
                ],
                "{stream} #{seq}"
            );
        }
    }
    let waits = trace.slices().into_iter().filter(|slice| slice.name == "wait");
    let queues: std::collections::BTreeSet<String> =
        waits.map(|slice| base(&slice.track).to_owned()).collect();
    for queue in ["→ detector/prepare", "→ device", "→ detector/finish", "→ jsonl"] {
        assert!(queues.contains(queue), "{queue}: {queues:?}");
    }
    let lengths: Vec<&Value> = trace.of_kind("C").collect();
    assert!(
        lengths
            .iter()
            .all(|event| event["args"]["waiting"].as_u64() <= Some(16))
    );
    for queue in [
        "camera → detector/prepare",
        "detector/prepare → device",
        "device → detector/finish",
    ] {
        let last = lengths.iter().rfind(|event| event["name"] == queue);
        assert_eq!(
            number(&last.unwrap_or_else(|| panic!("{queue}"))["args"], "waiting"),
            0,
            "{queue}"
        );
    }
}

#[test]
fn sets_and_clouds_begin_at_the_nodes_that_make_them() {
    let lab = Lab::new();
    run_sets::bag(&lab, 3, |_, _| ());
    std::fs::write(lab.path("tiny.yaml"), live_streams::HALVES).unwrap();
    let run = lab.run(&["--trace", "trace.json", "--set", "nodes.bag.rate=max"]);
    assert_eq!((run.code, run.frames()), (Some(0), [12, 12, 0, 0]), "{run:?}");
    let trace = Trace::read(&std::fs::read_to_string(lab.path("trace.json")).unwrap());
    trace.nothing_overlaps();
    let flows = trace.flows();
    assert_eq!(flows.len(), 12, "{:?}", flows.keys());
    for seq in 0..3 {
        let way = |stream: &str| worked(&flows[&(stream.to_owned(), seq)]);
        assert_eq!(way("/lidar/left"), ["bag: ingest"]);
        assert_eq!(way("pair"), ["pair: ingest"]);
        let cloud = way("/lidar/all");
        assert_eq!(
            cloud[..2],
            ["cloud: ingest", "detector/prepare: prepare"],
            "{cloud:?}"
        );
    }
}

#[test]
fn a_frame_that_is_dropped_ends_where_it_was_dropped() {
    let lab = Lab::new();
    let mut frames = film("/camera", 40, PERIOD_NS);
    for (i, frame) in frames.iter_mut().enumerate().filter(|(i, _)| i % 4 == 3) {
        *frame = tiny::compressed("/camera", i as u64 * PERIOD_NS, "png", b"no picture");
    }
    lab.bag(&frames);
    let run = lab.run(&["--trace", "trace.json"]);
    assert_eq!((run.code, run.frames()), (Some(0), [40, 30, 10, 0]), "{run:?}");
    let trace = Trace::read(&std::fs::read_to_string(lab.path("trace.json")).unwrap());
    trace.nothing_overlaps();
    for ((_, seq), way) in trace.flows() {
        let last = way.last().unwrap();
        match seq % 4 {
            3 => assert_eq!(worked(&way), ["camera: ingest", "dropped: decode_failed"]),
            _ => assert_eq!(last, "detector/finish: finish", "#{seq}"),
        }
    }
}

#[test]
fn a_run_that_is_killed_leaves_a_trace_that_lacks_nothing_but_its_end() {
    let lab = Lab::new();
    lab.bag(&film("/camera", 3_000, PERIOD_NS));
    let mut child = lab.start(&["--trace", "trace.json", "--rate", "1"]);
    let path = lab.path("trace.json");
    let since = Instant::now();
    let read = || std::fs::read_to_string(&path).unwrap_or_default();
    while read().matches("\"replay\"").count() < 10 {
        assert!(since.elapsed() < Duration::from_secs(120), "{}", read());
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let text = read();
    assert!(!text.ends_with("]\n"));
    let trace = Trace::read(&format!("{text}]"));
    trace.nothing_overlaps();
    assert!(trace.slices().len() >= 60);
}
