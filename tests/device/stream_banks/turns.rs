//! When a stream starts afresh, and what that does to its states.

use std::collections::HashMap;
use std::sync::Arc;

use sensorium::device::{BinaryKind, Device};
use sensorium::trace::{
    BankError, BankOptions, FreshReason, OnFull, Select, StateOptions, StreamBanks, TraceError, TraceOptions,
    TraceRunner, VariantFn,
};

use super::temporal::{Kind, Model, Twin, binary, floats, in_every_mode, on_every_device, peek, ramp, spec};
use super::{CONTINUED, UNTIMED, at, banks, fresh, options};

/// The reason in an error about a device or options.
fn text<T: std::fmt::Debug>(outcome: Result<T, BankError>) -> String {
    outcome.unwrap_err().to_string()
}

#[test]
fn a_stream_starts_afresh_for_these_reasons_and_no_others() {
    in_every_mode(|device, mode| {
        for max_streams in [1, 3] {
            let mut model = Model::captured(device, mode.clone(), max_streams);
            let mut streams = banks(&model, options(max_streams, OnFull::Reject));
            let reset = Select {
                reset: true,
                ..at(20.0)
            };
            let untimed_reset = Select {
                reset: true,
                ..UNTIMED
            };
            let frames = [
                (at(10.0), fresh(FreshReason::New)),
                (at(10.0), CONTINUED),
                (at(10.5), CONTINUED),
                // Exactly the limit, then more.
                (at(12.5), CONTINUED),
                (at(14.75), fresh(FreshReason::Gap)),
                (at(14.5), fresh(FreshReason::Backwards)),
                (at(14.5), CONTINUED),
                // Without a time the last known one stays.
                (UNTIMED, CONTINUED),
                (at(16.5), CONTINUED),
                (UNTIMED, CONTINUED),
                (at(16.25), fresh(FreshReason::Backwards)),
                // Asked for, whatever the time says.
                (reset, fresh(FreshReason::Reset)),
                (at(22.0), CONTINUED),
                // A fresh start without a time forgets the time.
                (untimed_reset, fresh(FreshReason::Reset)),
                (at(1.0), CONTINUED),
                (at(0.0), fresh(FreshReason::Backwards)),
            ];
            let mut twin = Twin::default();
            for (number, (select, expected)) in frames.into_iter().enumerate() {
                let freshness = streams
                    .select(device, &mut model.runner, &"front", select)
                    .unwrap();
                assert_eq!(freshness, expected, "frame {number}");
                if freshness.is_fresh() {
                    twin = Twin::default();
                }
                assert_eq!(model.states(device), twin, "frame {number}");
                let x = ramp(number as f32);
                let output = model.call(device, Kind::Step, &x);
                assert_eq!(output, twin.run(Kind::Step, floats(&x), 0.5));
            }
            model.runner.release(device).unwrap();
        }
    });
}

#[test]
fn without_a_limit_no_gap_is_too_long() {
    on_every_device(|open| {
        let mut device = open(1);
        let device = device.as_mut();
        let mut model = Model::captured(device, TraceOptions::default(), 0);
        let mut streams = banks(&model, BankOptions::default());
        for (time, expected) in [
            (0.0, fresh(FreshReason::New)),
            (1e9, CONTINUED),
            (-0.0, fresh(FreshReason::Backwards)),
        ] {
            let freshness = streams.select(device, &mut model.runner, &0_u64, at(time));
            assert_eq!(freshness.unwrap(), expected);
        }
    });
}

#[test]
fn one_more_stream_is_refused_or_takes_the_bank_of_the_least_recent_one() {
    in_every_mode(|device, mode| {
        let mut model = Model::captured(device, mode, 2);
        let mut twins: HashMap<&str, Twin> = HashMap::new();
        let mut frame = |device: &mut dyn Device,
                         model: &mut Model,
                         streams: &mut StreamBanks<&'static str>,
                         stream: &'static str| {
            let freshness = streams.select(device, &mut model.runner, &stream, UNTIMED)?;
            if freshness.is_fresh() {
                twins.insert(stream, Twin::default());
            }
            let x = ramp(f32::from(stream.as_bytes()[0]));
            let output = model.call(device, Kind::Step, &x);
            let twin = twins.get_mut(stream).unwrap();
            assert_eq!(output, twin.run(Kind::Step, floats(&x), 0.5), "{stream}");
            Ok::<_, BankError>(freshness)
        };
        let mut strict = banks(&model, options(2, OnFull::Reject));
        let new = fresh(FreshReason::New);
        for (stream, expected) in [
            ("a", new),
            ("b", new),
            ("a", CONTINUED),
            ("a", CONTINUED),
            ("b", CONTINUED),
        ] {
            assert_eq!(frame(device, &mut model, &mut strict, stream).unwrap(), expected);
        }
        let before = (strict.describe(), model.states(device));
        let refused = frame(device, &mut model, &mut strict, "c").unwrap_err();
        assert_eq!(
            refused.to_string(),
            "stream c: the model keeps the states of 2 stream(s), and all are taken by [\"b\", \"a\"]"
        );
        assert_eq!((strict.describe(), model.states(device)), before);
        assert_eq!(frame(device, &mut model, &mut strict, "a").unwrap(), CONTINUED);

        let mut lenient = banks(&model, options(2, OnFull::Evict));
        let turns = [
            ("a", new),
            ("b", new),
            ("a", CONTINUED),
            // Instead of b, which was away for longest.
            ("c", new),
            ("a", CONTINUED),
            ("c", CONTINUED),
            ("b", new),
            ("c", CONTINUED),
            ("a", new),
        ];
        for (number, (stream, expected)) in turns.into_iter().enumerate() {
            let freshness = frame(device, &mut model, &mut lenient, stream).unwrap();
            assert_eq!(freshness, expected, "turn {number}");
        }
        assert_eq!(lenient.streams().collect::<Vec<_>>(), [&"a", &"c"]);
        assert_eq!(lenient.active(), Some(&"a"));
        assert_eq!(lenient.describe()["evictions"], 3);
        assert_eq!(lenient.describe()["switches"], 9);
    });
}

#[test]
fn room_for_one_stream_needs_no_bank_and_restarts_for_another() {
    in_every_mode(|device, mode| {
        let mut model = Model::captured(device, mode, 0);
        let mut strict = banks(&model, options(1, OnFull::Reject));
        let select = |streams: &mut StreamBanks<u64>, device: &mut dyn Device, model: &mut Model, key| {
            streams.select(device, &mut model.runner, &key, UNTIMED)
        };
        let new = fresh(FreshReason::New);
        assert_eq!(select(&mut strict, device, &mut model, 1).unwrap(), new);
        let refused = select(&mut strict, device, &mut model, 2);
        assert!(
            matches!(refused, Err(BankError::Full { limit: 1, .. })),
            "{refused:?}"
        );
        assert_eq!(select(&mut strict, device, &mut model, 1).unwrap(), CONTINUED);
        let mut lenient = banks(&model, options(1, OnFull::Evict));
        for (key, expected) in [(1, new), (1, CONTINUED), (2, new), (2, CONTINUED), (1, new)] {
            assert_eq!(select(&mut lenient, device, &mut model, key).unwrap(), expected);
            if expected == new {
                assert_eq!(model.states(device), Twin::default());
            }
            model.call(device, Kind::Step, &ramp(1.0));
        }
    });
}

#[test]
fn a_forgotten_stream_is_new_and_its_bank_free() {
    on_every_device(|open| {
        let mut device = open(2);
        let device = device.as_mut();
        let mut model = Model::captured(device, TraceOptions::two_queues(), 2);
        let mut streams = banks::<Arc<str>>(&model, options(2, OnFull::Reject));
        let [a, b, c] = ["a", "b", "c"].map(Arc::<str>::from);
        let mut select = |streams: &mut StreamBanks<Arc<str>>, key: &Arc<str>| {
            let freshness = streams.select(device, &mut model.runner, key, UNTIMED);
            model.call(device, Kind::Step, &ramp(2.0));
            freshness.unwrap()
        };
        let new = fresh(FreshReason::New);
        assert_eq!([&a, &b].map(|key| select(&mut streams, key)), [new; 2]);
        // The one in use, then one that is not.
        assert!(streams.forget(&b));
        assert!(!streams.forget(&b));
        assert_eq!((streams.active(), streams.streams().count()), (None, 1));
        assert_eq!(select(&mut streams, &c), new);
        assert_eq!(select(&mut streams, &a), CONTINUED);
        assert!(streams.forget(&c));
        assert_eq!(streams.active(), Some(&a));
        assert_eq!(
            [&b, &a, &b].map(|key| select(&mut streams, key)),
            [new, CONTINUED, CONTINUED]
        );
        assert_eq!(streams.streams().collect::<Vec<_>>(), [&b, &a]);
    });
}

#[test]
fn a_warm_up_in_between_restarts_only_the_stream_in_use() {
    in_every_mode(|device, mode| {
        let mut model = Model::captured(device, mode, 2);
        let mut streams = banks(&model, options(2, OnFull::Reject));
        let mut twins = [Twin::default(), Twin::default()];
        let mut frame = |device: &mut dyn Device, model: &mut Model, key: usize, expected| {
            let freshness = streams.select(device, &mut model.runner, &key, at(5.0)).unwrap();
            assert_eq!(freshness, expected);
            if freshness.is_fresh() {
                twins[key] = Twin::default();
            }
            let x = ramp(key as f32);
            let output = model.call(device, Kind::Step, &x);
            assert_eq!(output, twins[key].run(Kind::Step, floats(&x), 0.5));
        };
        frame(device, &mut model, 0, fresh(FreshReason::New));
        frame(device, &mut model, 1, fresh(FreshReason::New));
        frame(device, &mut model, 0, CONTINUED);
        let again: VariantFn = Box::new(peek);
        model.runner.add_variant(device, "again", again).unwrap();
        model.runner.capture(device).unwrap();
        frame(device, &mut model, 1, CONTINUED);
        frame(device, &mut model, 0, fresh(FreshReason::Restarted));
        frame(device, &mut model, 0, CONTINUED);
        frame(device, &mut model, 1, CONTINUED);
    });
}

#[test]
fn what_makes_no_sense_is_refused_with_names_and_changes_nothing() {
    on_every_device(|open| {
        let mut device = open(1);
        let device = device.as_mut();
        let mut model = Model::captured(device, TraceOptions::default(), 2);
        let all = [model.mem, model.trend, model.sum];
        let make = |states: &[_], options| StreamBanks::<u64>::new(&model.runner, states, options);
        let gap = |max_gap_s| BankOptions {
            max_gap_s: Some(max_gap_s),
            ..BankOptions::default()
        };
        assert_eq!(
            text(make(&all, options(3, OnFull::Reject))),
            "stream banks: 3 streams need as many banks, state mem has 2"
        );
        assert_eq!(
            text(make(&[model.mem, model.mem], options(1, OnFull::Reject))),
            "stream banks: state mem is given twice"
        );
        assert_eq!(
            text(make(&[], options(1, OnFull::Reject))),
            "stream banks: without states there is nothing to keep apart"
        );
        assert_eq!(
            text(make(&all, options(0, OnFull::Reject))),
            "stream banks: there must be room for a stream"
        );
        for bad in [f64::NAN, f64::INFINITY, -1.0] {
            assert_eq!(
                text(make(&all, gap(bad))),
                format!("stream banks: the longest gap must be finite and not negative, not {bad} s")
            );
        }
        let mut streams = banks(&model, options(2, OnFull::Evict));
        streams
            .select(device, &mut model.runner, &7_u64, at(1.0))
            .unwrap();
        model.call(device, Kind::Step, &ramp(1.0));
        let before = (streams.describe(), model.states(device));
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1e-9] {
            for key in [7, 8] {
                assert_eq!(
                    text(streams.select(device, &mut model.runner, &key, at(bad))),
                    format!("stream {key}: {bad} is no time in seconds: it must be finite and not negative")
                );
            }
        }
        // A runner that the banks are not of.
        let mut other = Model::captured(device, TraceOptions::default(), 2);
        let foreign = streams.select(device, &mut other.runner, &7, at(0.0));
        assert!(
            matches!(foreign, Err(BankError::Trace(TraceError::ForeignId { .. }))),
            "{foreign:?}"
        );
        assert_eq!((streams.describe(), model.states(device)), before);
        assert_eq!(
            streams.select(device, &mut model.runner, &7, at(1.0)).unwrap(),
            CONTINUED
        );
        model.runner.release(device).unwrap();
        let released = streams.select(device, &mut model.runner, &7, at(1.0));
        assert!(
            matches!(released, Err(BankError::Trace(TraceError::Released { .. }))),
            "{released:?}"
        );
    });
}

#[test]
fn a_state_that_is_left_out_is_shared() {
    on_every_device(|open| {
        let mut device = open(1);
        let device = device.as_mut();
        let mut model = Model::captured(device, TraceOptions::default(), 2);
        let two = [model.mem, model.trend];
        let mut streams = StreamBanks::new(&model.runner, &two, options(2, OnFull::Reject)).unwrap();
        let (mut one, mut sum) = ([Twin::default(), Twin::default()], Twin::default().sum);
        for frame in 0..8 {
            let key = frame % 2;
            streams.select(device, &mut model.runner, &key, UNTIMED).unwrap();
            one[key].sum = sum;
            let x = ramp(frame as f32);
            let output = model.call(device, Kind::Step, &x);
            assert_eq!(output, one[key].run(Kind::Step, floats(&x), 0.5));
            sum = one[key].sum.clone();
        }
    });
}

#[test]
fn states_in_place_and_ping_pong_are_kept_in_whichever_phase_they_are() {
    in_every_mode(|device, mode| {
        let mut runner = TraceRunner::new("counter", mode).unwrap();
        let x = runner.add_input(device, "x", spec(), None).unwrap();
        let options = StateOptions {
            pingpong: true,
            banks: 3,
        };
        let state = runner.add_state(device, "total", spec(), None, options).unwrap();
        runner.add_output(device, "y", spec()).unwrap();
        let add: VariantFn = Box::new(|context| {
            let (x, total) = (context.input("x")?, context.state("total")?);
            let next = context.write_target("total")?;
            let kind = BinaryKind::Add;
            binary(context.ops(), kind, total, x, next)?;
            context.write_state("total", &next)?;
            let y = context.write_output("y", &next)?;
            Ok(vec![("y".into(), y)])
        });
        let add = runner.add_variant(device, "add", add).unwrap();
        runner.capture(device).unwrap();
        let mut streams = StreamBanks::new(&runner, &[state], super::options(3, OnFull::Reject)).unwrap();
        let mut totals = [0.0_f32; 3];
        // Runs of one, two and three frames, so that every stream comes back in both phases.
        for (turn, key) in [0, 1, 2, 1, 0, 0, 2, 1, 2, 0].into_iter().enumerate() {
            streams.select(device, &mut runner, &key, UNTIMED).unwrap();
            for _ in 0..1 + turn % 3 {
                let input = ramp(10.0_f32.powi(key as i32));
                let out = runner.call(device, add, &[(x, &input)]).unwrap();
                totals[key] += 10.0_f32.powi(key as i32);
                assert_eq!(floats(&out[0].1)[0], totals[key], "turn {turn}");
            }
        }
    });
}
