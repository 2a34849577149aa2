//! Slowness shows where it is, and large messages before it take no memory.

use std::process::Stdio;
use std::time::Duration;

use sensorium::image::{Image, PixelFormat};
use serde_json::Value;

use crate::tiny::{Lab, await_end, film, raw};

/// Wait and service of a stage together, in milliseconds, medians.
fn median_ms(stage: &Value) -> f64 {
    ["wait", "service"]
        .iter()
        .map(|part| stage[part]["p50_us"].as_f64().unwrap() / 1e3)
        .sum()
}

#[test]
fn a_stage_that_is_slowed_is_the_one_that_shows_it() {
    const STALL_MS: f64 = 200.0;
    for (actor, slowed) in [
        ("camera", "ingest"),
        ("detector/prepare", "prepare"),
        ("detector/finish", "finish"),
    ] {
        let lab = Lab::new();
        lab.bag(&film("/front", 8, 400_000_000));
        let fault =
            format!("supervision.fault=[{{ actor: {actor}, kind: stall, nth: 1, times: 100, for_ms: 200 }}]");
        let run = lab.run(&["--rate", "1", "--set", &fault]);
        assert_eq!((run.code, run.frames()), (Some(0), [8, 8, 0, 0]), "{run:?}");
        let summary = run.summary();
        let stages = summary["stages"].as_array().unwrap();
        let slowest = stages
            .iter()
            .max_by(|a, b| median_ms(a).total_cmp(&median_ms(b)))
            .unwrap();
        assert_eq!(slowest["stage"], slowed, "{actor}: {summary:#}");
        assert!(median_ms(slowest) >= STALL_MS, "{actor}: {summary:#}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn large_images_before_a_slow_output_are_dropped_and_counted_in_memory_that_stays() {
    const IMAGES: u64 = 200;
    let lab = Lab::new();
    // 1.6 MB each, 50 a second: 80 MB a second.
    let image = Image::new(vec![90; 960 * 560 * 3], 960, 560, PixelFormat::Bgr8).unwrap();
    let frames: Vec<_> = (0..IMAGES)
        .map(|i| raw("/front", i * 20_000_000, &image))
        .collect();
    lab.bag(&frames);
    let child = lab
        .command(&[
            "--rate",
            "1",
            "--jsonl",
            "out.jsonl",
            "--record",
            "tape.mcap",
            "--set",
            "supervision.fault=[{ actor: recorder, kind: stall, nth: 1, times: 1000, for_ms: 200 }]",
            "--set",
            "channels.edges=[{ from: detector, to: recorder, capacity: 2, on_full: drop_oldest }]",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let process = child.id();
    let sampler = std::thread::spawn(move || {
        let mut samples = Vec::new();
        while let Some(mb) = crate::resident::resident_mb(process) {
            samples.push(mb);
            std::thread::sleep(Duration::from_millis(50));
        }
        samples
    });
    let run = await_end(child);
    let samples = sampler.join().unwrap();
    assert_eq!(
        (run.code, run.frames()),
        (Some(0), [IMAGES, IMAGES, 0, 0]),
        "{run:?}"
    );
    let dropped: u64 = run
        .drops()
        .iter()
        .filter(|(node, ..)| node == "recorder")
        .map(|(.., count)| count)
        .sum();
    assert!(dropped > 0, "{run:?}");
    let tape = sensorium::io::bag::Bag::open(&lab.path("tape.mcap")).unwrap();
    assert_eq!(tape.message_count(), 2 * (IMAGES - dropped), "images and boxes");
    assert_eq!(lab.lines("out.jsonl").len() as u64, IMAGES);
    // What is not dropped would be 60 MB and more each second of the run.
    let first = samples[samples.len() / 3];
    let most = samples[samples.len() / 3..].iter().copied().fold(0.0, f64::max);
    assert!(most - first < 60.0, "from {first} to {most} MB: {samples:?}");
}
