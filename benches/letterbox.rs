//! Camera frame to detector input: the size of a road camera and of a webcam, on every kernel.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a benchmark stops at the first surprise"
)]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use sensorium::image::{ImageRef, Kernels, LetterboxPlan, PixelFormat, Workspace};

fn letterbox(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("letterbox_to_416");
    for (width, height, format) in [
        (1920, 1080, PixelFormat::Bgr8),
        (1920, 1080, PixelFormat::Rgba8),
        (640, 480, PixelFormat::Rgb8),
    ] {
        let step = width * format.channels();
        let pixels: Vec<u8> = (0..step * height).map(|i| (i * 31 % 251) as u8).collect();
        let image = ImageRef::new(&pixels, width, height, step, format).unwrap();
        let mut kernels = vec![Kernels::detect(), Kernels::scalar()];
        kernels.dedup();
        for kernels in kernels {
            let plan = LetterboxPlan::new(width, height, 416, 416)
                .unwrap()
                .with_kernels(kernels);
            let mut out = vec![0; plan.output_bytes()];
            let mut workspace = Workspace::default();
            group.throughput(Throughput::Elements(1));
            group.bench_function(
                format!("{width}x{height}_{format}/{}", kernels.name()),
                |bencher| {
                    bencher.iter(|| plan.apply(black_box(&image), &mut out, &mut workspace).unwrap());
                },
            );
        }
    }
    group.finish();
}

criterion_group!(benches, letterbox);
criterion_main!(benches);
