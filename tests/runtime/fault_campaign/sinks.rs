//! Outputs fail or are slow.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use sensorium::image::{Image, PixelFormat};

use crate::fault_campaign::watch::{Watch, longest_pause_ms, row, watched, within_reason};
use crate::fault_campaign::{FRAMES, PERIOD_NS, TOPIC, campaign};
use crate::tiny::{Lab, film, picture, raw, sensorium};

/// The disk is full once the recording has so many KiB.
#[test]
fn a_disk_that_fills_while_recording_leaves_the_other_outputs_whole() {
    campaign(|random| {
        let lab = Lab::new();
        // Noise, which does not shrink.
        let mut noise = || {
            let pixels = (0..64 * 64 * 3).map(|_| random.below(256) as u8).collect();
            Image::new(pixels, 64, 64, PixelFormat::Rgb8).unwrap()
        };
        let frames: Vec<_> = (0..FRAMES)
            .map(|i| raw(TOPIC, i as u64 * PERIOD_NS, &noise()))
            .collect();
        lab.bag(&frames);
        let room_kib = 200 + random.below(800);
        let watch = Watch::file(&lab.path("out.jsonl"));
        // A limit on the size of files is a full disk that needs no privileges; the signal that goes with it is ignored.
        let script = format!("trap '' XFSZ; ulimit -f {}; exec \"$0\" \"$@\"", room_kib * 2);
        let child = Command::new("sh")
            .current_dir(lab.path(""))
            .args(["-c", &script])
            .arg(sensorium().get_program())
            .args([
                "run",
                "tiny.yaml",
                "--format",
                "json",
                "--bag",
                "bag.mcap",
                "--rate",
                "1",
            ])
            .args([
                "--jsonl",
                "out.jsonl",
                "--record",
                "tape.mcap",
                "--set",
                "nodes.recorder.include_images=true",
            ])
            .env("NO_COLOR", "1")
            .env("SENSORIUM_WEIGHT_CACHE", "0")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let run = within_reason(child);
        let came = watch.end();
        assert_eq!(
            (run.code, run.frames()),
            (Some(1), [FRAMES as u64, FRAMES as u64, 0, 0]),
            "{run:?}"
        );
        assert!(run.told.contains("recorder"), "{run:?}");
        assert_eq!(lab.lines("out.jsonl").len(), FRAMES, "the other output is whole");
        row(
            "disk full on record",
            format!("after {room_kib} KiB"),
            &run,
            Some(longest_pause_ms(&came)),
        )
    });
}

#[test]
fn a_slow_sink_drops_by_its_policy_and_slows_nothing_else() {
    campaign(|random| {
        let lab = Lab::new();
        // Lines of some kilobytes, so that a pipe holds only a few.
        let cells: Vec<(usize, [usize; 2])> = (0..64).map(|i| (2, [i % 8 * 8, i / 8 * 8])).collect();
        let image = picture(&cells);
        let frames: Vec<_> = (0..FRAMES)
            .map(|i| raw(TOPIC, i as u64 * PERIOD_NS, &image))
            .collect();
        lab.bag(&frames);
        let made = Command::new("mkfifo").arg(lab.path("pipe")).status().unwrap();
        assert!(made.success());
        let pause = Duration::from_millis(150 + random.below(200) as u64);
        let pipe = lab.path("pipe");
        let reader = std::thread::spawn(move || {
            let mut lines = 0;
            for line in BufReader::with_capacity(256, std::fs::File::open(pipe).unwrap()).lines() {
                line.unwrap();
                lines += 1;
                if lines < 20 {
                    std::thread::sleep(pause);
                }
            }
            lines
        });
        let child = lab.start(&[
            "--rate",
            "1",
            "--jsonl",
            "pipe",
            "--record",
            "tape.mcap",
            "--set",
            "channels.edges=[{ from: detector, to: jsonl, capacity: 2, on_full: drop_oldest }]",
        ]);
        let run = within_reason(child);
        let lines: u64 = reader.join().unwrap();
        assert_eq!(
            (run.code, run.frames()),
            (Some(0), [FRAMES as u64, FRAMES as u64, 0, 0]),
            "{run:?}"
        );
        let dropped: u64 = run.drops().iter().filter(|d| d.0 == "jsonl").map(|d| d.2).sum();
        assert!(dropped > 0, "{run:?}");
        assert_eq!(
            lines + dropped,
            FRAMES as u64,
            "every line is written or counted: {run:?}"
        );
        let tape = sensorium::io::bag::Bag::open(&lab.path("tape.mcap")).unwrap();
        assert_eq!(tape.message_count(), 2 * FRAMES as u64, "the recording is whole");
        row(
            "slow sink",
            format!("{} ms a line", pause.as_millis()),
            &run,
            None,
        )
    });
}

#[test]
fn a_camera_that_is_well_is_the_measure_of_the_others() {
    campaign(|_| {
        let lab = Lab::new();
        lab.bag(&film(TOPIC, FRAMES, PERIOD_NS));
        let (run, came) = watched(&lab, &[]);
        assert_eq!(
            (run.code, run.frames()),
            (Some(0), [FRAMES as u64, FRAMES as u64, 0, 0]),
            "{run:?}"
        );
        row("none", "-".into(), &run, Some(longest_pause_ms(&came)))
    });
}
