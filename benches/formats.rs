//! Number formats: 16 Mi values from f32 to codes and back, beside a plain copy that reads and writes as many
//! bytes in all.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a benchmark stops at the first surprise"
)]

use std::hint::black_box;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, SamplingMode, Throughput, criterion_group, criterion_main};
use sensorium::numeric::{
    Fp8Format, Fp8Policy, bf16_decode_into, bf16_encode_into, f16_decode_into, f16_encode_into,
    fp4_decode_into, fp4_encode_into, fp4_packed_bytes, fp8_decode_into, fp8_encode_into,
};

const VALUES: usize = 16 << 20;

/// Pseudo-random values of both signs, from below the smallest FP8 number to beyond the largest.
fn values() -> Vec<f32> {
    let mut state = 42_u64;
    let mut value = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let exponent = 127 - 20 + (state >> 32) as u32 % 40;
        f32::from_bits((state as u32 & 0x807f_ffff) | (exponent << 23))
    };
    (0..VALUES).map(|_| value()).collect()
}

/// Times one conversion that reads and writes `bytes` in all.
fn timed(group: &mut BenchmarkGroup<WallTime>, name: &str, bytes: usize, mut call: impl FnMut()) {
    group.throughput(Throughput::Bytes(bytes as u64));
    group.bench_function(name, |bencher| bencher.iter(&mut call));
}

fn formats(criterion: &mut Criterion) {
    let values = values();
    let mut decoded = vec![0.0; VALUES];
    let mut group = criterion.benchmark_group("formats_16Mi");
    // Few calls to a sample, so that the fastest sample of a busy machine says something.
    group.sampling_mode(SamplingMode::Flat);

    for (name, code_bytes) in [("fp4", 0.5), ("fp8", 1.0), ("16_bit", 2.0)] {
        let half = ((4.0 + code_bytes) * VALUES as f64 / 2.0) as usize;
        let (from, mut to) = (vec![1_u8; half], vec![0_u8; half]);
        timed(&mut group, &format!("copy/as_{name}"), 2 * half, || {
            to.copy_from_slice(black_box(&from));
            black_box(&mut to);
        });
    }

    let policy = Fp8Policy::default();
    let mut codes = vec![0_u8; VALUES];
    for (name, format) in [
        ("e4m3", Fp8Format::E4M3),
        ("e5m2", Fp8Format::E5M2),
        ("e3m4", Fp8Format::E3M4),
    ] {
        timed(&mut group, &format!("encode/{name}"), 5 * VALUES, || {
            fp8_encode_into(format, &policy, black_box(&values), &mut codes).unwrap();
        });
        timed(&mut group, &format!("decode/{name}"), 5 * VALUES, || {
            fp8_decode_into(format, &policy, black_box(&codes), &mut decoded).unwrap();
        });
    }

    let packed = &mut codes[..fp4_packed_bytes(VALUES)];
    timed(&mut group, "encode/fp4", 4 * VALUES + packed.len(), || {
        fp4_encode_into(black_box(&values), packed).unwrap();
    });
    timed(&mut group, "decode/fp4", 4 * VALUES + packed.len(), || {
        fp4_decode_into(black_box(packed), &mut decoded).unwrap();
    });

    let mut codes = vec![0_u16; VALUES];
    timed(&mut group, "encode/bf16", 6 * VALUES, || {
        bf16_encode_into(black_box(&values), &mut codes).unwrap();
    });
    timed(&mut group, "decode/bf16", 6 * VALUES, || {
        bf16_decode_into(black_box(&codes), &mut decoded).unwrap();
    });
    timed(&mut group, "encode/f16", 6 * VALUES, || {
        f16_encode_into(black_box(&values), &mut codes).unwrap();
    });
    timed(&mut group, "decode/f16", 6 * VALUES, || {
        f16_decode_into(black_box(&codes), &mut decoded).unwrap();
    });
    group.finish();
}

criterion_group!(benches, formats);
criterion_main!(benches);
