//! A LiDAR frame on its way to the pillar encoder: two sweeps of 100,000 points, KITTI's where `SENSORIUM_TEST_DATA` is
//! set, else made up.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a benchmark stops at the first surprise"
)]

use std::hint::black_box;
use std::path::Path;

use criterion::{Criterion, criterion_group, criterion_main};
use sensorium::lidar::{
    Columns, DensifyConfig, EncoderInput, FeatureRows, PillarGridSpec, PillarSet, PointCloud, RigidTransform,
    SlotFill, SlotHistory, SweepDensifier, SweepPoints, assign_pillars, decorate, seeded_permutation,
};

const SWEEP_POINTS: usize = 100_000;
const MAX_PILLARS: usize = 40_000;

/// The whole turn of KITTI's laser, cut to size.
fn kitti(data: &Path) -> PointCloud {
    let bytes = std::fs::read(data.join("lidar/kitti_full360/000009.bin")).unwrap();
    let mut cloud = PointCloud::default();
    for point in bytes.as_chunks::<16>().0.iter().take(SWEEP_POINTS) {
        let value = |i: usize| f32::from_le_bytes(point.as_chunks::<4>().0[i]);
        cloud.x.push(value(0));
        cloud.y.push(value(1));
        cloud.z.push(value(2));
        cloud.intensity.push(value(3));
    }
    cloud
}

/// 64 lasers that turn; walls at 20 to 60 m.
fn made_up() -> PointCloud {
    let mut cloud = PointCloud::default();
    for i in 0..SWEEP_POINTS {
        let (turn, laser) = ((i / 64) as f32 * std::f32::consts::TAU / 1562.5, (i % 64) as f32);
        let down = 0.03 - laser * 0.007;
        let wall = 40.0 + 20.0 * (turn * 9.0).sin();
        let range = if down < 0.0 { wall.min(-1.8 / down) } else { wall };
        cloud.x.push(range * turn.cos());
        cloud.y.push(range * turn.sin());
        cloud.z.push(range * down);
        cloud.intensity.push(laser);
    }
    cloud
}

fn frame(criterion: &mut Criterion) {
    let cloud = std::env::var_os("SENSORIUM_TEST_DATA").map_or_else(made_up, |data| kitti(Path::new(&data)));
    let sweep: Columns<'_> = cloud.columns();
    let pose = |x: f64| RigidTransform::from_xyz_rpy([x, 0.1 * x, 0.0], [0.0, 0.0, 0.002 * x]).unwrap();
    let grid = PillarGridSpec::new([-76.8, -76.8, -4.0], [76.8, 76.8, 6.0], [0.32, 0.32, 10.0]).unwrap();

    let mut densifier = SweepDensifier::new(DensifyConfig::default());
    let mut points = SweepPoints::default();
    let mut set = PillarSet::new(grid);
    let mut dense = vec![0.0; MAX_PILLARS * 32 * 9];
    let mut device = vec![0_u16; MAX_PILLARS * 32 * 16];
    let (mut dense_history, mut device_history) = (SlotHistory::default(), SlotHistory::default());
    let mut order = Vec::new();

    let mut stamp_ns = 1_700_000_000_000_000_000;
    let mut next = |densifier: &mut SweepDensifier, points: &mut SweepPoints| {
        stamp_ns += 100_000_000;
        let world_from_sensor = pose((stamp_ns % 100_000_000_000) as f64 * 1e-8);
        densifier
            .enqueue(black_box(&sweep), stamp_ns, Some(&world_from_sensor))
            .unwrap();
        densifier.sweep_points(points);
    };
    next(&mut densifier, &mut points);
    next(&mut densifier, &mut points);
    assign_pillars(&points.columns(), None, &mut set);
    println!(
        "{} points in {} pillars: {:?}",
        points.len(),
        set.len(),
        set.stats()
    );

    let mut group = criterion.benchmark_group("lidar_200k");
    group.bench_function("densify", |b| b.iter(|| next(&mut densifier, &mut points)));
    group.bench_function("permutation", |b| {
        b.iter(|| seeded_permutation(black_box(200_000), 7, &mut order));
    });
    group.bench_function("pillars", |b| {
        b.iter(|| assign_pillars(black_box(&points.columns()), None, &mut set));
    });
    group.bench_function("pillars_shuffled", |b| {
        b.iter(|| assign_pillars(black_box(&points.columns()), Some(7), &mut set));
    });
    group.bench_function("features_f32", |b| {
        b.iter(|| {
            let out = FeatureRows::Dense(&mut dense);
            decorate(
                black_box(&set),
                EncoderInput::Nine,
                out,
                SlotFill::Zeros,
                Some(&mut dense_history),
            )
            .unwrap();
        });
    });
    group.bench_function("features_f32_all_cleared", |b| {
        b.iter(|| {
            let out = FeatureRows::Dense(&mut dense);
            decorate(black_box(&set), EncoderInput::Nine, out, SlotFill::Zeros, None).unwrap();
        });
    });
    group.bench_function("features_bf16", |b| {
        b.iter(|| {
            let out = FeatureRows::DeviceBf16(&mut device);
            decorate(
                black_box(&set),
                EncoderInput::Nine,
                out,
                SlotFill::Zeros,
                Some(&mut device_history),
            )
            .unwrap();
        });
    });
    for (name, seed) in [("frame", None), ("frame_shuffled", Some(7))] {
        group.bench_function(name, |b| {
            b.iter(|| {
                next(&mut densifier, &mut points);
                assign_pillars(&points.columns(), seed, &mut set);
                let out = FeatureRows::Dense(&mut dense);
                decorate(
                    &set,
                    EncoderInput::Nine,
                    out,
                    SlotFill::Zeros,
                    Some(&mut dense_history),
                )
                .unwrap();
            });
        });
    }
    group.finish();
}

criterion_group!(benches, frame);
criterion_main!(benches);
