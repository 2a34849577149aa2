//! The description of the service as an OpenAPI 3.1 document, made of the types that requests and answers have.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::answers::{HealthAnswer, InfoAnswer, ModelsAnswer, ProblemAnswer, RoutesAnswer};
use super::request::PredictRequest;
use super::routes::ROUTES;
use crate::io::forms::ArrayType;

static DOCUMENT: LazyLock<Value> = LazyLock::new(document);

/// The document, as `/openapi.json` has it.
#[must_use]
pub fn openapi() -> &'static Value {
    &DOCUMENT
}

/// A body of `/predict`: what was found, its model, its frame and its times. Which of the parts are there depends on the
/// model.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub(super) struct PredictAnswer {
    /// Name of the model.
    pub(super) model: String,
    /// Coordinate frame of the results.
    pub(super) frame_id: String,
    /// Number of detections.
    pub(super) num_detections: Option<u64>,
    /// Detections, best score first.
    pub(super) detections: Option<Vec<DetectionAnswer>>,
    /// Width and height of the image that boxes are in, in pixels.
    pub(super) image_size: Option<[u64; 2]>,
    /// Number of points that have classes.
    pub(super) num_points: Option<u64>,
    /// Number of the class of every point.
    pub(super) labels: Option<ArrayAnswer>,
    /// Confidence of the class of every point, where it is known.
    pub(super) scores: Option<ArrayAnswer>,
    /// Number of the class of every pixel.
    pub(super) mask: Option<ArrayAnswer>,
    /// Class names of points or pixels, by number.
    pub(super) class_names: Option<Vec<String>>,
    /// Number of points or pixels by class name, of classes that are there.
    pub(super) class_counts: Option<BTreeMap<String, u64>>,
    /// Poses to drive along, with the values that `columns` names.
    pub(super) trajectory: Option<Vec<Vec<f64>>>,
    /// Names of a pose's values.
    pub(super) columns: Option<Vec<String>>,
    /// Number of poses.
    pub(super) num_poses: Option<u64>,
    /// Number of the turn signal to give, where the model says one.
    pub(super) turn_indicator: Option<i64>,
    /// Where other road users are expected, where the model says it.
    pub(super) predicted_agents: Option<ArrayAnswer>,
    /// The same as arrays by name, where `output_format` is `npz`.
    pub(super) arrays: Option<BTreeMap<String, ArrayAnswer>>,
    /// What else is known of the frame.
    pub(super) meta: Map<String, Value>,
    /// How long its parts took.
    pub(super) timing_ms: TimingAnswer,
    /// Masks that come with boxes, by the model's names for them.
    #[serde(flatten)]
    pub(super) masks: BTreeMap<String, ArrayAnswer>,
}

/// How an array of an answer is written.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum ArrayAnswerEncoding {
    /// A NumPy archive in base64, its array deflated.
    NpzCompressed,
    /// A PNG in base64, a grey value for each class.
    Png,
}

/// An array of an answer.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "AnswerArray")]
pub(super) struct ArrayAnswer {
    /// How `data` is written.
    pub(super) encoding: ArrayAnswerEncoding,
    /// Name of the array in the archive.
    pub(super) key: String,
    /// Type of the elements.
    pub(super) dtype: ArrayType,
    /// Lengths, outermost first.
    pub(super) shape: Vec<u64>,
    /// Base64.
    pub(super) data: String,
}

/// A detection: a box in space (`center`, `size`, `yaw`, `velocity`) or in an image (`box_xyxy`).
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Detection")]
pub(super) struct DetectionAnswer {
    /// Class name.
    pub(super) label: String,
    /// Number of the class.
    pub(super) label_id: u32,
    /// Confidence, 0 to 1.
    pub(super) score: f64,
    /// Middle of a box in space, in metres.
    pub(super) center: Option<[f64; 3]>,
    /// Length, width and height in metres.
    pub(super) size: Option<[f64; 3]>,
    /// Heading in radians.
    pub(super) yaw: Option<f64>,
    /// Speed along x and y in m/s, where it is known.
    pub(super) velocity: Option<[f64; 2]>,
    /// Left, top, right, bottom of a box in an image, in pixels.
    pub(super) box_xyxy: Option<[f64; 4]>,
}

/// Milliseconds.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Timing")]
pub(super) struct TimingAnswer {
    /// From the request's data to the network's input.
    pub(super) preprocess: f64,
    /// Upload, replay, and reading of the output.
    pub(super) device: f64,
    /// From the output to detections.
    pub(super) postprocess: f64,
    /// All of it.
    pub(super) total: f64,
}

fn document() -> Value {
    let settings = SchemaSettings::draft2020_12();
    let settings = settings.with(|settings| settings.definitions_path = "/components/schemas".into());
    let mut generator = settings.into_generator();
    let request = json!(generator.subschema_for::<PredictRequest>());
    let routes = json!(generator.subschema_for::<RoutesAnswer>());
    let health = json!(generator.subschema_for::<HealthAnswer>());
    let info = json!(generator.subschema_for::<InfoAnswer>());
    let models = json!(generator.subschema_for::<ModelsAnswer>());
    let predict = json!(generator.subschema_for::<PredictAnswer>());
    let problem = json!(generator.subschema_for::<ProblemAnswer>());
    let schemas = generator.take_definitions(true);

    let problem = |about: &str| json!({ "description": about, "content": { "application/json": { "schema": problem } } });
    let no_token = problem("No bearer token, or another one.");
    let other_host =
        problem("Asked by another name than one of this machine, where it listens on that alone.");
    let unavailable = || {
        let mut answer = problem("There is no model yet or any more, or no room for the request now.");
        answer["headers"] = json!({
            "Retry-After": { "description": "Seconds.", "schema": { "type": "string" } },
        });
        answer
    };
    let mut paths = Map::new();
    for (method, path, guarded, about) in ROUTES {
        let answer = match path {
            "/" => json!({ "application/json": { "schema": routes } }),
            "/health" | "/v1/health" => json!({ "application/json": { "schema": health } }),
            "/info" => json!({ "application/json": { "schema": info } }),
            "/v1/models" => json!({ "application/json": { "schema": models } }),
            "/metrics" => json!({ "text/plain": { "schema": { "type": "string" } } }),
            "/predict" => json!({ "application/json": { "schema": predict } }),
            _ => json!({ "application/json": { "schema": { "type": "object" } } }),
        };
        let mut responses = Map::new();
        responses.insert(
            "200".to_owned(),
            json!({ "description": about, "content": answer }),
        );
        responses.insert("403".to_owned(), other_host.clone());
        if guarded {
            responses.insert("401".to_owned(), no_token.clone());
        }
        if matches!(path, "/info" | "/predict") {
            responses.insert("503".to_owned(), unavailable());
        }
        let mut operation = json!({ "summary": about, "responses": responses });
        if !guarded {
            operation["security"] = json!([]);
        }
        if path == "/predict" {
            operation["requestBody"] = json!({
                "required": true,
                "content": { "application/json": { "schema": request } },
            });
            let answers = [
                (
                    "400",
                    "Data or parameters that the model does not take, or a body that is too long.",
                ),
                ("408", "A body that does not come in time."),
                ("415", "A body that is not application/json."),
                ("422", "A body that is no JSON, or not of this form."),
                ("500", "The model failed."),
            ];
            for (status, about) in answers {
                operation["responses"][status] = problem(about);
            }
        }
        paths.insert(path.to_owned(), json!({ method.to_lowercase(): operation }));
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Sensorium",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "A perception model behind HTTP. Every answer that is not 200 is {\"detail\": ...}.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "security": [{ "bearer": [] }, {}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": { "bearer": { "type": "http", "scheme": "bearer" } },
        },
    })
}
