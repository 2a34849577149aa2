//! What a bundle pins, and whether a running service is that.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Manifest;

/// What a service says of the bundle that it runs, under `bundle` of its `/info`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pinned {
    /// Name of the model.
    pub name: String,
    /// Version of the bundle.
    pub version: String,
    /// The one revision that the weights come from; empty where it is not known.
    pub revision: String,
    /// SHA-256 of the weights in hexadecimal; empty where the model names none.
    pub weights_sha256: String,
    /// Settings of the model, as in a pipeline file.
    pub model: Map<String, Value>,
}

/// What the manifest pins.
#[must_use]
pub fn pinned(manifest: &Manifest) -> Pinned {
    let weights = manifest.model.get("weights").and_then(Value::as_str);
    let file = weights.and_then(|name| manifest.files.get(name));
    Pinned {
        name: manifest.name.clone(),
        version: manifest.version.clone(),
        revision: manifest.source.revision.clone(),
        weights_sha256: file.map_or_else(String::new, |file| file.sha256.clone()),
        model: manifest.model.clone(),
    }
}

/// What is different between what a service tells of itself (its `/info`) and what a bundle pins, a line each; none if the
/// service is what the bundle pins.
#[must_use]
pub fn compare(info: &Value, pinned: &Pinned) -> Vec<String> {
    let Some(told) = info.get("bundle").filter(|told| told.is_object()) else {
        return vec!["the service runs no bundle: its `bundle` is not told".to_owned()];
    };
    let shown = |value: Option<&Value>| value.map_or_else(|| "nothing".to_owned(), Value::to_string);
    let mut differences = Vec::new();
    for (key, expected) in [
        ("name", &pinned.name),
        ("version", &pinned.version),
        ("revision", &pinned.revision),
        ("weights_sha256", &pinned.weights_sha256),
    ] {
        let found = told.get(key);
        if found.and_then(Value::as_str) != Some(expected) {
            differences.push(format!(
                "`{key}` is {}, and the bundle pins {expected:?}",
                shown(found)
            ));
        }
    }
    let empty = Map::new();
    let model = told.get("model").and_then(Value::as_object).unwrap_or(&empty);
    for (key, expected) in &pinned.model {
        if model.get(key) != Some(expected) {
            differences.push(format!(
                "`model.{key}` is {}, and the bundle pins {expected}",
                shown(model.get(key))
            ));
        }
    }
    for key in model.keys().filter(|key| !pinned.model.contains_key(*key)) {
        differences.push(format!(
            "`model.{key}` is {}, and the bundle does not set it",
            shown(model.get(key))
        ));
    }
    differences
}
