//! The simulator gives the CPU device's bits, in every legal order.

use std::time::Duration;

use sensorium::device::{
    Activation, BinaryKind, BufferClass, BufferId, Conv2dDesc, CpuConfig, CpuDevice, Cq, Device, Geometry2d,
    HostSlot, OpDesc, Operand, Pool2dDesc, PoolKind, ResidualOrder, Scalar, SimDevice, WeightDesc,
};
use sensorium::ops::{DeviceTensor, OpContext};
use sensorium::precision::Math;
use sensorium::tensor::{DType, HostTensor, Shape, TensorSpec, View};
use sensorium::trace::{TraceContext, TraceOptions, TraceRunner};

use super::harness::*;

const CHANNELS: usize = 4;
const SIDE: usize = 4;
/// Elements of an image, also seen as a vector.
const ELEMENTS: usize = CHANNELS * SIDE * SIDE;
/// Bytes of an image.
const BYTES: usize = ELEMENTS * 4;
/// Images that the random programs work on.
const IMAGES: usize = 6;

fn image() -> Operand {
    Operand {
        dtype: DType::F32,
        view: View::channels_last([1, CHANNELS, SIDE, SIDE], CHANNELS, 0).unwrap(),
    }
}

fn window(stride: usize) -> Geometry2d {
    Geometry2d {
        kernel: [3, 3],
        stride: [stride; 2],
        dilation: [1, 1],
        pad_begin: [1, 1],
    }
}

fn conv() -> Conv2dDesc {
    Conv2dDesc {
        input: image(),
        output: image(),
        residual: None,
        residual_order: ResidualOrder::AfterActivation,
        geometry: window(1),
        groups: 1,
        activation: Activation::LeakyRelu {
            slope: Scalar::new(0.1),
        },
        math: Math::Native,
    }
}

/// One command of a random program, on images by number.
#[derive(Debug, Clone)]
enum Step {
    Write(usize, f32),
    Read(usize),
    Copy(usize, usize),
    /// An operation, its sources and its destination.
    Launch(Box<OpDesc>, Vec<usize>, usize),
}

impl Step {
    fn reads(&self) -> Vec<usize> {
        match self {
            Self::Write(..) => Vec::new(),
            Self::Read(image) | Self::Copy(image, _) => vec![*image],
            Self::Launch(_, sources, _) => sources.clone(),
        }
    }

    fn writes(&self) -> Option<usize> {
        match *self {
            Self::Write(image, _) | Self::Copy(_, image) | Self::Launch(_, _, image) => Some(image),
            Self::Read(_) => None,
        }
    }
}

fn random_step(random: &mut Random) -> Step {
    let a = random.below(IMAGES);
    // Operations that move elements about do not run in place.
    let b = (a + 1 + random.below(IMAGES - 1)) % IMAGES;
    let c = random.below(IMAGES);
    let flat = Operand {
        dtype: DType::F32,
        view: View::contiguous(Shape::new(&[ELEMENTS]).unwrap()),
    };
    let turned = Operand {
        view: View::contiguous(Shape::new(&[ELEMENTS / 8, 8]).unwrap())
            .transpose(&[1, 0])
            .unwrap(),
        ..flat
    };
    let activations = [
        Activation::Sigmoid,
        Activation::Tanh,
        Activation::Silu,
        Activation::HardSwish,
    ];
    let kinds = [BinaryKind::Add, BinaryKind::Sub, BinaryKind::Mul, BinaryKind::Max];
    match random.below(10) {
        0 => Step::Write(a, random.below(1000) as f32 / 500.0 - 1.0),
        1 => Step::Read(a),
        2 => Step::Copy(a, b),
        3 => launch_step(
            OpDesc::Unary {
                src: flat,
                dst: flat,
                activation: activations[random.below(4)],
            },
            vec![a],
            c,
        ),
        4 | 5 => launch_step(
            OpDesc::Binary {
                lhs: flat,
                rhs: flat,
                dst: flat,
                kind: kinds[random.below(4)],
            },
            vec![a, c],
            b,
        ),
        6 => launch_step(
            OpDesc::Copy {
                src: turned,
                dst: Operand {
                    view: View::contiguous(turned.view.shape),
                    ..flat
                },
            },
            vec![a],
            b,
        ),
        7 => launch_step(OpDesc::Conv2d(conv()), vec![a], b),
        8 => launch_step(
            OpDesc::Pool2d(Pool2dDesc {
                input: image(),
                output: image(),
                geometry: window(1),
                kind: PoolKind::AverageExcludingPad,
            }),
            vec![a],
            b,
        ),
        _ => launch_step(
            OpDesc::Softmax {
                src: turned,
                dst: turned,
                axis: 1,
            },
            vec![a],
            b,
        ),
    }
}

fn launch_step(op: OpDesc, sources: Vec<usize>, to: usize) -> Step {
    Step::Launch(Box::new(op), sources, to)
}

fn program(random: &mut Random) -> Vec<Step> {
    let init = (0..IMAGES).map(|i| Step::Write(i, i as f32 / 3.0 - 0.8));
    let mut steps: Vec<Step> = init.collect();
    for _ in 0..40 {
        let step = random_step(random);
        steps.push(step);
    }
    steps.extend((0..IMAGES).map(Step::Read));
    steps
}

fn ramp(value: f32) -> Vec<f32> {
    (0..ELEMENTS).map(|i| value * (1.0 + i as f32 / 7.0)).collect()
}

/// Runs a program with queues drawn at random and every conflict between queues ordered by an event, and
/// returns all that was read.
fn run(device: &mut dyn Device, steps: &[Step], random: &mut Random) -> Vec<Vec<u8>> {
    let queues = device.caps().queues as usize;
    let spec = TensorSpec::new(&[ELEMENTS], DType::F32).unwrap();
    let images: Vec<BufferId> = (0..IMAGES)
        .map(|_| device.alloc(&spec, BufferClass::State).unwrap())
        .collect();
    let weight: Vec<f32> = (0..CHANNELS * CHANNELS * 9)
        .map(|i| (i % 11) as f32 / 40.0 - 0.1)
        .collect();
    let weights = device
        .prepare_weights(&WeightDesc::Conv2d {
            desc: &conv(),
            weight: &weight,
            bias: Some(&[0.1, -0.2, 0.3, 0.0]),
        })
        .unwrap();
    let mut slots: Vec<HostSlot> = Vec::new();
    // For each image, the event behind its last write and behind each read since, with their queues.
    let mut written = vec![Vec::new(); IMAGES];
    let mut read = vec![Vec::new(); IMAGES];
    for step in steps {
        let queue = random.below(queues);
        let cq = Cq(queue as u8);
        let reads = step.reads();
        let before_reads = reads.iter().flat_map(|&image| written[image].iter());
        let before_write = step
            .writes()
            .into_iter()
            .flat_map(|image| written[image].iter().chain(&read[image]));
        for &(other, event) in before_reads.chain(before_write) {
            if other != queue {
                device.wait_event(cq, event).unwrap();
            }
        }
        match step {
            &Step::Write(image, value) => {
                let slot = slot_of(&ramp(value));
                device.write(cq, images[image], 0, &slot, BYTES).unwrap();
            }
            &Step::Read(image) => {
                let mut slot = HostSlot::new(BYTES);
                device.read(cq, images[image], 0, &mut slot, BYTES).unwrap();
                slots.push(slot);
            }
            &Step::Copy(from, to) => device.copy(cq, images[from], images[to]).unwrap(),
            Step::Launch(op, sources, to) => {
                let mut buffers: Vec<BufferId> = sources.iter().map(|&image| images[image]).collect();
                if let OpDesc::Conv2d(_) = **op {
                    buffers.push(weights);
                }
                buffers.push(images[*to]);
                launch(device, cq, op, &buffers);
            }
        }
        let done = device.record_event(cq).unwrap();
        for image in reads {
            read[image].push((queue, done));
        }
        if let Some(image) = step.writes() {
            written[image] = vec![(queue, done)];
            read[image].clear();
        }
        match random.below(8) {
            0 => device.sync_event(done, later()).unwrap(),
            1 => drop(device.poll_event(done).unwrap()),
            _ => {}
        }
    }
    device.drain(Duration::from_secs(60)).unwrap();
    slots.iter().map(|slot| slot.bytes().unwrap().to_vec()).collect()
}

#[test]
fn random_programs_give_the_bits_of_the_cpu_device_in_every_order() {
    for case in 0..60 {
        let steps = program(&mut Random(case));
        let mut cpu = CpuDevice::open(&CpuConfig {
            queues: 1,
            threads: 1,
            arena_bytes: 1 << 20,
            ..CpuConfig::default()
        })
        .unwrap();
        let expected = run(&mut cpu, &steps, &mut Random(0));
        for queues in [1, 2] {
            for seed in 0..6 {
                let mut device = open(queues, seed);
                let found = run(&mut device, &steps, &mut Random(seed));
                assert!(
                    found == expected,
                    "case {case}, {queues} queues, seed {seed}: {steps:?}"
                );
                assert_eq!(device.races(), [], "case {case}, {queues} queues, seed {seed}");
            }
        }
    }
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// `y = tanh(x + gain) + x`, written to the persistent output; `z = relu(y)` in a tensor of its own.
fn forward(context: &mut TraceContext<'_>) -> Result<Vec<(String, DeviceTensor)>, Failure> {
    let (x, gain, y) = (context.input("x")?, context.param("gain")?, context.output("y")?);
    let ops = context.ops();
    let z = ops.alloc(&spec(), BufferClass::Output)?;
    let middle = ops.alloc(&spec(), BufferClass::Intermediate)?;
    let spread = DeviceTensor {
        view: gain.view.broadcast_to(x.view.shape)?,
        ..gain
    };
    let add = |ops: &mut OpContext<'_>, [lhs, rhs, dst]: [DeviceTensor; 3]| {
        let op = OpDesc::Binary {
            lhs: lhs.operand(),
            rhs: rhs.operand(),
            dst: dst.operand(),
            kind: BinaryKind::Add,
        };
        ops.run(&op, &[lhs.buffer, rhs.buffer, dst.buffer])
    };
    let unary = |ops: &mut OpContext<'_>, src: DeviceTensor, dst: DeviceTensor, activation| {
        let op = OpDesc::Unary {
            src: src.operand(),
            dst: dst.operand(),
            activation,
        };
        ops.run(&op, &[src.buffer, dst.buffer])
    };
    add(ops, [x, spread, middle])?;
    unary(ops, middle, middle, Activation::Tanh)?;
    add(ops, [middle, x, y])?;
    unary(ops, y, z, Activation::Relu)?;
    ops.free(&middle)?;
    Ok(vec![("y".into(), y), ("z".into(), z)])
}

/// Frames through a runner, some overlapping, some read late; all outputs.
fn frames(device: &mut dyn Device, options: TraceOptions) -> Vec<Vec<u8>> {
    let overlap = options.output_phases;
    let mut runner = TraceRunner::new("test", options).unwrap();
    let x = runner.add_input(device, "x", spec(), None).unwrap();
    let gain = runner.add_param(device, "gain", 1.0).unwrap();
    runner.add_output(device, "y", spec()).unwrap();
    let variant = runner.add_variant(device, "default", Box::new(forward)).unwrap();
    runner.capture(device).unwrap();
    let mut outputs = Vec::new();
    let mut flying = std::collections::VecDeque::new();
    for frame in 0..8 {
        runner.set_param(gain, (frame / 2) as f32).unwrap();
        let input = slot_of(&[frame as f32 / 4.0 - 1.0; N]);
        let pending = runner.run(device, variant, &[(x, &input)]).unwrap();
        flying.push_back(pending);
        if flying.len() == overlap {
            let pending = flying.pop_front().unwrap();
            // What a variant allocates itself must be read before the next replay, of whichever phase.
            for output in 0..if overlap == 1 { 2 } else { 1 } {
                let mut slot = device.host_slot(N * 4).unwrap();
                let done = runner.read(device, pending, output, &mut slot).unwrap();
                runner.wait(device, done).unwrap();
                outputs.push(slot.bytes().unwrap().to_vec());
            }
        }
    }
    let eager = HostTensor::from_slice(&[N], &[0.5_f32; N]).unwrap();
    let tensors = runner.run_eager(device, variant, &[(x, &eager)]).unwrap();
    outputs.extend(tensors.iter().map(|(_, tensor)| tensor.bytes().to_vec()));
    runner.release(device).unwrap();
    outputs
}

#[test]
fn the_trace_runner_gives_the_same_bits_without_a_race_in_every_mode() {
    let queued = |queues, stage_inputs| TraceOptions {
        queues,
        stage_inputs,
        ..TraceOptions::default()
    };
    for options in [
        queued(1, false),
        queued(2, false),
        queued(2, true),
        TraceOptions::two_queues(),
    ] {
        let mut cpu = CpuDevice::open(&CpuConfig {
            queues: options.queues,
            threads: 1,
            arena_bytes: 1 << 20,
            ..CpuConfig::default()
        })
        .unwrap();
        let expected = frames(&mut cpu, options.clone());
        assert_eq!(cpu.memory().used_bytes, 0);
        for seed in 0..30 {
            let mut device: SimDevice = open(options.queues, seed);
            assert!(
                frames(&mut device, options.clone()) == expected,
                "{options:?}, seed {seed}"
            );
            assert_eq!(device.races(), []);
            assert_eq!(device.memory().used_bytes, 0);
        }
    }
}
