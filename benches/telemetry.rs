//! What it costs to be watched: the same run with and without metrics, a collector that asks for them every second, a
//! person at `sensorium top`, and a trace.
//!
//! Runs alternate, so that what else the machine does falls on both alike, and each pair is compared by itself. Processor
//! time tells the cost where other work disturbs the throughput. `cargo bench --bench telemetry [-- PAIRS [SECONDS]]`
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a bench")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The same workload every time: every frame of a simulated drive, two networks, as fast as it goes.
const PIPELINE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/pipelines/demo.yaml");

/// One run in numbers.
#[derive(Debug, Clone, Copy)]
struct Measured {
    frames_per_s: f64,
    cpu_ms_a_frame: f64,
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

fn run(seconds: f64, watched: bool) -> Measured {
    let folder = tempfile::tempdir().unwrap();
    // A port that is free, for a moment.
    let address = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sensorium"));
    command
        .current_dir(folder.path())
        .args(["run", PIPELINE, "--format", "json", "--rate", "max"]);
    command.args([
        "--set",
        &format!("nodes.drive.simulate.seconds={seconds}"),
        "--jsonl",
        "out.jsonl",
    ]);
    for edge in 0..2 {
        command.args(["--set", &format!("channels.edges.{edge}.on_full=block")]);
    }
    if watched {
        command.args(["--listen", &address, "--trace", "trace.json"]);
    }
    let cpu_s = children_cpu_s();
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let over = AtomicBool::new(false);
    let output = std::thread::scope(|scope| {
        if watched {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let _ = (page(&address, "/metrics"), page(&address, "/status"));
                    std::thread::sleep(Duration::from_secs(1));
                }
            });
        }
        let output = child.wait_with_output().unwrap();
        over.store(true, Ordering::Relaxed);
        output
    });
    assert!(output.status.success());
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let frames = summary["frames"]["out"].as_f64().unwrap();
    assert_eq!(
        summary["frames"]["in"].as_f64(),
        Some(frames),
        "nothing is dropped"
    );
    Measured {
        frames_per_s: summary["throughput_fps"].as_f64().unwrap(),
        cpu_ms_a_frame: (children_cpu_s() - cpu_s) * 1e3 / frames,
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() % 2 {
        0 => f64::midpoint(values[middle - 1], values[middle]),
        _ => values[middle],
    }
}

fn main() {
    let mut numbers = std::env::args()
        .skip(1)
        .filter_map(|argument| argument.parse::<f64>().ok());
    let pairs = numbers.next().unwrap_or(8.0) as usize;
    let seconds = numbers.next().unwrap_or(10.0);
    let (mut throughput, mut cpu) = (Vec::new(), Vec::new());
    for pair in 0..pairs {
        // The first of two runs may find the machine in another state than the second.
        let (off, on) = match pair % 2 {
            0 => (run(seconds, false), run(seconds, true)),
            _ => {
                let on = run(seconds, true);
                (run(seconds, false), on)
            }
        };
        println!(
            "off {:7.2} frames/s {:7.2} ms CPU a frame   on {:7.2} frames/s {:7.2} ms CPU a frame",
            off.frames_per_s, off.cpu_ms_a_frame, on.frames_per_s, on.cpu_ms_a_frame
        );
        throughput.push((off.frames_per_s / on.frames_per_s - 1.0) * 100.0);
        cpu.push((on.cpu_ms_a_frame / off.cpu_ms_a_frame - 1.0) * 100.0);
    }
    for (what, values) in [("throughput", throughput), ("processor time", cpu)] {
        let middle = median(values.clone());
        let spread = median(values.iter().map(|value| (value - middle).abs()).collect());
        println!("cost in {what}: median {middle:+.2} %, spread {spread:.2} % (median absolute deviation)");
    }
}
