//! What knobs are set to.

use std::collections::BTreeMap;
use std::fmt;

use super::KnobError;

/// What a knob is set to.
#[derive(Debug, Clone, PartialEq)]
pub enum KnobValue {
    /// On or off.
    Flag(bool),
    /// A whole number.
    Int(i64),
    /// A number.
    Float(f64),
    /// A word.
    Text(String),
}

impl KnobValue {
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::Flag(_) => "a switch: 1, true, yes, on or 0, false, no, off",
            Self::Int(_) => "a whole number",
            Self::Float(_) => "a finite number",
            Self::Text(_) => "text",
        }
    }

    /// Reads a text as a value of the same kind.
    pub(super) fn parse_like(&self, text: &str) -> Option<Self> {
        let text = text.trim();
        match self {
            Self::Flag(_) => parse_bool(text).map(Self::Flag),
            Self::Int(_) => text.parse().ok().map(Self::Int),
            Self::Float(_) => text.parse().ok().filter(|x: &f64| x.is_finite()).map(Self::Float),
            Self::Text(_) => Some(Self::Text(text.to_owned())),
        }
    }
}

impl fmt::Display for KnobValue {
    /// As the environment holds it: flags are `1` and `0`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(on) => f.write_str(if *on { "1" } else { "0" }),
            Self::Int(value) => value.fmt(f),
            Self::Float(value) => value.fmt(f),
            Self::Text(value) => f.write_str(value),
        }
    }
}

impl From<bool> for KnobValue {
    fn from(value: bool) -> Self {
        Self::Flag(value)
    }
}

impl From<i64> for KnobValue {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<f64> for KnobValue {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl From<&str> for KnobValue {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

/// `1`, `true`, `yes`, `on` or `0`, `false`, `no`, `off`, in any case; `None` for anything else.
#[must_use]
pub fn parse_bool(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Some(true),
        "0" | "false" | "no" | "off" => Some(false),
        _ => None,
    }
}

/// Where a setting came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KnobSource {
    /// Nobody set it.
    Default,
    /// Its environment variable.
    Environment,
    /// The program.
    Override,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Setting {
    pub(super) value: KnobValue,
    pub(super) source: KnobSource,
    /// Whether the value is not the default.
    pub(super) overridden: bool,
}

/// Settings of all knobs, as they were read. They do not change.
#[derive(Debug, Clone, PartialEq)]
pub struct KnobValues {
    pub(super) prefix: String,
    pub(super) settings: BTreeMap<&'static str, Setting>,
}

impl KnobValues {
    fn setting(&self, name: &str) -> Result<&Setting, KnobError> {
        self.settings.get(name).ok_or_else(|| KnobError::Unknown {
            name: name.into(),
            known: self.settings.keys().copied().collect(),
        })
    }

    fn wrong_kind(name: &str, value: &KnobValue, expected: &'static str) -> KnobError {
        KnobError::Kind {
            from: name.into(),
            found: value.to_string(),
            expected,
        }
    }

    /// A knob's value.
    ///
    /// # Errors
    /// [`KnobError::Unknown`].
    pub fn get(&self, name: &str) -> Result<&KnobValue, KnobError> {
        Ok(&self.setting(name)?.value)
    }

    /// A switch.
    ///
    /// # Errors
    /// [`KnobError::Unknown`]; [`KnobError::Kind`] for a knob of another kind.
    pub fn flag(&self, name: &str) -> Result<bool, KnobError> {
        match self.get(name)? {
            KnobValue::Flag(on) => Ok(*on),
            other => Err(Self::wrong_kind(name, other, "a switch")),
        }
    }

    /// A whole number.
    ///
    /// # Errors
    /// As [`KnobValues::flag`].
    pub fn int(&self, name: &str) -> Result<i64, KnobError> {
        match self.get(name)? {
            KnobValue::Int(value) => Ok(*value),
            other => Err(Self::wrong_kind(name, other, "a whole number")),
        }
    }

    /// A number.
    ///
    /// # Errors
    /// As [`KnobValues::flag`].
    pub fn float(&self, name: &str) -> Result<f64, KnobError> {
        match self.get(name)? {
            KnobValue::Float(value) => Ok(*value),
            other => Err(Self::wrong_kind(name, other, "a number")),
        }
    }

    /// A word.
    ///
    /// # Errors
    /// As [`KnobValues::flag`].
    pub fn text(&self, name: &str) -> Result<&str, KnobError> {
        match self.get(name)? {
            KnobValue::Text(value) => Ok(value),
            other => Err(Self::wrong_kind(name, other, "text")),
        }
    }

    /// Who set a knob.
    ///
    /// # Errors
    /// [`KnobError::Unknown`].
    pub fn source(&self, name: &str) -> Result<KnobSource, KnobError> {
        Ok(self.setting(name)?.source)
    }

    /// The knobs that are not at their default, by name.
    #[must_use]
    pub fn overridden(&self) -> BTreeMap<&'static str, &KnobValue> {
        let settings = self.settings.iter().filter(|(_, setting)| setting.overridden);
        settings.map(|(&name, setting)| (name, &setting.value)).collect()
    }

    /// All settings, by name.
    #[must_use]
    pub fn as_dict(&self) -> BTreeMap<&'static str, &KnobValue> {
        let settings = self.settings.iter();
        settings.map(|(&name, setting)| (name, &setting.value)).collect()
    }

    /// The variables that give these settings.
    #[must_use]
    pub fn serve_env(&self) -> BTreeMap<String, String> {
        let settings = self.settings.iter();
        settings
            .map(|(name, setting)| (format!("{}_{name}", self.prefix), setting.value.to_string()))
            .collect()
    }
}
