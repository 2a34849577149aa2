//! Camera frames to the inputs of the networks that Autoware deploys, one thread, on every kernel.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a benchmark stops at the first surprise"
)]

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use sensorium::image::{
    AutowareLetterboxPlan, BevfusionCameraPlan, Image, Kernels, NearestCropPlan, PixelFormat, StreampetrPlan,
    Workspace, bevdet_normalize,
};

/// A frame with some structure, blue, green, red.
fn frame([width, height]: [usize; 2]) -> Image {
    let pixels = (0..width * height * 3).map(|i| (i * 7 % 251) as u8).collect();
    Image::new(pixels, width, height, PixelFormat::Bgr8).unwrap()
}

/// Name of a bench: the fastest kernels go without a suffix.
fn name(preset: &str, kernels: Kernels) -> String {
    if kernels == Kernels::detect() {
        format!("{preset}/1080p")
    } else {
        format!("{preset}/1080p/{}", kernels.name())
    }
}

fn yolox_autoware(criterion: &mut Criterion) {
    let (frame, mut workspace) = (frame([1920, 1080]), Workspace::default());
    for kernels in Kernels::available() {
        let plan = AutowareLetterboxPlan::new([1920, 1080], [960, 960])
            .unwrap()
            .with_kernels(kernels);
        let mut bytes = vec![0; plan.output_len()];
        criterion.bench_function(&name("yolox_autoware", kernels), |bencher| {
            bencher.iter(|| plan.apply(black_box(&frame.view()), &mut bytes, &mut workspace));
        });
        let mut floats = vec![0.0; plan.output_len()];
        criterion.bench_function(&name("yolox_autoware_f32", kernels), |bencher| {
            bencher.iter(|| plan.apply_f32(black_box(&frame.view()), &mut floats, &mut workspace));
        });
    }
}

fn streampetr(criterion: &mut Criterion) {
    let (frame, mut workspace) = (frame([1920, 1080]), Workspace::default());
    for kernels in Kernels::available() {
        let plan = StreampetrPlan::new([1920, 1080], [640, 480])
            .unwrap()
            .with_kernels(kernels);
        let mut out = vec![0.0; plan.output_len()];
        criterion.bench_function(&name("streampetr", kernels), |bencher| {
            bencher.iter(|| plan.apply(black_box(&frame.view()), &mut out, &mut workspace));
        });
    }
}

fn bevfusion_camera(criterion: &mut Criterion) {
    let (frame, mut workspace) = (frame([1440, 1080]), Workspace::default());
    for kernels in Kernels::available() {
        let plan = BevfusionCameraPlan::new([1440, 1080], [576, 384], [0.4; 2])
            .unwrap()
            .with_kernels(kernels);
        let mut out = vec![0; plan.output_len()];
        criterion.bench_function(&name("bevfusion_camera", kernels), |bencher| {
            bencher.iter(|| plan.apply(black_box(&frame.view()), &mut out, &mut workspace));
        });
    }
}

fn bevdet(criterion: &mut Criterion) {
    let (frame, mut workspace) = (frame([1600, 900]), Workspace::default());
    let plan = NearestCropPlan::new([1600, 900], [704, 256], [0, 140]).unwrap();
    let mut crop = vec![0; plan.output_len()];
    let mut out = vec![0.0; plan.output_len()];
    criterion.bench_function("bevdet_nearest_crop/1600x900", |bencher| {
        bencher.iter(|| plan.apply(black_box(&frame.view()), &mut crop, &mut workspace));
    });
    criterion.bench_function("bevdet_normalize/704x256", |bencher| {
        bencher.iter(|| bevdet_normalize(black_box(&crop), &mut out));
    });
}

criterion_group!(benches, yolox_autoware, streampetr, bevfusion_camera, bevdet);
criterion_main!(benches);
