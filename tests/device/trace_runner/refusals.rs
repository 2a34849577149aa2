//! A device that refuses one call, at every place in turn: nothing is lost, mixed up or left behind.

use sensorium::device::{Device, MissPolicy};
use sensorium::trace::{BankIndex, ResetValue, TraceError, TraceOptions};

use super::spy::Spy;
use super::temporal::{Kind, Model, Twin, every_mode, filled, floats, on_every_device, ramp, spec};

#[test]
fn a_setup_that_is_refused_anywhere_leaves_nothing_behind() {
    on_every_device(|open| {
        for options in every_mode() {
            let mut device = Spy::new(open(options.queues));
            let mut refused = 0;
            loop {
                device.set_misses(MissPolicy::Allow);
                device.refuse_in = Some(refused);
                let outcome = Model::build(&mut device, options.clone(), 2).and_then(|mut model| {
                    let captured = model.runner.capture(&mut device);
                    if captured.is_err() {
                        model.runner.release(&mut device).unwrap();
                    }
                    captured.map(|()| model)
                });
                match outcome {
                    Ok(mut model) => {
                        assert!(device.refuse_in.take().is_some(), "a refusal went unnoticed");
                        let x = ramp(1.0);
                        let expected = Twin::default().run(Kind::Step, floats(&x), 0.5);
                        assert_eq!(model.call(&mut device, Kind::Step, &x), expected);
                        break;
                    }
                    Err(_) => assert_eq!(device.memory().used_bytes, 0, "call {refused}"),
                }
                assert_eq!(device.memory().trace_bytes, 0, "call {refused}");
                refused += 1;
            }
            assert!(refused > 150, "only {refused} calls");
        }
    });
}

#[test]
fn a_capture_that_was_refused_can_be_tried_again() {
    on_every_device(|open| {
        let options = TraceOptions::two_queues();
        let mut device = Spy::new(open(2));
        for refused in 0.. {
            device.set_misses(MissPolicy::Allow);
            let mut model = Model::build(&mut device, options.clone(), 0).unwrap();
            device.refuse_in = Some(refused);
            let outcome = model.runner.capture(&mut device);
            if device.refuse_in.take().is_some() {
                outcome.unwrap();
                assert!(refused > 100, "only {refused} calls");
                break;
            }
            outcome.unwrap_err();
            model.runner.capture(&mut device).unwrap();
            let (x, mut twin) = (ramp(1.0), Twin::default());
            for kind in [Kind::Step, Kind::Count, Kind::Step, Kind::Peek] {
                let expected = twin.run(kind, floats(&x), 0.5);
                assert_eq!(model.call(&mut device, kind, &x), expected, "call {refused}");
            }
            model.runner.release(&mut device).unwrap();
        }
    });
}

/// Does something until it is accepted: once more than the device refuses.
fn again<T>(mut attempt: impl FnMut() -> Result<T, TraceError>) -> T {
    attempt().or_else(|_| attempt()).unwrap()
}

/// Frames, state commands and reads, none waited for before the end, with what plain Rust makes of them.
fn script(device: &mut Spy, model: &mut Model) -> usize {
    let mut twin = Twin::default();
    let mut saved = twin.clone();
    let mut keep = 0.5;
    let mut reads = Vec::new();
    device.log.clear();
    for frame in 0..6_usize {
        let kind = [Kind::Step, Kind::Count, Kind::Peek][frame % 3];
        let variant = model.variant(kind);
        let x = ramp(frame as f32);
        let up = filled(device.inner.as_mut(), &x);
        again(|| model.runner.upload(device, &[(model.x, &up)]));
        let mut seen = x.clone();
        if frame == 4 {
            seen = ramp(-7.0);
            again(|| model.runner.write_input(device, model.x, &seen));
        }
        if frame % 2 == 1 {
            keep = -0.25 * frame as f32;
            model.runner.set_param(model.keep, keep).unwrap();
        }
        let replays = |device: &Spy| device.log.iter().filter(|call| **call == "replay").count();
        let before = replays(device);
        let pending = model.runner.replay(device, variant);
        // Refused before the replay: it can be tried again. Refused behind it: it runs, and no second time.
        let pending = match pending {
            Err(_) if replays(device) == before => Some(model.runner.replay(device, variant).unwrap()),
            outcome => outcome.ok(),
        };
        assert_eq!(replays(device), before + 1);
        let expected = twin.run(kind, floats(&seen), keep);
        if let Some(pending) = pending {
            let mut slot = device.inner.host_slot(spec().bytes()).unwrap();
            let read = model.runner.read(device, pending, 0, &mut slot);
            // Refused behind the read, the slot is on loan; the order holds all the same.
            reads.push((slot, read.ok(), expected));
        }
        let states = [model.mem, model.trend, model.sum];
        match frame {
            1 => {
                for state in states {
                    again(|| model.runner.save_state(device, state, BankIndex(0)));
                }
                saved = twin.clone();
            }
            3 => {
                for state in states {
                    again(|| model.runner.load_state(device, state, BankIndex(0)));
                }
                twin = saved.clone();
            }
            4 => {
                again(|| model.runner.reset_state(device, model.sum, ResetValue::Init));
                again(|| {
                    let value = ramp(2.0);
                    model
                        .runner
                        .reset_state(device, model.mem, ResetValue::Host(&value))
                });
                twin.sum = Twin::default().sum;
                twin.mem = floats(&ramp(2.0)).to_vec();
            }
            _ => {}
        }
    }
    let calls = device.log.len();
    device.refuse_in = None;
    for (slot, read, expected) in reads {
        if let Some(read) = read {
            model.runner.wait(device, read).unwrap();
            assert_eq!(bytemuck::cast_slice::<_, f32>(slot.bytes().unwrap()), expected);
        }
    }
    assert_eq!(model.states(device), twin);
    calls
}

#[test]
fn a_command_that_is_refused_anywhere_can_be_tried_again_and_steps_no_state_twice() {
    on_every_device(|open| {
        for options in every_mode() {
            let mut device = Spy::new(open(options.queues));
            let mut calls = 1;
            let mut refused = 0;
            while refused < calls {
                device.set_misses(MissPolicy::Allow);
                let mut model = Model::captured(&mut device, options.clone(), 1);
                device.refuse_in = usize::checked_sub(refused, 1);
                // The first time without a refusal, to learn how many calls there are.
                let made = script(&mut device, &mut model);
                if refused == 0 {
                    calls = made;
                    assert!(calls > 50, "only {calls} calls");
                }
                model.runner.release(&mut device).unwrap();
                refused += 1;
            }
        }
    });
}

#[test]
fn an_event_that_was_refused_is_recorded_by_whoever_waits_for_it() {
    on_every_device(|open| {
        let options = TraceOptions::two_queues();
        let mut device = Spy::new(open(2));
        let mut model = Model::captured(&mut device, options, 0);
        let up = filled(&mut device, &ramp(1.0));
        let mut slot = device.host_slot(spec().bytes()).unwrap();
        let calls = |device: &mut Spy, refuse_in: Option<usize>, work: &mut dyn FnMut(&mut Spy) -> bool| {
            device.log.clear();
            device.refuse_in = refuse_in;
            assert_eq!(work(device), refuse_in.is_none());
            std::mem::take(&mut device.log)
        };
        // The upload's event.
        let log = calls(&mut device, Some(1), &mut |device| {
            model.runner.upload(device, &[(model.x, &up)]).is_ok()
        });
        assert_eq!(log, ["write"]);
        // Recorded by the replay; the replay's own event is refused.
        let log = calls(&mut device, Some(5), &mut |device| {
            model.runner.replay(device, model.step).is_ok()
        });
        assert_eq!(
            log,
            ["record_event", "wait_event", "copy", "record_event", "replay"]
        );
        // The event of the staging copies is there; that of the replay is recorded by the next one.
        let log = calls(&mut device, None, &mut |device| {
            model.runner.upload(device, &[(model.x, &up)]).is_ok()
        });
        assert_eq!(log, ["wait_event", "write", "record_event"]);
        let mut pending = None;
        calls(&mut device, None, &mut |device| {
            pending = model.runner.replay(device, model.step).ok();
            pending.is_some()
        });
        // The read's event.
        let log = calls(&mut device, Some(2), &mut |device| {
            model.runner.read(device, pending.unwrap(), 0, &mut slot).is_ok()
        });
        assert_eq!(log, ["wait_event", "read"]);
        // Recorded by the next replay, whatever it writes.
        let log = calls(&mut device, None, &mut |device| {
            model.runner.replay(device, model.step).is_ok()
        });
        assert_eq!(log, ["record_event", "wait_event", "replay", "record_event"]);
    });
}
