//! Images, and where road users are on them.

use std::fs::File;
use std::path::Path;

use ndarray::{Array1, Array2, Array4};
use ndarray_npy::ReadNpyExt;
use sensorium::io::sim::{
    CameraConfig, CameraRig, Drive, DriveConfig, DriveFrame, FrameError, FrameSet, Pose, SCENE_CLASSES,
    TrueBox, TrueObject, WorldConfig,
};

/// The default cameras with a quarter of the pixels a side.
fn small() -> Vec<CameraConfig> {
    let mut cameras = CameraConfig::three();
    for camera in &mut cameras {
        (camera.width_px, camera.height_px) = (160, 100);
        camera.focal_px = [80.0, 80.0];
        camera.centre_px = [79.5, 49.5];
    }
    cameras
}

fn frames(config: &DriveConfig, seed: u64, count: usize) -> Vec<DriveFrame> {
    let mut drive = Drive::new(config, seed);
    (0..count).map(|_| drive.next_frame()).collect()
}

fn with_cameras(cameras: Vec<CameraConfig>) -> DriveConfig {
    DriveConfig {
        cameras,
        ..DriveConfig::default()
    }
}

/// Pixel of a point in `base_link`, and its depth; worked out from the angles, without any rotation of the library's.
fn project(camera: &CameraConfig, [x, y, z]: [f64; 3]) -> ([f64; 2], f64) {
    let [px, py, pz] = camera.position_m;
    let (sin, cos) = camera.yaw_rad.sin_cos();
    let (ahead, left, up) = (
        cos * (x - px) + sin * (y - py),
        cos * (y - py) - sin * (x - px),
        z - pz,
    );
    let (sin, cos) = camera.pitch_rad.sin_cos();
    let (depth, up) = (cos * ahead - sin * up, cos * up + sin * ahead);
    let pixel = [
        camera.centre_px[0] - camera.focal_px[0] * left / depth,
        camera.centre_px[1] - camera.focal_px[1] * up / depth,
    ];
    (pixel, depth)
}

/// Where a road user was at the stamp, in `base_link`: middle and heading.
fn at_stamp(frame: &DriveFrame, truth: &TrueObject) -> Pose {
    let seen_s = truth.seen_after_ns as f64 * 1e-9;
    let [x, y, z] = truth.object.position_m;
    let [vx, vy] = truth.velocity_mps;
    frame.base_from_lidar.then(&Pose {
        x_m: x - vx * seen_s,
        y_m: y - vy * seen_s,
        z_m: z,
        yaw_rad: truth.object.yaw_rad,
    })
}

fn is_whole(camera: &CameraConfig, seen: &TrueBox) -> bool {
    let [x0, y0, x1, y1] = seen.box_px;
    x0 > 0.0 && y0 > 0.0 && x1 < camera.width_px as f32 && y1 < camera.height_px as f32
}

fn each_seen(frame: &DriveFrame, mut check: impl FnMut(&CameraConfig, &TrueBox, &TrueObject)) {
    for image in &frame.images {
        let camera = &frame.cameras[image.camera];
        for seen in &image.truth {
            if let Some(truth) = frame.truth.iter().find(|truth| truth.id == seen.id) {
                assert_eq!(truth.object.label, seen.label);
                check(camera, seen, truth);
            }
        }
    }
}

#[test]
fn a_box_of_an_image_is_as_tight_as_the_road_users_own_box_allows() {
    let mut checked = 0;
    let mut tight = 0;
    for seed in 0..4 {
        for frame in frames(&with_cameras(CameraConfig::three()), seed, 6) {
            each_seen(&frame, |camera, seen, truth| {
                let pose = at_stamp(&frame, truth);
                let [length, width, height] = truth.object.size_m;
                let mut bounds = [f64::INFINITY, f64::INFINITY, f64::NEG_INFINITY, f64::NEG_INFINITY];
                let mut nearest = f64::INFINITY;
                for corner in 0..8 {
                    let half = |bit: usize, size: f64| {
                        if corner >> bit & 1 == 0 {
                            size / 2.0
                        } else {
                            -size / 2.0
                        }
                    };
                    let corner = pose.apply([half(0, length), half(1, width), half(2, height)]);
                    let ([u, v], depth) = project(camera, corner);
                    nearest = nearest.min(depth);
                    bounds = [
                        bounds[0].min(u),
                        bounds[1].min(v),
                        bounds[2].max(u),
                        bounds[3].max(v),
                    ];
                }
                let [x0, y0, x1, y1] = seen.box_px.map(f64::from);
                if nearest < 1.0 || !is_whole(camera, seen) || bounds[3] - bounds[1] < 16.0 {
                    return;
                }
                checked += 1;
                // Wheels stand out of the bodywork by two centimetres; a pixel reaches half a pixel around its middle.
                let margin = 1.0 + 0.03 * camera.focal_px[0] / nearest;
                assert!(
                    x0 + margin > bounds[0]
                        && y0 + margin > bounds[1]
                        && x1 - margin < bounds[2] + 0.5
                        && y1 - margin < bounds[3] + 0.5,
                    "{seen:?} beyond {bounds:?}"
                );
                let share = (x1 - x0) * (y1 - y0) / ((bounds[2] - bounds[0]) * (bounds[3] - bounds[1]));
                tight += usize::from(share > 0.6);
            });
        }
    }
    assert!(checked > 60, "{checked}");
    // What has corners cut off everywhere, or arms close by its body, is smaller than its box.
    assert!(tight * 10 > checked * 8, "{tight} of {checked}");
}

#[test]
fn points_of_the_lidar_lie_on_the_images_of_what_they_hit() {
    let (mut points, mut inside) = (0u32, 0u32);
    let mut middles = 0;
    for seed in 10..13 {
        for frame in frames(&with_cameras(CameraConfig::three()), seed, 5) {
            each_seen(&frame, |camera, seen, truth| {
                let [x0, y0, x1, y1] = seen.box_px.map(f64::from);
                let holds = |[u, v]: [f64; 2], margin: f64| {
                    let (u, v) = (u + 0.5, v + 0.5);
                    u > x0 - margin && u < x1 + margin && v > y0 - margin && v < y1 + margin
                };
                if is_whole(camera, seen) && seen.silhouette_px > 100 {
                    let pose = at_stamp(&frame, truth);
                    let (pixel, _) = project(camera, [pose.x_m, pose.y_m, pose.z_m]);
                    assert!(holds(pixel, 0.0), "{pixel:?} is not in {seen:?}");
                    middles += 1;
                }
                let ids = frame.point_ids.iter().enumerate();
                for (at, _) in ids.filter(|(_, id)| **id == seen.id) {
                    let cloud = &frame.cloud;
                    let seen_s = cloud.time_ns[at] as f64 * 1e-9;
                    let [vx, vy] = truth.velocity_mps;
                    let point = frame.base_from_lidar.apply([
                        f64::from(cloud.x[at]) - vx * seen_s,
                        f64::from(cloud.y[at]) - vy * seen_s,
                        f64::from(cloud.z[at]),
                    ]);
                    let (pixel, depth) = project(camera, point);
                    let [u, v] = pixel;
                    let on_image = (0.0..f64::from(camera.width_px) - 1.0).contains(&u)
                        && (0.0..f64::from(camera.height_px) - 1.0).contains(&v);
                    if depth > 0.5 && on_image {
                        points += 1;
                        inside += u32::from(holds(pixel, 1.0));
                    }
                }
            });
        }
    }
    assert!(
        points > 2_000 && middles > 30,
        "{points} points, {middles} middles"
    );
    assert!(
        f64::from(inside) > 0.95 * f64::from(points),
        "{inside} of {points}"
    );
}

#[test]
fn cameras_take_their_images_at_their_rate_and_leave_the_sweeps_alone() {
    let plain = frames(&DriveConfig::default(), 5, 6);
    for (hz, images) in [
        (10, [3, 3, 3, 3, 3, 3]),
        (5, [3, 0, 3, 0, 3, 0]),
        (2, [3, 0, 0, 0, 0, 3]),
    ] {
        let config = DriveConfig {
            camera_hz: hz,
            ..with_cameras(small())
        };
        let seen = frames(&config, 5, 6);
        let counts: Vec<usize> = seen.iter().map(|frame| frame.images.len()).collect();
        assert_eq!(counts, images, "{hz} Hz");
        for (seen, plain) in seen.iter().zip(&plain) {
            assert_eq!((&seen.cloud, &seen.truth), (&plain.cloud, &plain.truth));
            assert!(seen.images.iter().all(|image| image.rgb.len() == 160 * 100 * 3));
        }
    }
    assert!(plain.iter().all(|frame| frame.images.is_empty()));
}

#[test]
fn what_is_hidden_is_counted_and_a_seed_gives_one_set_of_images() {
    let config = with_cameras(small());
    let [first, again, other] = [3, 3, 4].map(|seed| frames(&config, seed, 3));
    let pixels = |frames: &[DriveFrame]| -> Vec<_> { frames.iter().flat_map(|f| f.images.clone()).collect() };
    assert_eq!(pixels(&first), pixels(&again));
    assert_ne!(pixels(&first), pixels(&other));
    let (mut whole, mut hidden) = (0, 0);
    for image in pixels(&first) {
        for seen in &image.truth {
            let [x0, y0, x1, y1] = seen.box_px;
            assert!(x0 >= 0.0 && y0 >= 0.0 && x1 <= 160.0 && y1 <= 100.0 && x0 < x1 && y0 < y1);
            assert!(seen.visible_px > 0 && seen.visible_px <= seen.silhouette_px);
            assert!(seen.silhouette_px as f32 <= (x1 - x0) * (y1 - y0));
            whole += usize::from(seen.visible_share() == 1.0);
            hidden += usize::from(seen.visible_share() < 0.5);
        }
    }
    assert!(whole > 0 && hidden > 0, "{whole} whole, {hidden} hidden");
}

/// An image is neither black nor burnt out, has a sky above its ground, and noise.
#[test]
fn images_look_like_images() {
    for seed in 0..6 {
        for frame in frames(&with_cameras(small()), seed, 1) {
            for image in &frame.images {
                let mean =
                    |pixels: &[u8]| pixels.iter().map(|&v| f64::from(v)).sum::<f64>() / pixels.len() as f64;
                let all = mean(&image.rgb);
                assert!((60.0..215.0).contains(&all), "seed {seed}: {all}");
                let burnt = image.rgb.iter().filter(|&&v| v == 255).count() as f64 / image.rgb.len() as f64;
                assert!(burnt < 0.3, "seed {seed}: {burnt}");
                let row = &image.rgb[95 * 480..96 * 480];
                assert!(row.windows(4).any(|pixels| pixels[0] != pixels[3]), "seed {seed}");
            }
        }
    }
}

fn set(count: usize, seed: u64, threads: usize) -> FrameSet {
    FrameSet {
        count,
        seed,
        threads,
        world: WorldConfig::default(),
        cameras: small(),
    }
}

fn files(folder: &Path) -> Vec<Vec<u8>> {
    ["images.npy", "boxes.npy", "starts.npy", "meta.json"]
        .map(|name| std::fs::read(folder.join(name)).unwrap())
        .to_vec()
}

#[test]
fn training_images_are_the_same_with_any_number_of_threads() {
    let folder = tempfile::tempdir().unwrap();
    let written = [1, 3].map(|threads| {
        let out = folder.path().join(threads.to_string());
        let totals = set(20, 8, threads).write(&out, &|| ()).unwrap();
        (files(&out), totals)
    });
    assert_eq!(written[0], written[1]);
    let other = folder.path().join("other");
    set(20, 9, 1).write(&other, &|| ()).unwrap();
    assert_ne!(written[0].0, files(&other));
}

#[test]
fn training_images_come_with_boxes_in_the_order_of_the_images() {
    let folder = tempfile::tempdir().unwrap();
    let totals = set(20, 8, 2).write(folder.path(), &|| ()).unwrap();
    let open = |name: &str| File::open(folder.path().join(name)).unwrap();
    let images = Array4::<u8>::read_npy(open("images.npy")).unwrap();
    let boxes = Array2::<f32>::read_npy(open("boxes.npy")).unwrap();
    let starts = Array1::<i64>::read_npy(open("starts.npy")).unwrap();
    assert_eq!(images.dim(), (20, 100, 160, 3));
    assert_eq!(
        (starts.len(), starts[0], starts[20]),
        (21, 0, boxes.nrows() as i64)
    );
    assert!(starts.windows(2).into_iter().all(|pair| pair[0] <= pair[1]));
    let mut counts = [0; 5];
    for row in boxes.rows() {
        assert!(row[0] >= 0.0 && row[2] <= 160.0 && row[0] < row[2]);
        assert!(row[1] >= 0.0 && row[3] <= 100.0 && row[1] < row[3]);
        assert!(row[5] > 0.0 && row[5] <= 1.0 && row[6] > 0.0 && row[7] >= 1.0);
        counts[row[4] as usize] += 1;
    }
    assert_eq!(counts, totals.boxes);
    assert!(counts.iter().all(|&count| count > 0), "{counts:?}");
    let meta: serde_json::Value = serde_json::from_reader(open("meta.json")).unwrap();
    assert_eq!(
        (&meta["count"], &meta["seed"], &meta["width"]),
        (&20.into(), &8.into(), &160.into())
    );
    assert_eq!(meta["classes"].as_array().unwrap().len(), SCENE_CLASSES.len());
}

#[test]
fn cameras_of_several_sizes_make_no_set_of_images() {
    let mut mixed = set(1, 1, 1);
    mixed.cameras.push(CameraConfig::front());
    let folder = tempfile::tempdir().unwrap();
    let refused = |set: &FrameSet| matches!(set.write(folder.path(), &|| ()), Err(FrameError::Sizes));
    assert!(refused(&mixed));
    mixed.cameras.clear();
    assert!(refused(&mixed));
    let in_the_way = folder.path().join("file");
    std::fs::write(&in_the_way, "").unwrap();
    let failed = set(1, 1, 1).write(&in_the_way, &|| ());
    assert!(matches!(failed, Err(FrameError::Write { .. })), "{failed:?}");
}

#[test]
fn rigs_have_the_cameras_that_they_are_named_for() {
    let counts = CameraRig::ALL.map(|rig| (rig.name(), rig.cameras().len()));
    assert_eq!(counts, [("none", 0), ("front", 1), ("three", 3)]);
    let names: Vec<String> = CameraConfig::three().iter().map(CameraConfig::frame_id).collect();
    let expected = ["front", "front_left", "front_right"].map(|name| format!("camera_{name}_optical"));
    assert_eq!(names, expected);
    // The three see half a circle without a gap between them.
    let left = &CameraConfig::three()[1];
    assert!(left.yaw_rad > 0.0 && left.yaw_rad < 90f64.to_radians());
}
