//! Streams in any order, with resets, gaps, evictions and lost devices: each one's outputs are those that it has alone.

use std::cell::RefCell;
use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use sensorium::perception::SubmitError;
use sensorium::trace::{BankOptions, FreshReason, Freshness, OnFull, TraceOptions};

use crate::temporal::rig::{Bits, KINDS, Kind, Rig, Shot, cpu, options};

#[derive(Debug, Clone)]
enum Turn {
    Frame {
        stream: u8,
        time_s: f64,
        reset: bool,
    },
    /// The device goes, and all that was on it.
    Lose,
    Forget(u8),
}

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let frame = (0..4_u8, 0..6_u8, prop::bool::weighted(0.1)).prop_map(|(stream, time, reset)| Turn::Frame {
        stream,
        time_s: f64::from(time) * 0.5,
        reset,
    });
    let turn = prop_oneof![24 => frame, 1 => Just(Turn::Lose), 1 => (0..4_u8).prop_map(Turn::Forget)];
    prop::collection::vec(turn, 4..24)
}

/// When streams start afresh, once more and kept by stream: the frames since then with their outputs.
#[derive(Default)]
struct Rules {
    /// Most recent first.
    recent: Vec<u8>,
    since: BTreeMap<u8, Vec<(Shot, Bits)>>,
    ended: Vec<Vec<(Shot, Bits)>>,
}

impl Rules {
    fn select(&mut self, stream: u8, shot: &Shot, reset: bool, banks: &BankOptions) -> Option<Freshness> {
        let last = self.since.get(&stream).and_then(|shots| shots.last());
        let passed_s = last.map(|(last, _)| (shot.stamp_ns - last.stamp_ns) as f64 / 1e9);
        let reason = match passed_s {
            None => Some(FreshReason::New),
            _ if reset => Some(FreshReason::Reset),
            Some(passed) if passed < 0.0 => Some(FreshReason::Backwards),
            Some(passed) if banks.max_gap_s.is_some_and(|gap| passed > gap) => Some(FreshReason::Gap),
            _ => None,
        };
        if last.is_none() && self.recent.len() == banks.max_streams {
            if banks.on_full == OnFull::Reject {
                return None;
            }
            let evicted = *self.recent.last()?;
            self.end(evicted);
        }
        if reason.is_some() {
            self.end(stream);
        }
        self.recent.retain(|known| *known != stream);
        self.recent.insert(0, stream);
        Some(reason.map_or(Freshness::Continued, Freshness::Fresh))
    }

    fn end(&mut self, stream: u8) {
        self.ended.extend(self.since.remove(&stream));
        self.recent.retain(|known| *known != stream);
    }
}

fn keep_apart(kind: Kind, solo: &mut Rig, banks: BankOptions, turns: &[Turn], names: &mut u64) {
    let model = || {
        let mut model = options(2, banks.max_streams, banks.on_full);
        model.streams = banks;
        model
    };
    let mut rig = Rig::plain(kind, model());
    let mut rules = Rules::default();
    for (number, turn) in turns.iter().enumerate() {
        match *turn {
            Turn::Lose => {
                rig.device.close();
                rig = Rig::plain(kind, model());
                for stream in rules.recent.clone() {
                    rules.end(stream);
                }
            }
            Turn::Forget(stream) => {
                let known = rules.recent.contains(&stream);
                assert_eq!(rig.trace.forget_stream(&stream.to_string()), known);
                rules.end(stream);
            }
            Turn::Frame {
                stream,
                time_s,
                reset,
            } => {
                // No two frames are alike.
                let shot = Shot::at(time_s, u64::from(stream) * 1000 + number as u64 + 1);
                let ran = rig.run(&stream.to_string(), &shot, reset);
                let Some(expected) = rules.select(stream, &shot, reset, &banks) else {
                    assert!(matches!(ran, Err(SubmitError::StreamRejected { .. })), "{turn:?}");
                    continue;
                };
                let (bits, freshness) = ran.unwrap();
                assert_eq!(freshness, expected, "turn {number}");
                rules.since.entry(stream).or_default().push((shot, bits));
            }
        }
        let used = rig.trace.banks().unwrap();
        let recent: Vec<String> = rules.recent.iter().map(ToString::to_string).collect();
        assert_eq!(
            (used.used, used.max, used.streams),
            (recent.len(), banks.max_streams, recent)
        );
    }
    for stream in rules.recent.clone() {
        rules.end(stream);
    }
    for segment in rules.ended {
        *names += 1;
        let shots: Vec<Shot> = segment.iter().map(|(shot, _)| *shot).collect();
        let alone = solo.alone(&names.to_string(), &shots);
        for (index, ((shot, bits), alone)) in segment.iter().zip(&alone).enumerate() {
            assert!(
                bits == alone,
                "{kind:?}: frame {index} of a stream differs: {shot:?}"
            );
        }
    }
}

#[test]
fn whatever_the_order_every_stream_has_the_outputs_that_it_has_alone() {
    for kind in KINDS {
        let solo = RefCell::new((Rig::plain(kind, options(2, 1, OnFull::Evict)), 0));
        let cases = Config {
            cases: 10,
            failure_persistence: None,
            ..Config::default()
        };
        let strategy = (1..4_usize, any::<bool>(), prop::option::of(Just(1.0)), turns());
        TestRunner::new(cases)
            .run(&strategy, |(max_streams, evict, max_gap_s, turns)| {
                let banks = BankOptions {
                    max_streams,
                    on_full: if evict { OnFull::Evict } else { OnFull::Reject },
                    max_gap_s,
                };
                let (solo, names) = &mut *solo.borrow_mut();
                keep_apart(kind, solo, banks, &turns, names);
                Ok(())
            })
            .unwrap();
    }
}

/// The loudest neighbour there is, and one that sees nothing.
#[test]
fn a_full_and_an_empty_stream_do_not_hear_each_other() {
    for kind in KINDS {
        let mut both = Rig::plain(kind, options(3, 2, OnFull::Reject));
        let mut solo = Rig::plain(kind, options(3, 1, OnFull::Evict));
        let full: Vec<Shot> = (0..5)
            .map(|i| Shot::at(f64::from(i) * 0.1, 70 + i as u64))
            .collect();
        let empty: Vec<Shot> = full.iter().map(|shot| Shot { content: 0, ..*shot }).collect();
        let expected = [solo.alone("full", &full), solo.alone("empty", &empty)];
        assert_ne!(expected[0], expected[1]);
        let streams = [("full", &full), ("empty", &empty)];
        for index in 0..full.len() {
            for ((stream, shots), expected) in streams.iter().zip(&expected) {
                let (bits, _) = both.run(stream, &shots[index], false).unwrap();
                assert!(bits == expected[index], "{kind:?}: {stream} {index}");
            }
        }
    }
}

/// A refused stream costs nothing, and says who is there.
#[test]
fn one_stream_too_many_is_refused_by_name() {
    let mut rig = Rig::plain(Kind::StreamQueries, options(1, 2, OnFull::Reject));
    let shots: Vec<Shot> = (0..3).map(|i| Shot::at(f64::from(i), 5 + i as u64)).collect();
    rig.run("front", &shots[0], false).unwrap();
    rig.run("rear", &shots[0], false).unwrap();
    let refused = rig.run("left", &shots[0], false).unwrap_err();
    let SubmitError::StreamRejected {
        ref stream,
        limit,
        ref known,
    } = refused
    else {
        panic!("{refused:?}");
    };
    assert_eq!((stream.as_str(), limit), ("left", 2));
    assert_eq!(known, &["rear", "front"]);
    assert!(refused.to_string().contains("left"), "{refused}");
    let mut solo = Rig::new(
        Kind::StreamQueries,
        options(1, 1, OnFull::Reject),
        cpu(1, 1),
        TraceOptions::default(),
    );
    let alone = solo.alone("rear", &shots[..2]);
    let (bits, freshness) = rig.run("rear", &shots[1], false).unwrap();
    assert_eq!(freshness, Freshness::Continued);
    assert!(bits == alone[1]);
    assert!(rig.trace.forget_stream("front"));
    rig.run("left", &shots[2], false).unwrap();
    assert_eq!(rig.trace.banks().unwrap().streams, ["left", "rear"]);
}
