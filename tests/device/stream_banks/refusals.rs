//! A device that refuses one call of a selection, and what a selection asks of a device.

use std::collections::HashMap;

use sensorium::device::{Device, MissPolicy};
use sensorium::trace::{BankError, FreshReason, Freshness, OnFull, Select, TraceOptions};

use super::spy::Spy;
use super::temporal::{Kind, Model, Twin, floats, on_every_device, ramp};
use super::{UNTIMED, banks, options};

/// Two streams on a device that refuses one call of one selection: whose states are lost, and that no others are.
#[test]
fn a_selection_that_is_refused_anywhere_mixes_up_no_streams() {
    on_every_device(|open| {
        // Stream, reset, whose states may be lost.
        let selections: [(usize, &str, bool, Option<&str>); 6] = [
            (2, "b", false, None),
            (2, "b", true, None),
            (2, "a", true, Some("a")),
            (2, "c", false, None),
            (1, "a", true, Some("a")),
            (1, "c", false, Some("a")),
        ];
        for (max_streams, key, reset, may_lose) in selections {
            let mut device = Spy::new(open(2));
            let mut losses = 0;
            for refused in 0.. {
                device.set_misses(MissPolicy::Allow);
                let mut model = Model::captured(&mut device, TraceOptions::two_queues(), 2);
                let mut streams = banks(&model, options(max_streams, OnFull::Evict));
                let names: &[&str] = if max_streams == 1 { &["a"] } else { &["b", "a"] };
                let mut twins: HashMap<&str, Twin> = HashMap::new();
                for &name in names {
                    streams
                        .select(&mut device, &mut model.runner, &name, UNTIMED)
                        .unwrap();
                    let x = ramp(f32::from(name.as_bytes()[0]));
                    model.call(&mut device, Kind::Step, &x);
                    let mut twin = Twin::default();
                    twin.run(Kind::Step, floats(&x), 0.5);
                    twins.insert(name, twin);
                }
                device.refuse_in = Some(refused);
                let select = Select {
                    reset,
                    timestamp_s: None,
                };
                let outcome = streams.select(&mut device, &mut model.runner, &key, select);
                if device.refuse_in.take().is_some() {
                    outcome.unwrap();
                    assert!(refused >= 3, "{key}: only {refused} calls");
                    break;
                }
                assert!(matches!(outcome, Err(BankError::Trace(_))), "{outcome:?}");
                // Nobody was evicted, and each stream finds its own states, or is told that they are lost.
                assert_eq!(streams.streams().count(), names.len());
                for &name in names {
                    let freshness = streams
                        .select(&mut device, &mut model.runner, &name, UNTIMED)
                        .unwrap();
                    let expected = match freshness {
                        Freshness::Continued => twins[name].clone(),
                        Freshness::Fresh(reason) => {
                            assert_eq!((Some(name), reason), (may_lose, FreshReason::Restarted));
                            losses += 1;
                            Twin::default()
                        }
                    };
                    assert_eq!(model.states(&mut device), expected, "{name}, call {refused}");
                }
                model.runner.release(&mut device).unwrap();
            }
            assert_eq!(losses > 0, may_lose.is_some(), "{key}");
        }
    });
}

#[test]
fn a_switch_compiles_nothing_and_waits_for_nothing() {
    on_every_device(|open| {
        let mut device = Spy::new(open(2));
        let mut model = Model::captured(&mut device, TraceOptions::two_queues(), 2);
        let mut streams = banks(&model, options(2, OnFull::Reject));
        for key in [0_u64, 1] {
            streams
                .select(&mut device, &mut model.runner, &key, UNTIMED)
                .unwrap();
        }
        device.log.clear();
        streams
            .select(&mut device, &mut model.runner, &0, UNTIMED)
            .unwrap();
        // Three states out, three in.
        assert_eq!(device.log, ["copy"; 6]);
        device.log.clear();
        streams
            .select(&mut device, &mut model.runner, &0, UNTIMED)
            .unwrap();
        assert!(device.log.is_empty());
    });
}
