//! Many streams through one model with states, beside one stream that floods it.
//!
//! - By the owner's own parts, frame after frame with two on the device: the choice of the next frame, the switch to its
//!   stream's states, upload, replay, read. States of several sizes show what the switch costs.
//! - By the whole program on a bag: sixteen topics beside one with as many images, for the rest of the way.
//!
//! `cargo bench --bench streams`; `-- --quick` for a look.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, reason = "benches")]

#[path = "../tests/support/tiny.rs"]
mod tiny;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use sensorium::device::{
    Activation, BufferClass, Conv2dDesc, CpuConfig, CpuDevice, Device, Geometry2d, HostSlot, OpDesc, Operand,
    ResidualOrder, WeightDesc,
};
use sensorium::perception::{DeviceWeights, FrameKey, ModelTrace};
use sensorium::precision::Math;
use sensorium::runtime::schedule::{LaneRules, Order, Schedule};
use sensorium::telemetry::{StreamId, Streams};
use sensorium::tensor::{DType, TensorSpec, View};
use sensorium::trace::{BankOptions, OnFull, Pending, StateOptions, TraceOptions, TraceRunner};

const STREAMS: usize = 16;
/// Frames that wait for the device, and those on it.
const WAITING: usize = 2 * STREAMS;
const ON_DEVICE: usize = 2;
/// Side and channels of the features.
const SIDE: usize = 64;
const CHANNELS: usize = 32;
/// Convolutions of a frame.
const LAYERS: usize = 4;

#[derive(Debug)]
struct Nothing;

impl DeviceWeights for Nothing {
    fn release(&mut self, _: &mut dyn Device) {}
}

/// A network of convolutions that adds its state to its features and keeps them, with `state_bytes` of state beside.
fn model(device: &mut CpuDevice, streams: usize, state_bytes: usize) -> ModelTrace {
    let features = TensorSpec::new(&[1, SIDE, SIDE, CHANNELS], DType::F32).unwrap();
    let view = View::channels_last([1, CHANNELS, SIDE, SIDE], CHANNELS, 0).unwrap();
    let operand = Operand {
        dtype: DType::F32,
        view,
    };
    let desc = Conv2dDesc {
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
    let weight = vec![0.01_f32; CHANNELS * CHANNELS * 9];
    let weights = WeightDesc::Conv2d {
        desc: &desc,
        weight: &weight,
        bias: None,
    };
    let weights = device.prepare_weights(&weights).unwrap();
    let mut runner = TraceRunner::new("bench", TraceOptions::two_queues()).unwrap();
    let x = runner.add_input(device, "x", features, None).unwrap();
    runner.add_output(device, "y", features).unwrap();
    let spec = TensorSpec::new(&[state_bytes / 4], DType::F32).unwrap();
    let kept = StateOptions {
        pingpong: false,
        banks: streams,
    };
    let state = runner.add_state(device, "memory", spec, None, kept).unwrap();
    let op = OpDesc::Conv2d(desc);
    let forward = runner.add_variant(
        device,
        "default",
        Box::new(move |context| {
            let (x, y) = (context.input("x")?, context.output("y")?);
            // Read and written as a network would; the amount of work is that of the convolutions.
            let memory = context.state("memory")?;
            context.write_state("memory", &memory)?;
            let ops = context.ops();
            let middle = ops.alloc(&features, BufferClass::Intermediate)?;
            for layer in 0..LAYERS {
                let from = if layer == 0 { x.buffer } else { y.buffer };
                ops.run(&op, &[from, weights, middle.buffer])?;
                ops.copy(&middle, &y)?;
            }
            ops.free(&middle)?;
            Ok(vec![("y".into(), y)])
        }),
    );
    let inputs = [(x, features)];
    let mut trace = ModelTrace::new(
        device,
        runner,
        &inputs,
        features,
        &[forward.unwrap()],
        Box::new(Nothing),
    )
    .unwrap();
    trace.capture(device).unwrap();
    let options = BankOptions {
        max_streams: streams,
        on_full: OnFull::Reject,
        max_gap_s: None,
    };
    trace.with_streams(&[state], options).unwrap()
}

/// A frame on the device.
struct Flight {
    pending: Pending,
    slot: usize,
}

/// Time of a frame where the streams have frames waiting at any time.
fn frame_time(device: &mut CpuDevice, trace: &mut ModelTrace, ids: &[StreamId], frames: usize) -> Duration {
    let names: Vec<String> = ids.iter().map(|id| format!("/stream/{}", id.index())).collect();
    let rules = LaneRules {
        places: WAITING,
        largest_batch: 1,
        timeout_ns: 0,
        drop_late: false,
    };
    let mut schedule = Schedule::new(Order::Deadline, &[rules]);
    let inputs: Vec<HostSlot> = (0..ON_DEVICE)
        .map(|_| device.host_slot(trace.input_specs()[0].bytes()).unwrap())
        .collect();
    let mut outputs: Vec<HostSlot> = (0..ON_DEVICE)
        .map(|_| device.host_slot(trace.output_bytes()).unwrap())
        .collect();
    let mut flights: VecDeque<Flight> = VecDeque::new();
    let (mut came, mut chosen) = (0, Vec::new());
    let start = Instant::now();
    for done in 0.. {
        while !schedule.is_full() && came < frames {
            let stream = came % ids.len();
            let deadline_ns = Some((came / ids.len()) as u64);
            schedule.push(0, ids[stream], deadline_ns, 0, stream).unwrap();
            came += 1;
        }
        while flights.len() < ON_DEVICE && schedule.next(0, false, |_| 1, &mut chosen).is_some() {
            let stream = chosen.pop().unwrap();
            let slot = (done + flights.len()) % ON_DEVICE;
            let key = FrameKey {
                stream: &names[stream],
                stamp_ns: -1,
                reset: false,
            };
            let submitted = trace.submit(device, 0, [&inputs[slot]], &key).unwrap();
            let pending = submitted.pending;
            flights.push_back(Flight { pending, slot });
        }
        let Some(oldest) = flights.pop_front() else {
            break;
        };
        trace.runner().0.wait(device, oldest.pending.done).unwrap();
        let read = trace
            .read(device, oldest.pending, &mut outputs[oldest.slot])
            .unwrap();
        trace.runner().0.wait(device, read).unwrap();
    }
    start.elapsed() / frames as u32
}

/// Least of several rounds, the two sides by turns: whatever else the machine does only adds.
fn compare(state_bytes: usize, frames: usize, rounds: usize) {
    let names = Streams::default();
    let ids: Vec<StreamId> = (0..STREAMS).map(|i| names.register(&i.to_string())).collect();
    let config = CpuConfig {
        queues: 2,
        arena_bytes: (STREAMS + 4) * state_bytes + (256 << 20),
        ..CpuConfig::default()
    };
    let mut best = [Duration::MAX; 2];
    let mut device = CpuDevice::open(&config).unwrap();
    let mut trace = model(&mut device, STREAMS, state_bytes);
    for _ in 0..rounds {
        for (best, ids) in best.iter_mut().zip([&ids[..1], &ids[..]]) {
            // Every stream is known before it counts.
            frame_time(&mut device, &mut trace, ids, 2 * ids.len());
            *best = (*best).min(frame_time(&mut device, &mut trace, ids, frames));
        }
    }
    let [one, many] = best.map(|time| time.as_secs_f64() * 1e3);
    println!(
        "{:>8} KiB | {one:8.3} ms {:8.1} /s | {many:8.3} ms {:8.1} /s | {:6.1} % | {:8.3} ms",
        state_bytes >> 10,
        1e3 / one,
        1e3 / many,
        100.0 * one / many,
        many - one
    );
}

/// Wall time of the program on a bag with so many topics.
fn whole_program(lab: &tiny::Lab, topics: usize, images: usize) -> f64 {
    let names: Vec<&'static str> = (0..topics)
        .map(|i| -> &'static str { format!("/camera_{i}/image").leak() })
        .collect();
    let frame = |i: usize| {
        let after_ns = (i / topics) as u64 * 100_000_000 + (i % topics) as u64;
        tiny::raw(names[i % topics], after_ns, &tiny::numbered(i).0)
    };
    lab.bag(&(0..images).map(frame).collect::<Vec<_>>());
    let set = [
        "--set",
        "models.squares.max_streams=16",
        "--set",
        "nodes.detector.prepare_workers=2",
    ];
    let run = lab.run(&set);
    assert_eq!(run.frames(), [images as u64, images as u64, 0, 0], "{run:?}");
    run.summary()["run"]["wall_s"].as_f64().unwrap()
}

fn main() {
    let quick = std::env::args().any(|argument| argument == "--quick");
    let (frames, rounds) = if quick { (32, 8) } else { (64, 40) };
    println!(
        "one stream that floods, {STREAMS} streams that take turns, aggregate throughput, switch of a frame"
    );
    for kib in [64, 1 << 10, 4 << 10] {
        compare(kib << 10, frames, rounds);
    }
    let lab = tiny::Lab::new();
    let images = if quick { 800 } else { 16_000 };
    let mut best = [f64::MAX; 2];
    for _ in 0..rounds.min(5) {
        for (best, topics) in best.iter_mut().zip([1, STREAMS]) {
            *best = best.min(whole_program(&lab, topics, images));
        }
    }
    let [one, many] = best.map(|wall_s| images as f64 / wall_s);
    println!(
        "whole program, {images} images: one topic {one:.0} /s, {STREAMS} topics {many:.0} /s, {:.1} %",
        100.0 * many / one
    );
}
