//! What the trace runner adds to the work itself, on the CPU device.
//!
//! - `empty`: a trace without operations on two queues: one frame at a time, and streaming
//! - `toy`: 34 operations behind an input of 4 MiB: the replay alone, the upload alone, and both streaming on two queues,
//!   which should take the time of the longer
//! - `banks`: a switch between two streams with a state of 8 MiB, which saves and loads, beside two copies in host memory
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, reason = "benches")]

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use sensorium::device::{Activation, BufferClass, CpuConfig, CpuDevice, Device, HostSlot, OpDesc, Scalar};
use sensorium::ops::DeviceTensor;
use sensorium::tensor::{DType, TensorSpec};
use sensorium::trace::{
    BankOptions, InputId, OnFull, Pending, Select, StateOptions, StreamBanks, TraceOptions, TraceRunner,
    VariantFn, VariantId,
};

/// Elements between the operations of the toy graph; the input has [`INPUT`] of them.
const MIDDLE: usize = 64 << 10;
const INPUT: usize = 1 << 20;
const OPS: usize = 34;
const STATE: usize = 2 << 20;

fn floats(elements: usize) -> TensorSpec {
    TensorSpec::new(&[elements], DType::F32).unwrap()
}

fn open() -> CpuDevice {
    CpuDevice::open(&CpuConfig {
        queues: 2,
        threads: 1,
        arena_bytes: 128 << 20,
        ..CpuConfig::default()
    })
    .unwrap()
}

/// One input, one output, one variant, captured.
struct Bench {
    device: CpuDevice,
    runner: TraceRunner,
    input: InputId,
    variant: VariantId,
    slots: [HostSlot; 2],
    outputs: [HostSlot; 2],
    before: Option<Pending>,
}

impl Bench {
    fn new(input: usize, output: usize, forward: VariantFn) -> Self {
        let mut device = open();
        let mut runner = TraceRunner::new("bench", TraceOptions::two_queues()).unwrap();
        let spec = floats(input);
        let input = runner.add_input(&mut device, "x", spec, None).unwrap();
        runner.add_output(&mut device, "y", floats(output)).unwrap();
        let variant = runner.add_variant(&mut device, "only", forward).unwrap();
        runner.capture(&mut device).unwrap();
        Self {
            slots: [(); 2].map(|()| device.host_slot(spec.bytes()).unwrap()),
            outputs: [(); 2].map(|()| device.host_slot(4 * output).unwrap()),
            device,
            runner,
            input,
            variant,
            before: None,
        }
    }

    /// Upload, replay, read, and the wait for it.
    fn one(&mut self) {
        let inputs = [(self.input, &self.slots[0])];
        let pending = self.runner.run(&mut self.device, self.variant, &inputs).unwrap();
        let read = self
            .runner
            .read(&mut self.device, pending, 0, &mut self.outputs[0]);
        self.runner.wait(&mut self.device, read.unwrap()).unwrap();
    }

    /// One frame of a stream, with one on the device. Its output is read once the replay of the next is enqueued: a read
    /// waits for its replay, and what lies behind it on its queue waits as well.
    fn next(&mut self, frame: usize) {
        let turn = frame % 2;
        let inputs = [(self.input, &self.slots[turn])];
        let pending = self.runner.run(&mut self.device, self.variant, &inputs).unwrap();
        if let Some(before) = self.before.replace(pending) {
            self.runner.wait(&mut self.device, before.done).unwrap();
            let read = self
                .runner
                .read(&mut self.device, before, 0, &mut self.outputs[turn]);
            self.runner.wait(&mut self.device, read.unwrap()).unwrap();
        }
    }

    fn drain(&mut self) {
        self.device.drain(Duration::from_secs(60)).unwrap();
        self.before = None;
    }
}

fn empty(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("trace/empty");
    let mut bench = Bench::new(
        1,
        1,
        Box::new(|context| Ok(vec![("y".into(), context.output("y")?)])),
    );
    group.bench_function("run and read", |bencher| bencher.iter(|| bench.one()));
    let mut frame = 0;
    group.bench_function("streaming", |bencher| {
        bencher.iter(|| {
            bench.next(frame);
            frame += 1;
        });
    });
    bench.drain();
    group.finish();
}

/// Every sixteenth element of the input, then a chain of operations.
fn toy() -> VariantFn {
    Box::new(|context| {
        let (mut x, y) = (context.input("x")?, context.output("y")?);
        x.view = x.view.slice(0, 0, MIDDLE, (INPUT / MIDDLE) as isize)?;
        let ops = context.ops();
        let middle = [(); 2].map(|()| ops.alloc(&floats(MIDDLE), BufferClass::Intermediate));
        let [a, b]: [DeviceTensor; 2] = match middle {
            [Ok(a), Ok(b)] => [a, b],
            [Err(error), _] | [_, Err(error)] => return Err(error.into()),
        };
        ops.copy(&x, &a)?;
        for op in 1..OPS {
            let (src, dst) = if op % 2 == 1 { (a, b) } else { (b, a) };
            let dst = if op == OPS - 1 { y } else { dst };
            let desc = OpDesc::Unary {
                src: src.operand(),
                dst: dst.operand(),
                activation: Activation::LeakyRelu {
                    slope: Scalar::new(0.5),
                },
            };
            ops.run(&desc, &[src.buffer, dst.buffer])?;
        }
        Ok(vec![("y".into(), y)])
    })
}

fn streaming(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("trace/toy");
    group.sample_size(40);
    let mut bench = Bench::new(INPUT, MIDDLE, toy());
    group.bench_function("replay alone", |bencher| {
        bencher.iter(|| {
            let pending = bench.runner.replay(&mut bench.device, bench.variant).unwrap();
            bench.runner.wait(&mut bench.device, pending.done).unwrap();
        });
    });
    group.bench_function("upload alone", |bencher| {
        bencher.iter(|| {
            let inputs = [(bench.input, &bench.slots[0])];
            let uploaded = bench.runner.upload(&mut bench.device, &inputs).unwrap();
            bench.runner.wait(&mut bench.device, uploaded).unwrap();
        });
    });
    group.bench_function("one frame at a time", |bencher| bencher.iter(|| bench.one()));
    let mut frame = 0;
    group.bench_function("streaming", |bencher| {
        bencher.iter(|| {
            bench.next(frame);
            frame += 1;
        });
    });
    bench.drain();
    group.finish();
}

fn banks(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("trace/banks");
    group.sample_size(40);
    let bytes = 4 * STATE;
    group.throughput(Throughput::Bytes(2 * bytes as u64));
    let mut device = open();
    let mut runner = TraceRunner::new("bench", TraceOptions::default()).unwrap();
    let kept = StateOptions {
        pingpong: false,
        banks: 2,
    };
    let state = runner
        .add_state(&mut device, "memory", floats(STATE), None, kept)
        .unwrap();
    let options = BankOptions {
        max_streams: 2,
        on_full: OnFull::Reject,
        max_gap_s: None,
    };
    let mut banks = StreamBanks::new(&runner, &[state], options).unwrap();
    let mut turn = 0_u8;
    let mut switch = || {
        turn = 1 - turn;
        banks
            .select(&mut device, &mut runner, &turn, Select::default())
            .unwrap();
        device.drain(Duration::from_secs(60)).unwrap();
    };
    // Both streams are known.
    (0..2).for_each(|_| switch());
    group.bench_function("switch", |bencher| bencher.iter(&mut switch));
    let [source, mut bank, mut target] = [1_u8, 2, 3].map(|value| vec![value; bytes]);
    group.bench_function("two copies in host memory", |bencher| {
        bencher.iter(|| {
            bank.copy_from_slice(black_box(&source));
            target.copy_from_slice(black_box(&bank));
            black_box(&target);
        });
    });
    group.finish();
}

criterion_group!(benches, empty, streaming, banks);
criterion_main!(benches);
