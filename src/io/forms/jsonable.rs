//! Numbers as JSON has them: finite, and no longer than they are exact.

use serde_json::{Number, Value};

/// A number that JSON does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("non-finite value at {path}")]
pub struct NonFinite {
    /// Path of the number.
    pub path: String,
}

impl NonFinite {
    pub(super) fn at(path: impl Into<String>) -> Self {
        Self { path: path.into() }
    }
}

/// A float32 rounded to 6 significant digits, as the float64 with those digits.
#[must_use]
pub fn round_f32(value: f32) -> f64 {
    let exact = f64::from(value);
    // What `{:e}` writes is a number.
    format!("{exact:.5e}").parse().unwrap_or(exact)
}

/// Rounds every float64 that is a widened float32 with more digits than that has, 0.10000000149011612 for 0.1, as
/// [`round_f32`] does; other numbers stay as they are.
pub(crate) fn round_widened(value: &mut Value) {
    match value {
        Value::Number(number) => {
            let wide = number.as_f64().filter(|_| number.is_f64());
            let rounded = wide.and_then(|wide| {
                let narrow = wide as f32;
                let is_widened =
                    f64::from(narrow) == wide && wide.to_string().len() > narrow.to_string().len();
                is_widened.then(|| round_f32(narrow)).and_then(Number::from_f64)
            });
            if let Some(rounded) = rounded {
                *number = rounded;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(round_widened),
        Value::Object(entries) => entries.values_mut().for_each(round_widened),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// A float32 for JSON.
pub(super) fn float_value(value: f32, path: impl FnOnce() -> String) -> Result<Value, NonFinite> {
    match Number::from_f64(round_f32(value)) {
        Some(number) if value.is_finite() => Ok(Value::Number(number)),
        _ => Err(NonFinite::at(path())),
    }
}

/// A float64 for JSON, exactly.
pub(super) fn double_value(value: f64, path: impl FnOnce() -> String) -> Result<Value, NonFinite> {
    let number = Number::from_f64(value);
    number.map(Value::Number).ok_or_else(|| NonFinite::at(path()))
}
