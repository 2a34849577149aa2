//! Attention and matrix products of the CPU device at the shapes of networks, on one and two threads.
//! `benches/peers/attention.py` runs ONNX Runtime beside it.
#![allow(clippy::unwrap_used, reason = "benches stop at the first error")]
#![allow(missing_docs, reason = "criterion's macros define public items")]

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use sensorium::device::cpu::kernels::{BufferRef, Isa, Kernel, prepare};
use sensorium::device::cpu::pool::ComputePool;
use sensorium::device::{Activation, MatMulDesc, OpDesc, Operand, Scalar, SdpaDesc};
use sensorium::ops::attention::chunk_config;
use sensorium::tensor::{DType, HostTensor, Shape, TensorSpec, View};

/// A kernel with buffers to run on.
struct Bound {
    kernel: std::sync::Arc<dyn Kernel>,
    buffers: Vec<HostTensor>,
}

impl Bound {
    fn new(op: &OpDesc, dtype: DType) -> Self {
        let kernel = prepare(op, Isa::detect()).unwrap();
        let buffers = kernel.required_bytes().iter().map(|&bytes| filled(dtype, bytes));
        let buffers = buffers.collect();
        Self { kernel, buffers }
    }

    fn run(&mut self, pool: &ComputePool) {
        let refs = self.buffers.iter_mut().map(|tensor| {
            let bytes = tensor.bytes_mut();
            BufferRef {
                ptr: bytes.as_mut_ptr(),
                bytes: bytes.len(),
            }
        });
        let refs: smallvec::SmallVec<[BufferRef; 5]> = refs.collect();
        // SAFETY: the buffers were made with the sizes that the kernel requires and belong to this value.
        unsafe { self.kernel.run(&refs, pool) };
    }
}

/// A buffer of values between -1 and 1.
fn filled(dtype: DType, bytes: usize) -> HostTensor {
    let spec = TensorSpec::new(&[bytes / dtype.size_bytes()], dtype).unwrap();
    let mut tensor = HostTensor::zeros(spec);
    let value = |i: usize| (i * 7919 % 2003) as f32 / 1001.0 - 1.0;
    match dtype {
        DType::F32 => {
            let values = tensor.as_mut_slice::<f32>().unwrap().iter_mut();
            values.enumerate().for_each(|(i, to)| *to = value(i));
        }
        _ => {
            let values = tensor.as_mut_slice::<half::bf16>().unwrap().iter_mut();
            values
                .enumerate()
                .for_each(|(i, to)| *to = half::bf16::from_f32(value(i)));
        }
    }
    tensor
}

fn dense(dtype: DType, dims: &[usize]) -> Operand {
    Operand {
        dtype,
        view: View::contiguous(Shape::new(dims).unwrap()),
    }
}

fn sdpa(dtype: DType, [heads, queries, keys, size]: [usize; 4]) -> Bound {
    let desc = SdpaDesc {
        query: dense(dtype, &[1, heads, queries, size]),
        key: dense(dtype, &[1, heads, keys, size]),
        value: dense(dtype, &[1, heads, keys, size]),
        output: dense(dtype, &[1, heads, queries, size]),
        mask: None,
        scale: Scalar::new(1.0 / (size as f32).sqrt()),
        key_block: chunk_config(queries, keys).keys,
    };
    Bound::new(&OpDesc::Sdpa(desc), dtype)
}

fn matmul(dtype: DType, [m, k, n]: [usize; 3], turned: bool) -> Bound {
    let mut rhs = dense(dtype, &if turned { [n, k] } else { [k, n] });
    if turned {
        rhs.view = rhs.view.transpose(&[1, 0]).unwrap();
    }
    let desc = MatMulDesc {
        lhs: dense(dtype, &[m, k]),
        rhs,
        output: dense(dtype, &[m, n]),
        bias: None,
        scale: Scalar::new(1.0),
        activation: Activation::Identity,
    };
    Bound::new(&OpDesc::MatMul(desc), dtype)
}

fn bench(c: &mut Criterion) {
    let types = [("fp32", DType::F32), ("bf16", DType::Bf16)];
    for threads in [1, 2] {
        for (type_name, dtype) in types {
            let mut group = c.benchmark_group("attention");
            for shape in [
                [8, 576, 576, 32],
                [8, 576, 576, 64],
                [8, 500, 500, 32],
                [8, 900, 1668, 32],
                [8, 500, 32_400, 32],
            ] {
                let [heads, queries, keys, size] = shape;
                let mut bound = sdpa(dtype, shape);
                let mut pool = ComputePool::new(threads);
                pool.reserve_scratch(bound.kernel.scratch_bytes());
                group.throughput(Throughput::Elements((4 * heads * queries * keys * size) as u64));
                let name = format!("{heads}x{queries}x{keys}x{size}/{type_name}");
                group.sample_size(if keys > 10_000 { 10 } else { 50 });
                group.bench_function(BenchmarkId::new(name, threads), |b| b.iter(|| bound.run(&pool)));
            }
            group.finish();
            let mut group = c.benchmark_group("matmul");
            for (shape, turned) in [
                ([576, 256, 256], false),
                ([576, 256, 256], true),
                ([512, 512, 512], false),
                ([36_864, 128, 128], false),
            ] {
                let [m, k, n] = shape;
                let mut bound = matmul(dtype, shape, turned);
                let mut pool = ComputePool::new(threads);
                pool.reserve_scratch(bound.kernel.scratch_bytes());
                group.throughput(Throughput::Elements((2 * m * k * n) as u64));
                let name = format!("{m}x{k}x{n}{}/{type_name}", if turned { "t" } else { "" });
                group.bench_function(BenchmarkId::new(name, threads), |b| b.iter(|| bound.run(&pool)));
            }
            group.finish();
        }
    }
}

criterion_group!(benches, bench);
criterion_main!(benches);
