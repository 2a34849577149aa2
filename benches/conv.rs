//! The CPU device's kernels at the shapes of YOLOX-nano (416 x 416), of a CenterPoint and of a ResNet-50, on one and two
//! threads, and beside them what one thread of the machine can do at most: multiply-adds of fp32 and tiles of bf16 in
//! registers alone.
#![allow(clippy::unwrap_used, reason = "benches stop at the first error")]
#![allow(missing_docs, reason = "criterion's macros define public items")]

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use sensorium::device::cpu::kernels::{Bf16Dot, BufferRef, Isa, Kernel, KernelSet, pack_weights, prepare};
use sensorium::device::cpu::pool::ComputePool;
use sensorium::device::{
    Activation, Conv2dDesc, Geometry2d, OpDesc, Operand, Pool2dDesc, PoolKind, ResidualOrder, WeightDesc,
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
        residual_order: ResidualOrder::AfterActivation,
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
    let packed = pack_weights(&weights, KernelSet::detect()).unwrap();
    let kernel = prepare(&OpDesc::Conv2d(desc), KernelSet::detect()).unwrap();
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
    for dtype in [DType::F32, DType::Bf16] {
        // A CenterPoint's backbone and shared layer, and a ResNet-50's second and third stages.
        for ([cin, cout, side], kernel, stride) in [
            ([64, 64, 240], 3, 1),
            ([128, 128, 120], 3, 1),
            ([256, 256, 60], 3, 1),
            ([384, 64, 240], 3, 1),
            ([256, 128, 56], 1, 1),
            ([128, 128, 56], 3, 2),
            ([128, 512, 28], 1, 1),
            ([256, 256, 14], 3, 1),
            ([1024, 256, 14], 1, 1),
        ] {
            let out = side / stride;
            let operations = 2 * out * out * cin * cout * kernel * kernel;
            let name = format!("dense {kernel}x{kernel}/{stride} {cin}-{cout} at {side}, {dtype}");
            bench(
                c,
                &name,
                operations,
                conv(dtype, [cin, cout, side], (kernel, stride), 1),
            );
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

/// What one thread can do at most, without any memory.
#[cfg(target_arch = "x86_64")]
fn peaks(c: &mut Criterion) {
    const STEPS: usize = 10_000;
    let mut group = c.benchmark_group("peak of one thread");
    if Isa::Avx512.is_available() {
        group.throughput(Throughput::Elements((STEPS * 20 * 32) as u64));
        // SAFETY: the processor has the instructions.
        group.bench_function("float32", |b| b.iter(|| unsafe { fused_multiply_adds(STEPS) }));
    }
    if Bf16Dot::detect() == Bf16Dot::Tiles {
        group.throughput(Throughput::Elements((STEPS * 4 * 16 * 16 * 32 * 2) as u64));
        // SAFETY: the processor has the tiles, and this process may use them.
        group.bench_function("bfloat16 tiles", |b| b.iter(|| unsafe { tile_products(STEPS) }));
    }
    group.finish();
}

#[cfg(not(target_arch = "x86_64"))]
fn peaks(_: &mut Criterion) {}

/// `steps` times twenty independent multiply-adds of sixteen fp32 values.
///
/// # Safety
/// The processor has AVX-512 F.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn fused_multiply_adds(steps: usize) {
    use std::arch::x86_64::{_mm512_fmadd_ps, _mm512_set1_ps};
    let factor = std::hint::black_box(_mm512_set1_ps(0.5));
    let mut sums = [factor; 20];
    for _ in 0..steps {
        for sum in &mut sums {
            *sum = _mm512_fmadd_ps(*sum, factor, factor);
        }
    }
    std::hint::black_box(sums);
}

/// `steps` times four independent products of full tiles.
///
/// # Safety
/// The processor has AMX-BF16, and this process may use it.
#[cfg(target_arch = "x86_64")]
unsafe fn tile_products(steps: usize) {
    #[repr(align(64))]
    struct Shapes([u8; 64]);
    let mut shapes = Shapes([0; 64]);
    shapes.0[0] = 1;
    for tile in 0..8 {
        // Sixteen rows of 64 bytes.
        shapes.0[16 + 2 * tile] = 64;
        shapes.0[48 + tile] = 16;
    }
    // SAFETY: the shapes are valid, and the block uses registers alone.
    unsafe {
        std::arch::asm!(
            "ldtilecfg [{shapes}]",
            "tilezero tmm4", "tilezero tmm5", "tilezero tmm6", "tilezero tmm7",
            "tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3",
            "2:",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            "dec {steps}",
            "jnz 2b",
            "tilerelease",
            shapes = in(reg) shapes.0.as_ptr(),
            steps = inout(reg) steps => _,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        );
    }
}

criterion_group!(benches, peaks, kernels);
criterion_main!(benches);
