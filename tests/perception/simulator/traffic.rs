//! Who drives and walks in the world.

use std::collections::BTreeMap;

use sensorium::io::sim::{Drive, DriveConfig, LidarConfig};
use sensorium::outputs::ObjectLabel;

use crate::simulator::geometry::{moved, overlap_m};

/// A sensor that is quick to simulate and still meets everything near by.
fn coarse() -> DriveConfig {
    let lidar = LidarConfig {
        rings: 20,
        azimuths: 480,
        drop_out: 0.0,
        ..LidarConfig::default()
    };
    DriveConfig {
        lidar,
        ..DriveConfig::default()
    }
}

#[test]
fn nobody_drives_into_anybody() {
    let mut pairs = 0;
    for seed in 0..8 {
        let mut drive = Drive::new(&coarse(), seed);
        for number in 0..250 {
            let frame = drive.next_frame();
            for (index, a) in frame.truth.iter().enumerate() {
                for b in &frame.truth[..index] {
                    pairs += 1;
                    let overlap = overlap_m(a, b);
                    // The two are shown as they were at moments up to a turn apart.
                    assert!(
                        overlap < 0.05,
                        "seed {seed}, frame {number}: {overlap} m of {a:?} and {b:?}"
                    );
                }
            }
        }
    }
    assert!(pairs > 100_000, "{pairs}");
}

#[test]
fn objects_go_where_their_velocities_say_and_keep_their_numbers() {
    let config = coarse();
    let mut drive = Drive::new(&config, 4);
    let mut before: BTreeMap<u32, [f64; 2]> = BTreeMap::new();
    let (mut compared, mut moving) = (0, 0);
    for _ in 0..80 {
        let frame = drive.next_frame();
        let sensor = frame.world_from_base.then(&frame.base_from_lidar);
        let (sin, cos) = sensor.yaw_rad.sin_cos();
        let mut now = BTreeMap::new();
        for truth in &frame.truth {
            let ago = truth.seen_after_ns as f64 * 1e-9;
            let [vx, vy] = truth.velocity_mps;
            let [x, y, z] = truth.object.position_m;
            let at_stamp = moved(&sensor, [x - vx * ago, y - vy * ago, z]);
            if let Some(expected) = before.get(&truth.id) {
                let off = (at_stamp[0] - expected[0]).hypot(at_stamp[1] - expected[1]);
                assert!(off < 0.02, "{off} m: {truth:?}");
                compared += 1;
                moving += usize::from(vx.hypot(vy) > 3.0);
            }
            let (mx, my) = (cos * vx - sin * vy, sin * vx + cos * vy);
            let period_s = (frame.end_ns - frame.stamp_ns) as f64 * 1e-9;
            now.insert(
                truth.id,
                [at_stamp[0] + mx * period_s, at_stamp[1] + my * period_s],
            );
            let twist = truth.object.twist.unwrap();
            assert!((twist.linear_x_mps.hypot(twist.linear_y_mps) - vx.hypot(vy)).abs() < 1e-9);
            // Nobody goes backwards or sideways.
            assert!(
                twist.linear_x_mps > -1e-6 && twist.linear_y_mps.abs() < 0.3,
                "{truth:?}"
            );
        }
        before = now;
    }
    assert!(compared > 1000 && moving > 200, "{compared} {moving}");
}

#[test]
fn the_ego_car_keeps_to_its_lane_speed_and_moves_as_its_pose_does() {
    let mut driven = 0.0;
    for seed in 0..4 {
        let mut drive = Drive::new(&coarse(), seed);
        let mut last = drive.next_frame();
        for _ in 0..200 {
            let frame = drive.next_frame();
            let dx = frame.world_from_base.x_m - last.world_from_base.x_m;
            let dy = frame.world_from_base.y_m - last.world_from_base.y_m;
            assert!((dx.hypot(dy) - last.ego_speed_mps * 0.1).abs() < 0.01);
            assert!(
                (0.0..14.5).contains(&frame.ego_speed_mps),
                "{}",
                frame.ego_speed_mps
            );
            assert!((frame.ego_speed_mps - last.ego_speed_mps).abs() < 0.85);
            driven += dx.hypot(dy);
            last = frame;
        }
    }
    assert!(driven > 300.0, "{driven}");
}

#[test]
fn every_class_has_the_size_of_its_kind() {
    let sizes = |label: ObjectLabel| match label {
        ObjectLabel::Car => [(3.5, 5.7), (1.6, 2.1), (1.4, 2.5)],
        ObjectLabel::Truck => [(6.0, 10.0), (2.2, 2.6), (2.8, 3.8)],
        ObjectLabel::Bus => [(9.5, 12.5), (2.4, 2.6), (2.9, 3.5)],
        ObjectLabel::Bicycle => [(1.6, 2.0), (0.5, 0.7), (1.5, 1.9)],
        ObjectLabel::Pedestrian => [(0.4, 0.8), (0.4, 0.8), (1.0, 2.0)],
        other => panic!("{other:?} is not simulated"),
    };
    let mut seen = BTreeMap::new();
    for seed in 0..12 {
        let frame = Drive::new(&coarse(), seed).next_frame();
        for truth in &frame.truth {
            for (value, (low, high)) in truth.object.size_m.iter().zip(sizes(truth.object.label)) {
                assert!((low..high).contains(value), "{truth:?}");
            }
            *seen.entry(truth.object.label).or_insert(0) += 1;
        }
    }
    assert_eq!(seen.len(), 5, "{seen:?}");
}
