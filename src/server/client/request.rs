//! Building a request of files.

use std::path::{Path, PathBuf};

use ::base64::Engine;
use ::base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use crate::io::forms::BodyForm;

/// Why a request cannot be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A file that is no JSON.
    #[error("{} is no JSON: {source}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// A file of points whose kind is not known.
    #[error("{}: the extension of points is .bin, .npy, .npz or .pcd", path.display())]
    Extension {
        /// The file.
        path: PathBuf,
    },
}

/// What goes into a request.
#[derive(Debug, Clone, Default)]
pub struct RequestParts {
    /// File of points: `.bin`, `.npy`, `.npz` or `.pcd`.
    pub points: Option<PathBuf>,
    /// Names of its columns.
    pub fields: Option<Vec<String>>,
    /// Images, each with the name of its camera.
    pub images: Vec<(Option<String>, PathBuf)>,
    /// File of a calibration.
    pub calibration: Option<PathBuf>,
    /// Name of a calibration that the service has.
    pub preset: Option<String>,
    /// NumPy archive of plain arrays.
    pub inputs: Option<PathBuf>,
    /// Parameters.
    pub params: Map<String, Value>,
    /// The stream, and whether it begins anew.
    pub stream: Option<(String, bool)>,
    /// Form of the answer's arrays.
    pub form: BodyForm,
}

/// The body of a request.
///
/// # Errors
/// [`RequestError`].
pub fn build_request(parts: &RequestParts) -> Result<Value, RequestError> {
    let mut body = Map::new();
    let mut set = |name: &str, value: Value| body.insert(name.to_owned(), value);
    if let Some(path) = &parts.points {
        let extension = path
            .extension()
            .and_then(|e| e.to_str())
            .unwrap_or("")
            .to_ascii_lowercase();
        if !["bin", "npy", "npz", "pcd"].contains(&extension.as_str()) {
            return Err(RequestError::Extension { path: path.clone() });
        }
        let mut points = json!({ "format": extension, "data": base64_of(path)? });
        if let Some(fields) = &parts.fields {
            points["fields"] = json!(fields);
        }
        set("points", points);
    }
    if !parts.images.is_empty() {
        let one = |(camera, path): &(Option<String>, PathBuf)| -> Result<Value, RequestError> {
            let mut image = json!({ "data": base64_of(path)? });
            if let Some(camera) = camera {
                image["camera"] = json!(camera);
            }
            Ok(image)
        };
        let images: Result<Vec<Value>, RequestError> = parts.images.iter().map(one).collect();
        set("images", images?.into());
    }
    let mut calibration = match &parts.calibration {
        None => None,
        Some(path) => Some(
            serde_json::from_slice(&read(path)?).map_err(|source| RequestError::Json {
                path: path.clone(),
                source,
            })?,
        ),
    };
    if let Some(preset) = &parts.preset {
        match calibration.get_or_insert_with(|| json!({})) {
            Value::Object(entries) => drop(entries.insert("preset".to_owned(), json!(preset))),
            // The service says what is wrong with it.
            _ => {}
        }
    }
    if let Some(calibration) = calibration {
        set("calibration", calibration);
    }
    if let Some(path) = &parts.inputs {
        set("inputs", json!({ "npz": base64_of(path)? }));
    }
    if !parts.params.is_empty() {
        set("params", parts.params.clone().into());
    }
    if let Some((id, reset)) = &parts.stream {
        set("stream", json!({ "id": id, "reset": reset }));
    }
    if parts.form != BodyForm::Json {
        set("output_format", json!(parts.form));
    }
    Ok(Value::Object(body))
}

fn read(path: &Path) -> Result<Vec<u8>, RequestError> {
    std::fs::read(path).map_err(|source| RequestError::Read {
        path: path.to_owned(),
        source,
    })
}

fn base64_of(path: &Path) -> Result<String, RequestError> {
    Ok(STANDARD.encode(read(path)?))
}
