//! What the LiDAR sees.

use std::f64::consts::{PI, TAU};

use sensorium::io::sim::{Drive, DriveConfig, DriveFrame, LidarConfig, WorldConfig};
use sensorium::outputs::ObjectLabel;

use crate::simulator::geometry::{holds, in_box, moved, share_found};

/// Most that noise moves a point along its beam: the sum of three uniform numbers ends at three deviations.
const MOST_NOISE_M: f64 = 0.061;

fn frames(config: &DriveConfig, seed: u64, count: usize) -> Vec<DriveFrame> {
    let mut drive = Drive::new(config, seed);
    (0..count).map(|_| drive.next_frame()).collect()
}

fn point(frame: &DriveFrame, at: usize) -> [f64; 3] {
    let cloud = &frame.cloud;
    [cloud.x[at], cloud.y[at], cloud.z[at]].map(f64::from)
}

#[test]
fn the_same_seed_drives_the_same_way_and_another_one_does_not() {
    let config = DriveConfig::default();
    let (first, again) = (frames(&config, 11, 3), frames(&config, 11, 3));
    for (a, b) in first.iter().zip(&again) {
        assert_eq!(a.cloud, b.cloud);
        assert_eq!(a.truth, b.truth);
        assert_eq!(a.world_from_base, b.world_from_base);
    }
    assert_ne!(first[0].cloud, first[1].cloud);
    assert_ne!(first[0].cloud, frames(&config, 12, 1)[0].cloud);
}

#[test]
fn a_turn_of_the_default_sensor_has_64_rings_and_one_tenth_of_a_second() {
    let all = frames(&DriveConfig::default(), 3, 4);
    for (number, frame) in all.iter().enumerate() {
        assert_eq!(
            frame.stamp_ns,
            1_700_000_000_000_000_000 + number as u64 * 100_000_000
        );
        assert_eq!(frame.end_ns, frame.stamp_ns + 100_000_000);
        let cloud = &frame.cloud;
        assert!(
            (60_000..=64 * 1440).contains(&cloud.len()),
            "{} points",
            cloud.len()
        );
        assert_eq!(cloud.ring.iter().copied().max(), Some(63));
        assert_eq!(cloud.ring.iter().copied().min(), Some(0));
        assert!(cloud.time_ns.is_sorted());
        assert!((0..100_000_000).contains(&cloud.time_ns[0]));
        assert!((99_000_000..100_000_000).contains(cloud.time_ns.last().unwrap()));
        let lengths = [
            cloud.y.len(),
            cloud.z.len(),
            cloud.intensity.len(),
            cloud.ring.len(),
            cloud.time_ns.len(),
            cloud.return_type.len(),
            frame.point_ids.len(),
        ];
        assert_eq!(lengths, [cloud.len(); 7]);
        assert!(
            cloud
                .intensity
                .iter()
                .all(|value| (1.0..=255.0).contains(value) && value.fract() == 0.0)
        );
    }
}

#[test]
fn before_the_ego_motion_is_taken_out_ring_and_time_are_the_angles_of_a_point() {
    let lidar = LidarConfig {
        undistort: false,
        ..LidarConfig::default()
    };
    let config = DriveConfig {
        lidar,
        ..DriveConfig::default()
    };
    let frame = &frames(&config, 5, 1)[0];
    for at in 0..frame.cloud.len() {
        let [x, y, z] = point(frame, at);
        let elevation = z.atan2(x.hypot(y)).to_degrees();
        let expected = -25.0 + 28.0 * f64::from(frame.cloud.ring[at]) / 63.0;
        assert!(
            (elevation - expected).abs() < 1e-3,
            "point {at}: {elevation} {expected}"
        );
        // Clockwise from the rear.
        let share = (PI - y.atan2(x)) / TAU;
        let time = frame.cloud.time_ns[at] as f64 / 1e8;
        assert!((share - time).abs() < 1e-5, "point {at}: {share} {time}");
        let range = (x * x + y * y + z * z).sqrt();
        assert!(range < 100.0 + MOST_NOISE_M && range > 0.7, "point {at}: {range}");
    }
}

#[test]
fn points_of_road_users_lie_in_their_boxes_and_no_others_do() {
    for seed in [1, 2, 3, 4] {
        for frame in frames(&DriveConfig::default(), seed, 2) {
            let road = -frame.base_from_lidar.z_m;
            let mut counted = std::collections::BTreeMap::<u32, u32>::new();
            for at in 0..frame.cloud.len() {
                let after_s = frame.cloud.time_ns[at] as f64 * 1e-9;
                let place = point(&frame, at);
                assert!(
                    place[2] > road - MOST_NOISE_M,
                    "a point {} below the road",
                    road - place[2]
                );
                let id = frame.point_ids[at];
                if id != 0 {
                    *counted.entry(id).or_default() += 1;
                    let truth = frame.truth.iter().find(|truth| truth.id == id).unwrap();
                    let inside = in_box(truth, place, after_s);
                    assert!(
                        holds(truth, inside, MOST_NOISE_M + 0.03),
                        "seed {seed}: {inside:?} of {truth:?}"
                    );
                    continue;
                }
                // Crowns of trees may hang over the road; people stand close to hedges.
                let low = place[2] < road + 1.5 && place[2] > road + 0.3;
                for truth in frame
                    .truth
                    .iter()
                    .filter(|truth| truth.object.label != ObjectLabel::Pedestrian)
                {
                    let inside = in_box(truth, place, after_s);
                    assert!(
                        !(low && holds(truth, inside, -0.1)),
                        "seed {seed}: {inside:?} in {truth:?}"
                    );
                }
            }
            for truth in &frame.truth {
                assert_eq!(counted.get(&truth.id), Some(&truth.points), "{truth:?}");
            }
            assert_eq!(counted.len(), frame.truth.len());
        }
    }
}

/// The ground is a plane at two heights, so its points are known from the ring alone.
#[test]
fn the_road_before_the_car_is_where_a_plane_is() {
    let world = WorldConfig {
        traffic: 0.0,
        pedestrians: 0.0,
        cyclists: 0.0,
    };
    let config = DriveConfig {
        world,
        ..DriveConfig::default()
    };
    let frame = &frames(&config, 8, 1)[0];
    assert!(frame.truth.is_empty() && frame.point_ids.iter().all(|&id| id == 0));
    let mut checked = 0;
    for at in 0..frame.cloud.len() {
        let [x, y, z] = point(frame, at);
        if frame.cloud.ring[at] > 30 || y.abs() > 1.0 || x < 3.0 {
            continue;
        }
        let elevation = (-25.0 + 28.0 * f64::from(frame.cloud.ring[at]) / 63.0).to_radians();
        assert!((z + 1.9).abs() < MOST_NOISE_M, "{x} {y} {z}");
        // What the ego car went during the turn was taken out.
        let gone = frame.ego_speed_mps * frame.cloud.time_ns[at] as f64 * 1e-9;
        let expected = 1.9 / -elevation.tan();
        assert!(
            ((x - gone).hypot(y) - expected).abs() < 0.08,
            "{x} {y}: {expected}"
        );
        checked += 1;
    }
    assert!(checked > 500, "{checked}");
}

#[test]
fn what_stands_still_stays_in_place_in_the_map_while_the_ego_car_drives() {
    let config = DriveConfig::default();
    let all = frames(&config, 0, 4);
    let standing = |frame: &DriveFrame, posed: bool| -> Vec<[f64; 3]> {
        let sensor = frame.world_from_base.then(&frame.base_from_lidar);
        let road = -frame.base_from_lidar.z_m;
        let at = (0..frame.cloud.len()).filter(|&at| frame.point_ids[at] == 0);
        let points = at.map(|at| point(frame, at));
        points
            .filter(|[x, y, z]| *z > road + 0.5 && x.hypot(*y) < 30.0)
            .map(|point| if posed { moved(&sensor, point) } else { point })
            .collect()
    };
    let (first, last) = (&all[0], &all[3]);
    let way = (last.world_from_base.x_m - first.world_from_base.x_m)
        .hypot(last.world_from_base.y_m - first.world_from_base.y_m);
    assert!(way > 2.0, "the ego car went only {way} m");
    let with = share_found(&standing(first, true), &standing(last, true), 0.15);
    let without = share_found(&standing(first, false), &standing(last, false), 0.15);
    assert!(with > 0.75, "{with}");
    assert!(without < 0.45, "{without}");
}

#[test]
fn taking_the_ego_motion_out_makes_neighbouring_sweeps_agree() {
    // Turn by turn a beam sees the same thing from the front or the side at another time, so a cloud that is not
    // corrected is bent by up to the way of a turn.
    let agreement = |undistort: bool| {
        let lidar = LidarConfig {
            undistort,
            range_noise_m: 0.0,
            ..LidarConfig::default()
        };
        let config = DriveConfig {
            lidar,
            ..DriveConfig::default()
        };
        let all = frames(&config, 0, 1);
        let frame = &all[0];
        // Ground that is seen ahead: its distance is known.
        let mut errors: Vec<f64> = Vec::new();
        for at in 0..frame.cloud.len() {
            let [x, y, z] = point(frame, at);
            let ring = f64::from(frame.cloud.ring[at]);
            if frame.point_ids[at] == 0 && ring < 20.0 && x > 3.0 && y.abs() < 0.5 && z < -1.85 {
                let level = 1.9 / -(-25.0 + 28.0 * ring / 63.0f64).to_radians().tan();
                let gone = frame.ego_speed_mps * frame.cloud.time_ns[at] as f64 * 1e-9;
                errors.push((x.hypot(y) - level - gone).abs());
            }
        }
        errors.iter().sum::<f64>() / errors.len() as f64
    };
    assert!(agreement(true) < 0.02);
    assert!(agreement(false) > 0.2);
}

#[test]
fn sensors_of_other_sizes_and_heights_see_the_same_road() {
    for (rings, azimuths, height_m) in [(16, 360, 1.6), (32, 1024, 2.2), (128, 2048, 1.9)] {
        let lidar = LidarConfig {
            rings,
            azimuths,
            height_m,
            ..LidarConfig::default()
        };
        let config = DriveConfig {
            lidar,
            ..DriveConfig::default()
        };
        let frame = &frames(&config, 6, 1)[0];
        assert!(frame.cloud.len() > rings * azimuths / 2 && frame.cloud.len() <= rings * azimuths);
        let road = frame
            .cloud
            .z
            .iter()
            .filter(|z| (f64::from(**z) + height_m).abs() < MOST_NOISE_M);
        assert!(road.count() * 4 > frame.cloud.len());
        assert!(!frame.truth.is_empty());
    }
}
