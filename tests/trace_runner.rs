//! Warm-up, capture and replay through [`TraceRunner`].
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sensorium::device::{Activation, BinaryKind, BufferClass, CpuConfig, CpuDevice, Device, OpDesc, Operand};
use sensorium::ops::{DeviceTensor, OpContext};
use sensorium::tensor::{DType, HostTensor, TensorSpec};
use sensorium::trace::{InputId, TraceContext, TraceError, TraceOptions, TraceRunner, VariantFn, VariantId};

const N: usize = 4096;

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn open(queues: u8) -> CpuDevice {
    CpuDevice::open(&CpuConfig {
        queues,
        threads: 2,
        arena_bytes: 8 << 20,
        ..CpuConfig::default()
    })
    .unwrap()
}

fn spec() -> TensorSpec {
    TensorSpec::new(&[N], DType::F32).unwrap()
}

fn tensor(value: f32) -> HostTensor {
    let values: Vec<f32> = (0..N).map(|i| value + i as f32).collect();
    HostTensor::from_slice(&[N], &values).unwrap()
}

fn binary(
    ops: &mut OpContext<'_>,
    kind: BinaryKind,
    lhs: DeviceTensor,
    rhs: DeviceTensor,
    dst: DeviceTensor,
) -> Result<(), Failure> {
    let view = rhs.view.broadcast_to(dst.view.shape)?;
    let rhs_operand = Operand {
        dtype: rhs.dtype,
        view,
    };
    let op = OpDesc::Binary {
        lhs: lhs.operand(),
        rhs: rhs_operand,
        dst: dst.operand(),
        kind,
    };
    Ok(ops.run(&op, &[lhs.buffer, rhs.buffer, dst.buffer])?)
}

/// `y = (x + x) * gain`, written to the persistent output.
fn doubled(context: &mut TraceContext<'_>) -> Result<Vec<(String, DeviceTensor)>, Failure> {
    let (x, gain, y) = (context.input("x")?, context.param("gain")?, context.output("y")?);
    let ops = context.ops();
    let sum = ops.alloc(&spec(), BufferClass::Intermediate)?;
    binary(ops, BinaryKind::Add, x, x, sum)?;
    binary(ops, BinaryKind::Mul, sum, gain, y)?;
    ops.free(&sum)?;
    Ok(vec![("y".into(), y)])
}

/// `z = relu(x)` in a tensor that the variant allocates.
fn rectified(context: &mut TraceContext<'_>) -> Result<Vec<(String, DeviceTensor)>, Failure> {
    let x = context.input("x")?;
    let ops = context.ops();
    let z = ops.alloc(&spec(), BufferClass::Output)?;
    let op = OpDesc::Unary {
        src: x.operand(),
        dst: z.operand(),
        activation: Activation::Relu,
    };
    ops.run(&op, &[x.buffer, z.buffer])?;
    Ok(vec![("z".into(), z)])
}

fn runner(
    device: &mut CpuDevice,
    options: TraceOptions,
    forward: VariantFn,
) -> (TraceRunner, InputId, VariantId) {
    let mut runner = TraceRunner::new("test", options).unwrap();
    let x = runner.add_input(device, "x", spec(), None).unwrap();
    runner.add_param(device, "gain", 1.0).unwrap();
    runner.add_output(device, "y", spec()).unwrap();
    let variant = runner.add_variant(device, "default", forward).unwrap();
    (runner, x, variant)
}

fn every_mode() -> [TraceOptions; 4] {
    [
        TraceOptions::default(),
        TraceOptions {
            queues: 2,
            ..TraceOptions::default()
        },
        TraceOptions {
            queues: 2,
            stage_inputs: true,
            ..TraceOptions::default()
        },
        TraceOptions::two_queues(),
    ]
}

#[test]
fn a_replay_equals_the_eager_run_in_every_mode() {
    for options in every_mode() {
        let mut device = open(options.queues);
        let (mut runner, x, variant) = runner(&mut device, options, Box::new(doubled));
        runner.capture(&mut device).unwrap();
        runner.capture(&mut device).unwrap();
        assert!(runner.captured());
        let programs = device.program_count();
        for frame in 0..20 {
            let input = tensor(frame as f32);
            let replayed = runner.call(&mut device, variant, &[(x, &input)]).unwrap();
            assert_eq!(replayed[0].0, "y");
            let expected: Vec<f32> = (0..N).map(|i| 2.0 * (frame as f32 + i as f32)).collect();
            assert_eq!(replayed[0].1.as_slice::<f32>().unwrap(), expected);
            let eager = runner.run_eager(&mut device, variant, &[(x, &input)]).unwrap();
            assert_eq!(eager[0].1.bytes(), replayed[0].1.bytes());
        }
        assert_eq!(device.program_count(), programs);
        runner.release(&mut device).unwrap();
        runner.release(&mut device).unwrap();
        let after = runner.call(&mut device, variant, &[]);
        assert!(matches!(after, Err(TraceError::Released { .. })));
    }
}

#[test]
fn frames_that_overlap_on_two_queues_never_mix() {
    let mut device = open(2);
    let (mut runner, x, variant) = runner(&mut device, TraceOptions::two_queues(), Box::new(doubled));
    runner.capture(&mut device).unwrap();
    let bytes = spec().bytes();
    let mut inputs: Vec<_> = (0..2).map(|_| device.host_slot(bytes).unwrap()).collect();
    let mut outputs: Vec<_> = (0..2).map(|_| device.host_slot(bytes).unwrap()).collect();
    let mut uploads = [None, None];
    let mut pending = std::collections::VecDeque::new();
    for frame in 0..1000_usize {
        let slot = frame % 2;
        if let Some(event) = uploads[slot] {
            runner.wait(&mut device, event).unwrap();
        }
        inputs[slot]
            .bytes_mut()
            .unwrap()
            .copy_from_slice(tensor(frame as f32).bytes());
        uploads[slot] = Some(runner.upload(&mut device, &[(x, &inputs[slot])]).unwrap());
        pending.push_back((frame, runner.replay(&mut device, variant).unwrap()));
        if pending.len() == 2 {
            let (done, replay) = pending.pop_front().unwrap();
            let output = &mut outputs[done % 2];
            let read = runner.read(&mut device, replay, 0, output).unwrap();
            runner.wait(&mut device, read).unwrap();
            let values: &[f32] = bytemuck::cast_slice(output.bytes().unwrap());
            for (i, &value) in values.iter().enumerate() {
                assert_eq!(value, 2.0 * (done as f32 + i as f32), "frame {done}");
            }
        }
    }
}

#[test]
fn a_parameter_reaches_the_next_replay() {
    for options in every_mode() {
        let mut device = open(options.queues);
        let mut runner = TraceRunner::new("test", options).unwrap();
        let x = runner.add_input(&mut device, "x", spec(), None).unwrap();
        let gain = runner.add_param(&mut device, "gain", 1.0).unwrap();
        runner.add_output(&mut device, "y", spec()).unwrap();
        let variant = runner
            .add_variant(&mut device, "default", Box::new(doubled))
            .unwrap();
        runner.capture(&mut device).unwrap();
        let input = tensor(1.0);
        for value in [1.0, 0.5, 0.5, -3.0, 8.0] {
            runner.set_param(gain, value);
            let out = runner.call(&mut device, variant, &[(x, &input)]).unwrap();
            assert_eq!(out[0].1.as_slice::<f32>().unwrap()[10], 22.0 * value);
        }
    }
}

#[test]
fn adding_a_variant_captures_all_again() {
    let mut device = open(2);
    let (mut runner, x, first) = runner(&mut device, TraceOptions::two_queues(), Box::new(doubled));
    runner.capture(&mut device).unwrap();
    let second = runner
        .add_variant(&mut device, "rectified", Box::new(rectified))
        .unwrap();
    assert!(!runner.captured());
    assert!(matches!(
        runner.call(&mut device, first, &[(x, &tensor(0.0))]),
        Err(TraceError::NotCaptured { .. })
    ));
    runner.capture(&mut device).unwrap();
    assert!(matches!(
        runner.read_last(&mut device, second),
        Err(TraceError::NotRun { .. })
    ));
    for frame in 0..4 {
        let input = tensor(frame as f32 - 100.0);
        let y = runner.call(&mut device, first, &[(x, &input)]).unwrap();
        let z = runner.call(&mut device, second, &[(x, &input)]).unwrap();
        assert_eq!(
            runner.read_last(&mut device, second).unwrap()[0].1.bytes(),
            z[0].1.bytes()
        );
        for (i, &v) in input.as_slice::<f32>().unwrap().iter().enumerate() {
            assert_eq!(y[0].1.as_slice::<f32>().unwrap()[i], 2.0 * v);
            assert_eq!(z[0].1.as_slice::<f32>().unwrap()[i], v.max(0.0));
        }
    }
    let late = runner.add_input(&mut device, "late", spec(), None);
    assert!(matches!(late, Err(TraceError::AfterCapture { .. })));
}

#[test]
fn a_program_that_first_appears_in_the_capture_is_named_and_the_device_survives() {
    let mut device = open(1);
    let strict: VariantFn = Box::new(|context| {
        if context.capturing() {
            rectified(context)
        } else {
            doubled(context)
        }
    });
    let (mut runner, _, _) = runner(&mut device, TraceOptions::default(), strict);
    let error = runner.capture(&mut device).unwrap_err();
    assert!(
        error.to_string().contains("cache misses are forbidden: Unary"),
        "{error}"
    );
    let again = runner.capture(&mut device).unwrap_err();
    assert_eq!(again.to_string(), error.to_string());
    runner.release(&mut device).unwrap();
    let (mut other, x, variant) = self::runner(&mut device, TraceOptions::default(), Box::new(doubled));
    other.capture(&mut device).unwrap();
    other.call(&mut device, variant, &[(x, &tensor(1.0))]).unwrap();
}

#[test]
fn a_capture_ends_even_when_the_variant_panics() {
    let mut device = open(1);
    let armed = Arc::new(AtomicBool::new(true));
    let trigger = Arc::clone(&armed);
    let forward: VariantFn = Box::new(move |context| {
        assert!(
            !(context.capturing() && trigger.load(Ordering::SeqCst)),
            "variant gives up"
        );
        doubled(context)
    });
    let (mut runner, x, variant) = runner(&mut device, TraceOptions::default(), forward);
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| runner.capture(&mut device)));
    assert!(outcome.is_err());
    armed.store(false, Ordering::SeqCst);
    runner.capture(&mut device).unwrap();
    runner.call(&mut device, variant, &[(x, &tensor(1.0))]).unwrap();
}

#[test]
fn wrong_use_is_answered_with_names() {
    let mut device = open(1);
    let (mut runner, x, variant) = runner(&mut device, TraceOptions::default(), Box::new(doubled));
    let error = runner.call(&mut device, variant, &[]).unwrap_err();
    assert_eq!(error.to_string(), "test: not captured yet");
    runner.capture(&mut device).unwrap();
    let short = HostTensor::from_slice(&[N - 1], &vec![0.0_f32; N - 1]).unwrap();
    let error = runner.call(&mut device, variant, &[(x, &short)]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "test: x expects float32 [4096] (16384 bytes), found float32 [4095]"
    );
    let slot = device.host_slot(16).unwrap();
    assert!(matches!(
        runner.upload(&mut device, &[(x, &slot)]),
        Err(TraceError::WrongInput { .. })
    ));
    assert!(matches!(
        runner.add_variant(&mut device, "default", Box::new(doubled)),
        Err(TraceError::Duplicate { .. })
    ));
    let nothing: VariantFn = Box::new(|_| Ok(Vec::new()));
    runner.add_variant(&mut device, "nothing", nothing).unwrap();
    assert!(matches!(
        runner.capture(&mut device),
        Err(TraceError::NoOutput { .. })
    ));
    let unknown: VariantFn = Box::new(|context| {
        context.input("pillars")?;
        Ok(Vec::new())
    });
    let mut other = TraceRunner::new("other", TraceOptions::default()).unwrap();
    other.add_input(&mut device, "x", spec(), None).unwrap();
    other.add_variant(&mut device, "v", unknown).unwrap();
    let error = other.capture(&mut device).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("no input is called pillars; there are [\"x\"]"),
        "{error}"
    );
    let staged = TraceOptions {
        stage_inputs: true,
        ..TraceOptions::default()
    };
    assert!(matches!(
        TraceRunner::new("t", staged),
        Err(TraceError::Options { .. })
    ));
}

#[test]
fn outputs_that_a_later_replay_overwrites_cannot_be_read() {
    let mut device = open(2);
    let (mut runner, x, variant) = runner(&mut device, TraceOptions::two_queues(), Box::new(doubled));
    runner.capture(&mut device).unwrap();
    let bytes = spec().bytes();
    let input = device.host_slot(bytes).unwrap();
    let mut output = device.host_slot(bytes).unwrap();
    let runs: Vec<_> = (0..3)
        .map(|_| runner.run(&mut device, variant, &[(x, &input)]).unwrap())
        .collect();
    // Two sets of outputs: the third replay takes the first one's.
    let overtaken = runner.read(&mut device, runs[0], 0, &mut output);
    assert!(
        matches!(overtaken, Err(TraceError::Overtaken { .. })),
        "{overtaken:?}"
    );
    for &run in &runs[1..] {
        let read = runner.read(&mut device, run, 0, &mut output).unwrap();
        runner.wait(&mut device, read).unwrap();
    }
    assert!(matches!(
        runner.read(&mut device, runs[2], 1, &mut output),
        Err(TraceError::Unknown { .. })
    ));
    runner.release(&mut device).unwrap();
    let after = runner.call(&mut device, variant, &[(x, &tensor(0.0))]);
    assert!(matches!(after, Err(TraceError::Released { .. })), "{after:?}");
}
