//! Camera frame to network input: every preset at the size of a road camera and at the size it is deployed with.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a benchmark stops at the first surprise"
)]

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use sensorium::image::{
    ImageRef, Kernels, LinearF32Plan, PixelFormat, Preset, PresetOptions, PresetPlan, Raster, ResizePlan,
    Workspace,
};

const ROAD_PX: [usize; 2] = [1920, 1080];

/// Size of the input where the network decides it.
fn target_px(preset: Preset) -> Option<[usize; 2]> {
    match preset {
        Preset::YoloxOpencv => Some([416, 416]),
        Preset::FastestDetOpencv => Some([352, 352]),
        Preset::OpencvLinear => Some([640, 320]),
        Preset::OpencvArea | Preset::OpencvNearest => Some([768, 432]),
        Preset::OpencvLinearF32 => Some([1536, 864]),
        _ => None,
    }
}

/// Sizes of frames: a road camera's, and what the deployed node sees.
fn sources_px(preset: Preset) -> Vec<[usize; 2]> {
    let mut sizes = vec![ROAD_PX];
    sizes.extend(preset.stage_px());
    sizes
}

fn noise(n: usize) -> Vec<u8> {
    (0..n).map(|i| (i * 31 % 251) as u8).collect()
}

fn presets(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("image_presets");
    for preset in Preset::ALL {
        for source_px in sources_px(preset) {
            let [width, height] = source_px;
            let pixels = noise(width * height * 3);
            let image = ImageRef::new(&pixels, width, height, 3 * width, PixelFormat::Bgr8).unwrap();
            let options = PresetOptions {
                target_px: target_px(preset),
                ..PresetOptions::DEPLOYED
            };
            let plan = PresetPlan::new(preset, source_px, &options).unwrap();
            let mut input = vec![0_f32; plan.form().bytes().div_ceil(4)];
            let input = &mut bytemuck::cast_slice_mut(&mut input)[..plan.form().bytes()];
            let mut run = |name: &str, plan: &PresetPlan, threads: usize| {
                let mut workspaces = vec![Workspace::default(); threads];
                group.bench_function(format!("{}/{width}x{height}/{name}", preset.name()), |bencher| {
                    bencher.iter(|| plan.apply(black_box(&image), input, &mut workspaces).unwrap());
                });
            };
            run("1_thread", &plan, 1);
            run("2_threads", &plan, 2);
            run(
                "1_thread_scalar",
                &plan.clone().with_kernels(Kernels::scalar()),
                1,
            );
        }
    }
    group.finish();
}

/// The building blocks, on their own.
fn resizes(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("image_resizes");
    let [width, height] = ROAD_PX;
    let pixels = noise(width * height * 3);
    let raster = Raster::new(&pixels, ROAD_PX, 3).unwrap();
    for (name, target_px, make) in [
        ("linear_u8/640x320", [640, 320], ResizePlan::new as fn(_, _) -> _),
        ("linear_u8/960x540", [960, 540], ResizePlan::new),
        ("area_u8/768x432", [768, 432], ResizePlan::area),
        ("area_u8/640x360", [640, 360], ResizePlan::area),
    ] {
        let plan = make(ROAD_PX, target_px).unwrap();
        let mut out = vec![0; target_px[0] * target_px[1] * 3];
        let mut workspace = Workspace::default();
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                plan.apply_raster(black_box(raster), &mut out, &mut workspace)
                    .unwrap()
            });
        });
    }
    let floats: Vec<f32> = noise(1600 * 900 * 3).into_iter().map(f32::from).collect();
    let raster = Raster::new(&floats, [1600, 900], 3).unwrap();
    let plan = LinearF32Plan::new([1600, 900], [1280, 720], sensorium::image::Contraction::Fused).unwrap();
    let mut out = vec![0.0; 1280 * 720 * 3];
    group.bench_function("linear_f32/1600x900_to_1280x720", |bencher| {
        bencher.iter(|| plan.apply(black_box(raster), &mut out).unwrap());
    });
    group.finish();
}

criterion_group!(benches, presets, resizes);
criterion_main!(benches);
