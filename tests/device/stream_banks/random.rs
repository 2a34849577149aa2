//! Random turns of several streams against the rules in plain Rust.

use std::collections::HashMap;

use proptest::prelude::*;
use sensorium::trace::{BankError, BankOptions, FreshReason, Freshness, OnFull, Select, TraceOptions};

use super::temporal::{DEVICES, Kind, Model, Open, Twin, every_mode, floats, ramp};
use super::{CONTINUED, UNTIMED, banks, fresh, options};

/// The rules once more, kept by stream.
struct Rules {
    options: BankOptions,
    /// Most recent first.
    recent: Vec<u8>,
    streams: HashMap<u8, (Twin, Option<f64>)>,
}

impl Rules {
    fn select(&mut self, key: u8, select: Select) -> Option<Freshness> {
        let last = self.streams.get(&key).map(|(_, last)| *last);
        let freshness = match (last, select.timestamp_s) {
            (None, _) => fresh(FreshReason::New),
            _ if select.reset => fresh(FreshReason::Reset),
            (Some(Some(last)), Some(now)) if now < last => fresh(FreshReason::Backwards),
            (Some(Some(last)), Some(now)) if now - last > self.options.max_gap_s? => fresh(FreshReason::Gap),
            _ => CONTINUED,
        };
        if last.is_none() && self.recent.len() == self.options.max_streams {
            if self.options.on_full == OnFull::Reject {
                return None;
            }
            let evicted = self.recent.pop()?;
            self.streams.remove(&evicted);
        }
        self.recent.retain(|known| *known != key);
        self.recent.insert(0, key);
        let stream = self.streams.entry(key).or_default();
        if freshness.is_fresh() {
            *stream = (Twin::default(), select.timestamp_s);
        } else {
            stream.1 = select.timestamp_s.or(stream.1);
        }
        Some(freshness)
    }
}

#[derive(Debug, Clone)]
enum Turn {
    Frame {
        key: u8,
        select: Select,
        kind: Kind,
        eager: bool,
    },
    Forget(u8),
}

fn turns() -> impl Strategy<Value = Turn> {
    let time = prop::option::weighted(0.8, (0..8_u8).prop_map(|t| f64::from(t) * 0.75));
    let kind = prop::sample::select(vec![Kind::Step, Kind::Step, Kind::Peek, Kind::Count]);
    let frame = (
        0..5_u8,
        time,
        prop::bool::weighted(0.1),
        kind,
        prop::bool::weighted(0.2),
    )
        .prop_map(|(key, timestamp_s, reset, kind, eager)| Turn::Frame {
            key,
            select: Select { reset, timestamp_s },
            kind,
            eager,
        });
    prop_oneof![20 => frame, 1 => (0..5_u8).prop_map(Turn::Forget)]
}

fn keep_apart(open: Open, mode: TraceOptions, options: BankOptions, turns: &[Turn]) {
    let mut device = open(mode.queues);
    let device = device.as_mut();
    let mut model = Model::captured(device, mode, options.max_streams);
    let mut streams = banks::<u8>(&model, options);
    let mut rules = Rules {
        options,
        recent: Vec::new(),
        streams: HashMap::new(),
    };
    for (number, turn) in turns.iter().enumerate() {
        match *turn {
            Turn::Forget(key) => {
                assert_eq!(streams.forget(&key), rules.streams.remove(&key).is_some());
                rules.recent.retain(|known| *known != key);
            }
            Turn::Frame {
                key,
                select,
                kind,
                eager,
            } => {
                let selected = streams.select(device, &mut model.runner, &key, select);
                let Some(expected) = rules.select(key, select) else {
                    assert!(matches!(selected, Err(BankError::Full { .. })), "{selected:?}");
                    continue;
                };
                assert_eq!(selected.unwrap(), expected, "turn {number}");
                // No two streams ever have the same input.
                let x = ramp(f32::from(key) * 1000.0 + number as f32);
                let twin = &mut rules.streams.get_mut(&key).unwrap().0;
                let output = twin.run(kind, floats(&x), 0.5);
                let variant = model.variant(kind);
                let outputs = match eager {
                    true => model.runner.run_eager(device, variant, &[(model.x, &x)]),
                    false => model.runner.call(device, variant, &[(model.x, &x)]),
                };
                assert_eq!(floats(&outputs.unwrap()[0].1), output, "turn {number}");
            }
        }
        assert!(streams.streams().eq(rules.recent.iter()));
    }
    for key in rules.recent.clone() {
        streams.select(device, &mut model.runner, &key, UNTIMED).unwrap();
        assert_eq!(model.states(device), rules.streams[&key].0, "stream {key}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn in_any_order_of_streams_each_sees_its_own_states_only(
        mode in 0..5_usize,
        max_streams in 1..5_usize,
        evict in any::<bool>(),
        turns in prop::collection::vec(turns(), 1..60),
    ) {
        let on_full = if evict { OnFull::Evict } else { OnFull::Reject };
        for (_, open) in DEVICES {
            keep_apart(open, every_mode()[mode].clone(), options(max_streams, on_full), &turns);
        }
    }
}
