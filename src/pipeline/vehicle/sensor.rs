//! The sensors of a vehicle.

use std::path::Path;

use serde::Serialize;

use super::calibration::Calibration;
use super::intrinsics::{Intrinsics, read_intrinsics};
use super::raw::{Encoding, RawSensor};
use crate::perception::Sensor;
use crate::pipeline::problem::Problem;
use crate::pipeline::source::Span;
use crate::pipeline::tree::Entry;
use crate::pipeline::validate::value_span;

/// A sensor of a vehicle.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct VehicleSensor {
    /// Its name in the vehicle file.
    pub name: String,
    /// Topic of its messages.
    pub topic: String,
    /// Frame of what it sees.
    pub frame: String,
    /// Messages a second.
    pub rate_hz: f64,
    /// What it is.
    #[serde(flatten)]
    pub kind: VehicleSensorKind,
    #[serde(skip)]
    pub(super) topic_span: Span,
}

/// What a sensor of a vehicle is.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum VehicleSensorKind {
    /// A camera.
    Camera {
        /// Width of an image in pixels.
        width_px: u32,
        /// Height of an image in pixels.
        height_px: u32,
        /// How pixels are sent.
        encoding: Encoding,
        /// What its calibration says; `None` where it has none.
        intrinsics: Option<Box<Intrinsics>>,
    },
    /// A LiDAR.
    Lidar {
        /// Most points of a sweep.
        points: u32,
        /// Bytes of a point.
        point_bytes: u32,
    },
}

impl VehicleSensor {
    /// What a model that takes its messages takes.
    #[must_use]
    pub const fn sensor(&self) -> Sensor {
        match self.kind {
            VehicleSensorKind::Camera { .. } => Sensor::Camera,
            VehicleSensorKind::Lidar { .. } => Sensor::Lidar,
        }
    }

    /// Bytes of its largest message, the header left out; of a compressed image, what is usual.
    #[must_use]
    pub const fn frame_bytes(&self) -> u64 {
        match self.kind {
            VehicleSensorKind::Camera {
                width_px,
                height_px,
                encoding,
                ..
            } => {
                let pixels = width_px as u64 * height_px as u64;
                match encoding {
                    Encoding::Rgb8 | Encoding::Bgr8 => pixels * 3,
                    Encoding::Mono8 | Encoding::Bayer8 => pixels,
                    Encoding::Yuv422 => pixels * 2,
                    Encoding::Jpeg => pixels.div_ceil(4),
                }
            }
            VehicleSensorKind::Lidar { points, point_bytes } => points as u64 * point_bytes as u64,
        }
    }

    /// Bytes a second that it sends.
    #[must_use]
    pub fn bytes_per_s(&self) -> f64 {
        self.frame_bytes() as f64 * self.rate_hz
    }

    /// The sensor that an entry of `sensors` describes, placed by the calibration in `folder`.
    pub(super) fn new(
        entry: &Entry,
        raw: &RawSensor,
        base_frame: &str,
        folder: &Path,
        calibration: &mut Calibration,
        problems: &mut Vec<Problem>,
    ) -> Self {
        let (topic, frame, rate_hz) = match raw {
            RawSensor::Camera(raw) => (&raw.topic, &raw.frame, raw.rate_hz),
            RawSensor::Lidar(raw) => (&raw.topic, &raw.frame, raw.rate_hz),
        };
        // Without a calibration every frame would be missing, and that is told.
        if !calibration.files.is_empty() {
            calibration.require(frame, base_frame, value_span(entry, "frame"), problems);
        }
        let kind = match raw {
            RawSensor::Camera(raw) => VehicleSensorKind::Camera {
                width_px: raw.width_px,
                height_px: raw.height_px,
                encoding: raw.encoding,
                intrinsics: raw.intrinsics.as_ref().and_then(|file| {
                    let size_px = [raw.width_px, raw.height_px];
                    read_intrinsics(
                        &folder.join(file),
                        size_px,
                        value_span(entry, "intrinsics"),
                        problems,
                    )
                    .map(Box::new)
                }),
            },
            RawSensor::Lidar(raw) => VehicleSensorKind::Lidar {
                points: raw.points,
                point_bytes: raw.point_bytes,
            },
        };
        Self {
            name: entry.key.clone(),
            topic: topic.clone(),
            frame: frame.clone(),
            rate_hz,
            kind,
            topic_span: value_span(entry, "topic").clone(),
        }
    }
}
