//! Messages and stamps are damaged.

use crate::fault_campaign::watch::{longest_pause_ms, row, watched};
use crate::fault_campaign::{FRAMES, PERIOD_NS, TOPIC, campaign};
use crate::tiny::{Frame, Lab, compressed, film, numbered};
use sensorium::image::encode_png;

#[test]
fn damaged_messages_cost_themselves_alone() {
    campaign(|random| {
        let lab = Lab::new();
        let mut frames = film(TOPIC, FRAMES, PERIOD_NS);
        let mut hurt = std::collections::BTreeSet::new();
        while hurt.len() < 20 {
            hurt.insert(random.below(FRAMES));
        }
        for &i in &hurt {
            let data = &mut frames[i].data;
            match random.below(3) {
                // Cut short, a length that lies, and noise from some byte on.
                0 => data.truncate(1 + random.below(data.len() - 1)),
                1 => data[24..28].copy_from_slice(&u32::MAX.to_le_bytes()),
                _ => {
                    let from = random.below(data.len() / 2);
                    data[from..]
                        .iter_mut()
                        .for_each(|byte| *byte = random.below(256) as u8);
                }
            }
        }
        lab.bag(&frames);
        let (run, came) = watched(&lab, &[]);
        assert_eq!(run.code, Some(0), "{run:?}");
        let [came_in, out, ..] = run.frames();
        assert_eq!(came_in, FRAMES as u64);
        let seqs: std::collections::BTreeSet<u64> = lab
            .lines("out.jsonl")
            .iter()
            .map(|line| line["seq"].as_u64().unwrap())
            .collect();
        assert_eq!(seqs.len() as u64, out);
        let whole = (0..FRAMES).filter(|i| !hurt.contains(i));
        assert!(
            whole.clone().all(|i| seqs.contains(&(i as u64))),
            "a whole frame is missing: {run:?}"
        );
        let place = format!("{} of {FRAMES} messages", hurt.len());
        row("corrupted messages", place, &run, Some(longest_pause_ms(&came)))
    });
}

/// The stamps jump, the bag's times do not.
fn stamped(i: usize, stamp_ns: u64) -> Frame {
    let png = encode_png(&numbered(i).0.view()).unwrap();
    Frame {
        time_ns: crate::tiny::START_NS + i as u64 * PERIOD_NS,
        ..compressed(TOPIC, stamp_ns, "png", &png)
    }
}

#[test]
fn a_clock_that_jumps_either_way_loses_nothing() {
    campaign(|random| {
        let lab = Lab::new();
        let [ahead, back] = [20 + random.below(40), 80 + random.below(40)];
        let frames: Vec<Frame> = (0..FRAMES)
            .map(|i| {
                let usual = 30_000_000_000 + i as u64 * PERIOD_NS;
                let jumped = match i {
                    i if i < ahead => usual,
                    i if i < back => usual + 3_600_000_000_000,
                    _ => usual - 20_000_000_000,
                };
                stamped(i, jumped)
            })
            .collect();
        lab.bag(&frames);
        let (run, came) = watched(&lab, &["--record", "tape.mcap"]);
        assert_eq!(
            (run.code, run.frames()),
            (Some(0), [FRAMES as u64, FRAMES as u64, 0, 0]),
            "{run:?}"
        );
        let stamps: Vec<i64> = lab
            .lines("out.jsonl")
            .iter()
            .map(|line| line["stamp_ns"].as_i64().unwrap())
            .collect();
        let step = |i: usize| stamps[i] - stamps[i - 1];
        let period = PERIOD_NS as i64;
        assert_eq!(
            (step(ahead), step(back)),
            (period + 3_600_000_000_000, period - 3_620_000_000_000)
        );
        let tape = sensorium::io::bag::Bag::open(&lab.path("tape.mcap")).unwrap();
        assert_eq!(tape.message_count(), 2 * FRAMES as u64, "images and boxes");
        let place = format!("frame {ahead} an hour on, frame {back} back");
        row("clock jumps", place, &run, Some(longest_pause_ms(&came)))
    });
}
