//! Poses, and sweeps of the past in the frame of the present one.

use std::f64::consts::{FRAC_PI_2, PI, TAU};

use proptest::prelude::*;
use sensorium::lidar::{
    Affine3f, Columns, DensifierState, DensifyConfig, DensifyInfo, Enqueued, PastSweep, PointCloud,
    PointLayout, RigidTransform, StreamDensifiers, SweepDensifier, SweepPoints, TransformError,
    densify_sweeps, mmdet_yaw_to_ros, quaternion_xyzw_from_yaw, ros_yaw_to_mmdet, wrap_angle,
    yaw_from_quaternion_xyzw,
};

const PERIOD_NS: i64 = 100_000_000;
const START_NS: i64 = 1_700_000_000_123_456_789;

/// Twelve float32 values as their bits, row by row with the translation last in each row.
fn bits(transform: &Affine3f) -> [u32; 12] {
    std::array::from_fn(|i| {
        let (row, column) = (i / 4, i % 4);
        let value = if column < 3 {
            transform.linear[row][column]
        } else {
            transform.translation_m[row]
        };
        value.to_bits()
    })
}

/// Rotation, translation, and the bits of three results.
type EigenCase = ([f64; 4], [f64; 3], [[u32; 12]; 3]);

/// A pose, its float32 form, the inverse of that, and its product with the inverse of the line above (the first: with
/// the identity), as a program on Eigen 3.3.90 printed them (g++ -O2; the same with -O3, AVX2, and without vectors).
#[rustfmt::skip]
#[expect(clippy::excessive_precision, clippy::unreadable_literal, reason = "as printed")]
const EIGEN: [EigenCase; 4] = [
    (
        [0.62351694453151096, -0.75179702185706287, -0.1714065824953645, 0.12902573885159227],
        [-3204.6995777126554, -25056.847771725665, -4.7558104988531635],
        [
            [0xbe41b2a0, 0xbf64ae4d, 0xbed0c4e4, 0xc5484b31, 0xbf7b53d8, 0x3e279f16, 0x3dc64cf2, 0xc6c3c1b2, 0xbca1c57a, 0x3ed65611, 0xbf686f09, 0xc0982f99],
            [0xbe41b2a1, 0xbf7b53d9, 0xbca1c579, 0xc6c4eb9b, 0xbf64ae4f, 0x3e279f17, 0x3ed65614, 0x449b1d0a, 0xbed0c4e6, 0x3dc64cf4, 0xbf686f0b, 0x448b63fd],
            [0xbe41b2a0, 0xbf64ae4d, 0xbed0c4e4, 0xc5484b31, 0xbf7b53d8, 0x3e279f16, 0x3dc64cf2, 0xc6c3c1b2, 0xbca1c57a, 0x3ed65611, 0xbf686f09, 0xc0982f99],
        ],
    ),
    (
        [-0.15165390082066171, -0.63857987613810796, -0.30017560004664406, -0.69217876686153312],
        [37133.175987674382, 41801.958514613238, 45.987407657309156],
        [
            [0x3b8a4dd0, 0xbe633057, 0x3f799e16, 0x47110d2d, 0x3f1bf6ee, 0x3f461732, 0x3e31975d, 0x472349f5, 0xbf4b008f, 0x3f17e385, 0x3e0dc18e, 0x4237f31b],
            [0x3b8a4dd0, 0x3f1bf6ee, 0xbf4b008f, 0xc6c7e716, 0xbe633057, 0x3f461732, 0x3f17e384, 0xc6bc8d86, 0x3f799e16, 0x3e31975d, 0x3e0dc18e, 0xc729c76c],
            [0xbe4d006a, 0x3d5cfbf1, 0xbf7a6fda, 0x4713cecd, 0xbf608e7a, 0xbee8c93d, 0x3e1e23f6, 0x46d79e84, 0xbedf7625, 0x3f63976f, 0x3e0daa9f, 0x46a3787a],
        ],
    ),
    (
        [0.68280902071848326, 0.086854304382793499, 0.65473853282396333, -0.31232294931876298],
        [17456.672154393869, 25732.198226496261, 11.912060116866241],
        [
            [0x3e029bd4, 0x3f07101c, 0x3f5701b1, 0x46886158, 0xbe94ab5e, 0xbf4a31bc, 0x3f0a4daa, 0x46c90865, 0x3f72c8c4, 0xbea024b8, 0x3d56dc76, 0x413e97cc],
            [0x3e029bd4, 0xbe94ab5e, 0x3f72c8c4, 0x45a39008, 0x3f07101b, 0xbf4a31bc, 0xbea024b8, 0x462db670, 0x3f5701b0, 0x3f0a4daa, 0x3d56dc78, 0xc6df276a],
            [0x3f33d181, 0x3f21b11a, 0x3ea80365, 0xc708e3cf, 0x3f3366b2, 0xbf31c200, 0xbe277e5b, 0x46e08e63, 0x3dff11fa, 0x3eb090fd, 0xbf6e2bd1, 0xc6945383],
        ],
    ),
    (
        [-0.12945295345158667, -0.2641742892734798, -0.66792948243952277, 0.68361106209421785],
        [-9295.5965094932544, -42331.874342830532, 46.032900810871425],
        [
            [0xbd026626, 0x3f7b4a6b, 0xbe40c5ab, 0xc6113e63, 0xbf584594, 0x3d9802e6, 0x3f07a6e8, 0xc7255be0, 0x3f08bbd1, 0x3e342166, 0x3f53b03a, 0x423821b1],
            [0xbd026626, 0xbf584594, 0x3f08bbd0, 0xc70cf2fb, 0x3f7b4a6b, 0x3d9802e6, 0x3e342166, 0x463f8a36, 0xbe40c5ab, 0x3f07a6e8, 0x3f53b03b, 0x46a14686],
            [0x3eb6203e, 0xbf5e24f9, 0xbeb1b642, 0x45d560d0, 0x3ec0bd6d, 0x3ef2274c, 0xbf4bef36, 0xc76e8810, 0x3f5afd49, 0x3e1c5f4f, 0x3efd6354, 0xc6930c8a],
        ],
    ),
];

#[test]
fn float32_matrices_inverses_and_products_have_the_bits_of_eigen() {
    let mut previous = Affine3f::IDENTITY;
    for (quaternion, translation, [matrix, inverse, product]) in EIGEN {
        let pose = RigidTransform::from_translation_quaternion(translation, quaternion).unwrap();
        let single = Affine3f::from(&pose);
        assert_eq!(bits(&single), matrix);
        let inverted = single.invert_affine_f32();
        assert_eq!(bits(&inverted), inverse);
        assert_eq!(bits(&single.compose_f32(&previous)), product);
        previous = inverted;
    }
}

fn close(a: [f64; 3], b: [f64; 3]) -> bool {
    a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-9)
}

#[test]
fn roll_pitch_and_yaw_turn_about_fixed_axes_in_that_order() {
    let turn = |rpy| RigidTransform::from_xyz_rpy([10.0, 20.0, 30.0], rpy).unwrap();
    assert!(close(
        turn([0.0, 0.0, FRAC_PI_2]).apply([1.0, 0.0, 0.0]),
        [10.0, 21.0, 30.0]
    ));
    assert!(close(
        turn([0.0, FRAC_PI_2, 0.0]).apply([1.0, 0.0, 0.0]),
        [10.0, 20.0, 29.0]
    ));
    assert!(close(
        turn([FRAC_PI_2, 0.0, 0.0]).apply([0.0, 1.0, 0.0]),
        [10.0, 20.0, 31.0]
    ));
    // Roll takes y to z, pitch z to x, yaw x to y.
    assert!(close(
        turn([FRAC_PI_2; 3]).apply([0.0, 1.0, 0.0]),
        [10.0, 21.0, 30.0]
    ));
    assert!((turn([0.1, 0.2, 0.3]).yaw_rad() - 0.3).abs() < 1e-12);
}

#[test]
fn numbers_that_are_no_pose_are_refused_in_words() {
    let refused = |result: Result<RigidTransform, TransformError>| result.unwrap_err().to_string();
    let quaternion = |q| RigidTransform::from_translation_quaternion([0.0; 3], q);
    assert!(refused(quaternion([0.0; 4])).contains("no direction; an unset pose has w = 1"));
    assert!(refused(quaternion([0.0, f64::NAN, 0.0, 1.0])).contains("the quaternion of a pose holds"));
    assert!(refused(quaternion([1e200, 0.0, 0.0, 0.0])).contains("no direction"));
    assert!(
        refused(RigidTransform::from_xyz_rpy([f64::INFINITY, 0.0, 0.0], [0.0; 3])).contains("translation")
    );
    let rows = |scale: f64| [[scale, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]];
    assert!(RigidTransform::new(rows(1.0), [0.0; 3]).is_ok());
    assert!(refused(RigidTransform::new(rows(1.001), [0.0; 3])).contains("no rotation: its rows are off"));
    assert!(refused(RigidTransform::new(rows(-1.0), [0.0; 3])).contains("its determinant is -1.0"));
    let mut transposed = [[0.0; 4]; 4];
    (0..4).for_each(|i| transposed[i][i] = 1.0);
    assert!(RigidTransform::from_matrix(transposed).is_ok());
    transposed[3][0] = 5.0;
    assert!(refused(RigidTransform::from_matrix(transposed)).contains("0 0 0 1, but it is [5.0,"));
}

#[test]
fn a_yaw_of_mmdet3d_becomes_a_heading_of_ros_and_comes_back() {
    assert_eq!(mmdet_yaw_to_ros(0.0), -std::f32::consts::FRAC_PI_2);
    for i in -1000..1000_i16 {
        let yaw = f32::from(i) * 0.0031;
        // In double, rounded once: rounding π/2 first gives other bits.
        let expected = (-f64::from(yaw) - PI / 2.0) as f32;
        assert_eq!(mmdet_yaw_to_ros(yaw).to_bits(), expected.to_bits());
        assert!((ros_yaw_to_mmdet(mmdet_yaw_to_ros(yaw)) - yaw).abs() < 1e-6);
    }
    let in_single = |yaw: f32| -yaw - std::f32::consts::FRAC_PI_2;
    assert!((0..1000_u16).any(|i| {
        let yaw = f32::from(i) * 0.0031;
        mmdet_yaw_to_ros(yaw) != in_single(yaw)
    }));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_pose_its_quaternion_and_its_inverse_agree(
        xyz in prop::array::uniform3(-1e4_f64..1e4),
        rpy in prop::array::uniform3(-1.5_f64..1.5),
        point in prop::array::uniform3(-100.0_f64..100.0),
        scale in 0.1_f64..10.0,
    ) {
        let pose = RigidTransform::from_xyz_rpy(xyz, rpy).unwrap();
        let [(sr, cr), (sp, cp), (sy, cy)] = rpy.map(|angle| (angle / 2.0).sin_cos());
        let quaternion = [
            sr * cp * cy - cr * sp * sy,
            cr * sp * cy + sr * cp * sy,
            cr * cp * sy - sr * sp * cy,
            cr * cp * cy + sr * sp * sy,
        ];
        let same = RigidTransform::from_translation_quaternion(xyz, quaternion.map(|v| v * scale)).unwrap();
        let near = |a: [f64; 3], b: [f64; 3]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-8);
        prop_assert!(near(pose.apply(point), same.apply(point)));
        prop_assert!(near(pose.invert_rigid().apply(pose.apply(point)), point));
        prop_assert!(near(pose.compose(&same.invert_rigid()).apply(point), point));
        let mut points = [point, [0.0; 3]];
        pose.transform_points(&mut points);
        prop_assert_eq!(points, [pose.apply(point), xyz]);
        prop_assert!((yaw_from_quaternion_xyzw(quaternion) - rpy[2]).abs() < 1e-9);
    }

    #[test]
    fn wrapping_keeps_the_direction_and_ends_in_half_a_turn(angle in -100.0_f64..100.0) {
        let wrapped = wrap_angle(angle);
        prop_assert!((-PI..PI).contains(&wrapped));
        prop_assert!((angle.sin() - wrapped.sin()).abs() < 1e-9 && (angle.cos() - wrapped.cos()).abs() < 1e-9);
        prop_assert_eq!(wrap_angle(wrapped).to_bits(), wrapped.to_bits());
        let [_, _, z, w] = quaternion_xyzw_from_yaw(wrapped);
        prop_assert!((yaw_from_quaternion_xyzw([0.0, 0.0, z, w]) - wrapped).abs() < 1e-9);
    }
}

#[test]
fn half_a_turn_is_wrapped_to_its_negative_end() {
    assert_eq!(wrap_angle(PI), -PI);
    assert_eq!(wrap_angle(-PI), -PI);
    assert_eq!(wrap_angle(3.0 * TAU), 0.0);
    assert_eq!(wrap_angle(PI.next_down()), PI.next_down());
    assert!((-PI..PI).contains(&wrap_angle((-PI).next_down())));
}

/// Pseudo-random coordinates from -60 to 60 with all bits of the fraction in use.
fn cloud(points: usize, seed: u64) -> PointCloud {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1 << 24) as f32 * 120.0 - 60.0
    };
    let mut cloud = PointCloud::default();
    for _ in 0..points {
        cloud.x.push(random());
        cloud.y.push(random());
        cloud.z.push(random());
        cloud.intensity.push(random().abs());
    }
    cloud
}

fn pose(step: f64) -> RigidTransform {
    RigidTransform::from_xyz_rpy(
        [89_571.3 + 1.7 * step, 42_301.9 - 0.4 * step, 7.3],
        [0.01, -0.02 + 0.001 * step, 0.7 + 0.03 * step],
    )
    .unwrap()
}

fn config(num_past_frames: usize) -> DensifyConfig {
    DensifyConfig {
        num_past_frames,
        ..DensifyConfig::default()
    }
}

fn columns_of(points: &SweepPoints) -> Vec<Vec<f32>> {
    let columns = points.columns();
    let [x, y, z] = columns.xyz();
    [x, y, z]
        .iter()
        .chain(columns.extra())
        .map(|column| column.to_vec())
        .collect()
}

/// What the kernel computes for one point, with the matrix as an array of columns as in the kernel's argument.
fn kernel(matrix: &[f32; 16], x: f32, y: f32, z: f32) -> [f32; 3] {
    [0, 1, 2].map(|row| {
        let (a, b, c) = (matrix[row] * x, matrix[4 + row] * y, matrix[8 + row] * z);
        let sum = a + b;
        let sum = sum + c;
        sum + matrix[12 + row]
    })
}

#[test]
fn every_sweep_is_brought_to_the_present_frame_as_the_kernel_does_bit_for_bit() {
    for (layout, extra) in [(PointLayout::Xyzt, 1), (PointLayout::Xyzit, 2)] {
        let mut densifier = SweepDensifier::new(DensifyConfig { layout, ..config(3) });
        let sweeps: Vec<_> = (0..6).map(|i| cloud(100 + 13 * i, i as u64)).collect();
        let stamp = |i: usize| START_NS + i as i64 * PERIOD_NS + (i * i) as i64 * 1_234_567;
        let mut points = SweepPoints::default();
        let mut contracted_differs = false;
        for (now, sweep) in sweeps.iter().enumerate() {
            let told = densifier.enqueue(&sweep.columns(), stamp(now), Some(&pose(now as f64)));
            assert_eq!(told, Ok(Enqueued::Cached));
            let info = densifier.sweep_points(&mut points);
            let oldest = now.saturating_sub(3);
            let stamps: Vec<_> = (oldest..=now).rev().map(stamp).collect();
            assert_eq!(densifier.stamps().collect::<Vec<_>>(), stamps);

            let mut expected = vec![Vec::new(); 3 + extra];
            for past in (oldest..=now).rev() {
                let inverse = |i: usize| Affine3f::from(&pose(i as f64).invert_rigid());
                let transform = inverse(now).compose_f32(&inverse(past).invert_affine_f32());
                let mut matrix = [0.0_f32; 16];
                for row in 0..3 {
                    for column in 0..3 {
                        matrix[4 * column + row] = transform.linear[row][column];
                    }
                    matrix[12 + row] = transform.translation_m[row];
                }
                let lag = (stamp(now) as f64 / 1e9 - stamp(past) as f64 / 1e9) as f32;
                let sweep = &sweeps[past];
                for i in 0..sweep.len() {
                    let (x, y, z) = (sweep.x[i], sweep.y[i], sweep.z[i]);
                    let moved = kernel(&matrix, x, y, z);
                    contracted_differs |=
                        moved[0] != matrix[8].mul_add(z, matrix[4].mul_add(y, matrix[0] * x)) + matrix[12];
                    (0..3).for_each(|axis| expected[axis].push(moved[axis]));
                    if extra == 2 {
                        expected[3].push(sweep.intensity[i]);
                    }
                    expected[2 + extra].push(lag);
                }
            }
            assert_eq!(columns_of(&points), expected, "sweep {now}");
            assert_eq!(
                info,
                DensifyInfo {
                    sweeps: now - oldest + 1,
                    points: expected[0].len(),
                    ..DensifyInfo::default()
                }
            );
        }
        assert!(contracted_differs, "no point shows whether products are rounded");
    }
}

#[test]
fn with_one_frame_every_bit_of_a_sweep_is_kept() {
    let sweep = cloud(1000, 3);
    let mut densifier = SweepDensifier::new(config(0));
    let mut points = SweepPoints::default();
    for i in 0..2 {
        densifier.enqueue(&sweep.columns(), START_NS + i, None).unwrap();
        assert_eq!(densifier.sweep_points(&mut points).sweeps, 1);
        let expected = [&sweep.x, &sweep.y, &sweep.z, &vec![0.0; 1000]].map(Clone::clone);
        assert_eq!(columns_of(&points), expected);
    }
}

/// autoware_universe PR 1925: a pose was needed although no past frames were kept.
#[test]
fn no_pose_is_needed_where_no_past_frames_are_kept() {
    let told = SweepDensifier::new(config(0)).enqueue(&cloud(5, 1).columns(), START_NS, None);
    assert_eq!(told, Ok(Enqueued::Cached));
}

#[test]
fn a_sweep_without_its_pose_is_left_out_and_the_cache_stays_as_it_is() {
    let mut densifier = SweepDensifier::new(config(1));
    let (first, second) = (cloud(7, 1), cloud(9, 2));
    assert!(
        !densifier
            .enqueue(&first.columns(), START_NS, None)
            .unwrap()
            .is_cached()
    );
    let mut points = SweepPoints::default();
    assert_eq!(densifier.sweep_points(&mut points), DensifyInfo::default());
    densifier
        .enqueue(&first.columns(), START_NS, Some(&pose(0.0)))
        .unwrap();
    densifier.sweep_points(&mut points);
    let before = points.clone();
    // A stamp before the present one is no jump either, as long as nothing comes with it.
    for stamp in [START_NS + PERIOD_NS, START_NS - PERIOD_NS] {
        assert_eq!(
            densifier.enqueue(&second.columns(), stamp, None),
            Ok(Enqueued::NoPose)
        );
        densifier.sweep_points(&mut points);
        assert_eq!(points, before);
    }
    assert_eq!(
        densifier.describe(),
        DensifierState {
            sweeps: 1,
            points: 7,
            newest_stamp_ns: Some(START_NS),
            oldest_stamp_ns: Some(START_NS),
            missing_poses: 3,
            backward_jumps: 0,
        }
    );
}

/// geometry2 issue 606 and its family: a bag that is played again left old data in the buffer for ever.
#[test]
fn time_that_jumps_back_starts_the_cache_anew_and_is_counted() {
    let mut densifier = SweepDensifier::new(config(2));
    let sweep = cloud(10, 1);
    let mut enqueue = |stamp| {
        densifier
            .enqueue(&sweep.columns(), stamp, Some(&pose(0.0)))
            .unwrap();
        (
            densifier.stamps().collect::<Vec<_>>(),
            densifier.describe().backward_jumps,
        )
    };
    assert_eq!(enqueue(300).0, [300]);
    assert_eq!(enqueue(400).0, [400, 300]);
    assert_eq!(enqueue(399), (vec![399], 1));
    assert_eq!(enqueue(399), (vec![399, 399], 1));
    assert_eq!(enqueue(500), (vec![500, 399, 399], 1));
    assert_eq!(enqueue(600), (vec![600, 500, 399], 1));
    assert_eq!(
        densifier.enqueue(&sweep.columns(), -1, Some(&pose(0.0))),
        Ok(Enqueued::CachedAfterReset)
    );
    densifier.reset();
    assert_eq!(densifier.stamps().len(), 0);
    assert_eq!(densifier.describe().backward_jumps, 2);
}

/// autoware_universe PRs 373 and 11003: an empty cloud ended the node.
#[test]
fn an_empty_sweep_between_two_others_is_a_sweep_without_points() {
    let mut densifier = SweepDensifier::new(config(2));
    let mut points = SweepPoints::default();
    let sizes = [(1, 4), (2, 0), (3, 6)].map(|(second, length)| {
        let stamp = START_NS + second * PERIOD_NS;
        densifier
            .enqueue(&cloud(length, 1).columns(), stamp, Some(&pose(0.0)))
            .unwrap();
        let info = densifier.sweep_points(&mut points);
        (info.sweeps, points.len())
    });
    assert_eq!(sizes, [(1, 4), (2, 4), (3, 10)]);
}

#[test]
fn a_sweep_that_does_not_fit_goes_with_every_older_one() {
    let mut densifier = SweepDensifier::new(DensifyConfig {
        cloud_capacity: 100,
        ..config(3)
    });
    let mut points = SweepPoints::default();
    let info = [10, 80, 20, 40].map(|length| {
        let sweep = cloud(length, 1);
        let stamp = START_NS
            + densifier
                .stamps()
                .next()
                .map_or(0, |newest| newest - START_NS + PERIOD_NS);
        densifier
            .enqueue(&sweep.columns(), stamp, Some(&pose(0.0)))
            .unwrap();
        densifier.sweep_points(&mut points)
    });
    let told = |sweeps, points, sweeps_dropped, points_dropped| DensifyInfo {
        sweeps,
        points,
        sweeps_dropped,
        points_dropped,
    };
    // The last: 80 do not fit beside 40 + 20, so the 10 before them go too, though they would.
    assert_eq!(
        info,
        [
            told(1, 10, 0, 0),
            told(2, 90, 0, 0),
            told(2, 100, 1, 10),
            told(2, 60, 2, 90)
        ]
    );
    assert_eq!(points.len(), 60);
}

/// Lidar_AI_Solution issue 267: a cloud beyond the capacity ended the program. Autoware detects nothing in it.
#[test]
fn of_a_present_sweep_beyond_the_capacity_the_first_points_stay() {
    let sweep = cloud(150, 1);
    let mut densifier = SweepDensifier::new(DensifyConfig {
        cloud_capacity: 100,
        ..config(1)
    });
    densifier
        .enqueue(&cloud(0, 1).columns(), START_NS, Some(&pose(0.0)))
        .unwrap();
    densifier
        .enqueue(&sweep.columns(), START_NS + 1, Some(&pose(0.0)))
        .unwrap();
    let mut points = SweepPoints::default();
    let info = densifier.sweep_points(&mut points);
    assert_eq!(
        (info.sweeps, info.points, info.sweeps_dropped, info.points_dropped),
        (1, 100, 1, 50)
    );
    assert_eq!(points.len(), 100);
}

#[test]
fn columns_that_do_not_belong_together_are_refused_and_change_nothing() {
    let sweep = cloud(10, 1);
    let mut densifier = SweepDensifier::new(DensifyConfig {
        layout: PointLayout::Xyzit,
        ..config(0)
    });
    densifier.enqueue(&sweep.columns(), START_NS, None).unwrap();
    let short = Columns {
        y: &sweep.y[..9],
        ..sweep.columns()
    };
    let refused = densifier.enqueue(&short, 0, None).unwrap_err().to_string();
    assert!(
        refused.contains("the column y holds 9 values, but x holds 10"),
        "{refused}"
    );
    let without = Columns {
        intensity: &[],
        ..sweep.columns()
    };
    let refused = densifier.enqueue(&without, 0, None).unwrap_err().to_string();
    assert!(
        refused.contains("a sweep of 10 points has no intensity"),
        "{refused}"
    );
    assert_eq!(densifier.stamps().collect::<Vec<_>>(), [START_NS]);
}

#[test]
fn sweeps_that_the_caller_keeps_are_put_together_the_same_way() {
    let (present, past) = (cloud(50, 1), cloud(70, 2));
    let present_from_past = pose(1.0).invert_rigid().compose(&pose(0.0));
    let sweeps = [PastSweep {
        columns: past.columns(),
        time_lag_s: 0.05,
        present_from_past,
    }; 2];
    let mut out = SweepPoints::default();
    let info = densify_sweeps(&present.columns(), &sweeps, PointLayout::Xyzit, 150, &mut out).unwrap();
    assert_eq!(
        (info.sweeps, info.points, info.sweeps_dropped, info.points_dropped),
        (2, 120, 1, 70)
    );
    let [x, y, z, intensity, lag] = <[Vec<f32>; 5]>::try_from(columns_of(&out)).unwrap();
    assert_eq!(
        (&x[..50], &y[..50], &z[..50]),
        (&*present.x, &*present.y, &*present.z)
    );
    let transform = Affine3f::from(&present_from_past);
    let row = |i: usize, [a, b, c]: [f32; 3]| {
        a * past.x[i] + b * past.y[i] + c * past.z[i] + transform.translation_m[0]
    };
    assert!((0..70).all(|i| x[50 + i] == row(i, transform.linear[0])));
    assert_eq!(intensity, [present.intensity, past.intensity.clone()].concat());
    assert_eq!(lag, [vec![0.0; 50], vec![0.05; 70]].concat());
}

#[test]
fn streams_keep_their_sweeps_apart_and_the_one_not_used_for_longest_goes() {
    let mut streams = StreamDensifiers::new(config(1)).with_max_streams(2);
    let enqueue = |streams: &mut StreamDensifiers, name: &str, points| {
        let densifier = streams.get(name);
        densifier
            .enqueue(&cloud(points, 1).columns(), START_NS, Some(&pose(0.0)))
            .unwrap();
        densifier.describe().points
    };
    assert_eq!(enqueue(&mut streams, "front", 3), 3);
    assert_eq!(enqueue(&mut streams, "rear", 5), 5);
    assert_eq!(enqueue(&mut streams, "front", 4), 7);
    assert_eq!(
        streams.get("rear").enqueue(&cloud(1, 1).columns(), 5, None),
        Ok(Enqueued::NoPose)
    );
    assert_eq!(streams.streams().collect::<Vec<_>>(), ["rear", "front"]);
    enqueue(&mut streams, "front", 1);
    // The memory of "rear" goes to "top", its sweeps and counters do not.
    assert_eq!(streams.get("top").describe(), DensifierState::default());
    assert_eq!(streams.streams().collect::<Vec<_>>(), ["top", "front"]);
    assert_eq!(streams.evictions(), 1);
    assert!(streams.forget("front") && !streams.forget("front"));
    assert_eq!(enqueue(&mut streams, "front", 2), 2);
    let points: Vec<_> = streams
        .describe()
        .map(|(name, state)| (name, state.points))
        .collect();
    assert_eq!(points, [("front", 2), ("top", 0)]);
    let mut many = StreamDensifiers::new(config(0));
    (0..17).for_each(|i| {
        many.get(&i.to_string());
    });
    assert_eq!((many.streams().len(), many.evictions()), (16, 1));
}
