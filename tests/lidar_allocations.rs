//! In the steady state the LiDAR path allocates nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

#[path = "support/allocations.rs"]
mod allocations;

use std::sync::atomic::Ordering;

use allocations::{ALLOCATIONS, ARMED};
use sensorium::lidar::{
    DensifyConfig, EncoderInput, FeatureRows, PillarGridSpec, PillarSet, PointCloud, PointLayout,
    RigidTransform, SlotFill, SlotHistory, StreamDensifiers, SweepPoints, assign_pillars,
    canvas_gather_index, decorate,
};

/// A spiral whose length and place differ from frame to frame.
fn sweep(frame: usize) -> PointCloud {
    let mut cloud = PointCloud::default();
    for i in 0..20_000 - 1000 * (frame % 4) {
        let angle = i as f32 * 0.37 + frame as f32;
        let range = 2.0 + i as f32 * 0.003;
        cloud.x.push(range * angle.cos());
        cloud.y.push(range * angle.sin());
        cloud.z.push(if i % 100 == 0 { f32::NAN } else { 0.5 });
        cloud.intensity.push(7.0);
    }
    cloud
}

#[test]
fn sweeps_pillars_features_and_the_map_allocate_nothing_after_the_first_frames() {
    let config = DensifyConfig {
        num_past_frames: 2,
        layout: PointLayout::Xyzit,
        ..DensifyConfig::default()
    };
    let mut streams = StreamDensifiers::new(config);
    let grid = PillarGridSpec::new([-51.2, -51.2, -3.0], [51.2, 51.2, 5.0], [0.32, 0.32, 8.0]).unwrap();
    let mut points = SweepPoints::default();
    let mut set = PillarSet::new(grid);
    let mut rows = vec![0_u16; grid.max_pillars() * 512];
    let mut history = SlotHistory::default();
    let mut index = vec![0_u32; grid.num_cells()];
    let sweeps: Vec<_> = (0..12).map(sweep).collect();
    let pose = |i: usize| RigidTransform::from_xyz_rpy([i as f64, 0.0, 0.0], [0.0; 3]).unwrap();

    let mut pillars = Vec::with_capacity(16);
    let mut run = |frames: std::ops::Range<usize>| {
        for i in frames {
            for stream in ["front", "rear"] {
                // The clock jumps back once in each half.
                let stamp = if i % 6 == 4 { 0 } else { 100 * i as i64 };
                let densifier = streams.get(stream);
                densifier
                    .enqueue(&sweeps[i].columns(), stamp, Some(&pose(i)))
                    .unwrap();
                densifier.enqueue(&sweeps[i].columns(), stamp, None).unwrap();
                densifier.sweep_points(&mut points);
                assign_pillars(&points.columns(), Some(i as u64), &mut set);
                let out = FeatureRows::DeviceBf16(&mut rows);
                decorate(
                    &set,
                    EncoderInput::Eleven,
                    out,
                    SlotFill::Zeros,
                    Some(&mut history),
                )
                .unwrap();
                canvas_gather_index(set.coords(), &grid, 40_000, &mut index).unwrap();
            }
            pillars.push(set.len());
        }
    };
    run(0..8);
    ARMED.store(true, Ordering::SeqCst);
    run(8..12);
    ARMED.store(false, Ordering::SeqCst);
    assert_eq!(ALLOCATIONS.load(Ordering::SeqCst), 0);
    assert!(pillars.iter().all(|&pillars| pillars > 5000), "{pillars:?}");
}
