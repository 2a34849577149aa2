//! One cloud of several: every point where a plain transform puts it.

use sensorium::io::cloud::{ReadOptions, read_cloud};
use sensorium::io::messages::{HeaderMsg, PointCloud2Msg};
use sensorium::io::tf::Transform;
use sensorium::lidar::PointCloud;
use sensorium::runtime::sets::{MergeError, MergeInput, merge_clouds};

/// Stamp of the clouds.
const START: i64 = 1_568_785_504_000_000_000;

/// A rotation about a unit axis and a shift, and the same as a matrix of its own.
fn place(axis: [f64; 3], angle: f64, translation: [f64; 3]) -> (Transform, [[f64; 4]; 3]) {
    let (sin, cos) = (angle / 2.0).sin_cos();
    let rotation = [axis[0] * sin, axis[1] * sin, axis[2] * sin, cos];
    // Rodrigues' formula.
    let (s, c) = angle.sin_cos();
    let [x, y, z] = axis;
    let k = 1.0 - c;
    let t = translation;
    let matrix = [
        [c + x * x * k, x * y * k - z * s, x * z * k + y * s, t[0]],
        [y * x * k + z * s, c + y * y * k, y * z * k - x * s, t[1]],
        [z * x * k - y * s, z * y * k + x * s, c + z * z * k, t[2]],
    ];
    (
        Transform {
            translation,
            rotation,
        },
        matrix,
    )
}

fn cloud(points: usize, seed: u32, with_ring: bool) -> PointCloud {
    let mut cloud = PointCloud::default();
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 24) as f32
    };
    for at in 0..points {
        cloud.x.push(next() * 200.0 - 100.0);
        cloud.y.push(next() * 200.0 - 100.0);
        cloud.z.push(next() * 10.0 - 3.0);
        cloud.intensity.push((next() * 255.0).round());
        if with_ring {
            cloud.ring.push((at % 64) as u16);
            cloud.return_type.push(1);
        }
    }
    cloud
}

/// Three clouds of known places, against their transform in float64: within half a unit in the last place of float32 and
/// the error of the float64 sums, which is a billionth of that.
#[test]
fn merged_clouds_are_where_a_plain_transform_puts_them() {
    let clouds = [cloud(5_000, 1, true), cloud(0, 2, false), cloud(3_000, 3, true)];
    let third = 1.0 / 3.0_f64.sqrt();
    let places = [
        place([0.0, 0.0, 1.0], 0.7, [1.2, -0.4, 1.9]),
        place([1.0, 0.0, 0.0], 3.0, [0.0, 0.0, 0.0]),
        place([third, third, third], -2.1, [-3.5, 0.8, 0.3]),
    ];
    for bytes in [true, false] {
        let inputs: Vec<MergeInput<'_>> = clouds
            .iter()
            .zip(&places)
            .map(|(cloud, (transform, _))| MergeInput {
                cloud,
                transform: *transform,
                byte_intensity: bytes,
            })
            .collect();
        let header = HeaderMsg::new(START, "base_link").unwrap();
        let merged = merge_clouds(&inputs, header, 8_000).unwrap();
        assert_eq!(merged.points, 8_000);
        let message = PointCloud2Msg::decode(&merged.message).unwrap();
        assert_eq!(
            (message.header.stamp_ns(), message.header.frame_id),
            (START, "base_link")
        );
        let layout: Vec<(&str, u32)> = message.fields.iter().map(|f| (f.name, f.offset)).collect();
        if bytes {
            // Autoware's PointXYZIRC.
            let expected = [
                ("x", 0),
                ("y", 4),
                ("z", 8),
                ("intensity", 12),
                ("return_type", 13),
                ("channel", 14),
            ];
            assert_eq!((&layout[..], message.point_step), (&expected[..], 16));
        }
        let mut read = PointCloud::default();
        read_cloud(&message, ReadOptions::default(), &mut read).unwrap();
        let mut at = 0;
        for (cloud, (_, matrix)) in clouds.iter().zip(&places) {
            for i in 0..cloud.len() {
                let p = [cloud.x[i], cloud.y[i], cloud.z[i]].map(f64::from);
                let found = [read.x[at], read.y[at], read.z[at]];
                for (row, found) in matrix.iter().zip(found) {
                    let exact = row[0] * p[0] + row[1] * p[1] + row[2] * p[2] + row[3];
                    let ulp = f64::from(f32::from_bits(found.abs().to_bits() + 1)) - f64::from(found.abs());
                    assert!(
                        (f64::from(found) - exact).abs() <= 0.5 * ulp + 1e-12,
                        "{found} {exact}"
                    );
                }
                assert_eq!(read.intensity[at], cloud.intensity[i]);
                assert_eq!(
                    (read.ring[at], read.return_type[at]),
                    (cloud.ring[i], cloud.return_type[i])
                );
                at += 1;
            }
        }
        assert_eq!(at, read.len());
        let error = merge_clouds(&inputs, header, 7_999).unwrap_err();
        assert!(matches!(
            error,
            MergeError::TooManyPoints {
                points: 8_000,
                limit: 7_999
            }
        ));
    }
}

#[test]
fn a_merged_cloud_has_the_fields_that_all_clouds_have() {
    let clouds = [cloud(10, 1, true), cloud(10, 2, false)];
    let inputs = clouds.each_ref().map(|cloud| MergeInput {
        cloud,
        transform: Transform::IDENTITY,
        byte_intensity: true,
    });
    let header = HeaderMsg::new(START, "base_link").unwrap();
    let merged = merge_clouds(&inputs, header, 100).unwrap();
    let message = PointCloud2Msg::decode(&merged.message).unwrap();
    let names: Vec<&str> = message.fields.iter().map(|field| field.name).collect();
    assert_eq!(names, ["x", "y", "z", "intensity"]);
    let mut read = PointCloud::default();
    read_cloud(&message, ReadOptions::default(), &mut read).unwrap();
    assert_eq!(
        read.intensity,
        [&clouds[0].intensity[..], &clouds[1].intensity[..]].concat()
    );
    assert_eq!(read.x[..10], clouds[0].x[..]);
}
