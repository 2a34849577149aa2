//! Selections, peaks, samplings and segments at the sizes of published networks. benches/peers/query.py times the same with
//! ONNX Runtime and numpy.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a benchmark stops at the first surprise"
)]

use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use half::bf16;
use sensorium::device::{
    BufferClass, CpuConfig, CpuDevice, Cq, Device, GridSampleDesc, LocalMaxDesc, OpDesc, Operand,
    OutsidePixels, SampleWeights, Sampling, Scalar, SegmentOp, SegmentReduceDesc, TopKDesc, TopKOrder,
    Unpooled,
};
use sensorium::ops::OpContext;
use sensorium::tensor::{DType, HostTensor, Shape, TensorSpec, View};

const DEADLINE: Duration = Duration::from_secs(10);

/// Values without a pattern, 0 to 1.
fn noise(index: usize) -> f32 {
    let z = (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((z ^ (z >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40) as f32 / (1 << 24) as f32
}

fn floats(dtype: DType, dims: &[usize], value: impl Fn(usize) -> f32) -> HostTensor {
    let values: Vec<f32> = (0..dims.iter().product()).map(value).collect();
    match dtype {
        DType::F32 => HostTensor::from_slice(dims, &values).unwrap(),
        _ => {
            let short: Vec<bf16> = values.into_iter().map(bf16::from_f32).collect();
            HostTensor::from_slice(dims, &short).unwrap()
        }
    }
}

fn dense(dtype: DType, dims: &[usize]) -> Operand {
    Operand {
        dtype,
        view: View::contiguous(Shape::new(dims).unwrap()),
    }
}

fn image(dtype: DType, dims: [usize; 4]) -> Operand {
    Operand {
        dtype,
        view: View::channels_last(dims, dims[1], 0).unwrap(),
    }
}

/// Runs an operation whose first operands are `inputs` and whose others are new tensors of these dimensions.
fn run(criterion: &mut Criterion, name: &str, op: &OpDesc, inputs: &[HostTensor], outputs: &[TensorSpec]) {
    for threads in [1, 2] {
        let config = CpuConfig {
            threads,
            arena_bytes: 1 << 30,
            ..CpuConfig::default()
        };
        let mut device = CpuDevice::open(&config).unwrap();
        let mut ops = OpContext::new(&mut device, Cq::COMPUTE);
        let mut buffers = Vec::new();
        for input in inputs {
            buffers.push(ops.upload(input, BufferClass::Input).unwrap().buffer);
        }
        for output in outputs {
            buffers.push(ops.alloc(output, BufferClass::Output).unwrap().buffer);
        }
        let program = device.compile(op).unwrap();
        criterion.bench_function(&format!("{name}, {threads} threads"), |bencher| {
            bencher.iter(|| {
                device.launch(Cq::COMPUTE, program, &buffers).unwrap();
                device.drain(DEADLINE).unwrap();
            });
        });
    }
}

fn selections(criterion: &mut Criterion) {
    for (network, count) in [("TransFusion", 184_320), ("PTv3", 458_752)] {
        let op = OpDesc::TopK(TopKDesc {
            src: dense(DType::Bf16, &[count]),
            values: dense(DType::Bf16, &[512]),
            indices: dense(DType::U32, &[512]),
            axis: 0,
            order: TopKOrder::Largest,
        });
        let outputs = [DType::Bf16, DType::U32].map(|dtype| TensorSpec::new(&[512], dtype).unwrap());
        let scores = floats(DType::Bf16, &[count], noise);
        run(
            criterion,
            &format!("top 512 of {count} ({network})"),
            &op,
            &[scores],
            &outputs,
        );
    }
    let map = image(DType::Bf16, [1, 5, 192, 192]);
    let op = OpDesc::LocalMax(LocalMaxDesc {
        input: map,
        output: map,
        kernel: 3,
        pooled: [true; 5].into(),
        border: Unpooled::Drop,
        others: Unpooled::Drop,
    });
    let output = [TensorSpec::new(&[192, 192, 5], DType::Bf16).unwrap()];
    let heat = floats(DType::Bf16, &[192, 192, 5], noise);
    run(criterion, "local maxima of 192 x 192 x 5", &op, &[heat], &output);
}

fn samplings(criterion: &mut Criterion) {
    for dtype in [DType::F32, DType::Bf16] {
        let map = image(dtype, [8, 96, 128, 128]);
        let op = OpDesc::GridSample(GridSampleDesc {
            input: map,
            grid: dense(DType::F32, &[8, 128, 128, 2]),
            output: map,
            sampling: Sampling::Bilinear,
            outside: OutsidePixels::Zeros,
            align_corners: false,
            weights: SampleWeights::Exact,
        });
        let maps = floats(dtype, &[8, 128, 128, 96], noise);
        // Turned by a tenth, as a history of a moving vehicle is.
        let places = floats(DType::F32, &[8, 128, 128, 2], |i| {
            let (x, y) = (
                (i / 2 % 128) as f32 / 64.0 - 1.0,
                (i / 256 % 128) as f32 / 64.0 - 1.0,
            );
            if i % 2 == 0 {
                0.995 * x - 0.1 * y
            } else {
                0.1 * x + 0.995 * y
            }
        });
        let output = [TensorSpec::new(&[8, 128, 128, 96], dtype).unwrap()];
        let name = format!("8 maps of 128 x 128 x 96 sampled, {dtype}");
        run(criterion, &name, &op, &[maps, places], &output);
    }
}

fn segments(criterion: &mut Criterion) {
    const ROWS: usize = 160_000;
    const SEGMENTS: usize = 60_000;
    let op = OpDesc::SegmentReduce(SegmentReduceDesc {
        rows: dense(DType::F32, &[ROWS, 128]),
        offsets: dense(DType::U32, &[SEGMENTS + 1]),
        output: dense(DType::Bf16, &[SEGMENTS, 128]),
        kind: SegmentOp::Max,
        empty: Scalar::new(0.0),
    });
    let rows = floats(DType::F32, &[ROWS, 128], noise);
    let offsets: Vec<u32> = (0..=SEGMENTS).map(|s| (s * ROWS / SEGMENTS) as u32).collect();
    let offsets = HostTensor::from_slice(&[SEGMENTS + 1], &offsets).unwrap();
    let output = [TensorSpec::new(&[SEGMENTS, 128], DType::Bf16).unwrap()];
    run(
        criterion,
        "60000 segments of 160000 x 128",
        &op,
        &[rows, offsets],
        &output,
    );
}

criterion_group!(benches, selections, samplings, segments);
criterion_main!(benches);
