//! A value from a file, turned into the type that is expected of it.

use std::path::Path;
use std::sync::Arc;

use super::keys::{Generation, Param};
use crate::perception::param_file::{Item, ParamError, ParamOrigin, Value};

/// A value and everything that is known of where it comes from.
#[derive(Debug, Clone)]
pub(super) struct Given {
    pub(super) param: Param,
    /// As the file spells it.
    pub(super) key: String,
    /// Generation that brought this spelling.
    pub(super) since: Generation,
    pub(super) file: Arc<Path>,
    pub(super) line: u64,
    pub(super) value: Value,
}

impl Given {
    pub(super) fn origin(&self) -> ParamOrigin {
        ParamOrigin::file(&self.file, self.line)
    }

    /// The last name of the key, which for thresholds is a class.
    pub(super) fn last_name(&self) -> &str {
        self.key.rsplit('.').next().unwrap_or_default()
    }

    fn wrong(&self, value: &Value, line: u64, place: &str) -> ParamError {
        ParamError::wrong_type(
            ParamOrigin::file(&self.file, line),
            format!("{}{place}", self.key),
            value,
            self.param.expected(),
        )
    }

    fn one<T>(&self, read: impl Fn(&Value) -> Option<T>) -> Result<T, ParamError> {
        read(&self.value).ok_or_else(|| self.wrong(&self.value, self.line, ""))
    }

    fn many<T>(&self, read: impl Fn(&Value) -> Option<T>) -> Result<Vec<T>, ParamError> {
        let Value::List(items) = &self.value else {
            return Err(self.wrong(&self.value, self.line, ""));
        };
        let entry = |(i, item): (usize, &Item)| {
            read(&item.value).ok_or_else(|| self.wrong(&item.value, item.line, &format!("[{i}]")))
        };
        items.iter().enumerate().map(entry).collect()
    }

    pub(super) fn boolean(&self) -> Result<bool, ParamError> {
        self.one(|value| match value {
            Value::Bool(value) => Some(*value),
            _ => None,
        })
    }

    /// A number, written as one or as an integer.
    pub(super) fn number(&self) -> Result<f64, ParamError> {
        self.one(Value::number)
    }

    pub(super) fn numbers(&self) -> Result<Vec<f64>, ParamError> {
        self.many(Value::number)
    }

    pub(super) fn integers(&self) -> Result<Vec<i64>, ParamError> {
        self.many(|value| match value {
            Value::Int(value) => i64::try_from(*value).ok(),
            _ => None,
        })
    }

    /// A size: an integer that is not negative. Numbers with a fraction, `4.0` too, are none.
    pub(super) fn size(&self) -> Result<usize, ParamError> {
        self.one(|value| match value {
            Value::Int(value) => Some(*value),
            _ => None,
        })
        .and_then(|value| {
            usize::try_from(value).map_err(|_| ParamError::Value {
                at: self.origin(),
                key: self.key.clone(),
                found: value.to_string(),
                expected: self.param.expected().to_owned(),
            })
        })
    }

    pub(super) fn text(&self) -> Result<String, ParamError> {
        self.one(text)
    }

    pub(super) fn texts(&self) -> Result<Vec<String>, ParamError> {
        self.many(text)
    }

    /// A list of exactly `N` numbers.
    pub(super) fn array<const N: usize>(&self) -> Result<[f32; N], ParamError> {
        let numbers = self.numbers()?;
        let found = numbers.len();
        // What is out of range becomes infinite, and is refused as that.
        let narrow: Vec<f32> = numbers.into_iter().map(|number| number as f32).collect();
        narrow.try_into().map_err(|_| ParamError::Length {
            at: self.origin(),
            key: self.key.clone(),
            found,
            expected: self.param.expected().to_owned(),
        })
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::Text(text) => Some(text.clone()),
        _ => None,
    }
}
