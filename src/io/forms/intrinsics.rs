//! Intrinsics of a camera in every spelling that is in use.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::InputError;
use super::error::shown_json;
use super::transform::{finite, known, numbers, rows3};

/// Three rows of three: pixels from rays in the camera's optical frame.
pub type Intrinsics = [[f64; 3]; 3];

/// Intrinsics as they were written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct IntrinsicsForm(#[serde(deserialize_with = "super::limited_value")] pub Value);

impl JsonSchema for IntrinsicsForm {
    fn schema_name() -> Cow<'static, str> {
        "Intrinsics".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Intrinsics in pixels: 3 x 3 rows, their 9 numbers, {matrix}, {k}, or {fx, fy, cx, cy}.",
            "type": ["array", "object"],
        })
    }
}

const SPELLINGS: &str = "3 x 3 rows, 9 numbers, {matrix}, {k}, or {fx, fy, cx, cy} with an optional skew";

/// Intrinsics in any of these spellings: 3 x 3 rows; their 9 numbers, as `CameraInfo.k` has them; either of both as
/// `{"matrix": ...}` or `{"k": ...}`; `{"fx", "fy", "cx", "cy"}`, with `skew` where there is one.
///
/// # Errors
/// [`InputError`] with paths below `field`, also for focal lengths that are not above 0 and a last row that is not
/// `[0, 0, 1]`.
pub fn parse_intrinsics(value: &Value, field: &str) -> Result<Intrinsics, InputError> {
    let matrix = match value {
        Value::Array(items) if items.len() == 9 => flat(value, field)?,
        Value::Array(_) => rows3(value, field)?,
        Value::Object(entries) => {
            if let Some((name, inner)) = ["matrix", "k"]
                .iter()
                .find_map(|&name| Some((name, entries.get(name)?)))
            {
                known(entries, &[name], field)?;
                let field = format!("{field}.{name}");
                match inner.as_array().map(Vec::len) {
                    Some(9) => flat(inner, &field)?,
                    _ => rows3(inner, &field)?,
                }
            } else {
                known(entries, &["fx", "fy", "cx", "cy", "skew"], field)?;
                let number = |name: &str| match entries.get(name) {
                    Some(value) => finite(value, || format!("{field}.{name}")),
                    None => Err(InputError::missing(
                        format!("{field}.{name}"),
                        "a number of pixels",
                    )),
                };
                let skew = match entries.contains_key("skew") {
                    true => number("skew")?,
                    false => 0.0,
                };
                [
                    [number("fx")?, skew, number("cx")?],
                    [0.0, number("fy")?, number("cy")?],
                    [0.0, 0.0, 1.0],
                ]
            }
        }
        other => return Err(InputError::value(field, shown_json(other), SPELLINGS)),
    };
    let focal = [matrix[0][0], matrix[1][1]];
    if focal.iter().any(|&length| length <= 0.0) {
        let found = format!("focal lengths {} and {} px", focal[0], focal[1]);
        return Err(InputError::value(field, found, "lengths above 0"));
    }
    if matrix[1][0] != 0.0 || matrix[2] != [0.0, 0.0, 1.0] {
        let found = format!("{matrix:?}");
        return Err(InputError::value(
            field,
            found,
            "[[fx, skew, cx], [0, fy, cy], [0, 0, 1]]",
        ));
    }
    Ok(matrix)
}

fn flat(value: &Value, field: &str) -> Result<Intrinsics, InputError> {
    let [a, b, c, d, e, f, g, h, i] = numbers(value, field)?;
    Ok([[a, b, c], [d, e, f], [g, h, i]])
}
