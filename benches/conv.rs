//! The CPU device's kernels at the shapes of YOLOX-nano (416 x 416), on one and two threads.
#![allow(clippy::unwrap_used, reason = "benches stop at the first error")]
#![allow(missing_docs, reason = "criterion's macros define public items")]

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use sensorium::device::cpu::kernels::{BufferRef, Isa, Kernel, pack_weights, prepare};
use sensorium::device::cpu::pool::ComputePool;
use sensorium::device::{
    Activation, Conv2dDesc, Geometry2d, OpDesc, Operand, Pool2dDesc, PoolKind, WeightDesc,
};
use sensorium::precision::Math;
use sensorium::tensor::{DType, HostTensor, TensorSpec, View};

/// A kernel with buffers to run on.
struct Bound {
    kernel: std::sync::Arc<dyn Kernel>,
    buffers: Vec<HostTensor>,
}

impl Bound {
    fn run(&mut self, pool: &ComputePool) {
        let refs = self.buffers.iter_mut().map(|tensor| {
            let bytes = tensor.bytes_mut();
            BufferRef {
                ptr: bytes.as_mut_ptr(),
                bytes: bytes.len(),
            }
        });
        let refs: smallvec::SmallVec<[BufferRef; 4]> = refs.collect();
        // SAFETY: the buffers were made with the sizes that the kernel requires and belong to this value.
        unsafe { self.kernel.run(&refs, pool) };
    }
}

/// A channels-last operand without gaps.
fn operand(dtype: DType, dims: [usize; 4]) -> Operand {
    Operand {
        dtype,
        view: View::channels_last(dims, dims[1], 0).unwrap(),
    }
}

/// A buffer of harmless values.
fn filled(dtype: DType, bytes: usize) -> HostTensor {
    let spec = TensorSpec::new(&[bytes / dtype.size_bytes()], dtype).unwrap();
    let mut tensor = HostTensor::zeros(spec);
    match dtype {
        DType::F32 => tensor.as_mut_slice().unwrap().fill(0.01_f32),
        _ => tensor.as_mut_slice().unwrap().fill(half::bf16::from_f32(0.01)),
    }
    tensor
}

/// A square convolution, `kernel / 2` padded, SiLU behind it. `shape` is input channels, output channels,
/// input side.
fn conv(
    dtype: DType,
    [cin, cout, side]: [usize; 3],
    (kernel, stride): (usize, usize),
    groups: usize,
) -> Bound {
    let out = side.div_ceil(stride);
    let desc = Conv2dDesc {
        input: operand(dtype, [1, cin, side, side]),
        output: operand(dtype, [1, cout, out, out]),
        residual: None,
        geometry: Geometry2d {
            kernel: [kernel; 2],
            stride: [stride; 2],
            dilation: [1; 2],
            pad_begin: [kernel / 2; 2],
        },
        groups,
        activation: Activation::Silu,
        math: Math::Native,
    };
    let weight = vec![0.01; cout * cin / groups * kernel * kernel];
    let weights = WeightDesc::Conv2d {
        desc: &desc,
        weight: &weight,
        bias: None,
    };
    let packed = pack_weights(&weights, Isa::detect()).unwrap();
    let kernel = prepare(&OpDesc::Conv2d(desc), Isa::detect()).unwrap();
    let bytes = kernel.required_bytes();
    let buffers = vec![filled(dtype, bytes[0]), packed, filled(dtype, bytes[2])];
    Bound { kernel, buffers }
}

fn max_pool(channels: usize, side: usize, kernel: usize) -> Bound {
    let image = operand(DType::F32, [1, channels, side, side]);
    let op = OpDesc::Pool2d(Pool2dDesc {
        input: image,
        output: image,
        geometry: Geometry2d {
            kernel: [kernel; 2],
            stride: [1; 2],
            dilation: [1; 2],
            pad_begin: [kernel / 2; 2],
        },
        kind: PoolKind::Max,
    });
    let kernel = prepare(&op, Isa::detect()).unwrap();
    let buffers = kernel
        .required_bytes()
        .iter()
        .map(|&bytes| filled(DType::F32, bytes))
        .collect();
    Bound { kernel, buffers }
}

/// Times one kernel; `operations` counts multiplications and additions.
fn bench(c: &mut Criterion, name: &str, operations: usize, mut bound: Bound) {
    let mut group = c.benchmark_group(name);
    group.throughput(Throughput::Elements(operations as u64));
    for threads in [1, 2] {
        let mut pool = ComputePool::new(threads);
        pool.reserve_scratch(bound.kernel.scratch_bytes());
        group.bench_function(BenchmarkId::from_parameter(format!("{threads} threads")), |b| {
            b.iter(|| bound.run(&pool));
        });
    }
    group.finish();
}

fn kernels(c: &mut Criterion) {
    for dtype in [DType::F32, DType::Bf16] {
        let stem = conv(dtype, [12, 16, 208], (3, 1), 1);
        bench(
            c,
            &format!("stem 3x3 12-16 at 208, {dtype}"),
            2 * 208 * 208 * 16 * 108,
            stem,
        );
        for [cin, cout, side] in [
            [16, 16, 104],
            [64, 64, 52],
            [64, 64, 26],
            [128, 128, 13],
            [512, 256, 13],
        ] {
            let operations = 2 * side * side * cin * cout;
            let pointwise = conv(dtype, [cin, cout, side], (1, 1), 1);
            bench(
                c,
                &format!("pointwise {cin}-{cout} at {side}, {dtype}"),
                operations,
                pointwise,
            );
        }
        for (channels, side, stride) in [(16, 104, 1), (32, 104, 2), (64, 52, 1), (64, 26, 1), (128, 13, 1)] {
            let out = side / stride;
            let name = format!("depthwise 3x3/{stride} {channels} at {side}, {dtype}");
            let depthwise = conv(dtype, [channels, channels, side], (3, stride), channels);
            bench(c, &name, 2 * out * out * channels * 9, depthwise);
        }
    }
    for kernel in [5, 9, 13] {
        let operations = 13 * 13 * 128 * kernel * kernel;
        bench(
            c,
            &format!("max pool {kernel} 128 at 13"),
            operations,
            max_pool(128, 13, kernel),
        );
    }
}

criterion_group!(benches, kernels);
criterion_main!(benches);
