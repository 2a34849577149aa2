//! Training data: images of worlds of their own, with the true boxes, as NumPy files.

use std::f64::consts::PI;
use std::fs::File;
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use thiserror::Error;

use super::super::drive::SCENE_CLASSES;
use super::super::random::{Random, mix};
use super::super::world::{World, WorldConfig};
use super::{Camera, CameraConfig, CameraImage, Light, TrueBox};

/// Steps of traffic before a world is looked at, of this many seconds each.
const STEP_S: f64 = 0.1;
/// Images that are made before they are written, per thread.
const BATCH: usize = 8;
/// Columns of a box.
const BOX_COLUMNS: [&str; 8] = [
    "x1",
    "y1",
    "x2",
    "y2",
    "class",
    "visible_share",
    "distance_m",
    "id",
];

/// Why images cannot be written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The folder cannot be made, or a file in it not be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The cameras differ in size, or there is none.
    #[error("images of one size are expected, from at least one camera")]
    Sizes,
}

/// Which images to write.
#[derive(Debug, Clone, PartialEq)]
pub struct FrameSet {
    /// Number of images.
    pub count: usize,
    /// The same seed gives the same images.
    pub seed: u64,
    /// Threads to work on; no file depends on it.
    pub threads: usize,
    /// The worlds.
    pub world: WorldConfig,
    /// One of these is chosen for each image, and its height, pitch and focal length varied.
    pub cameras: Vec<CameraConfig>,
}

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FrameTotals {
    /// Boxes of each class, in the order of [`SCENE_CLASSES`].
    pub boxes: [u64; 5],
}

impl FrameSet {
    /// Writes `images.npy` (uint8, N x rows x columns x 3: red, green, blue), `boxes.npy` (float32, M x 8: left, top,
    /// right and bottom edge in pixels, class, share that is visible, distance in metres, number), `starts.npy` (int64,
    /// N + 1: the first box of each image) and `meta.json`. `progress` is told of every image.
    ///
    /// # Errors
    /// Any [`FrameError`].
    pub fn write(&self, folder: &Path, progress: &(dyn Fn() + Sync)) -> Result<FrameTotals, FrameError> {
        let first = self.cameras.first().ok_or(FrameError::Sizes)?;
        let (width, height) = (first.width_px as usize, first.height_px as usize);
        if self
            .cameras
            .iter()
            .any(|camera| (camera.width_px, camera.height_px) != (first.width_px, first.height_px))
        {
            return Err(FrameError::Sizes);
        }
        std::fs::create_dir_all(folder).map_err(failed(folder))?;
        let mut images = Npy::create(&folder.join("images.npy"), "|u1", &[height, width, 3])?;
        let mut boxes = Npy::create(&folder.join("boxes.npy"), "<f4", &[BOX_COLUMNS.len()])?;
        let mut starts = Npy::create(&folder.join("starts.npy"), "<i8", &[])?;
        let mut totals = FrameTotals::default();
        let mut rows = 0i64;
        starts.append(&rows.to_le_bytes())?;
        let threads = self.threads.max(1);
        let mut cameras: Vec<Camera> = (0..threads).map(|_| Camera::new(first)).collect();
        for begin in (0..self.count).step_by(threads * BATCH) {
            let end = self.count.min(begin + threads * BATCH);
            for image in self.batch(begin..end, &mut cameras, progress) {
                images.append(&image.rgb)?;
                for truth in &image.truth {
                    let (row, class) = row(truth);
                    totals.boxes[class] += 1;
                    boxes.append(row.map(f32::to_le_bytes).as_flattened())?;
                }
                rows += image.truth.len() as i64;
                starts.append(&rows.to_le_bytes())?;
            }
        }
        images.finish(self.count)?;
        boxes.finish(rows as usize)?;
        starts.finish(self.count + 1)?;
        self.write_meta(folder, [height, width])?;
        Ok(totals)
    }

    /// Images of a range of indices, in order.
    fn batch(
        &self,
        range: std::ops::Range<usize>,
        cameras: &mut [Camera],
        progress: &(dyn Fn() + Sync),
    ) -> Vec<CameraImage> {
        let next = AtomicUsize::new(range.start);
        let done: Mutex<Vec<(usize, CameraImage)>> = Mutex::new(Vec::with_capacity(range.len()));
        std::thread::scope(|scope| {
            for camera in cameras {
                let (next, done, end) = (&next, &done, range.end);
                scope.spawn(move || {
                    loop {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        if index >= end {
                            break;
                        }
                        let image = self.image(index, camera);
                        // A thread that panicked ends the scope by panicking there too.
                        if let Ok(mut done) = done.lock() {
                            done.push((index, image));
                        }
                        progress();
                    }
                });
            }
        });
        let mut images = done
            .into_inner()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        images.sort_by_key(|(index, _)| *index);
        images.into_iter().map(|(_, image)| image).collect()
    }

    fn image(&self, index: usize, camera: &mut Camera) -> CameraImage {
        let seed = mix(self.seed ^ mix(index as u64 ^ 0xca3e_0000_0000_0000));
        let mut world = World::new(&self.world, seed);
        let mut random = Random::new(seed, 31);
        let seconds = random.between(3.0, 15.0);
        world.run((seconds / STEP_S) as usize, STEP_S);
        world.step(STEP_S);
        let chosen = random.below(self.cameras.len());
        let mut config = self.cameras[chosen].clone();
        let zoom = random.between(0.8, 1.2);
        config.focal_px = config.focal_px.map(|px| px * zoom);
        config.position_m[2] = random.between(1.3, 2.0);
        config.pitch_rad += random.between(-3.0, 3.0) / 180.0 * PI;
        camera.point(&config);
        camera.take(&world, &Light::new(seed), mix(seed ^ 0x9e1f), chosen)
    }

    fn write_meta(&self, folder: &Path, [height, width]: [usize; 2]) -> Result<(), FrameError> {
        let cameras: Vec<_> = self
            .cameras
            .iter()
            .map(|camera| {
                json!({
                    "name": camera.name,
                    "focal_px": camera.focal_px,
                    "centre_px": camera.centre_px,
                    "position_m": camera.position_m,
                    "yaw_deg": camera.yaw_rad.to_degrees(),
                    "pitch_deg": camera.pitch_rad.to_degrees(),
                })
            })
            .collect();
        let meta = json!({
            "format": "sensorium-frames-1",
            "count": self.count,
            "seed": self.seed,
            "height": height,
            "width": width,
            "channels": "red, green, blue",
            "classes": SCENE_CLASSES.map(|class| json!(class)),
            "box_columns": BOX_COLUMNS,
            "box_notes": "edges of all pixels of a road user, hidden ones too, clipped to the image; a pixel i reaches from i to i + 1; only road users of which a pixel is visible",
            "cameras": cameras,
            "varied": { "height_m": [1.3, 2.0], "pitch_deg": [-3.0, 3.0], "focal": [0.8, 1.2] },
        });
        let path = folder.join("meta.json");
        std::fs::write(&path, format!("{meta:#}\n")).map_err(failed(&path))
    }
}

/// A box as a row of numbers, and its class.
fn row(truth: &TrueBox) -> ([f32; 8], usize) {
    let class = SCENE_CLASSES
        .iter()
        .position(|&class| class == truth.label)
        .unwrap_or(0);
    let [x1, y1, x2, y2] = truth.box_px;
    let numbers = [
        class as f32,
        truth.visible_share(),
        truth.distance_m as f32,
        truth.id as f32,
    ];
    let [class_number, share, distance, id] = numbers;
    ([x1, y1, x2, y2, class_number, share, distance, id], class)
}

fn failed(path: &Path) -> impl Fn(std::io::Error) -> FrameError + '_ {
    |source| FrameError::Write {
        path: path.to_owned(),
        source,
    }
}

/// A NumPy file that grows: its first axis is known in the end.
struct Npy {
    path: PathBuf,
    file: BufWriter<File>,
    kind: &'static str,
    item: Vec<usize>,
}

/// Bytes of the header, room for every shape.
const HEADER: usize = 128;

impl Npy {
    fn create(path: &Path, kind: &'static str, item: &[usize]) -> Result<Self, FrameError> {
        let file = File::create(path).map_err(failed(path))?;
        let mut npy = Self {
            path: path.to_owned(),
            file: BufWriter::with_capacity(1 << 20, file),
            kind,
            item: item.to_vec(),
        };
        npy.append(&[0; HEADER])?;
        Ok(npy)
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), FrameError> {
        self.file.write_all(bytes).map_err(failed(&self.path))
    }

    /// Writes the header with the number of items.
    fn finish(mut self, count: usize) -> Result<(), FrameError> {
        let mut shape = format!("{count},");
        for axis in &self.item {
            shape += &format!(" {axis},");
        }
        let text = format!(
            "{{'descr': '{}', 'fortran_order': False, 'shape': ({shape}), }}",
            self.kind
        );
        let mut header = b"\x93NUMPY\x01\x00".to_vec();
        header.extend_from_slice(&((HEADER - 10) as u16).to_le_bytes());
        header.extend_from_slice(text.as_bytes());
        header.resize(HEADER - 1, b' ');
        header.push(b'\n');
        self.file.seek(SeekFrom::Start(0)).map_err(failed(&self.path))?;
        self.append(&header)?;
        self.file.flush().map_err(failed(&self.path))
    }
}
