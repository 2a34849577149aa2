//! What a bundle pins, and whether a running service is that.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Manifest;

/// What a service says of the bundle that it runs, under `bundle` of its `/info`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Pinned {
    /// Name of the model.
    pub name: String,
    /// Version of the bundle.
    pub version: String,
    /// The one revision that the weights come from; empty where it is not known.
    pub revision: String,
    /// SHA-256 of the weights in hexadecimal; empty where the model names none.
    pub weights_sha256: String,
    /// SHA-256 of every file of the bundle in hexadecimal, by the file's name.
    pub files: BTreeMap<String, String>,
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
        files: manifest
            .files
            .iter()
            .map(|(name, file)| (name.clone(), file.sha256.clone()))
            .collect(),
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
    let expected = pinned.files.iter();
    let expected = expected.map(|(name, digest)| (name.clone(), Value::from(digest.as_str())));
    entries("files", told, &expected.collect(), &mut differences);
    entries("model", told, &pinned.model, &mut differences);
    differences
}

fn shown(value: Option<&Value>) -> String {
    value.map_or_else(|| "nothing".to_owned(), Value::to_string)
}

/// What is different between the entries of a part that is told and those that are pinned.
fn entries(part: &str, told: &Value, pinned: &Map<String, Value>, differences: &mut Vec<String>) {
    let empty = Map::new();
    let told = told.get(part).and_then(Value::as_object).unwrap_or(&empty);
    for (key, expected) in pinned {
        if told.get(key) != Some(expected) {
            differences.push(format!(
                "`{part}.{key}` is {}, and the bundle pins {expected}",
                shown(told.get(key))
            ));
        }
    }
    for key in told.keys().filter(|key| !pinned.contains_key(*key)) {
        differences.push(format!(
            "`{part}.{key}` is {}, and the bundle has none",
            shown(told.get(key))
        ));
    }
}
