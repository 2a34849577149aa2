//! Replays against eager runs and plain Rust; outputs, parameters, variants, reports.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sensorium::device::{Activation, BinaryKind, BufferClass, Cq, Device};
use sensorium::ops::OpContext;
use sensorium::tensor::HostTensor;
use sensorium::trace::{
    BankIndex, InputId, ParamId, Phase, ResetValue, StateOptions, TraceContext, TraceError, TraceOptions,
    TraceRunner, VariantFn, VariantId, WorkError,
};

use super::spy::Spy;
use super::temporal::{
    Kind, Model, N, Outputs, binary, floats, in_every_mode, intermediate, on_every_device, ramp, spec, unary,
};

/// `y = (x + x) * gain`, written to the persistent output.
pub(super) fn doubled(context: &mut TraceContext<'_>) -> Result<Outputs, WorkError> {
    let (x, gain, y) = (context.input("x")?, context.param("gain")?, context.output("y")?);
    let sum = intermediate(context)?;
    let ops = context.ops();
    binary(ops, BinaryKind::Add, x, x, sum)?;
    binary(ops, BinaryKind::Mul, sum, gain, y)?;
    ops.free(&sum)?;
    Ok(vec![("y".into(), y)])
}

/// `z = relu(x)` in a tensor that the variant allocates.
pub(super) fn rectified(context: &mut TraceContext<'_>) -> Result<Outputs, WorkError> {
    let x = context.input("x")?;
    let z = context.ops().alloc(&spec(), BufferClass::Output)?;
    unary(context.ops(), Activation::Relu, x, z)?;
    Ok(vec![("z".into(), z)])
}

/// A runner with input `x`, parameter `gain`, output `y` and one variant; not captured.
pub(super) fn runner(
    device: &mut dyn Device,
    options: TraceOptions,
    forward: VariantFn,
) -> (TraceRunner, InputId, ParamId, VariantId) {
    let mut runner = TraceRunner::new("test", options).unwrap();
    let x = runner.add_input(device, "x", spec(), None).unwrap();
    let gain = runner.add_param(device, "gain", 1.0).unwrap();
    runner.add_output(device, "y", spec()).unwrap();
    let variant = runner.add_variant(device, "default", forward).unwrap();
    (runner, x, gain, variant)
}

#[test]
fn a_replay_equals_the_eager_run_in_every_mode() {
    in_every_mode(|device, options| {
        let (mut runner, x, _, variant) = runner(device, options, Box::new(doubled));
        runner.capture(device).unwrap();
        runner.capture(device).unwrap();
        assert!(runner.captured());
        let programs = device.program_count();
        for frame in 0..20 {
            let input = ramp(frame as f32);
            let replayed = runner.call(device, variant, &[(x, &input)]).unwrap();
            assert_eq!(replayed[0].0, "y");
            let expected: Vec<f32> = (0..N).map(|i| 2.0 * (frame as f32 + i as f32)).collect();
            assert_eq!(floats(&replayed[0].1), expected);
            let eager = runner.run_eager(device, variant, &[(x, &input)]).unwrap();
            assert_eq!(eager[0].1.bytes(), replayed[0].1.bytes());
        }
        assert_eq!(device.program_count(), programs);
        runner.release(device).unwrap();
    });
}

#[test]
fn frames_that_overlap_on_two_queues_never_mix() {
    on_every_device(|open| {
        let mut device = open(2);
        let device = device.as_mut();
        let (mut runner, x, _, variant) = runner(device, TraceOptions::two_queues(), Box::new(doubled));
        runner.capture(device).unwrap();
        let bytes = spec().bytes();
        let mut inputs: Vec<_> = (0..2).map(|_| device.host_slot(bytes).unwrap()).collect();
        let mut outputs: Vec<_> = (0..2).map(|_| device.host_slot(bytes).unwrap()).collect();
        let mut uploads = [None, None];
        let mut pending = VecDeque::new();
        for frame in 0..1000_usize {
            let slot = frame % 2;
            if let Some(event) = uploads[slot] {
                runner.wait(device, event).unwrap();
            }
            let values = ramp(frame as f32);
            inputs[slot].bytes_mut().unwrap().copy_from_slice(values.bytes());
            uploads[slot] = Some(runner.upload(device, &[(x, &inputs[slot])]).unwrap());
            pending.push_back((frame, runner.replay(device, variant).unwrap()));
            if pending.len() == 2 {
                let (done, replay) = pending.pop_front().unwrap();
                let output = &mut outputs[done % 2];
                let read = runner.read(device, replay, 0, output).unwrap();
                runner.wait(device, read).unwrap();
                let values: &[f32] = bytemuck::cast_slice(output.bytes().unwrap());
                for (i, &value) in values.iter().enumerate() {
                    assert_eq!(value, 2.0 * (done as f32 + i as f32), "frame {done}");
                }
            }
        }
    });
}

#[test]
fn a_parameter_reaches_the_next_replay() {
    in_every_mode(|device, options| {
        let (mut runner, x, gain, variant) = runner(device, options, Box::new(doubled));
        runner.capture(device).unwrap();
        let input = ramp(1.0);
        for value in [1.0, 0.5, 0.5, -3.0, 8.0] {
            runner.set_param(gain, value).unwrap();
            let out = runner.call(device, variant, &[(x, &input)]).unwrap();
            assert_eq!(floats(&out[0].1)[10], 22.0 * value);
        }
        assert_eq!(runner.describe()["params"]["gain"], 8.0);
    });
}

#[test]
fn only_other_bits_are_uploaded_as_a_parameter() {
    on_every_device(|open| {
        let mut device = Spy::new(open(1));
        let (mut runner, _, gain, variant) = runner(&mut device, TraceOptions::default(), Box::new(doubled));
        runner.capture(&mut device).unwrap();
        device.take("write");
        let changes = [
            (1.0, 0),
            (0.0, 1),
            (-0.0, 1),
            (-0.0, 0),
            (f32::NAN, 1),
            (f32::NAN, 0),
        ];
        for (value, writes) in changes {
            runner.set_param(gain, 77.0).unwrap();
            runner.set_params(&[(gain, value)]).unwrap();
            runner.replay(&mut device, variant).unwrap();
            assert_eq!(device.take("write"), writes, "{value}");
        }
    });
}

#[test]
fn a_parameter_of_a_refused_replay_holds_up_no_other_value() {
    on_every_device(|open| {
        let mut device = open(1);
        let device = device.as_mut();
        let (mut runner, x, gain, variant) = runner(device, TraceOptions::default(), Box::new(doubled));
        runner.capture(device).unwrap();
        for round in 0..5 {
            // So much work that the upload of the parameter is still under way when the next one comes.
            for _ in 0..500 {
                runner.replay(device, variant).unwrap();
            }
            runner.set_param(gain, 100.0 + round as f32).unwrap();
            let stray = device.alloc(&spec(), BufferClass::Weight).unwrap();
            runner.replay(device, variant).unwrap_err();
            device.free(stray).unwrap();
            runner.set_param(gain, round as f32).unwrap();
            let out = runner.call(device, variant, &[(x, &ramp(1.0))]).unwrap();
            assert_eq!(floats(&out[0].1)[0], 2.0 * round as f32);
        }
    });
}

#[test]
fn a_parameter_has_any_shape() {
    in_every_mode(|device, options| {
        let mut runner = TraceRunner::new("test", options).unwrap();
        let weights = HostTensor::from_slice(&[N], &vec![2.0_f32; N]).unwrap();
        let weights = runner.add_param_with(device, "weights", &weights).unwrap();
        let x = runner.add_input(device, "x", spec(), None).unwrap();
        runner.add_output(device, "y", spec()).unwrap();
        let weighted: VariantFn = Box::new(|context| {
            let (x, weights, y) = (
                context.input("x")?,
                context.param("weights")?,
                context.output("y")?,
            );
            binary(context.ops(), BinaryKind::Mul, x, weights, y)?;
            Ok(vec![("y".into(), y)])
        });
        let variant = runner.add_variant(device, "weighted", weighted).unwrap();
        runner.capture(device).unwrap();
        let input = ramp(3.0);
        let mut run = |runner: &mut TraceRunner, i: usize| {
            floats(&runner.call(device, variant, &[(x, &input)]).unwrap()[0].1)[i]
        };
        assert_eq!(run(&mut runner, 5), 16.0);
        let values: Vec<f32> = (0..N).map(|i| i as f32).collect();
        runner.set_param_values(weights, &values).unwrap();
        assert_eq!(run(&mut runner, 5), 40.0);
        runner.set_param(weights, -1.0).unwrap();
        assert_eq!(run(&mut runner, 6), -9.0);
        let short = runner.set_param_values(weights, &values[1..]).unwrap_err();
        assert_eq!(
            short.to_string(),
            "test: weights expects float32 [64] (256 bytes), found 63 values"
        );
    });
}

#[test]
fn adding_a_variant_captures_all_again() {
    in_every_mode(|device, options| {
        let (mut runner, x, _, first) = runner(device, options, Box::new(doubled));
        runner.capture(device).unwrap();
        let old = runner.run(device, first, &[]).unwrap();
        let second = runner
            .add_variant(device, "rectified", Box::new(rectified))
            .unwrap();
        assert!(!runner.captured());
        assert!(matches!(
            runner.call(device, first, &[(x, &ramp(0.0))]),
            Err(TraceError::NotCaptured { .. })
        ));
        runner.capture(device).unwrap();
        assert!(matches!(
            runner.read_last(device, second),
            Err(TraceError::NotRun { .. })
        ));
        // The warm-up wrote the outputs of the replay before.
        let overtaken = runner.read_all(device, old);
        assert!(
            matches!(overtaken, Err(TraceError::Overtaken { .. })),
            "{overtaken:?}"
        );
        for frame in 0..4 {
            let input = ramp(frame as f32 - 30.0);
            let y = runner.call(device, first, &[(x, &input)]).unwrap();
            let z = runner.call(device, second, &[(x, &input)]).unwrap();
            assert_eq!(
                runner.read_last(device, second).unwrap()[0].1.bytes(),
                z[0].1.bytes()
            );
            for (i, &v) in floats(&input).iter().enumerate() {
                assert_eq!(floats(&y[0].1)[i], 2.0 * v);
                assert_eq!(floats(&z[0].1)[i], v.max(0.0));
            }
        }
        let late = runner.add_input(device, "late", spec(), None);
        assert!(matches!(late, Err(TraceError::AfterCapture { .. })));
    });
}

#[test]
fn eager_work_of_the_model_runs_once_before_the_first_capture() {
    on_every_device(|open| {
        let mut device = open(1);
        let device = device.as_mut();
        let (mut runner, x, _, variant) = runner(device, TraceOptions::default(), Box::new(doubled));
        let runs = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&runs);
        let glue = move |ops: &mut OpContext<'_>| {
            counter.fetch_add(1, Ordering::SeqCst);
            let tensor = ops.alloc(&spec(), BufferClass::Intermediate)?;
            unary(ops, Activation::Tanh, tensor, tensor)?;
            ops.free(&tensor)?;
            Ok(())
        };
        runner.add_eager_warmup("glue", Box::new(glue.clone())).unwrap();
        let twice = runner
            .add_eager_warmup("glue", Box::new(glue.clone()))
            .unwrap_err();
        assert_eq!(twice.to_string(), "test: glue is registered already");
        runner.capture(device).unwrap();
        runner
            .add_variant(device, "rectified", Box::new(rectified))
            .unwrap();
        runner.capture(device).unwrap();
        assert_eq!(runs.load(Ordering::SeqCst), 1);
        // Between replays it needs no new program now.
        let between = glue.clone();
        between(&mut OpContext::new(&mut *device, Cq::COMPUTE)).unwrap();
        runner.call(device, variant, &[(x, &ramp(0.0))]).unwrap();
        let late = runner.add_eager_warmup("late", Box::new(glue)).unwrap_err();
        assert!(matches!(late, TraceError::AfterWarmUp { .. }), "{late}");
    });
}

#[test]
fn the_report_of_a_runner_tells_all_of_it() {
    on_every_device(|open| {
        let mut device = open(2);
        let device = device.as_mut();
        let mut model = Model::captured(device, TraceOptions::two_queues(), 3);
        model.call(device, Kind::Step, &ramp(0.0));
        let report = model.runner.describe();
        assert_eq!(
            report["phases"],
            serde_json::json!({ "outputs": 2, "states": 2, "next": { "output": 1, "state": 1 } })
        );
        assert_eq!(model.runner.phase(), Phase { output: 1, state: 1 });
        assert_eq!(
            report["states"]["mem"],
            serde_json::json!({ "spec": "float32 [64]", "pingpong": true, "banks": 3, "bytes": 256 })
        );
        assert_eq!(
            report["inputs"]["x"],
            serde_json::json!({ "spec": "float32 [64]", "staged": true, "by_function": false })
        );
        assert_eq!(
            report["bytes"],
            serde_json::json!({
                "inputs": 256, "staging": 256, "params": 4, "states": 5 * 256, "banks": 9 * 256,
                "outputs": 2 * 256,
            })
        );
        let steps: Vec<_> = (0..3)
            .map(|i| report["variants"][i]["writes_pingpong"].as_bool().unwrap())
            .collect();
        assert_eq!(steps, [true, false, false]);
        assert_eq!(
            report["variants"][1]["outputs"],
            serde_json::json!({ "z": "float32 [64]" })
        );
        let traces = model.runner.trace_ids();
        assert_eq!(traces.len(), 3 * 4);
        let phases: Vec<_> = traces[4..8]
            .iter()
            .map(|(variant, phase, _)| {
                assert_eq!(*variant, model.peek);
                [phase.output, phase.state]
            })
            .collect();
        assert_eq!(phases, [[0, 0], [0, 1], [1, 0], [1, 1]]);
        let trace_bytes: u64 = report["variants"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|variant| variant["traces"].as_array().unwrap())
            .map(|trace| trace["bytes"].as_u64().unwrap())
            .sum();
        assert_eq!(trace_bytes as usize, device.memory().trace_bytes);
        let timings = model.runner.timings();
        assert!(!timings.warm_up.is_zero() && !timings.capture.is_zero());
        assert_eq!(report["captured"].as_bool(), Some(true));
    });
}

#[test]
fn a_release_gives_everything_back_and_ends_all_use() {
    in_every_mode(|device, options| {
        let before = device.memory();
        let mut model = Model::captured(device, options, 2);
        let pending = model.runner.run(device, model.step, &[]).unwrap();
        model.runner.release(device).unwrap();
        model.runner.release(device).unwrap();
        assert_eq!(device.memory(), before);
        let Model {
            mut runner,
            x,
            keep,
            mem,
            step,
            ..
        } = model;
        let mut slot = device.host_slot(spec().bytes()).unwrap();
        let uses = [
            runner.call(device, step, &[]).map(drop),
            runner.run_eager(device, step, &[]).map(drop),
            runner.upload(device, &[]).map(drop),
            runner.replay(device, step).map(drop),
            runner.run(device, step, &[]).map(drop),
            runner.wait(device, pending.done),
            runner.completed(device, pending.done).map(drop),
            runner.read_all(device, pending).map(drop),
            runner.read(device, pending, 0, &mut slot).map(drop),
            runner.read_last(device, step).map(drop),
            runner.write_input(device, x, &ramp(0.0)),
            runner.set_param(keep, 1.0),
            runner.set_params(&[(keep, 1.0)]),
            runner.set_param_values(keep, &[1.0]),
            runner.reset_states(device),
            runner.reset_state(device, mem, ResetValue::Init),
            runner.save_state(device, mem, BankIndex(0)),
            runner.load_state(device, mem, BankIndex(0)),
            runner.read_state(device, mem).map(drop),
            runner.state_buffer(mem).map(drop),
            runner.state("mem").map(drop),
            runner.outputs(step).map(drop),
            runner.add_input(device, "late", spec(), None).map(drop),
            runner.add_param(device, "late", 0.0).map(drop),
            runner
                .add_state(device, "late", spec(), None, StateOptions::default())
                .map(drop),
            runner.add_output(device, "late", spec()),
            runner.add_variant(device, "late", Box::new(doubled)).map(drop),
            runner.add_eager_warmup("late", Box::new(|_| Ok(()))),
            runner.warm_up(device),
            runner.capture(device),
        ];
        for (number, outcome) in uses.into_iter().enumerate() {
            let error = outcome.unwrap_err();
            assert!(
                matches!(error, TraceError::Released { .. }),
                "use {number}: {error}"
            );
        }
        assert_eq!(runner.describe()["released"], true);
    });
}
