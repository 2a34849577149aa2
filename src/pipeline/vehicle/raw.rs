//! A vehicle file as it is written; see the pipeline file's `raw` for how such types are used.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::patterns::{NAME, TOKEN, TOPIC};
use super::super::raw::RawDevice;
use super::super::ros2::{RawRos2, Subscribe};
use super::super::settings::SimulateSettings;
use super::super::supervision::SupervisionSettings;
use super::super::words::words;

/// A vehicle: its sensors and where they sit, the pipelines that it runs, and what it changes in them. All pipelines run in
/// one process on one device.
///
/// A text value may hold ${VAR} or ${VAR:-default}, which the environment replaces; $${ stands for a plain ${.
/// Paths are relative to the folder of the file.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Vehicle")]
pub(super) struct RawVehicle {
    /// Name of the vehicle file, and of the pipeline that it becomes.
    #[schemars(regex(pattern = NAME))]
    pub(super) vehicle: String,
    /// The make of vehicle, as Autoware's `vehicle_model`.
    #[schemars(regex(pattern = TOKEN))]
    pub(super) vehicle_model: String,
    /// The set of sensors, as Autoware's `sensor_model`: a folder of the calibration.
    #[schemars(regex(pattern = TOKEN))]
    pub(super) sensor_model: String,
    /// The one vehicle, as Autoware's `vehicle_id`: a folder of the calibration. Left out: `default`.
    #[serde(default = "default_vehicle_id")]
    #[schemars(length(min = 1))]
    pub(super) vehicle_id: String,
    /// A folder with `config/<vehicle_id>/<sensor_model>/sensor_kit_calibration.yaml` and `sensors_calibration.yaml`, as
    /// Autoware's package individual_params.
    #[schemars(length(min = 1))]
    pub(super) calibration: String,
    /// Frame of the vehicle, which every sensor's place is told in. Left out: `base_link`.
    #[serde(default = "default_base_frame")]
    #[schemars(length(min = 1))]
    pub(super) base_frame: String,
    /// Sensors by name.
    #[schemars(extend("propertyNames" = { "pattern": NAME }))]
    pub(super) sensors: BTreeMap<String, RawSensor>,
    /// Where the messages of the sensors come from, in place of what the pipelines say. Left out: as they say.
    pub(super) feed: Option<RawFeed>,
    /// The device, in place of what the pipelines say.
    #[expect(dead_code, reason = "the section is read from the tree, where its places are")]
    #[serde(default)]
    pub(super) device: RawDevice,
    /// The node that the vehicle is in the ROS 2 graph, in place of what the pipelines say.
    #[expect(dead_code, reason = "the section is read from the tree, where its places are")]
    #[serde(default)]
    pub(super) ros2: RawRos2,
    /// What becomes of actors that fail, in place of what the pipelines say. Faults for tests stand in the pipelines.
    #[expect(dead_code, reason = "the section is read from the tree, where its places are")]
    #[serde(default)]
    pub(super) supervision: SupervisionSettings,
    /// Pipelines by a name that goes before the names of their nodes and models.
    #[schemars(extend("propertyNames" = { "pattern": NAME }))]
    pub(super) pipelines: BTreeMap<String, RawMember>,
    /// What the computer of the vehicle can do.
    #[serde(default)]
    pub(super) limits: RawLimits,
}

fn default_vehicle_id() -> String {
    "default".to_owned()
}

fn default_base_frame() -> String {
    "base_link".to_owned()
}

/// A sensor: what it sends, and where it sits.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[schemars(rename = "VehicleSensor")]
pub(super) enum RawSensor {
    Camera(RawCamera),
    Lidar(RawLidar),
}

/// A camera.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "VehicleCamera")]
pub(super) struct RawCamera {
    /// Topic of its images.
    #[schemars(regex(pattern = TOPIC))]
    pub(super) topic: String,
    /// Frame of its images. It stands in the calibration, or it is the `.../camera_optical_link` of a `.../camera_link` that
    /// does.
    #[schemars(length(min = 1))]
    pub(super) frame: String,
    /// Images a second.
    #[schemars(extend("exclusiveMinimum" = 0, "maximum" = 1_000))]
    pub(super) rate_hz: f64,
    /// Width of an image in pixels.
    #[schemars(range(min = 1, max = 16_384))]
    pub(super) width_px: u32,
    /// Height of an image in pixels.
    #[schemars(range(min = 1, max = 16_384))]
    pub(super) height_px: u32,
    /// How pixels are sent.
    pub(super) encoding: Encoding,
    /// Camera calibration (a camera_info file), relative to the calibration's folder of this vehicle. Left out: not known.
    #[schemars(length(min = 1))]
    pub(super) intrinsics: Option<String>,
}

/// A LiDAR.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "VehicleLidar")]
pub(super) struct RawLidar {
    /// Topic of its point clouds.
    #[schemars(regex(pattern = TOPIC))]
    pub(super) topic: String,
    /// Frame of its points. It stands in the calibration, or `<frame>_base_link` does.
    #[schemars(length(min = 1))]
    pub(super) frame: String,
    /// Sweeps a second.
    #[schemars(extend("exclusiveMinimum" = 0, "maximum" = 1_000))]
    pub(super) rate_hz: f64,
    /// Most points of a sweep.
    #[schemars(range(min = 1, max = 100_000_000))]
    pub(super) points: u32,
    /// Bytes of a point. Left out: 16, those of Autoware's XYZIRC.
    #[serde(default = "default_point_bytes")]
    #[schemars(range(min = 12, max = 256))]
    pub(super) point_bytes: u32,
}

const fn default_point_bytes() -> u32 {
    16
}

words! {
    /// How the pixels of a camera are sent.
    Encoding {
        /// Three bytes a pixel: red, green, blue.
        Rgb8 = "rgb8",
        /// Three bytes a pixel: blue, green, red.
        Bgr8 = "bgr8",
        /// One byte a pixel: grey.
        Mono8 = "mono8",
        /// One byte a pixel: a Bayer mosaic.
        Bayer8 = "bayer8",
        /// Two bytes a pixel: YUV 4:2:2.
        Yuv422 = "yuv422",
        /// Compressed; about one byte in four pixels.
        Jpeg = "jpeg",
    }
}

/// Where messages come from: one of these.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Feed")]
pub(super) struct RawFeed {
    /// Live messages of the topics of the sensors.
    pub(super) subscribe: Option<Subscribe>,
    /// A bag: a folder, an .mcap file or a .db3 file.
    #[schemars(length(min = 1))]
    pub(super) bag: Option<String>,
    /// A drive that is simulated while it plays. It has the topics that `sensorium sim` writes.
    pub(super) simulate: Option<SimulateSettings>,
}

/// A pipeline of the vehicle.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "VehiclePipeline")]
pub(super) struct RawMember {
    /// The pipeline file.
    #[schemars(length(min = 1))]
    pub(super) file: String,
    /// Names of the sensors that each source plays, by the name of the source's node.
    #[expect(dead_code, reason = "names are read from the tree, where their places are")]
    #[schemars(extend("propertyNames" = { "pattern": NAME }))]
    pub(super) sources: BTreeMap<String, Vec<String>>,
    /// Values that take the place of those of the pipeline file, by their dotted path, such as nodes.detector.finish_workers.
    /// Channels are among them: channels.default.capacity.
    #[expect(dead_code, reason = "values are read from the tree, where their places are")]
    #[serde(default)]
    pub(super) set: BTreeMap<String, serde_json::Value>,
    /// Device time of one frame in milliseconds, as measured (`sensorium model bench`), by the name of the detector's node.
    /// Left out: the load of the device is not told.
    #[serde(default)]
    #[schemars(extend(
        "propertyNames" = { "pattern": NAME },
        "additionalProperties" = { "type": "number", "exclusiveMinimum": 0, "maximum": 3_600_000 }
    ))]
    pub(super) expected_ms: BTreeMap<String, f64>,
}

/// What the computer of a vehicle can do.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "Limits")]
pub(super) struct RawLimits {
    /// Bandwidth of its memory in GB (10^9 bytes) a second.
    #[schemars(extend("exclusiveMinimum" = 0, "maximum" = 100_000))]
    pub(super) memory_gb_s: f64,
    /// Host memory that frames under way may take, in MiB.
    #[schemars(range(min = 1, max = 16_777_216))]
    pub(super) host_mib: u32,
}

impl Default for RawLimits {
    fn default() -> Self {
        Self {
            memory_gb_s: 10.0,
            host_mib: 4_096,
        }
    }
}
