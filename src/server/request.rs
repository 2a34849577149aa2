//! What `/predict` takes.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::io::forms::{
    BodyForm, CalibrationForm, ImageForm, InputsForm, LimitedValue, PointsForm, TransformForm,
    default_for_null, limited_list_or_null, limited_map_or_null,
};

/// A request: what a sensor saw, as `points`, as `images` or as plain arrays (`inputs`), whichever the model takes.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PredictRequest {
    /// A point cloud.
    pub points: Option<PointsForm>,
    /// Earlier sweeps, for a model that adds them to each; in any order.
    #[serde(default, deserialize_with = "list::<_, _, 32>")]
    #[schemars(with = "Option<Vec<SweepForm>>", length(max = 32))]
    pub sweeps: Vec<SweepForm>,
    /// Images.
    #[serde(default, deserialize_with = "list::<_, _, 64>")]
    #[schemars(with = "Option<Vec<ImageForm>>", length(max = 64))]
    pub images: Vec<ImageForm>,
    /// Calibration of the cameras.
    pub calibration: Option<CalibrationForm>,
    /// The stream that the frame belongs to; a frame without one stands alone.
    pub stream: Option<StreamForm>,
    /// Plain arrays.
    pub inputs: Option<InputsForm>,
    /// Parameters for this frame alone, by name.
    #[serde(default, deserialize_with = "params")]
    #[schemars(with = "Option<std::collections::BTreeMap<String, Param>>", extend("maxProperties" = 64))]
    pub params: Map<String, Value>,
    /// Form of the answer's arrays; `json` where it is left out.
    pub output_format: Option<BodyForm>,
    /// Coordinate frame of the results; that of the points, or `base_link` or `camera`, where it is left out.
    #[schemars(length(min = 1, max = 256))]
    pub frame_id: Option<String>,
}

/// A parameter: a number, a number as text, or true or false.
#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "it describes values, and holds none")]
enum Param {
    /// True or false.
    Bool(bool),
    /// A number.
    Number(f64),
    /// A number as text.
    Text(String),
}

/// `null` is what is left out: many clients write it so.
fn list<'de, D, T, const N: usize>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de>,
{
    limited_list_or_null::<D, T, N>(deserializer).map(Option::unwrap_or_default)
}

fn params<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Map<String, Value>, D::Error> {
    let given: Vec<(String, LimitedValue)> = limited_map_or_null::<_, _, _, 64>(deserializer)?;
    Ok(given.into_iter().map(|(name, value)| (name, value.0)).collect())
}

/// An earlier sweep.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Sweep")]
pub struct SweepForm {
    /// Its points, in its own frame.
    pub points: PointsForm,
    /// Seconds before the request's points, above 0.
    #[schemars(range(max = 3600.0), extend("exclusiveMinimum" = 0))]
    pub time_lag_s: f64,
    /// From its frame to that of the request's points.
    #[serde(rename = "T_ref_from_sweep")]
    pub ref_from_sweep: TransformForm,
}

/// The stream that a frame belongs to. What a model keeps of a stream is its own: no stream sees another's.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Stream")]
pub struct StreamForm {
    /// Its name, of the client's choice.
    #[schemars(length(min = 1, max = 128))]
    pub id: String,
    /// Forget what was kept of it first.
    #[serde(default, deserialize_with = "default_for_null")]
    #[schemars(with = "Option<bool>")]
    pub reset: bool,
    /// Forget afterwards what is kept of it: its place is free for another stream.
    #[serde(default, deserialize_with = "default_for_null")]
    #[schemars(with = "Option<bool>")]
    pub last: bool,
    /// Sensor stamp in nanoseconds; the time of arrival where it is left out.
    pub stamp_ns: Option<i64>,
    /// The same in seconds, in place of it. A float64 of the present time is exact to half a microsecond.
    pub timestamp_s: Option<f64>,
    /// From the sensor's frame to the world's at that time.
    #[serde(rename = "T_world_from_sensor")]
    pub world_from_sensor: Option<TransformForm>,
}
