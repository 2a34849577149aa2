//! Inputs: staging functions, and inputs written on queue 0.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use sensorium::device::{BinaryKind, BufferClass};
use sensorium::ops::{DeviceTensor, OpContext};
use sensorium::tensor::{DType, HostTensor, TensorSpec};
use sensorium::trace::{TraceError, TraceOptions, TraceRunner, VariantFn, WorkError};

use super::replay::{doubled, rectified, runner};
use super::spy::Spy;
use super::temporal::{N, binary, filled, floats, in_every_mode, on_every_device, ramp, spec};

fn bytes_spec() -> TensorSpec {
    TensorSpec::new(&[N], DType::U8).unwrap()
}

fn bytes(value: u8) -> HostTensor {
    HostTensor::from_slice(&[N], &[value; N]).unwrap()
}

/// Uploads bytes, gives floats to the traces.
fn widen(ops: &mut OpContext<'_>, staging: DeviceTensor, dst: DeviceTensor) -> Result<(), WorkError> {
    // Left for the runner to free.
    let middle = ops.alloc(&spec(), BufferClass::Intermediate)?;
    ops.copy(&staging, &middle)?;
    Ok(ops.copy(&middle, &dst)?)
}

#[test]
fn a_staging_function_brings_uploads_into_the_form_that_traces_read() {
    in_every_mode(|device, options| {
        let mut runner = TraceRunner::new("test", options).unwrap();
        let init = bytes(9);
        let x = runner
            .add_input_with(device, "x", spec(), bytes_spec(), Some(&init), Box::new(widen))
            .unwrap();
        runner.add_param(device, "gain", 1.0).unwrap();
        runner.add_output(device, "y", spec()).unwrap();
        let variant = runner.add_variant(device, "default", Box::new(doubled)).unwrap();
        runner.capture(device).unwrap();
        let used = device.memory();
        let programs = device.program_count();
        // What it was registered with, without any upload.
        let first = runner.call(device, variant, &[]).unwrap();
        assert_eq!(floats(&first[0].1), [18.0; N]);
        for value in 0..40 {
            let out = runner.call(device, variant, &[(x, &bytes(value))]).unwrap();
            assert_eq!(floats(&out[0].1), [2.0 * f32::from(value); N]);
            if value % 3 == 0 {
                runner.write_input(device, x, &bytes(value + 100)).unwrap();
                let out = runner.call(device, variant, &[]).unwrap();
                assert_eq!(floats(&out[0].1), [2.0 * f32::from(value + 100); N]);
            }
            let eager = runner.run_eager(device, variant, &[(x, &bytes(value))]).unwrap();
            assert_eq!(floats(&eager[0].1), [2.0 * f32::from(value); N]);
        }
        assert_eq!((device.memory(), device.program_count()), (used, programs));
        let refused = runner.call(device, variant, &[(x, &ramp(0.0))]).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "test: x expects uint8 [64] (64 bytes), found float32 [64]"
        );
    });
}

#[test]
fn a_staging_function_that_fails_or_compiles_later_is_told_and_tried_again() {
    in_every_mode(|device, options| {
        let mut runner = TraceRunner::new("test", options).unwrap();
        let mode = Arc::new(AtomicU8::new(0));
        let chosen = Arc::clone(&mode);
        let fickle = move |ops: &mut OpContext<'_>, staging: DeviceTensor, dst: DeviceTensor| match chosen
            .load(Ordering::SeqCst)
        {
            0 => widen(ops, staging, dst),
            1 => Err("no converter".into()),
            _ => {
                let mut reversed = staging;
                reversed.view.strides[0] = -1;
                reversed.view.offset = N - 1;
                Ok(ops.copy(&reversed, &dst)?)
            }
        };
        let x = runner
            .add_input_with(device, "x", spec(), bytes_spec(), None, Box::new(fickle))
            .unwrap();
        runner.add_param(device, "gain", 1.0).unwrap();
        runner.add_output(device, "y", spec()).unwrap();
        let variant = runner.add_variant(device, "default", Box::new(doubled)).unwrap();
        runner.capture(device).unwrap();
        let programs = device.program_count();
        let set = |value| mode.store(value, Ordering::SeqCst);
        set(1);
        let failed = runner.call(device, variant, &[(x, &bytes(5))]).unwrap_err();
        assert_eq!(failed.to_string(), "test: staging of input x: no converter");
        set(2);
        let refused = runner.call(device, variant, &[]).unwrap_err();
        let TraceError::CompilesAfterCapture { work, op, .. } = &refused else {
            panic!("{refused}");
        };
        assert_eq!(work, "staging of input x");
        assert!(op.starts_with("Copy"), "{op}");
        assert_eq!(device.program_count(), programs);
        // The upload was not lost.
        set(0);
        let out = runner.call(device, variant, &[]).unwrap();
        assert_eq!(floats(&out[0].1), [10.0; N]);
        // Nor is what was written on queue 0.
        set(1);
        runner.write_input(device, x, &bytes(8)).unwrap_err();
        set(0);
        let out = runner.call(device, variant, &[]).unwrap();
        assert_eq!(floats(&out[0].1), [16.0; N]);
    });
}

#[test]
fn an_input_written_on_queue_0_holds_until_the_next_upload() {
    in_every_mode(|device, options| {
        let (mut runner, x, _, variant) = runner(device, options, Box::new(doubled));
        runner.write_input(device, x, &ramp(7.0)).unwrap();
        runner.capture(device).unwrap();
        let at = |out: &[(String, HostTensor)]| floats(&out[0].1)[0] / 2.0;
        let out = runner.call(device, variant, &[]).unwrap();
        assert_eq!(at(&out), 7.0);
        for frame in 0..100 {
            let value = frame as f32;
            // Upload, write over it, replay; then the other way round. Nothing is waited for in between.
            let up = filled(device, &ramp(value));
            runner.upload(device, &[(x, &up)]).unwrap();
            runner.write_input(device, x, &ramp(value + 0.5)).unwrap();
            let out = runner.call(device, variant, &[]).unwrap();
            assert_eq!(at(&out), value + 0.5);
            runner.write_input(device, x, &ramp(value + 0.25)).unwrap();
            let pending = runner.run(device, variant, &[(x, &up)]).unwrap();
            let out = runner.read_all(device, pending).unwrap();
            assert_eq!(at(&out), value);
            // The staging copy does not bring an older value back.
            let out = runner.call(device, variant, &[]).unwrap();
            assert_eq!(at(&out), value);
        }
    });
}

#[test]
fn several_inputs_are_uploaded_together_or_one_by_one() {
    in_every_mode(|device, options| {
        let mut runner = TraceRunner::new("test", options).unwrap();
        let init = ramp(1.0);
        let x = runner.add_input(device, "x", spec(), Some(&init)).unwrap();
        // One of them always has a staging copy.
        let bias = runner
            .add_input_with(device, "bias", spec(), bytes_spec(), None, Box::new(widen))
            .unwrap();
        runner.add_output(device, "y", spec()).unwrap();
        let sum: VariantFn = Box::new(|context| {
            let (x, bias, y) = (context.input("x")?, context.input("bias")?, context.output("y")?);
            binary(context.ops(), BinaryKind::Add, x, bias, y)?;
            Ok(vec![("y".into(), y)])
        });
        let variant = runner.add_variant(device, "sum", sum).unwrap();
        runner.capture(device).unwrap();
        let first = |out: Vec<(String, HostTensor)>| floats(&out[0].1)[0];
        assert_eq!(first(runner.call(device, variant, &[]).unwrap()), 1.0);
        for frame in 0..30_u8 {
            let (a, b) = (ramp(f32::from(frame)), bytes(frame));
            let both = runner.call(device, variant, &[(x, &a), (bias, &b)]).unwrap();
            assert_eq!(first(both), 2.0 * f32::from(frame));
            let one = runner
                .call(device, variant, &[(bias, &bytes(frame + 1))])
                .unwrap();
            assert_eq!(first(one), 2.0 * f32::from(frame) + 1.0);
        }
        // Refused before anything is uploaded.
        let (up, short) = (filled(device, &ramp(900.0)), device.host_slot(8).unwrap());
        let refused = runner
            .run(device, variant, &[(x, &up), (bias, &short)])
            .unwrap_err();
        assert_eq!(
            refused.to_string(),
            "test: bias expects uint8 [64] (64 bytes), found a slot of 8 bytes"
        );
        assert_eq!(first(runner.call(device, variant, &[]).unwrap()), 29.0 + 30.0);
    });
}

#[test]
fn a_call_of_a_variant_without_traces_uploads_nothing() {
    on_every_device(|open| {
        let mut device = Spy::new(open(1));
        let (mut runner, x, _, variant) = runner(&mut device, TraceOptions::default(), Box::new(doubled));
        runner.capture(&mut device).unwrap();
        let second = runner
            .add_variant(&mut device, "rectified", Box::new(rectified))
            .unwrap();
        device.take("");
        let up = filled(&mut device, &ramp(0.0));
        for variant in [variant, second] {
            assert!(runner.call(&mut device, variant, &[(x, &ramp(0.0))]).is_err());
            assert!(runner.run(&mut device, variant, &[(x, &up)]).is_err());
        }
        assert_eq!(device.take("write"), 0);
    });
}
