//! Training data: scenes in shards of NumPy files.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use ndarray::{Array1, Array2};
use ndarray_npy::WriteNpyExt;
use serde_json::json;
use thiserror::Error;

use super::drive::{SCENE_CLASSES, Scene, TrueObject};
use super::lidar::LidarConfig;
use super::random::mix;
use super::world::WorldConfig;

/// Columns of a box.
const BOX_COLUMNS: [&str; 11] = [
    "x",
    "y",
    "z",
    "length",
    "width",
    "height",
    "yaw_ros",
    "vx",
    "vy",
    "class",
    "num_points",
];

/// Why scenes cannot be written.
#[derive(Debug, Error)]
pub enum SceneError {
    /// The folder cannot be made, or a file in it not be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
}

/// Which scenes to write.
#[derive(Debug, Clone, PartialEq)]
pub struct SceneSet {
    /// Number of scenes.
    pub count: usize,
    /// The same seed gives the same scenes.
    pub seed: u64,
    /// Sweeps of a scene, the current one included.
    pub sweeps: usize,
    /// Scenes of a file.
    pub shard: usize,
    /// Threads to work on; no file depends on it.
    pub threads: usize,
    /// The worlds.
    pub world: WorldConfig,
    /// The sensor.
    pub lidar: LidarConfig,
}

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SceneTotals {
    /// Points of all scenes and sweeps.
    pub points: u64,
    /// Boxes of each class, in the order of [`SCENE_CLASSES`].
    pub boxes: [u64; 5],
}

impl SceneSet {
    /// The scene of an index.
    #[must_use]
    pub fn scene(&self, index: usize) -> Scene {
        let seed = mix(self.seed ^ mix(index as u64 ^ 0x5ce0_0000_0000_0000));
        Scene::new(&self.world, &self.lidar, seed, self.sweeps)
    }

    /// Writes `shard_NNNN.points.npy` (float32, N x 4: x, y, z, time lag), `.point_offsets.npy` (int64, scenes + 1),
    /// `.boxes.npy` (float32, M x 11) and `.box_offsets.npy` (int64, scenes + 1) for every shard, and `meta.json`.
    /// `progress` is told of every scene.
    ///
    /// # Errors
    /// [`SceneError::Write`].
    pub fn write(&self, folder: &Path, progress: &(dyn Fn() + Sync)) -> Result<SceneTotals, SceneError> {
        std::fs::create_dir_all(folder).map_err(failed(folder))?;
        let mut totals = SceneTotals::default();
        let shard = self.shard.max(1);
        for (number, first) in (0..self.count).step_by(shard).enumerate() {
            let scenes = self.scenes(first, shard.min(self.count - first), progress);
            let file = |part: &str| folder.join(format!("shard_{number:04}.{part}.npy"));
            let mut points = Vec::new();
            let mut boxes: Vec<[f32; 11]> = Vec::new();
            let (mut point_offsets, mut box_offsets) = (vec![0], vec![0]);
            for scene in &scenes {
                points.extend_from_slice(&scene.points);
                for truth in &scene.truth {
                    let (row, class) = row(truth);
                    totals.boxes[class] += 1;
                    boxes.push(row);
                }
                point_offsets.push(points.len() as i64);
                box_offsets.push(boxes.len() as i64);
            }
            totals.points += points.len() as u64;
            write_rows(&file("points"), points)?;
            write_npy(&file("point_offsets"), &Array1::from_vec(point_offsets))?;
            write_rows(&file("boxes"), boxes)?;
            write_npy(&file("box_offsets"), &Array1::from_vec(box_offsets))?;
        }
        self.write_meta(folder)?;
        Ok(totals)
    }

    /// The scenes from `first` on, in order.
    fn scenes(&self, first: usize, count: usize, progress: &(dyn Fn() + Sync)) -> Vec<Scene> {
        let next = AtomicUsize::new(0);
        let done: Mutex<Vec<(usize, Scene)>> = Mutex::new(Vec::with_capacity(count));
        std::thread::scope(|scope| {
            for _ in 0..self.threads.clamp(1, count.max(1)) {
                scope.spawn(|| {
                    loop {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        if index >= count {
                            break;
                        }
                        let scene = self.scene(first + index);
                        // A thread that panicked ends the scope by panicking there too.
                        if let Ok(mut done) = done.lock() {
                            done.push((index, scene));
                        }
                        progress();
                    }
                });
            }
        });
        let mut scenes = done
            .into_inner()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        scenes.sort_by_key(|(index, _)| *index);
        scenes.into_iter().map(|(_, scene)| scene).collect()
    }

    fn write_meta(&self, folder: &Path) -> Result<(), SceneError> {
        let lidar = &self.lidar;
        let classes = SCENE_CLASSES.map(|class| json!(class));
        let meta = json!({
            "format": "sensorium-scenes-1",
            "seed": self.seed,
            "scenes": self.count,
            "scenes_per_shard": self.shard.max(1),
            "sweeps": self.sweeps.max(1),
            "frame": "lidar at the stamp (start) of the current sweep: x forward, y left, z up; the road is at z = -height_m",
            "point_columns": ["x", "y", "z", "time_lag"],
            "box_columns": BOX_COLUMNS,
            "box_notes": "x, y, z: middle of the box when the beams passed it; yaw_ros: counter-clockwise from x; vx, vy: over ground, along the axes of the frame; num_points: of all sweeps",
            "classes": classes,
            "lidar": {
                "rings": lidar.rings,
                "azimuths": lidar.azimuths,
                "lowest_deg": lidar.lowest_deg,
                "highest_deg": lidar.highest_deg,
                "height_m": lidar.height_m,
                "rate_hz": lidar.rate_hz,
                "max_range_m": lidar.max_range_m,
                "range_noise_m": lidar.range_noise_m,
                "drop_out": lidar.drop_out,
                "undistort": lidar.undistort,
            },
        });
        let path = folder.join("meta.json");
        let text = format!("{meta:#}\n");
        std::fs::write(&path, text).map_err(failed(&path))
    }
}

/// A box as a row of numbers, and its class.
fn row(truth: &TrueObject) -> ([f32; 11], usize) {
    let object = &truth.object;
    let class = SCENE_CLASSES
        .iter()
        .position(|&class| class == object.label)
        .unwrap_or(0);
    let [x, y, z] = object.position_m;
    let [length, width, height] = object.size_m;
    let [vx, vy] = truth.velocity_mps;
    let values = [x, y, z, length, width, height, object.yaw_rad, vx, vy];
    let mut row = [0.0; 11];
    for (place, value) in row.iter_mut().zip(values) {
        *place = value as f32;
    }
    row[9] = class as f32;
    row[10] = truth.points as f32;
    (row, class)
}

fn failed(path: &Path) -> impl Fn(std::io::Error) -> SceneError + '_ {
    |source| SceneError::Write {
        path: path.to_owned(),
        source,
    }
}

fn write_rows<const N: usize>(path: &Path, rows: Vec<[f32; N]>) -> Result<(), SceneError> {
    let count = rows.len();
    let array = Array2::from_shape_vec((count, N), rows.into_flattened());
    let array = array.map_err(|error| failed(path)(std::io::Error::other(error)))?;
    write_npy(path, &array)
}

fn write_npy(path: &Path, array: &impl WriteNpyExt) -> Result<(), SceneError> {
    let file = File::create(path).map_err(failed(path))?;
    let mut writer = BufWriter::with_capacity(1 << 20, file);
    array.write_npy(&mut writer).map_err(|error| match error {
        ndarray_npy::WriteNpyError::Io(source) => failed(path)(source),
        other => failed(path)(std::io::Error::other(other)),
    })?;
    writer.flush().map_err(failed(path))
}
