//! `sensorium run` is told to stop: it ends soon, its outputs are whole, and every frame is accounted for.
#![cfg(unix)]

use crate::support;
use crate::tiny;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use sensorium::io::bag::Bag;
use serde_json::Value;
use tiny::{Lab, Outcome, await_end, film, found, numbered, picture};

const TOPIC: &str = "/camera/image";
const PERIOD_NS: u64 = 100_000_000;

fn boxes(lines: &[Value]) -> Vec<[f64; 4]> {
    lines.iter().flat_map(found).map(|(_, square)| square).collect()
}

/// Sends a signal by name.
fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill")
        .args([&format!("-{name}"), &child.id().to_string()])
        .status();
    assert!(sent.unwrap().success());
}

/// Waits until the file has so many lines.
fn await_lines(path: &Path, count: usize) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while std::fs::read_to_string(path).map_or(0, |text| text.lines().count()) < count {
        assert!(
            Instant::now() < deadline,
            "{} never had {count} lines",
            path.display()
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The run, and how long it went on after the signal.
fn end_by(child: Child, name: &str) -> (Outcome, Duration) {
    let since = Instant::now();
    signal(&child, name);
    let run = await_end(child);
    (run, since.elapsed())
}

/// As a service manager does that waits for the address and no longer.
#[test]
fn whoever_reads_the_address_may_signal_at_once() {
    let lab = Lab::new();
    lab.bag(&film(TOPIC, 600, PERIOD_NS));
    for attempt in 0..6 {
        let mut child = lab.start(&["--rate", "1", "--listen", "127.0.0.1:0"]);
        let mut told = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("metrics and status are on") {
            line.clear();
            assert_ne!(
                told.read_line(&mut line).unwrap(),
                0,
                "it ended before it listened"
            );
        }
        if attempt % 2 == 0 {
            signal(&child, "HUP");
        }
        signal(&child, "INT");
        std::io::copy(&mut told, &mut std::io::sink()).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0), "attempt {attempt}");
    }
}

#[test]
fn an_interrupt_ends_a_paced_run_at_once_with_whole_outputs() {
    for name in ["INT", "TERM"] {
        let lab = Lab::new();
        lab.bag(&film(TOPIC, 600, PERIOD_NS));
        let child = lab.start(&["--rate", "1", "--jsonl", "out.jsonl", "--record", "tape.mcap"]);
        await_lines(&lab.path("out.jsonl"), 5);
        let (run, took) = end_by(child, name);
        assert!(took < Duration::from_secs(2), "{name}: {took:?}");
        assert_eq!(run.code, Some(0), "{run:?}");
        let [came, out, dropped, lost] = run.frames();
        assert!((5..600).contains(&out), "{run:?}");
        assert_eq!((came, lost), (out + dropped, 0), "{run:?}");
        assert_eq!(run.summary()["incomplete"][0], "stopped before the end");
        let squares = boxes(&lab.lines("out.jsonl"));
        assert_eq!(
            squares,
            (0..out as usize).map(|i| numbered(i).1).collect::<Vec<_>>()
        );
        let tape = Bag::open(&lab.path("tape.mcap")).unwrap();
        assert_eq!(
            (tape.warnings(), tape.message_count()),
            (&[][..], 2 * out),
            "{name}"
        );
    }
}

/// Starts a fast run whose JSON lines go into a pipe.
fn run_into_pipe(lab: &Lab) -> Child {
    // Red all over, for a line of some kilobytes: a dozen of them fill the pipe.
    let cells: Vec<(usize, [usize; 2])> = (0..64).map(|i| (2, [i % 8 * 8, i / 8 * 8])).collect();
    let red = tiny::raw(TOPIC, 0, &picture(&cells));
    let frame = |i: u64| tiny::Frame {
        time_ns: tiny::START_NS + i * PERIOD_NS,
        ..red.clone()
    };
    lab.bag(&(0..2_000).map(frame).collect::<Vec<_>>());
    support::run(Command::new("mkfifo").arg(lab.path("pipe")));
    lab.start(&["--jsonl", "pipe"])
}

#[test]
fn an_interrupt_does_not_wait_for_a_slow_reader() {
    let lab = Lab::new();
    let child = run_into_pipe(&lab);
    let pipe = std::fs::File::open(lab.path("pipe")).unwrap();
    let reader = std::thread::spawn(move || {
        let mut lines = Vec::new();
        for line in BufReader::with_capacity(256, pipe).lines() {
            lines.push(line.unwrap());
            // Too slow for the run, fast once it is over.
            if lines.len() < 100 {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        lines
    });
    std::thread::sleep(Duration::from_millis(1_500));
    let (run, took) = end_by(child, "INT");
    assert!(took < Duration::from_secs(4), "{took:?}");
    let [came, out, dropped, lost] = run.frames();
    assert_eq!((came, lost), (out + dropped, 0), "{run:?}");
    assert!(out < 2_000, "{run:?}");
    let not_written: u64 = run.drops().iter().filter(|d| d.0 == "jsonl").map(|d| d.2).sum();
    let lines = reader.join().unwrap();
    assert_eq!(lines.len() as u64, out - not_written, "{run:?}");
    tiny::json_lines(&format!("{}\n", lines.join("\n")));
}

#[test]
fn a_reader_that_hangs_holds_neither_the_interrupt_nor_the_account() {
    let lab = Lab::new();
    let child = run_into_pipe(&lab);
    let pipe = std::fs::File::open(lab.path("pipe")).unwrap();
    std::thread::sleep(Duration::from_millis(1_500));
    let (run, took) = end_by(child, "INT");
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert_eq!(run.code, Some(1), "{run:?}");
    let [came, out, dropped, lost] = run.frames();
    assert_eq!(came, out + dropped + lost, "{run:?}");
    assert!(run.told.contains("did not stop in time"), "{}", run.told);
    drop(pipe);
}

#[test]
fn a_second_interrupt_ends_the_program_itself() {
    let lab = Lab::new();
    let child = run_into_pipe(&lab);
    let pipe = std::fs::File::open(lab.path("pipe")).unwrap();
    std::thread::sleep(Duration::from_millis(1_500));
    signal(&child, "INT");
    std::thread::sleep(Duration::from_millis(100));
    let (run, took) = end_by(child, "INT");
    assert!(took < Duration::from_secs(1), "{took:?}");
    assert_eq!(run.code, Some(130), "{run:?}");
    drop(pipe);
}
