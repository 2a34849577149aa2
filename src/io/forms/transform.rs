//! Rigid transforms in every spelling that is in use.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::error::{shown, shown_json};
use super::{InputError, InputFault};

/// How far a rotation may be from one: of R·Rᵀ from the identity, element by element.
const MAX_SKEW: f64 = 1e-3;

/// A rigid transform as it was written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TransformForm(#[serde(deserialize_with = "super::limited_value")] pub Value);

impl JsonSchema for TransformForm {
    fn schema_name() -> Cow<'static, str> {
        "Transform".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A rigid transform: 4 x 4 or 3 x 4 rows; {matrix}; {translation, rotation_wxyz | \
                rotation_xyzw | rotation}; or {x, y, z, roll, pitch, yaw} in metres and radians, \
                R = Rz(yaw) Ry(pitch) Rx(roll).",
            "type": ["array", "object"],
        })
    }
}

/// A 4 x 4 matrix, row by row, of a rigid transform in any of these spellings:
///
/// - rows of a 4 x 4 or a 3 x 4 matrix, or `{"matrix": rows}`
/// - `{"translation": [x, y, z], ...}` with one of `rotation_wxyz`, `rotation_xyzw` (a quaternion of any length but 0) and
///   `rotation` (3 x 3 rows); without one there is no rotation
/// - `{"x", "y", "z", "roll", "pitch", "yaw"}` in metres and radians, R = Rz(yaw) · Ry(pitch) · Rx(roll) as in ROS; what
///   is left out is 0
///
/// # Errors
/// [`InputError`] with paths below `field`, also for a matrix that is not rigid.
pub fn parse_transform(value: &Value, field: &str) -> Result<[f64; 16], InputError> {
    match value {
        Value::Array(_) => matrix(value, field),
        Value::Object(entries) => {
            if let Some(inner) = entries.get("matrix") {
                known(entries, &["matrix"], field)?;
                return matrix(inner, &format!("{field}.matrix"));
            }
            let parts = ["translation", "rotation_wxyz", "rotation_xyzw", "rotation"];
            if parts.iter().any(|&part| entries.contains_key(part)) {
                known(entries, &parts, field)?;
                return of_parts(entries, field);
            }
            let angles = ["x", "y", "z", "roll", "pitch", "yaw"];
            known(entries, &angles, field)?;
            if entries.is_empty() {
                return Err(InputError::missing(field, SPELLINGS));
            }
            let number = |name: &str| match entries.get(name) {
                Some(value) => finite(value, || format!("{field}.{name}")),
                None => Ok(0.0),
            };
            let [roll, pitch, yaw] = [number("roll")?, number("pitch")?, number("yaw")?];
            Ok(assemble(
                of_angles(roll, pitch, yaw),
                [number("x")?, number("y")?, number("z")?],
            ))
        }
        other => Err(InputError::value(field, shown_json(other), SPELLINGS)),
    }
}

const SPELLINGS: &str = "4 x 4 or 3 x 4 rows, {matrix}, {translation, rotation_wxyz | rotation_xyzw | rotation} or \
    {x, y, z, roll, pitch, yaw}";

/// Refuses keys that a spelling does not have.
pub(super) fn known(entries: &Map<String, Value>, names: &[&str], field: &str) -> Result<(), InputError> {
    match entries.keys().find(|key| !names.contains(&key.as_str())) {
        Some(key) => {
            let reason = format!("not expected beside {}", names.join(", "));
            Err(InputError::unexpected(format!("{field}.{}", shown(key)), reason))
        }
        None => Ok(()),
    }
}

/// A finite number.
pub(super) fn finite(value: &Value, field: impl Fn() -> String) -> Result<f64, InputError> {
    let number = value.as_f64().filter(|number| number.is_finite());
    number.ok_or_else(|| InputError::value(field(), shown_json(value), "a finite number"))
}

/// So many finite numbers.
pub(super) fn numbers<const N: usize>(value: &Value, field: &str) -> Result<[f64; N], InputError> {
    let wrong = |found| InputError::value(field, found, format!("a list of {N} numbers"));
    let items = value.as_array().ok_or_else(|| wrong(shown_json(value)))?;
    if items.len() != N {
        return Err(wrong(format!("a list of {}", items.len())));
    }
    let mut out = [0.0; N];
    for (at, item) in items.iter().enumerate() {
        out[at] = finite(item, || format!("{field}[{at}]"))?;
    }
    Ok(out)
}

fn matrix(value: &Value, field: &str) -> Result<[f64; 16], InputError> {
    let rows = value.as_array().map_or(&[][..], Vec::as_slice);
    if !matches!(rows.len(), 3 | 4) {
        let found = shown_json(value);
        return Err(InputError::value(
            field,
            found,
            "4 rows of 4 numbers, or 3 without the last",
        ));
    }
    let mut full = [0.0; 16];
    full[15] = 1.0;
    for (at, row) in rows.iter().enumerate() {
        let row: [f64; 4] = numbers(row, &format!("{field}[{at}]"))?;
        full[4 * at..4 * at + 4].copy_from_slice(&row);
    }
    let last = [full[12], full[13], full[14], full[15]];
    if last
        .iter()
        .zip([0.0, 0.0, 0.0, 1.0])
        .any(|(a, b)| (a - b).abs() > 1e-6)
    {
        return Err(InputError::value(
            format!("{field}[3]"),
            format!("{last:?}"),
            "[0, 0, 0, 1]",
        ));
    }
    full[12..].copy_from_slice(&[0.0, 0.0, 0.0, 1.0]);
    let row = |at: usize| [full[4 * at], full[4 * at + 1], full[4 * at + 2]];
    rigid([row(0), row(1), row(2)], field)?;
    Ok(full)
}

fn of_parts(entries: &Map<String, Value>, field: &str) -> Result<[f64; 16], InputError> {
    let translation = match entries.get("translation") {
        Some(value) => numbers(value, &format!("{field}.translation"))?,
        None => {
            return Err(InputError::missing(
                format!("{field}.translation"),
                "[x, y, z] in metres",
            ));
        }
    };
    let given = |name: &str| entries.get(name).map(|value| (value, format!("{field}.{name}")));
    let rotation = match (given("rotation_wxyz"), given("rotation_xyzw"), given("rotation")) {
        (None, None, None) => [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        (Some((value, field)), None, None) => of_quaternion(numbers(value, &field)?, &field)?,
        (None, Some((value, field)), None) => {
            let [x, y, z, w] = numbers(value, &field)?;
            of_quaternion([w, x, y, z], &field)?
        }
        (None, None, Some((value, field))) => {
            let rotation = rows3(value, &field)?;
            rigid(rotation, &field)?;
            rotation
        }
        _ => return Err(InputError::unexpected(field, "there is more than one rotation")),
    };
    Ok(assemble(rotation, translation))
}

/// Three rows of three numbers.
pub(super) fn rows3(value: &Value, field: &str) -> Result<[[f64; 3]; 3], InputError> {
    let items = value.as_array().map_or(&[][..], Vec::as_slice);
    let [a, b, c] = items else {
        return Err(InputError::value(field, shown_json(value), "3 rows of 3 numbers"));
    };
    let row = |at: usize, value| numbers(value, &format!("{field}[{at}]"));
    Ok([row(0, a)?, row(1, b)?, row(2, c)?])
}

/// Whether a rotation is one: its rows are of length 1, at right angles, and right-handed.
fn rigid(rows: [[f64; 3]; 3], field: &str) -> Result<(), InputError> {
    let dot = |a: [f64; 3], b: [f64; 3]| a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
    let skewed = (0..3).any(|i| {
        (0..3).any(|j| {
            let expected = if i == j { 1.0 } else { 0.0 };
            // Written so that what is no number is skewed.
            !((dot(rows[i], rows[j]) - expected).abs() <= MAX_SKEW)
        })
    });
    let [a, b, c] = rows;
    let cross = [
        b[1] * c[2] - b[2] * c[1],
        b[2] * c[0] - b[0] * c[2],
        b[0] * c[1] - b[1] * c[0],
    ];
    if skewed || dot(a, cross) <= 0.0 {
        let reason =
            "its rotation is none: rows of length 1 at right angles, without a reflection, are expected";
        return Err(InputError::new(field, InputFault::Unexpected(reason.to_owned())));
    }
    Ok(())
}

fn of_quaternion(wxyz: [f64; 4], field: &str) -> Result<[[f64; 3]; 3], InputError> {
    let norm = wxyz.iter().map(|v| v * v).sum::<f64>().sqrt();
    if !(norm > 1e-9 && norm.is_finite()) {
        return Err(InputError::value(
            field,
            format!("a quaternion of length {norm}"),
            "one of length 1",
        ));
    }
    let [w, x, y, z] = wxyz.map(|v| v / norm);
    Ok([
        [
            1.0 - 2.0 * (y * y + z * z),
            2.0 * (x * y - z * w),
            2.0 * (x * z + y * w),
        ],
        [
            2.0 * (x * y + z * w),
            1.0 - 2.0 * (x * x + z * z),
            2.0 * (y * z - x * w),
        ],
        [
            2.0 * (x * z - y * w),
            2.0 * (y * z + x * w),
            1.0 - 2.0 * (x * x + y * y),
        ],
    ])
}

fn of_angles(roll: f64, pitch: f64, yaw: f64) -> [[f64; 3]; 3] {
    let ((sr, cr), (sp, cp), (sy, cy)) = (roll.sin_cos(), pitch.sin_cos(), yaw.sin_cos());
    [
        [cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr],
        [sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr],
        [-sp, cp * sr, cp * cr],
    ]
}

fn assemble(r: [[f64; 3]; 3], t: [f64; 3]) -> [f64; 16] {
    [
        r[0][0], r[0][1], r[0][2], t[0], //
        r[1][0], r[1][1], r[1][2], t[1], //
        r[2][0], r[2][1], r[2][2], t[2], //
        0.0, 0.0, 0.0, 1.0,
    ]
}
