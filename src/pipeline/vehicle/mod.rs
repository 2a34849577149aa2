//! Vehicle files: the sensors of a vehicle, where they sit, and the pipelines that it runs as one.
//!
//! [`Vehicle::load`] reads a vehicle file, the calibration that it names and its pipeline files, each with the same care and
//! the same errors as a pipeline file alone, and makes one [`Pipeline`](super::Pipeline) of them: one process, one device.

mod calibration;
mod intrinsics;
mod load;
mod member;
mod merge;
mod raw;
mod sections;
mod sensor;

use std::path::PathBuf;
use std::sync::LazyLock;

use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde_json::Value;

pub use calibration::Mount;
pub use intrinsics::{DistortionModel, Intrinsics};
pub use load::VehicleOverrides;
pub use raw::Encoding;
pub use sensor::{VehicleSensor, VehicleSensorKind};

use super::settings::Pipeline;

static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    SchemaSettings::draft2020_12()
        .into_generator()
        .into_root_schema_for::<raw::RawVehicle>()
        .to_value()
});

/// The JSON Schema (2020-12) that describes vehicle files, and that they are checked against.
#[must_use]
pub fn vehicle_schema() -> &'static Value {
    &SCHEMA
}

/// A vehicle whose sensors, calibration and pipelines are all valid.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Vehicle {
    /// The file, as it was named.
    pub file: PathBuf,
    /// Name of the vehicle.
    pub name: String,
    /// The make of vehicle.
    pub vehicle_model: String,
    /// The set of sensors.
    pub sensor_model: String,
    /// The one vehicle.
    pub vehicle_id: String,
    /// Frame of the vehicle.
    pub base_frame: String,
    /// Calibration files that were read.
    pub calibration: Vec<PathBuf>,
    /// Sensors, in the order of the file.
    pub sensors: Vec<VehicleSensor>,
    /// What every detector is fed with: one for each sensor of each detector.
    pub streams: Vec<VehicleStream>,
    /// What the computer can do.
    pub limits: VehicleLimits,
    /// The pipelines as one, ready to be run.
    pub pipeline: Pipeline,
}

/// A sensor that a detector takes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VehicleStream {
    /// Name of the sensor.
    pub sensor: String,
    /// The source's node.
    pub source: String,
    /// The node that puts it together with others on the way, where there is one: what comes out of it is one stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub through: Option<String>,
    /// The detector's node.
    pub detector: String,
    /// Device time of one frame in milliseconds, where it was measured.
    pub expected_ms: Option<f64>,
}

/// What the computer of a vehicle can do.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct VehicleLimits {
    /// Bandwidth of its memory in GB (10^9 bytes) a second.
    pub memory_gb_s: f64,
    /// Host memory that frames under way may take, in MiB.
    pub host_mib: u32,
}
