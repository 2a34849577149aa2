//! Parameters of Autoware's nodes as a parameter file, which is how the library reads them.

use std::io::Write as _;

use sensorium::pipeline::Overrides;
use serde_json::{Map, Value as Json, json};
use tempfile::NamedTempFile;

use crate::settings::{Family, ParameterError, Parameters, Settings, Value};

/// The changes of the pipeline file that the node's parameters ask for, with the file that they may need: it is gone
/// when dropped, so it must be kept until the pipeline has been loaded and run.
///
/// # Errors
/// [`ParameterError`].
pub fn overrides(settings: &Settings) -> Result<(Overrides, Option<NamedTempFile>), ParameterError> {
    let file = match &settings.model {
        // YOLOX takes the few parameters that it has from the pipeline file.
        Some((_, Family::CenterPoint)) if !settings.of_model.is_empty() => Some(write(&settings.of_model)?),
        _ => None,
    };
    let overrides = settings.overrides(file.as_ref().map(NamedTempFile::path))?;
    Ok((overrides, file))
}

/// Writes a parameter file for any node: names with dots become groups.
fn write(parameters: &Parameters) -> Result<NamedTempFile, ParameterError> {
    let failed = |error: std::io::Error| ParameterError::Unwritable(error.to_string());
    let mut tree = Map::new();
    for (name, value) in parameters {
        insert(&mut tree, name, name, json_of(value))?;
    }
    let text = json!({ "/**": { "ros__parameters": tree } }).to_string();
    let mut file = tempfile::Builder::new()
        .prefix("sensorium-")
        .suffix(".param.yaml")
        .tempfile()
        .map_err(failed)?;
    // JSON is YAML.
    file.write_all(text.as_bytes()).map_err(failed)?;
    file.flush().map_err(failed)?;
    Ok(file)
}

fn insert(group: &mut Map<String, Json>, path: &str, name: &str, value: Json) -> Result<(), ParameterError> {
    let clash = || ParameterError::Clash(name.to_owned());
    match path.split_once('.') {
        Some((first, rest)) => match group.entry(first).or_insert_with(|| json!({})) {
            Json::Object(inner) => insert(inner, rest, name, value),
            _ => Err(clash()),
        },
        None if group.contains_key(path) => Err(clash()),
        None => {
            group.insert(path.to_owned(), value);
            Ok(())
        }
    }
}

fn json_of(value: &Value) -> Json {
    match value {
        Value::NotSet => Json::Null,
        Value::Bool(value) => json!(value),
        Value::Integer(value) => json!(value),
        Value::Double(value) => json!(value),
        Value::Text(value) => json!(value),
        Value::Bools(values) => json!(values),
        Value::Bytes(values) => json!(values),
        Value::Integers(values) => json!(values),
        Value::Doubles(values) => json!(values),
        Value::Texts(values) => json!(values),
    }
}
