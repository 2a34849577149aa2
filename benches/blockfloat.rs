//! 16 Mi values to block floats and back, on every kernel. Throughput counts the fp32 side.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a benchmark stops at the first surprise"
)]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use sensorium::numeric::blockfloat::{BLOCK_VALUES, BlockFormat, Kernels};

const VALUES: usize = 16 << 20;

/// Values as weights have them: of both signs and of many magnitudes.
fn weights() -> Vec<f32> {
    let mut state = 42_u64;
    let mut unit = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..VALUES).map(|_| unit() * unit() * unit() * 0.1).collect()
}

fn blockfloat(criterion: &mut Criterion) {
    let mut values = weights();
    let blocks = VALUES / BLOCK_VALUES;
    for format in [BlockFormat::Bfp8, BlockFormat::Bfp4] {
        let mut exponents = vec![0; blocks];
        let mut mantissas = vec![0; blocks * format.mantissa_bytes()];
        let mut group = criterion.benchmark_group(format.to_string());
        group.throughput(Throughput::Bytes(size_of_val(values.as_slice()) as u64));
        group.sample_size(20);
        for kernels in Kernels::available() {
            group.bench_function(format!("encode/{}", kernels.name()), |bencher| {
                bencher.iter(|| {
                    kernels
                        .encode_into(format, black_box(&values), &mut exponents, &mut mantissas)
                        .unwrap();
                });
            });
            group.bench_function(format!("decode/{}", kernels.name()), |bencher| {
                bencher.iter(|| {
                    kernels
                        .decode_into(format, black_box(&exponents), &mantissas, &mut values)
                        .unwrap();
                });
            });
        }
        group.finish();
    }
}

criterion_group!(benches, blockfloat);
criterion_main!(benches);
