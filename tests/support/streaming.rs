//! Streams of frames in virtual time, and their periods.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "every test target includes this file and uses its own part"
)]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::collections::BTreeMap;
use std::time::Duration;

use sensorium::device::sim::SimCommand;
use sensorium::device::{
    Activation, BufferClass, Device, HostSlot, OnRace, OpDesc, Operand, SimConfig, SimCosts, SimDevice,
};
use sensorium::ops::DeviceTensor;
use sensorium::tensor::{DType, TensorSpec, View};
use sensorium::trace::{Pending, TraceOptions, TraceRunner};

/// Frames of one stream.
pub const FRAMES: usize = 48;
/// Operations of the model; each hands its (positive) input on as it is.
pub const OPS: usize = 10;
/// Bytes of input and output: a number that many durations divide.
pub const BYTES: usize = 4_000;

/// What one frame costs, in microseconds.
#[derive(Debug, Clone, Copy)]
pub struct Costs {
    pub upload: u64,
    /// From the staging copy to the input, and where there is one, from the result to the output.
    pub copy: u64,
    /// A replay of the model.
    pub compute: u64,
    pub read: u64,
}

/// Costs in the order of the steps.
pub const fn costs(upload: u64, copy: u64, compute: u64, read: u64) -> Costs {
    Costs {
        upload,
        copy,
        compute,
        read,
    }
}

impl Costs {
    /// The same as rates. Events cost half a microsecond, eager launches five.
    pub fn rates(self) -> SimCosts {
        let rate = |us: u64| {
            assert_eq!(BYTES as u64 % us, 0, "{us} us make no whole rate");
            BYTES as u64 / us
        };
        let replay_ns = 1_000;
        SimCosts {
            upload_bytes_per_us: rate(self.upload),
            read_bytes_per_us: rate(self.read),
            copy_bytes_per_us: rate(self.copy),
            launch_ns: 5_000,
            op_ns: BTreeMap::from([("unary".into(), (self.compute * 1_000 - replay_ns) / OPS as u64)]),
            replay_ns,
            event_ns: 500,
            ..SimCosts::default()
        }
    }

    pub fn device(self, seed: u64) -> SimDevice {
        SimDevice::open(&SimConfig {
            seed,
            costs: self.rates(),
            on_race: OnRace::Report,
            arena_bytes: 1 << 20,
            ..SimConfig::default()
        })
        .unwrap()
    }
}

pub fn spec() -> TensorSpec {
    TensorSpec::new(&[BYTES / 4], DType::F32).unwrap()
}

/// One operation of the model.
pub fn hand_on() -> OpDesc {
    let whole = Operand {
        dtype: DType::F32,
        view: View::contiguous(spec().shape),
    };
    OpDesc::Unary {
        src: whole,
        dst: whole,
        activation: Activation::Relu,
    }
}

/// What a frame brings in, and what must come out.
pub fn frame_slot(frame: usize) -> HostSlot {
    let mut slot = HostSlot::new(BYTES);
    let values = vec![frame as f32 + 1.0; BYTES / 4];
    slot.bytes_mut()
        .unwrap()
        .copy_from_slice(bytemuck::cast_slice(&values));
    slot
}

/// Frames whose output, read into their slots, is not that of their input.
pub fn wrong_frames(outputs: &[HostSlot]) -> Vec<usize> {
    let wrong = |frame: &usize| outputs[*frame].bytes().unwrap() != frame_slot(*frame).bytes().unwrap();
    (0..outputs.len()).filter(wrong).collect()
}

/// Time from frame to frame in the steady state, in microseconds: between the ends of reads, of which each frame has one.
pub fn period_us(device: &SimDevice) -> f64 {
    let timeline = device.timeline();
    let reads: Vec<u64> = timeline
        .iter()
        .filter(|entry| entry.command == SimCommand::Read)
        .map(|entry| entry.end_ns)
        .collect();
    assert_eq!(reads.len(), FRAMES);
    let (from, to) = (FRAMES / 4, FRAMES - 4);
    (reads[to] - reads[from]) as f64 / (to - from) as f64 / 1_000.0
}

/// Streams frames through a runner as a pipeline does: with two queues, a frame's read goes behind the upload and replay
/// of the next one.
pub fn stream(device: &mut SimDevice, options: TraceOptions) -> Vec<HostSlot> {
    let overlapping = options.queues == 2;
    let mut runner = TraceRunner::new("stream", options).unwrap();
    let x = runner.add_input(device, "x", spec(), None).unwrap();
    runner.add_output(device, "y", spec()).unwrap();
    let model = runner
        .add_variant(
            device,
            "model",
            Box::new(|context| {
                let (x, y) = (context.input("x")?, context.output("y")?);
                let ops = context.ops();
                let middle = ops.alloc(&spec(), BufferClass::Intermediate)?;
                ops.run(&hand_on(), &[x.buffer, middle.buffer])?;
                for _ in 2..OPS {
                    ops.run(&hand_on(), &[middle.buffer, middle.buffer])?;
                }
                ops.run(&hand_on(), &[middle.buffer, y.buffer])?;
                Ok(vec![("y".into(), DeviceTensor::whole(y.buffer, &spec()))])
            }),
        )
        .unwrap();
    runner.capture(device).unwrap();
    let mut outputs: Vec<HostSlot> = Vec::new();
    let mut last: Option<Pending> = None;
    let mut read = |runner: &mut TraceRunner, device: &mut SimDevice, pending: Pending| {
        let mut slot = device.host_slot(BYTES).unwrap();
        runner.read(device, pending, 0, &mut slot).unwrap();
        outputs.push(slot);
    };
    for frame in 0..FRAMES {
        let slot = frame_slot(frame);
        let pending = runner.run(device, model, &[(x, &slot)]).unwrap();
        if overlapping {
            if let Some(before) = last.replace(pending) {
                read(&mut runner, device, before);
            }
        } else {
            read(&mut runner, device, pending);
        }
    }
    if let Some(pending) = last {
        read(&mut runner, device, pending);
    }
    device.drain(Duration::from_secs(60)).unwrap();
    outputs
}
