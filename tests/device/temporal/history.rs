//! What is remembered, and for how long.

use sensorium::trace::OnFull;

use crate::temporal::rig::{KINDS, Kind, Rig, Shot, options};

fn shots(from: u64, count: u64) -> Vec<Shot> {
    (0..count)
        .map(|i| Shot::at((from + i) as f64 * 0.1, 900 + from + i))
        .collect()
}

#[test]
fn the_same_frame_gives_something_else_after_other_frames() {
    for kind in KINDS {
        let mut rig = Rig::plain(kind, options(2, 1, OnFull::Evict));
        let after = rig.alone("after", &shots(0, 3)).pop().unwrap();
        let first = rig.alone("first", &shots(2, 1)).pop().unwrap();
        let mut other = shots(0, 3);
        other[1].content += 40;
        let other = rig.alone("other", &other).pop().unwrap();
        assert!(after != first && after != other && first != other, "{kind:?}");
    }
}

/// The same for where and when: a frame that was taken elsewhere is brought to another place.
#[test]
fn what_is_remembered_is_brought_to_where_the_sensor_is_now() {
    for kind in KINDS {
        let mut rig = Rig::plain(kind, options(1, 1, OnFull::Evict));
        let mut standing = shots(0, 2);
        // The square of a cosine and that of its sine are a rounding away from one, unless they are whole.
        let ground = standing[0].ground.map(|[x, y, _]| [x, y, 0.0]);
        standing.iter_mut().for_each(|shot| shot.ground = ground);
        let stood = rig.alone("stood", &standing).pop().unwrap();
        // Both frames a thousand kilometres away: where the world begins does not matter.
        let mut shifted = standing.clone();
        for shot in &mut shifted {
            shot.ground = shot
                .ground
                .map(|[x, y, heading]| [x + 1_048_576.0, y - 524_288.0, heading]);
        }
        let same = rig.alone("shifted", &shifted).pop().unwrap();
        assert!(stood == same, "{kind:?}");
        // Not known where: as if it had not moved.
        let unknown: Vec<Shot> = standing
            .iter()
            .map(|shot| Shot {
                ground: None,
                ..*shot
            })
            .collect();
        let unknown = rig.alone("unknown", &unknown).pop().unwrap();
        assert!(stood == unknown, "{kind:?}");
        let mut moved = standing;
        moved[1].ground = moved[1].ground.map(|[x, y, heading]| [x + 3.0, y, heading]);
        let moved = rig.alone("moved", &moved).pop().unwrap();
        assert!(stood != moved, "{kind:?}");
    }
}

#[test]
fn the_ring_forgets_all_but_its_frames() {
    for memory in [1, 3] {
        let mut rig = Rig::plain(Kind::BevRing, options(memory as usize, 1, OnFull::Evict));
        let old = shots(0, memory + 3);
        let mut changed = old.clone();
        changed[0].content += 50;
        changed[1].content += 50;
        let (old, changed) = (rig.alone("old", &old), rig.alone("changed", &changed));
        let differ: Vec<bool> = old.iter().zip(&changed).map(|(a, b)| a != b).collect();
        // The second changed frame is in the ring for so many frames more.
        let expected: Vec<bool> = (0..memory + 3).map(|i| i <= memory + 1).collect();
        assert_eq!(differ, expected, "{memory} frames");
    }
}

/// The memory holds what was made with the memory before it, so that a frame is never quite forgotten.
#[test]
fn queries_remember_what_was_remembered() {
    let mut rig = Rig::plain(Kind::StreamQueries, options(1, 1, OnFull::Evict));
    let old = shots(0, 5);
    let mut changed = old.clone();
    changed[0].content += 50;
    let (old, changed) = (rig.alone("old", &old), rig.alone("changed", &changed));
    assert!(old.iter().zip(&changed).all(|(a, b)| a != b));
}

/// What it costs to bring another stream's states into use: printed, not judged.
#[test]
fn switching_banks_is_counted_and_its_cost_told() {
    for kind in KINDS {
        let mut rig = Rig::plain(kind, options(3, 16, OnFull::Reject));
        rig.prepare(&shots(0, 1)[0]);
        let names: Vec<String> = (0..16).map(|i| format!("camera{i}")).collect();
        let many: Vec<&str> = names.iter().map(String::as_str).collect();
        rig.time(&many, 16);
        let switches = |rig: &Rig| rig.trace.describe()["banks"]["switches"].as_u64().unwrap();
        assert_eq!(switches(&rig), 16);
        let frames = 48;
        // By turns, so that a machine that slows down slows both.
        let mut best = [f64::INFINITY; 2];
        for _ in 0..3 {
            for (which, streams) in [&many[..1], &many[..]].into_iter().enumerate() {
                let took = rig.time(streams, frames).as_secs_f64() / frames as f64;
                best[which] = best[which].min(took);
            }
        }
        // Sixteen in turn begin where the one left off.
        assert_eq!(switches(&rig), 16 + 3 * frames as u64);
        let [one, sixteen] = best.map(|s| s * 1e6);
        println!(
            "{kind:?}: {one:.0} us a frame of one stream, {sixteen:.0} us of sixteen in turn: {:.0} us a switch",
            sixteen - one
        );
    }
}
