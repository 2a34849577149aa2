//! In the steady state the trace runner and the device allocate nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

#[path = "support/allocations.rs"]
mod allocations;

use std::sync::atomic::Ordering;

use allocations::{ALLOCATIONS, ARMED};
use sensorium::device::{
    Activation, BufferClass, Conv2dDesc, CpuConfig, CpuDevice, Device, Geometry2d, OpDesc, Operand,
    ResidualOrder, WeightDesc,
};
use sensorium::ops::DeviceTensor;
use sensorium::precision::{Math, Precision};
use sensorium::tensor::{DType, TensorSpec, View};
use sensorium::trace::{BankOptions, Select, StateOptions, StreamBanks, TraceOptions, TraceRunner};

const SIDE: usize = 32;
const CHANNELS: usize = 16;

#[test]
fn upload_switch_of_streams_replay_and_read_allocate_nothing() {
    let config = CpuConfig {
        threads: 2,
        arena_bytes: 8 << 20,
        ..CpuConfig::default()
    };
    let mut device = CpuDevice::open(&config).unwrap();
    let pixels = TensorSpec::new(&[1, SIDE, SIDE, CHANNELS], DType::F32).unwrap();
    let view = View::channels_last([1, CHANNELS, SIDE, SIDE], CHANNELS, 0).unwrap();
    let operand = Operand {
        dtype: DType::F32,
        view,
    };
    let conv = Conv2dDesc {
        input: operand,
        output: operand,
        residual: None,
        residual_order: ResidualOrder::AfterActivation,
        geometry: Geometry2d {
            kernel: [3, 3],
            stride: [1, 1],
            dilation: [1, 1],
            pad_begin: [1, 1],
        },
        groups: 1,
        activation: Activation::Silu,
        math: Math::Native,
    };
    // The same with the arithmetic of a matrix engine.
    let engine = Conv2dDesc {
        math: Precision::CONVOLUTION.into(),
        ..conv.clone()
    };
    let weight = vec![0.01_f32; CHANNELS * CHANNELS * 9];
    let [weights, engine_weights] = [&conv, &engine].map(|desc| {
        let weights = WeightDesc::Conv2d {
            desc,
            weight: &weight,
            bias: None,
        };
        device.prepare_weights(&weights).unwrap()
    });

    let mut runner = TraceRunner::new("conv", TraceOptions::two_queues()).unwrap();
    let camera = TensorSpec::new(&[1, SIDE, SIDE, CHANNELS], DType::U8).unwrap();
    let x = runner
        .add_input_with(
            &mut device,
            "x",
            pixels,
            camera,
            None,
            Box::new(|ops, staging, dst| Ok(ops.copy(&staging, &dst)?)),
        )
        .unwrap();
    let bias = runner.add_input(&mut device, "bias", pixels, None).unwrap();
    let gain = runner.add_param(&mut device, "gain", 1.0).unwrap();
    let states = [true, false].map(|pingpong| {
        let (name, options) = (
            ["in place", "ping-pong"][usize::from(pingpong)],
            StateOptions { pingpong, banks: 2 },
        );
        runner
            .add_state(&mut device, name, pixels, None, options)
            .unwrap()
    });
    runner.add_output(&mut device, "y", pixels).unwrap();
    let (op, engine) = (OpDesc::Conv2d(conv), OpDesc::Conv2d(engine));
    let variant = runner
        .add_variant(
            &mut device,
            "default",
            Box::new(move |context| {
                let (x, y) = (context.input("x")?, context.output("y")?);
                let target = context.write_target("ping-pong")?;
                let ops = context.ops();
                let middle = ops.alloc(&pixels, BufferClass::Intermediate)?;
                ops.run(&op, &[x.buffer, weights, middle.buffer])?;
                ops.run(&engine, &[middle.buffer, engine_weights, y.buffer])?;
                ops.copy(&middle, &target)?;
                context.write_state("ping-pong", &target)?;
                context.write_state("in place", &middle)?;
                context.ops().free(&middle)?;
                Ok(vec![("y".into(), DeviceTensor::whole(y.buffer, &pixels))])
            }),
        )
        .unwrap();
    runner.capture(&mut device).unwrap();
    let options = BankOptions {
        max_streams: 2,
        max_gap_s: Some(1.0),
        ..BankOptions::default()
    };
    let mut streams = StreamBanks::new(&runner, &states, options).unwrap();

    let input = device.host_slot(camera.bytes()).unwrap();
    let offset = device.host_slot(pixels.bytes()).unwrap();
    let mut output = device.host_slot(pixels.bytes()).unwrap();
    let mut number = 0_u64;
    let mut frame = |runner: &mut TraceRunner| {
        number += 1;
        let uploaded = runner
            .upload(&mut device, &[(x, &input), (bias, &offset)])
            .unwrap();
        // Two streams by turns, each with a fresh start now and then.
        let select = Select {
            reset: number.is_multiple_of(7),
            timestamp_s: Some(number as f64 * 0.1),
        };
        let fresh = streams
            .select(&mut device, runner, &(number % 2), select)
            .unwrap();
        runner
            .set_param(gain, f32::from(u8::from(fresh.is_fresh())))
            .unwrap();
        let pending = runner.replay(&mut device, variant).unwrap();
        let read = runner.read(&mut device, pending, 0, &mut output).unwrap();
        runner.wait(&mut device, uploaded).unwrap();
        runner.wait(&mut device, read).unwrap();
    };
    for _ in 0..10 {
        frame(&mut runner);
    }
    ARMED.store(true, Ordering::SeqCst);
    for _ in 0..100 {
        frame(&mut runner);
    }
    ARMED.store(false, Ordering::SeqCst);
    assert_eq!(ALLOCATIONS.load(Ordering::SeqCst), 0);
}
