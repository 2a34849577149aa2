//! What it costs to be watched: the same run without and with a collector that asks for metrics and status every second,
//! and with that and a trace of every frame.
//!
//! Frames are small, so that what telemetry adds to each shows beside what else is done for it; of a frame of a real
//! network it is a share that is told, too. Runs alternate, so that what else the machine does falls on all alike, and each
//! is compared with the one of its round that nobody watched.
//!
//! `cargo bench --bench telemetry [-- ROUNDS [IMAGES]]`
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, reason = "benches")]

#[path = "../tests/support/tiny.rs"]
mod tiny;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Milliseconds that the device takes for a frame of `pipelines/yolox.yaml` with YOLOX-nano on two cores: see
/// docs/PERFORMANCE.md. A frame of a smaller network is hardly worth a device.
const FRAME_MS: f64 = 11.4;

/// How a run is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Watched {
    No,
    Metrics,
    MetricsAndTrace,
}

/// One run: microseconds a frame.
#[derive(Debug, Clone, Copy)]
struct Measured {
    wall_us: f64,
    cpu_us: f64,
}

/// Processor time of all children that have ended, in seconds.
fn children_cpu_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks = |i: usize| fields[i].parse::<f64>().unwrap();
    (ticks(13) + ticks(14)) / 100.0
}

fn page(address: &str, path: &str) -> Option<usize> {
    let mut client = TcpStream::connect(address).ok()?;
    write!(
        client,
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )
    .ok()?;
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).ok()
}

fn run(lab: &tiny::Lab, watched: Watched) -> Measured {
    // A port that is free, for a moment.
    let address = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .to_string();
    let mut arguments = vec!["--set", "nodes.detector.prepare_workers=2"];
    if watched != Watched::No {
        arguments.extend(["--listen", &address]);
    }
    if watched == Watched::MetricsAndTrace {
        arguments.extend(["--trace", "trace.json"]);
    }
    let cpu_s = children_cpu_s();
    let child = lab
        .command(&arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (over, mut answers) = (AtomicBool::new(false), 0);
    let output = std::thread::scope(|scope| {
        let collector = (watched != Watched::No).then(|| {
            scope.spawn(|| {
                let mut answers = 0;
                while !over.load(Ordering::Relaxed) {
                    let got = [page(&address, "/metrics"), page(&address, "/status")];
                    answers += usize::from(got.iter().all(Option::is_some));
                    // Once it listens, every second.
                    std::thread::sleep(Duration::from_millis(if answers == 0 { 20 } else { 1_000 }));
                }
                answers
            })
        });
        let output = child.wait_with_output().unwrap();
        over.store(true, Ordering::Relaxed);
        answers = collector.map_or(1, |collector| collector.join().unwrap());
        output
    });
    assert!(output.status.success());
    assert!(answers > 0, "nobody answered the collector");
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let frames = summary["frames"]["out"].as_f64().unwrap();
    assert_eq!(
        summary["frames"]["in"].as_f64(),
        Some(frames),
        "nothing is dropped"
    );
    Measured {
        wall_us: summary["run"]["wall_s"].as_f64().unwrap() * 1e6 / frames,
        cpu_us: (children_cpu_s() - cpu_s) * 1e6 / frames,
    }
}

/// The quarter, the half and three quarters of a list of values.
fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values[(values.len() - 1) * quarter / 4])
}

fn main() {
    let mut numbers = std::env::args()
        .skip(1)
        .filter_map(|argument| argument.parse::<usize>().ok());
    let rounds = numbers.next().unwrap_or(20).max(1);
    let images = numbers.next().unwrap_or(8_000);
    let lab = tiny::Lab::new();
    lab.bag(&tiny::film("/camera", images, 1_000_000));
    const WAYS: [Watched; 3] = [Watched::No, Watched::Metrics, Watched::MetricsAndTrace];
    let mut measured: Vec<[Measured; 3]> = Vec::new();
    for round in 0..rounds {
        let mut all = [None; 3];
        for turn in 0..WAYS.len() {
            // The first run of a round may find the machine in another state than the last.
            let way = (round + turn) % WAYS.len();
            all[way] = Some(run(&lab, WAYS[way]));
        }
        measured.push(all.map(Option::unwrap));
    }
    println!("{rounds} rounds of {images} images; microseconds a frame, median (quartiles)");
    for (way, what) in [(1, "metrics, asked for every second"), (2, "metrics and a trace")] {
        for (unit, pick) in [
            ("wall", (|one: &Measured| one.wall_us) as fn(&Measured) -> f64),
            ("processor", |one: &Measured| one.cpu_us),
        ] {
            let unwatched = quartiles(measured.iter().map(|all| pick(&all[0])).collect());
            let added = quartiles(
                measured
                    .iter()
                    .map(|all| pick(&all[way]) - pick(&all[0]))
                    .collect(),
            );
            println!(
                "{what}, {unit}: {:+.2} ({:+.2} to {:+.2}) on {:.1}; {:+.3} % of a frame of {FRAME_MS} ms",
                added[1],
                added[0],
                added[2],
                unwatched[1],
                added[1] / (FRAME_MS * 10.0)
            );
        }
    }
}
