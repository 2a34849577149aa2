//! Sensor data as JSON: every form against a plain definition or NumPy, and what wrong ones are told.

mod arrays;
mod geometry;
mod images;
mod points;
mod results;

use sensorium::io::forms::{PointLimits, PointTable, PointsForm};
use serde_json::Value;

pub(super) fn form<T: serde::de::DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap()
}

pub(super) fn points(value: &Value) -> Result<PointTable, String> {
    form::<PointsForm>(value)
        .decode("points", &PointLimits::default())
        .map_err(|error| error.to_string())
}
