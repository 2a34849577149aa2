//! Training data.

use std::fs::File;
use std::path::Path;

use ndarray::{Array1, Array2};
use ndarray_npy::ReadNpyExt;
use sensorium::io::sim::{LidarConfig, SCENE_CLASSES, Scene, SceneError, SceneSet, WorldConfig};
use sensorium::outputs::ObjectLabel;

use crate::simulator::geometry::{holds, in_box, share_found};

fn set(count: usize, seed: u64, threads: usize) -> SceneSet {
    SceneSet {
        count,
        seed,
        sweeps: 2,
        shard: 4,
        threads,
        world: WorldConfig::default(),
        lidar: LidarConfig {
            rings: 32,
            azimuths: 512,
            ..LidarConfig::default()
        },
    }
}

fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut files: Vec<_> = entries
        .map(|entry| {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            (name, std::fs::read(entry.path()).unwrap())
        })
        .collect();
    files.sort();
    files
}

#[test]
fn scenes_do_not_depend_on_the_number_of_threads() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, seed: u64, threads: usize| {
        let out = folder.path().join(name);
        set(6, seed, threads).write(&out, &|| {}).unwrap();
        files(&out)
    };
    let one = write("one", 3, 1);
    assert_eq!(one.len(), 9);
    assert!(one == write("three", 3, 3));
    assert!(one != write("other", 4, 1));
}

#[test]
fn shards_hold_the_scenes_one_after_the_other() {
    let folder = tempfile::tempdir().unwrap();
    let set = set(6, 9, 2);
    let told = std::sync::atomic::AtomicUsize::new(0);
    let progress = || {
        told.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    };
    let totals = set.write(folder.path(), &progress).unwrap();
    assert_eq!(told.into_inner(), 6);
    let open = |name: &str| File::open(folder.path().join(name)).unwrap();
    let (mut index, mut points_seen, mut boxes_seen) = (0, 0, [0; 5]);
    for shard in 0..2 {
        let file = |part: &str| open(&format!("shard_{shard:04}.{part}.npy"));
        let points = Array2::<f32>::read_npy(file("points")).unwrap();
        let offsets = Array1::<i64>::read_npy(file("point_offsets")).unwrap();
        let boxes = Array2::<f32>::read_npy(file("boxes")).unwrap();
        let box_offsets = Array1::<i64>::read_npy(file("box_offsets")).unwrap();
        assert_eq!((points.ncols(), boxes.ncols()), (4, 11));
        assert_eq!((offsets[0], box_offsets[0]), (0, 0));
        assert_eq!(*offsets.last().unwrap() as usize, points.nrows());
        assert_eq!(*box_offsets.last().unwrap() as usize, boxes.nrows());
        for at in 0..offsets.len() - 1 {
            let scene = set.scene(index);
            let rows = points.slice(ndarray::s![offsets[at] as usize..offsets[at + 1] as usize, ..]);
            assert!(
                rows.iter().eq(scene.points.as_flattened().iter()),
                "scene {index}"
            );
            let rows = boxes.slice(ndarray::s![
                box_offsets[at] as usize..box_offsets[at + 1] as usize,
                ..
            ]);
            assert_eq!(rows.nrows(), scene.truth.len());
            for (row, truth) in rows.rows().into_iter().zip(&scene.truth) {
                let object = &truth.object;
                let [x, y, z] = object.position_m;
                let [length, width, height] = object.size_m;
                let [vx, vy] = truth.velocity_mps;
                let numbers = [x, y, z, length, width, height, object.yaw_rad, vx, vy];
                assert!(
                    row.iter().zip(numbers).all(|(a, b)| *a == b as f32),
                    "{row} {truth:?}"
                );
                assert_eq!(SCENE_CLASSES[row[9] as usize], object.label);
                assert_eq!(row[10] as u32, truth.points);
                boxes_seen[row[9] as usize] += 1;
            }
            index += 1;
        }
        points_seen += points.nrows() as u64;
    }
    assert_eq!(index, 6);
    assert_eq!((totals.points, totals.boxes), (points_seen, boxes_seen));
    let meta: serde_json::Value = serde_json::from_reader(open("meta.json")).unwrap();
    assert_eq!(
        meta["classes"],
        serde_json::json!(["CAR", "TRUCK", "BUS", "BICYCLE", "PEDESTRIAN"])
    );
    assert_eq!((&meta["seed"], &meta["scenes"]), (&9.into(), &6.into()));
    assert_eq!(meta["lidar"]["rings"], 32);
}

#[test]
fn a_folder_that_cannot_be_made_is_told_by_name() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let error = set(1, 1, 1)
        .write(&file.path().join("scenes"), &|| {})
        .unwrap_err();
    let SceneError::Write { path, .. } = &error;
    assert!(path.starts_with(file.path()), "{error}");
}

#[test]
fn the_past_sweep_lies_in_the_current_frame() {
    let mut moving = 0;
    for seed in 0..6 {
        let scene = Scene::new(&WorldConfig::default(), &LidarConfig::default(), seed, 2);
        let lags = scene.points.iter().map(|point| point[3]);
        assert!(lags.is_sorted(), "the current sweep comes first");
        let split = scene.points.partition_point(|point| point[3] == 0.0);
        assert!(split > 50_000 && scene.points.len() - split > 50_000);
        assert!(scene.points[split..].iter().all(|point| point[3] == 0.1));
        // Walls, poles and parked cars; a share of what is near moves.
        let standing = |points: &[[f32; 4]]| -> Vec<[f64; 3]> {
            let places = points
                .iter()
                .map(|point| [point[0], point[1], point[2]].map(f64::from));
            places
                .filter(|[x, y, z]| *z > -1.3 && x.hypot(*y) < 25.0)
                .collect()
        };
        let (now, past) = (standing(&scene.points[..split]), standing(&scene.points[split..]));
        // Half a metre to any side fits worse; how well it fits depends on how much moves or is leaves.
        let share = share_found(&past, &now, 0.15);
        for [dx, dy] in [[0.5, 0.0], [-0.5, 0.0], [0.0, 0.5], [0.0, -0.5]] {
            let shifted: Vec<[f64; 3]> = past.iter().map(|[x, y, z]| [x + dx, y + dy, *z]).collect();
            let worse = share_found(&shifted, &now, 0.15);
            assert!(worse < share - 0.1, "seed {seed}: {share}, {worse} by {dx} {dy}");
        }
        // Points of both sweeps are counted; those of the current one, about half, are in the box.
        let (mut inside, mut counted) = (0, 0);
        for truth in &scene.truth {
            let seen_s = truth.seen_after_ns as f64 * 1e-9;
            let places = scene.points[..split].iter();
            let places = places.map(|point| [point[0], point[1], point[2]].map(f64::from));
            // Above the ground, which is in the box too.
            let above =
                |place: &[f64; 3]| place[2] > -1.6 && holds(truth, in_box(truth, *place, seen_s), 0.1);
            inside += places.filter(above).count() as u32;
            counted += truth.points;
            moving += usize::from(truth.velocity_mps[0].hypot(truth.velocity_mps[1]) > 3.0);
        }
        let share = f64::from(inside) / f64::from(counted);
        assert!((0.35..0.7).contains(&share), "seed {seed}: {share}");
    }
    assert!(moving > 10, "{moving}");
}

#[test]
fn a_scene_is_a_busy_street() {
    let mut counts = [0.0; 5];
    let scenes = 30;
    for index in 0..scenes {
        let scene = SceneSet {
            lidar: LidarConfig::default(),
            sweeps: 1,
            ..set(scenes, 1, 1)
        }
        .scene(index);
        for truth in &scene.truth {
            let [x, y, _] = truth.object.position_m;
            if x.abs() < 51.2 && y.abs() < 51.2 && truth.points >= 5 {
                let class = SCENE_CLASSES
                    .iter()
                    .position(|&class| class == truth.object.label)
                    .unwrap();
                counts[class] += 1.0 / scenes as f64;
            }
        }
    }
    for (count, (low, high)) in
        counts
            .iter()
            .zip([(6.0, 15.0), (0.8, 3.5), (0.6, 2.5), (1.0, 5.0), (4.0, 14.0)])
    {
        assert!((low..high).contains(count), "{counts:?}");
    }
}

/// A detector can tell which way a vehicle faces only where its ends differ.
#[test]
fn cars_are_lower_in_front_and_trucks_have_a_gap_behind_the_cab() {
    let mut lower = [0, 0];
    let mut gaps = [0, 0];
    for seed in 0..60 {
        let scene = Scene::new(&WorldConfig::default(), &LidarConfig::default(), seed, 1);
        for truth in scene.truth.iter().filter(|truth| truth.points > 400) {
            let [length, _, height] = truth.object.size_m;
            let seen_s = truth.seen_after_ns as f64 * 1e-9;
            let places = scene
                .points
                .iter()
                .map(|point| in_box(truth, [point[0], point[1], point[2]].map(f64::from), seen_s));
            let inside: Vec<[f64; 3]> = places.filter(|place| holds(truth, *place, 0.1)).collect();
            let top = |from: f64, to: f64| {
                let slice = inside
                    .iter()
                    .filter(|[x, _, _]| (from..to).contains(&(x / length)));
                slice.map(|[_, _, z]| z / height + 0.5).reduce(f64::max)
            };
            match truth.object.label {
                ObjectLabel::Car => {
                    if let (Some(front), Some(rear)) = (top(0.38, 0.5), top(-0.4, -0.25)) {
                        lower[usize::from(front < rear)] += 1;
                    }
                }
                ObjectLabel::Truck => {
                    // Only the frame below connects cab and load.
                    let upper = inside.iter().filter(|[_, _, z]| z / height + 0.5 > 0.45);
                    let mut along: Vec<f64> = upper.map(|[x, _, _]| *x).collect();
                    along.sort_by(f64::total_cmp);
                    let widest = along
                        .windows(2)
                        .map(|pair| (pair[1] - pair[0], pair[0]))
                        .max_by(|a, b| a.0.total_cmp(&b.0));
                    if let Some((width, at)) = widest {
                        gaps[usize::from(width > 0.15 && at > 0.0)] += 1;
                    }
                }
                _ => {}
            }
        }
    }
    assert!(lower[1] > 20 && lower[1] > 9 * lower[0], "{lower:?}");
    assert!(gaps[1] > 5 && gaps[1] > 2 * gaps[0], "{gaps:?}");
}
