//! States: in place and ping-pong, reset, read, saved and loaded.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sensorium::device::{Activation, BinaryKind, BufferClass, Cq, Device};
use sensorium::ops::OpContext;
use sensorium::tensor::{HostTensor, View};
use sensorium::trace::{
    BankIndex, Phase, ResetValue, StateOptions, TraceContext, TraceError, TraceOptions, TraceRunner,
    VariantFn,
};

use super::temporal::{
    Kind, Model, N, Twin, binary, floats, in_every_mode, intermediate, on_every_device, peek, ramp, spec,
    step, unary,
};

#[test]
fn states_follow_their_formulas_in_plain_rust() {
    in_every_mode(|device, options| {
        let mut model = Model::captured(device, options, 0);
        let mut twin = Twin::default();
        assert_eq!(model.states(device), twin);
        let kinds = [
            Kind::Step,
            Kind::Peek,
            Kind::Step,
            Kind::Count,
            Kind::Step,
            Kind::Peek,
        ];
        for (frame, kind) in kinds.into_iter().cycle().take(60).enumerate() {
            let x = ramp(frame as f32 - 20.0);
            let output = model.call(device, kind, &x);
            assert_eq!(output, twin.run(kind, floats(&x), 0.5), "frame {frame}");
        }
        assert_eq!(model.states(device), twin);
    });
}

#[test]
fn an_eager_run_steps_the_states_as_a_replay_does() {
    in_every_mode(|device, options| {
        let mut model = Model::captured(device, options, 0);
        let mut twin = Twin::default();
        for frame in 0..12 {
            let x = ramp(frame as f32);
            for kind in [Kind::Step, Kind::Count, Kind::Peek] {
                let expected = twin.run(kind, floats(&x), 0.5);
                if frame % 3 == 0 {
                    let variant = model.variant(kind);
                    let eager = model.runner.run_eager(device, variant, &[(model.x, &x)]).unwrap();
                    assert_eq!(floats(&eager[0].1), expected);
                } else {
                    assert_eq!(model.call(device, kind, &x), expected);
                }
            }
        }
        assert_eq!(model.states(device), twin);
    });
}

#[test]
fn what_warm_up_runs_write_is_undone() {
    in_every_mode(|device, options| {
        let options = TraceOptions {
            warmup_runs: 3,
            ..options
        };
        let mut model = Model::build(device, options, 0).unwrap();
        let targets = Arc::new(Mutex::new(Vec::new()));
        let found = Arc::clone(&targets);
        let finder: VariantFn = Box::new(move |context| {
            if context.phase().state == 1 {
                found.lock().unwrap().push(context.state("mem")?);
            }
            peek(context)
        });
        model.runner.add_variant(device, "finder", finder).unwrap();
        model.runner.warm_up(device).unwrap();
        assert_eq!(model.states(device), Twin::default());
        model.runner.capture(device).unwrap();
        assert_eq!(model.states(device), Twin::default());
        // In both buffers of a ping-pong state.
        let second = targets.lock().unwrap()[0];
        let mut slot = device.host_slot(spec().bytes()).unwrap();
        device
            .read(Cq::COMPUTE, second.buffer, 0, &mut slot, spec().bytes())
            .unwrap();
        device.drain(Duration::from_secs(10)).unwrap();
        let values: &[f32] = bytemuck::cast_slice(slot.bytes().unwrap());
        assert_eq!(values, Twin::default().mem);
        let peeked = model.call(device, Kind::Peek, &ramp(0.0));
        assert_eq!(peeked, Twin::default().run(Kind::Peek, &[0.0; N], 0.5));
        model.call(device, Kind::Step, &ramp(3.0));
        // A later variant warms up and starts the states again.
        let again: VariantFn = Box::new(step);
        model.runner.add_variant(device, "again", again).unwrap();
        model.runner.capture(device).unwrap();
        assert_eq!(model.runner.phase().state, 0);
        assert_eq!(model.states(device), Twin::default());
    });
}

#[test]
fn a_warm_up_that_fails_or_panics_leaves_the_first_values() {
    on_every_device(|open| {
        for panics in [false, true] {
            let mut device = open(2);
            let device = device.as_mut();
            let mut model = Model::build(device, TraceOptions::two_queues(), 0).unwrap();
            let broken: VariantFn = Box::new(move |context: &mut TraceContext<'_>| {
                step(context)?;
                assert!(!panics, "variant gives up");
                Err("variant fails".into())
            });
            model.runner.add_variant(device, "broken", broken).unwrap();
            let outcome =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| model.runner.capture(device)));
            assert_eq!(outcome.is_err(), panics);
            assert_eq!(model.states(device), Twin::default());
        }
    });
}

#[test]
fn only_an_accepted_replay_of_a_stepping_variant_changes_the_state_phase() {
    in_every_mode(|device, options| {
        let mut model = Model::captured(device, options, 0);
        let state = |model: &Model| model.runner.phase().state;
        assert_eq!(state(&model), 0);
        model.call(device, Kind::Peek, &ramp(0.0));
        model.call(device, Kind::Count, &ramp(0.0));
        assert_eq!(state(&model), 0);
        model.call(device, Kind::Step, &ramp(0.0));
        assert_eq!(state(&model), 1);
        let before = (model.runner.phase(), model.states(device));
        // A buffer that a replay might overwrite: the device refuses.
        let stray = device.alloc(&spec(), BufferClass::Weight).unwrap();
        let refused = model.runner.replay(device, model.step);
        assert!(matches!(refused, Err(TraceError::Device { .. })), "{refused:?}");
        assert_eq!((model.runner.phase(), model.states(device)), before);
        device.free(stray).unwrap();
        model.call(device, Kind::Step, &ramp(0.0));
        assert_eq!(state(&model), 0);
    });
}

#[test]
fn a_value_in_the_write_target_is_not_copied() {
    on_every_device(|open| {
        let mut device = open(1);
        let device = device.as_mut();
        let mut runner = TraceRunner::new("test", TraceOptions::default()).unwrap();
        runner.add_input(device, "x", spec(), None).unwrap();
        let pingpong = StateOptions {
            pingpong: true,
            banks: 0,
        };
        runner.add_state(device, "s", spec(), None, pingpong).unwrap();
        runner.add_output(device, "y", spec()).unwrap();
        let write = |by_copy: bool| -> VariantFn {
            Box::new(move |context| {
                let x = context.input("x")?;
                let (state, y) = match by_copy {
                    true => {
                        let value = intermediate(context)?;
                        unary(context.ops(), Activation::Relu, x, value)?;
                        (value, value)
                    }
                    false => {
                        let (s, y) = (context.write_target("s")?, context.output("y")?);
                        unary(context.ops(), Activation::Relu, x, s)?;
                        unary(context.ops(), Activation::Relu, x, y)?;
                        (s, y)
                    }
                };
                context.write_state("s", &state)?;
                let y = context.write_output("y", &y)?;
                Ok(vec![("y".into(), y)])
            })
        };
        runner.add_variant(device, "copied", write(true)).unwrap();
        runner.add_variant(device, "direct", write(false)).unwrap();
        runner.capture(device).unwrap();
        let report = runner.describe();
        let bytes = |variant: usize| {
            report["variants"][variant]["traces"][0]["bytes"]
                .as_u64()
                .unwrap()
        };
        // One function and two copies against two functions.
        assert_eq!(2 * bytes(0), 3 * bytes(1));
    });
}

#[test]
fn a_state_is_set_to_its_first_value_or_to_one_from_host_or_device() {
    in_every_mode(|device, options| {
        let mut model = Model::build(device, options, 0).unwrap();
        // Prepared before the capture, as any tensor that outlives one.
        let mut ops = OpContext::new(&mut *device, Cq::COMPUTE);
        let constant = ops.upload(&ramp(100.0), BufferClass::Weight).unwrap();
        model.runner.capture(device).unwrap();
        let mut twin = Twin::default();
        for frame in 0..5 {
            let x = ramp(frame as f32);
            model.call(device, Kind::Step, &x);
            twin.run(Kind::Step, floats(&x), 0.5);
        }
        assert_eq!(model.runner.phase().state, 1);
        let host = ramp(-5.0);
        let runner = &mut model.runner;
        runner
            .reset_state(device, model.mem, ResetValue::Host(&host))
            .unwrap();
        runner
            .reset_state(device, model.trend, ResetValue::Device(&constant))
            .unwrap();
        runner.reset_state(device, model.sum, ResetValue::Init).unwrap();
        assert_eq!(runner.phase().state, 1);
        twin.mem = floats(&host).to_vec();
        twin.trend = floats(&ramp(100.0)).to_vec();
        twin.sum = Twin::default().sum;
        assert_eq!(model.states(device), twin);
        let x = ramp(1.0);
        for kind in [Kind::Count, Kind::Step, Kind::Peek] {
            assert_eq!(model.call(device, kind, &x), twin.run(kind, floats(&x), 0.5));
        }
        model.runner.reset_states(device).unwrap();
        assert_eq!(model.states(device), Twin::default());
    });
}

#[test]
fn state_commands_run_behind_the_replays_before_them() {
    in_every_mode(|device, options| {
        let mut model = Model::captured(device, options, 2);
        let mut twin = Twin::default();
        let x = ramp(2.0);
        model.call(device, Kind::Step, &x);
        twin.run(Kind::Step, floats(&x), 0.5);
        // Nothing is waited for in between.
        for round in 0..20 {
            for _ in 0..3 {
                model.runner.replay(device, model.step).unwrap();
                twin.run(Kind::Step, floats(&x), 0.5);
            }
            let saved = twin.clone();
            for state in [model.mem, model.trend, model.sum] {
                model.runner.save_state(device, state, BankIndex(1)).unwrap();
            }
            model.runner.replay(device, model.step).unwrap();
            if round % 2 == 0 {
                // Loaded in the other phase than saved.
                for state in [model.mem, model.trend, model.sum] {
                    model.runner.load_state(device, state, BankIndex(1)).unwrap();
                }
                twin = saved;
            } else {
                twin.run(Kind::Step, floats(&x), 0.5);
            }
        }
        assert_eq!(model.states(device), twin);
        let unsaved = BankIndex(0);
        model.runner.load_state(device, model.mem, unsaved).unwrap();
        assert_eq!(model.states(device).mem, Twin::default().mem);
    });
}

#[test]
fn the_state_buffer_is_where_the_next_replay_reads() {
    on_every_device(|open| {
        let mut device = open(1);
        let device = device.as_mut();
        let mut model = Model::captured(device, TraceOptions::default(), 0);
        assert_eq!(model.runner.state("trend").unwrap(), model.trend);
        let buffers = |model: &Model| {
            [model.mem, model.sum].map(|state| model.runner.state_buffer(state).unwrap().buffer)
        };
        let first = buffers(&model);
        model.call(device, Kind::Step, &ramp(0.0));
        let second = buffers(&model);
        assert!(first[0] != second[0] && first[1] == second[1]);
        model.call(device, Kind::Step, &ramp(0.0));
        assert_eq!(buffers(&model), first);
    });
}

#[test]
fn a_ping_pong_state_added_later_doubles_the_traces() {
    on_every_device(|open| {
        let mut device = open(1);
        let device = device.as_mut();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let phases = Arc::clone(&seen);
        let mut runner = TraceRunner::new("test", TraceOptions::default()).unwrap();
        runner.add_output(device, "y", spec()).unwrap();
        let x = runner.add_input(device, "x", spec(), None).unwrap();
        let copy: VariantFn = Box::new(move |context| {
            phases
                .lock()
                .unwrap()
                .push((context.phase(), context.capturing(), context.variant().to_owned()));
            let x = context.input("x")?;
            let y = context.write_output("y", &x)?;
            Ok(vec![("y".into(), y)])
        });
        let variant = runner.add_variant(device, "copy", copy).unwrap();
        runner.warm_up(device).unwrap();
        let pingpong = StateOptions {
            pingpong: true,
            banks: 0,
        };
        runner.add_state(device, "s", spec(), None, pingpong).unwrap();
        runner.capture(device).unwrap();
        let phase = |state| Phase { output: 0, state };
        let expected: Vec<_> = [(0, false), (0, false), (1, false), (0, true), (1, true)]
            .map(|(state, capturing)| (phase(state), capturing, "copy".to_owned()))
            .into();
        assert_eq!(*seen.lock().unwrap(), expected);
        let y = runner.call(device, variant, &[(x, &ramp(4.0))]).unwrap();
        assert_eq!(y[0].1.bytes(), ramp(4.0).bytes());
    });
}

#[test]
fn wrong_values_and_banks_are_refused_with_names() {
    on_every_device(|open| {
        let mut device = open(1);
        let device = device.as_mut();
        let mut model = Model::captured(device, TraceOptions::default(), 2);
        let states = model.states(device);
        let short = HostTensor::from_slice(&[N - 1], &[0.0_f32; N - 1]).unwrap();
        let error = |outcome: Result<(), TraceError>| outcome.unwrap_err().to_string();
        let runner = &mut model.runner;
        assert_eq!(
            error(runner.reset_state(device, model.mem, ResetValue::Host(&short))),
            "model: mem expects float32 [64] (256 bytes), found float32 [63]"
        );
        let mut front = runner.state_buffer(model.sum).unwrap();
        front.view = View::contiguous(*short.shape());
        assert_eq!(
            error(runner.reset_state(device, model.mem, ResetValue::Device(&front))),
            "model: mem expects float32 [64] (256 bytes), found float32 [63]"
        );
        assert_eq!(
            error(runner.save_state(device, model.mem, BankIndex(2))),
            "model: state mem has 2 bank(s), there is no bank 2"
        );
        assert_eq!(
            error(runner.load_state(device, model.sum, BankIndex(7))),
            "model: state sum has 2 bank(s), there is no bank 7"
        );
        assert_eq!(
            error(runner.state("bev").map(drop)),
            "model: no state is called bev; there are [\"mem\", \"trend\", \"sum\"]"
        );
        // Backwards: that needs a program, and there are traces.
        let mut reversed = runner.state_buffer(model.sum).unwrap();
        reversed.view.strides[0] = -1;
        reversed.view.offset = N - 1;
        let refused = runner.reset_state(device, model.mem, ResetValue::Device(&reversed));
        let Err(TraceError::CompilesAfterCapture { work, .. }) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!(work, "the reset of state mem");
        assert_eq!(model.states(device), states);
        model.call(device, Kind::Step, &ramp(0.0));
        // Ids of another runner.
        let mut other = Model::captured(device, TraceOptions::default(), 2);
        let foreign = [
            other.runner.read_state(device, model.mem).map(drop),
            other.runner.replay(device, model.step).map(drop),
            other.runner.set_param(model.keep, 1.0),
            other.runner.write_input(device, model.x, &ramp(0.0)),
        ];
        let texts = foreign.map(error);
        assert_eq!(
            texts,
            ["state", "variant", "parameter", "input"]
                .map(|kind| format!("model: this {kind} belongs to another runner"))
        );
    });
}

/// A variant of the model, `build`ed and captured: the error.
fn refused(device: &mut dyn Device, forward: VariantFn) -> String {
    let mut model = Model::build(device, TraceOptions::default(), 0).unwrap();
    model.runner.add_variant(device, "odd", forward).unwrap();
    let error = model.runner.capture(device).unwrap_err().to_string();
    // The others can run, and have their states.
    assert!(!model.runner.captured());
    let x = ramp(1.0);
    let expected = Twin::default().run(Kind::Step, floats(&x), 0.5);
    assert_eq!(model.call(device, Kind::Step, &x), expected);
    model.runner.release(device).unwrap();
    error
}

#[test]
fn a_variant_that_writes_states_wrongly_is_refused_with_their_names() {
    on_every_device(|open| {
        let mut device = open(1);
        let device = device.as_mut();
        let clean = device.memory();
        let only_mem: VariantFn = Box::new(|context| {
            let x = context.input("x")?;
            context.write_state("mem", &x)?;
            let y = context.write_output("y", &x)?;
            Ok(vec![("y".into(), y)])
        });
        assert_eq!(
            refused(device, only_mem),
            "model: variant odd writes ping-pong states (mem) but not trend: all change places at once, so write all or \
             none with write_state"
        );
        let taken: VariantFn = Box::new(|context| {
            let (x, keep) = (context.input("x")?, context.param("keep")?);
            let target = context.write_target("trend")?;
            binary(context.ops(), BinaryKind::Mul, x, keep, target)?;
            let y = context.write_output("y", &target)?;
            Ok(vec![("y".into(), y)])
        });
        assert_eq!(
            refused(device, taken),
            "model: variant odd writes ping-pong states (trend) but not mem, trend: all change places at once, so write \
             all or none with write_state"
        );
        let other_shape: VariantFn = Box::new(|context| {
            let keep = context.param("keep")?;
            context.write_state("sum", &keep)?;
            Ok(Vec::new())
        });
        assert_eq!(
            refused(device, other_shape),
            "model: variant odd: state sum is float32 [64], the value written to it float32 [1]"
        );
        let backwards: VariantFn = Box::new(|context| {
            let mut sum = context.state("sum")?;
            sum.view.strides[0] = -1;
            sum.view.offset = N - 1;
            context.write_state("sum", &sum)?;
            Ok(Vec::new())
        });
        assert_eq!(
            refused(device, backwards),
            "model: variant odd: the value written to state sum is a view of its own buffer"
        );
        let unknown: VariantFn = Box::new(|context| {
            context.state("bev")?;
            Ok(Vec::new())
        });
        assert_eq!(
            refused(device, unknown),
            "model: variant odd: no state is called bev; there are [\"mem\", \"trend\", \"sum\"]"
        );
        let only_first: VariantFn = Box::new(|context| {
            let x = context.input("x")?;
            if context.phase().state == 0 {
                context.write_state("mem", &x)?;
                context.write_state("trend", &x)?;
            }
            let y = context.write_output("y", &x)?;
            Ok(vec![("y".into(), y)])
        });
        assert_eq!(
            refused(device, only_first),
            "model: variant odd has other outputs or steps in another phase than in the first"
        );
        assert_eq!(device.memory(), clean);
    });
}
