//! What the service answers, beside `/predict`'s bodies.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::perception::bundle::Pinned;

/// Whether requests are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ServiceStatus {
    /// Yes.
    Ok,
    /// Not yet.
    Starting,
    /// No: there is no model.
    Error,
}

/// Answer of `/` : the routes.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Routes")]
pub struct RoutesAnswer {
    /// What serves.
    pub service: String,
    /// Its version.
    pub version: String,
    /// Methods and paths, with what they do.
    pub routes: BTreeMap<String, String>,
}

/// Answer of `/health`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Health")]
pub struct HealthAnswer {
    /// Whether requests are run.
    pub status: ServiceStatus,
    /// Name of the model, once it is there.
    pub model: Option<String>,
    /// The device, once it is open.
    pub device: Option<Value>,
    /// Why there is no model.
    pub error: Option<String>,
}

/// Answer of `/v1/models`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Models")]
pub struct ModelsAnswer {
    /// Always `list`.
    pub object: String,
    /// The one model, once it is there.
    pub data: Vec<ModelAnswer>,
}

/// One model of `/v1/models`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Model")]
pub struct ModelAnswer {
    /// Its name.
    pub id: String,
    /// Always `model`.
    pub object: String,
    /// Who answers for it.
    pub owned_by: String,
}

/// What `/predict` takes of this model.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "InputLimits")]
pub struct InputAnswer {
    /// `points` or `images`.
    pub kind: String,
    /// Longest body in bytes.
    pub max_body_bytes: u64,
    /// Most points.
    pub max_points: u64,
    /// Columns of points that do not name them.
    pub point_fields: Vec<String>,
    /// Longest side of an image in pixels.
    pub max_side_px: u64,
    /// Cameras in the order in which the model wants them; empty: any one.
    pub camera_order: Vec<String>,
    /// Whether cameras need a calibration.
    pub require_calibration: bool,
    /// Earlier sweeps that are added to each.
    pub past_sweeps: u64,
    /// Fields of a request for this model alone.
    pub extra_inputs: Vec<String>,
    /// What it takes as plain arrays.
    pub input_schema: Value,
}

/// Answer of `/info`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Info")]
pub struct InfoAnswer {
    /// Name of the model.
    pub model: String,
    /// Version of the service.
    pub version: String,
    /// What the model is for.
    pub task: String,
    /// What goes in and what comes out.
    pub io: String,
    /// The weights: file, where they were found, SHA-256.
    pub weights: Value,
    /// What the bundle pins that the model comes from: name, version, digests of its files, settings. Null for a model that
    /// comes from no bundle.
    pub bundle: Option<Pinned>,
    /// The device.
    pub device: Value,
    /// What `/predict` takes.
    pub input: InputAnswer,
    /// Names of the calibrations that a request may name.
    pub calibration_presets: Vec<String>,
    /// Class names by number.
    pub labels: Vec<String>,
    /// Variants that the model has.
    pub variants: Value,
    /// Variants that are warm.
    pub warm: Value,
    /// The variant that takes every frame.
    pub variant: Value,
    /// Parameters of a call, with type, range and default.
    pub runtime_params: Value,
    /// What holds from opening the model on: queues of the device, and whether inputs are staged.
    pub compile_params: Value,
    /// What was captured on the device.
    pub trace: Value,
    /// How long the variants were warmed up, in milliseconds.
    pub warm_up_ms: Option<f64>,
    /// How long loading, warming up and capturing took, in milliseconds.
    pub boot_ms: f64,
    /// Revision of the source.
    pub source: Value,
}

/// Answer to a request that is not served.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Problem")]
pub struct ProblemAnswer {
    /// What is wrong.
    pub detail: ProblemDetail,
}

/// What is wrong with a request: a sentence, or the places where it is not what it has to be.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ProblemDetail {
    /// A sentence.
    Text(String),
    /// Places in the body.
    Places(Vec<ProblemPlace>),
}

/// A place in a request's body that is not what it has to be.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ProblemPlace {
    /// Its path, `body` first.
    pub loc: Vec<String>,
    /// What is wrong there.
    pub msg: String,
    /// Kind of the problem: `json` for what is no JSON, `schema` for JSON of another form.
    #[serde(rename = "type")]
    pub kind: String,
}
