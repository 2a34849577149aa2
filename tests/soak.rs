//! A run of a minute, or of as many seconds as `SENSORIUM_SOAK_S` says: memory does not grow and every frame is accounted
//! for. `SENSORIUM_SOAK_OUT` names a folder for the samples and a drawing of them.
//!
//! A soak of half an hour or more also asks that latency does not drift; `benches/soak.sh` runs it. On a shared machine a
//! minute says nothing about that.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

#[path = "support/resident.rs"]
mod resident;
#[path = "support/tiny.rs"]
mod tiny;

use std::fmt::Write as _;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use resident::resident_mb;
use sensorium::image::encode_png;
use tiny::Lab;

/// Seconds of a soak that also measures drift.
const LONG_S: u64 = 1_800;
/// The most that memory may grow in a minute, in MB.
const GROWTH_MB_PER_MIN: f64 = 1.0;
/// The most that the median latency may rise from the first third to the last; that it falls is the machine's doing.
const DRIFT: f64 = 0.05;

/// Cameras of a car, with their images a second.
const CAMERAS: [(&str, u64); 4] = [("/front", 30), ("/rear", 15), ("/left", 10), ("/right", 7)];

const PIPELINE: &str = "\
pipeline: soak
device: { threads: 1, queues: 2, arena_mib: 32 }
models:
  squares:
    type: yolox
    weights: squares.onnx
    preprocess: yolox_opencv
    labels: colours.txt
    score_threshold: 0.3
    nms_threshold: 0.45
nodes:
  cameras: { kind: source, bag: bag.mcap, rate: 1, deadline_ms: 100 }
  detector: { kind: detector, model: squares, input: cameras, prepare_workers: 2 }
  recorder: { kind: recorder, input: detector, path: out.mcap, include_images: false }
  jsonl: { kind: jsonl, input: detector, path: out.jsonl }
channels:
  default: { capacity: 4, on_full: drop_oldest }
";

/// Slope of the least-squares line through points.
fn slope(points: &[(f64, f64)]) -> f64 {
    let n = points.len() as f64;
    let mean = |pick: fn(&(f64, f64)) -> f64| points.iter().map(pick).sum::<f64>() / n;
    let (x, y) = (mean(|p| p.0), mean(|p| p.1));
    let over: f64 = points.iter().map(|p| (p.0 - x) * (p.1 - y)).sum();
    let under: f64 = points.iter().map(|p| (p.0 - x).powi(2)).sum();
    over / under
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The bag of so many seconds.
fn bag(lab: &Lab, seconds: u64) {
    let pictures: Vec<Vec<u8>> = (0..16)
        .map(|i| encode_png(&tiny::numbered(i).0.view()).unwrap())
        .collect();
    let mut frames = Vec::new();
    for (topic, hz) in CAMERAS {
        for i in 0..seconds * hz {
            let at_ns = i * 1_000_000_000 / hz;
            frames.push(tiny::compressed(topic, at_ns, "png", &pictures[i as usize % 16]));
        }
    }
    frames.sort_by_key(|frame| frame.time_ns);
    lab.bag(&frames);
}

/// Memory and latency over time, one above the other.
fn drawing(memory: &[(f64, f64)], latency: &[(f64, f64)]) -> String {
    const WIDTH: f64 = 900.0;
    const HEIGHT: f64 = 220.0;
    let mut svg = format!(
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {} {}' font-family='sans-serif' font-size='13'>\
         <rect width='100%' height='100%' fill='white'/>",
        WIDTH + 80.0,
        2.0 * HEIGHT + 120.0
    );
    for (row, (points, title)) in [
        (memory, "resident memory, MB"),
        (latency, "latency, ms (median of 10 s)"),
    ]
    .into_iter()
    .enumerate()
    {
        let top = 40.0 + row as f64 * (HEIGHT + 40.0);
        let longest = points.last().map_or(1.0, |p| p.0).max(1.0);
        let highest = points.iter().map(|p| p.1).fold(0.0, f64::max) * 1.1;
        let place = |p: &(f64, f64)| (60.0 + p.0 / longest * WIDTH, top + HEIGHT * (1.0 - p.1 / highest));
        write!(svg, "<text x='60' y='{}'>{title}</text>", top - 8.0).unwrap();
        for tick in 0..=4 {
            let value = highest * f64::from(tick) / 4.0;
            let y = top + HEIGHT * (1.0 - f64::from(tick) / 4.0);
            write!(svg, "<path d='M60 {y}h{WIDTH}' stroke='#ddd'/><text x='54' y='{}' text-anchor='end'>{value:.1}</text>", y + 4.0).unwrap();
        }
        let path: Vec<String> = points
            .iter()
            .map(|p| {
                let (x, y) = place(p);
                format!("{x:.1},{y:.1}")
            })
            .collect();
        write!(
            svg,
            "<polyline fill='none' stroke='#1667b7' stroke-width='1.5' points='{}'/>",
            path.join(" ")
        )
        .unwrap();
        write!(
            svg,
            "<text x='{}' y='{}' text-anchor='end'>{longest:.0} s</text>",
            60.0 + WIDTH,
            top + HEIGHT + 18.0
        )
        .unwrap();
    }
    svg.push_str("</svg>");
    svg
}

#[test]
fn memory_does_not_grow_and_nothing_is_lost() {
    let seconds: u64 = std::env::var("SENSORIUM_SOAK_S").map_or(60, |text| text.parse().unwrap());
    let lab = Lab::new();
    bag(&lab, seconds);
    std::fs::write(lab.path("soak.yaml"), PIPELINE).unwrap();
    let start = Instant::now();
    let child = tiny::sensorium()
        .current_dir(lab.path(""))
        .args(["run", "soak.yaml", "--format", "json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let process = child.id();
    let sampler = std::thread::spawn(move || {
        let mut samples = Vec::new();
        while let Some(mb) = resident_mb(process) {
            samples.push((start.elapsed().as_secs_f64(), mb));
            std::thread::sleep(Duration::from_millis(500));
        }
        samples
    });
    let run = tiny::await_end(child);
    let memory = sampler.join().unwrap();
    assert_eq!(run.code, Some(0), "{run:?}");
    let [came, out, dropped, lost] = run.frames();
    assert_eq!(came, CAMERAS.iter().map(|(_, hz)| hz * seconds).sum::<u64>());
    assert_eq!((came, lost), (out + dropped, 0), "{run:?}");

    let lines = lab.lines("out.jsonl");
    assert_eq!(lines.len() as u64, out);
    let first_ns = lines[0]["stamp_ns"].as_i64().unwrap();
    let latency: Vec<(f64, f64)> = lines
        .iter()
        .map(|line| {
            let at_s = (line["stamp_ns"].as_i64().unwrap() - first_ns) as f64 / 1e9;
            (at_s, line["latency_us"]["total"].as_f64().unwrap() / 1e3)
        })
        .collect();
    // The first fifth fills pools, caches and histograms.
    let settled: Vec<(f64, f64)> = memory
        .iter()
        .copied()
        .filter(|(at_s, _)| *at_s > seconds as f64 / 5.0)
        .collect();
    let growth = slope(&settled) * 60.0;
    let third = seconds as f64 / 3.0;
    let median_of = |part: f64| {
        let within = |p: &&(f64, f64)| (part * third..(part + 1.0) * third).contains(&p.0);
        median(latency.iter().filter(within).map(|p| p.1).collect())
    };
    let (before, after) = (median_of(0.0), median_of(2.0));
    println!(
        "{seconds} s: {out} of {came} frames, memory {:.1} MB, {growth:+.3} MB a minute, latency {before:.3} ms in the first third, \
         {after:.3} ms in the last ({:+.1} %)",
        settled.last().unwrap().1,
        (after / before - 1.0) * 100.0
    );
    if let Ok(folder) = std::env::var("SENSORIUM_SOAK_OUT") {
        let folder = Path::new(&folder);
        std::fs::create_dir_all(folder).unwrap();
        let mut by_time: Vec<(f64, f64)> = Vec::new();
        for part in 0..seconds.div_ceil(10) {
            let from = part as f64 * 10.0;
            let within: Vec<f64> = latency
                .iter()
                .filter(|p| (from..from + 10.0).contains(&p.0))
                .map(|p| p.1)
                .collect();
            if !within.is_empty() {
                by_time.push((from, median(within)));
            }
        }
        std::fs::write(folder.join("soak.svg"), drawing(&memory, &by_time)).unwrap();
        let samples = serde_json::json!({ "memory_mb": memory, "latency_ms": by_time });
        std::fs::write(folder.join("soak.json"), samples.to_string()).unwrap();
    }
    assert!(
        growth < GROWTH_MB_PER_MIN,
        "memory grows by {growth:.3} MB a minute"
    );
    if seconds >= LONG_S {
        assert!(
            after / before - 1.0 < DRIFT,
            "latency went from {before:.3} to {after:.3} ms"
        );
    }
}
