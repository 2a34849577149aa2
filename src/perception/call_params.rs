//! Parameters that a caller may set for one frame: declared with type and range, checked before anything runs.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Value, json};

/// The most that a name may differ from the one that is advised, in edits.
const NEAR_EDITS: usize = 3;

/// Type and range of a parameter; a bound that is missing does not bind.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum CallParamKind {
    /// True or false.
    Bool,
    /// A whole number.
    Int {
        /// Least value.
        min: Option<i64>,
        /// Greatest value.
        max: Option<i64>,
    },
    /// A finite number.
    Float {
        /// Least value.
        min: Option<f64>,
        /// Greatest value.
        max: Option<f64>,
    },
}

impl fmt::Display for CallParamKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn range<T: fmt::Display>(
            f: &mut fmt::Formatter<'_>,
            what: &str,
            min: Option<T>,
            max: Option<T>,
        ) -> fmt::Result {
            match (min, max) {
                (Some(min), Some(max)) => write!(f, "{what} from {min} to {max}"),
                (Some(min), None) => write!(f, "{what} of at least {min}"),
                (None, Some(max)) => write!(f, "{what} of at most {max}"),
                (None, None) => f.write_str(what),
            }
        }
        match *self {
            Self::Bool => f.write_str("true or false"),
            Self::Int { min, max } => range(f, "a whole number", min, max),
            Self::Float { min, max } => range(f, "a finite number", min, max),
        }
    }
}

/// A parameter that a model takes with a frame.
#[derive(Debug, Clone, PartialEq)]
pub struct CallParam {
    /// Its name.
    pub name: &'static str,
    /// Type and range.
    pub kind: CallParamKind,
    /// What holds where a caller says nothing; `None` where that is more than one number, as a threshold for each class.
    pub default: Option<CallValue>,
    /// What it does, in a sentence.
    pub about: &'static str,
}

/// A value of a parameter, as a caller has it.
#[derive(Debug, Clone, PartialEq)]
pub enum CallValue {
    /// True or false.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A number.
    Float(f64),
    /// Text: a number in text is taken for the number.
    Text(String),
}

impl fmt::Display for CallValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => write!(f, "{value}"),
            Self::Int(value) => write!(f, "{value}"),
            Self::Float(value) => write!(f, "{value}"),
            // Values come from outside, and messages go to terminals.
            Self::Text(text) => write!(f, "{:?}", text.chars().take(64).collect::<String>()),
        }
    }
}

impl From<bool> for CallValue {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i64> for CallValue {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<f64> for CallValue {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

impl From<&str> for CallValue {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<&CallValue> for Value {
    fn from(value: &CallValue) -> Self {
        match value {
            CallValue::Bool(value) => json!(value),
            CallValue::Int(value) => json!(value),
            CallValue::Float(value) => json!(value),
            CallValue::Text(text) => json!(text),
        }
    }
}

/// Why parameters of a call are refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CallParamError {
    /// A name that the model does not have.
    #[error("the model has no parameter `{name}`: {advice}")]
    Unknown {
        /// The name.
        name: String,
        /// The nearest name or all names, in words.
        advice: String,
    },
    /// A value of another type.
    #[error("parameter `{name}` is {found}; expected {expected}")]
    Type {
        /// The parameter.
        name: &'static str,
        /// The value.
        found: CallValue,
        /// What is taken.
        expected: CallParamKind,
    },
    /// A value outside its range.
    #[error("parameter `{name}` is {found}; expected {expected}")]
    Range {
        /// The parameter.
        name: &'static str,
        /// The value.
        found: CallValue,
        /// What is taken.
        expected: CallParamKind,
    },
    /// One parameter twice in a call.
    #[error("parameter `{name}` is given twice")]
    Twice {
        /// The parameter.
        name: &'static str,
    },
    /// A value that is no number, text or truth value.
    #[error("parameter `{name}` is {found}; expected a number, a text, true or false")]
    Json {
        /// The parameter.
        name: String,
        /// What it is instead, in words.
        found: &'static str,
    },
}

/// Parameters of one call, checked: only those that were given.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CallParams(BTreeMap<&'static str, CallValue>);

impl CallParams {
    /// Checks what a caller gives against what a model declares. True and false are no numbers, whole numbers may be
    /// written with a point (`3.0`), other numbers must be finite, and numbers may come as text.
    ///
    /// # Errors
    /// [`CallParamError`]: the first that is wrong.
    pub fn check<'a>(
        declared: &[CallParam],
        given: impl IntoIterator<Item = (&'a str, CallValue)>,
    ) -> Result<Self, CallParamError> {
        let mut checked = BTreeMap::new();
        for (name, value) in given {
            let param = declared.iter().find(|param| param.name == name);
            let param = param.ok_or_else(|| unknown(declared, name))?;
            if checked.insert(param.name, param.value(value)?).is_some() {
                return Err(CallParamError::Twice { name: param.name });
            }
        }
        Ok(Self(checked))
    }

    /// As [`Self::check`] for the entries of a JSON object.
    ///
    /// # Errors
    /// [`CallParamError`].
    pub fn check_json(
        declared: &[CallParam],
        given: &serde_json::Map<String, Value>,
    ) -> Result<Self, CallParamError> {
        let values = given
            .iter()
            .map(|(name, value)| Ok((name.as_str(), of_json(name, value)?)));
        let values: Vec<(&str, CallValue)> = values.collect::<Result<_, CallParamError>>()?;
        Self::check(declared, values)
    }

    /// Whether none was given.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A number, if it was given.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<f64> {
        match self.0.get(name)? {
            CallValue::Int(value) => Some(*value as f64),
            CallValue::Float(value) => Some(*value),
            CallValue::Bool(_) | CallValue::Text(_) => None,
        }
    }

    /// A whole number, if it was given.
    #[must_use]
    pub fn whole(&self, name: &str) -> Option<i64> {
        match self.0.get(name)? {
            CallValue::Int(value) => Some(*value),
            _ => None,
        }
    }

    /// A truth value, if it was given.
    #[must_use]
    pub fn truth(&self, name: &str) -> Option<bool> {
        match self.0.get(name)? {
            CallValue::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// All that were given, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &CallValue)> {
        self.0.iter().map(|(&name, value)| (name, value))
    }
}

impl CallParam {
    /// What the parameter is, for reports.
    #[must_use]
    pub fn describe(&self) -> Value {
        let (kind, min, max) = match self.kind {
            CallParamKind::Bool => ("bool", Value::Null, Value::Null),
            CallParamKind::Int { min, max } => ("int", json!(min), json!(max)),
            CallParamKind::Float { min, max } => ("float", json!(min), json!(max)),
        };
        json!({
            "type": kind,
            "min": min,
            "max": max,
            "default": self.default.as_ref().map(Value::from),
            "about": self.about,
        })
    }

    /// The value in the parameter's own type.
    fn value(&self, given: CallValue) -> Result<CallValue, CallParamError> {
        let typed = match self.kind {
            CallParamKind::Bool => matches!(given, CallValue::Bool(_)).then(|| given.clone()),
            CallParamKind::Int { .. } => whole(&given).map(CallValue::Int),
            CallParamKind::Float { .. } => number(&given).map(CallValue::Float),
        };
        let Some(typed) = typed else {
            return Err(CallParamError::Type {
                name: self.name,
                found: given,
                expected: self.kind,
            });
        };
        let inside = match (self.kind, &typed) {
            (CallParamKind::Int { min, max }, CallValue::Int(v)) => {
                min.is_none_or(|min| *v >= min) && max.is_none_or(|max| *v <= max)
            }
            (CallParamKind::Float { min, max }, CallValue::Float(v)) => {
                min.is_none_or(|min| *v >= min) && max.is_none_or(|max| *v <= max)
            }
            _ => true,
        };
        match inside {
            true => Ok(typed),
            false => Err(CallParamError::Range {
                name: self.name,
                found: given,
                expected: self.kind,
            }),
        }
    }
}

fn whole(value: &CallValue) -> Option<i64> {
    // Every whole number of this range is a float64 of its own.
    const LIMIT: f64 = 9_007_199_254_740_992.0;
    match value {
        CallValue::Int(v) => Some(*v),
        CallValue::Float(v) => (v.fract() == 0.0 && v.abs() <= LIMIT).then_some(*v as i64),
        CallValue::Text(text) => match text.trim().parse() {
            Ok(v) => Some(v),
            Err(_) => whole(&CallValue::Float(text.trim().parse().ok()?)),
        },
        CallValue::Bool(_) => None,
    }
}

fn number(value: &CallValue) -> Option<f64> {
    let number = match value {
        CallValue::Int(v) => *v as f64,
        CallValue::Float(v) => *v,
        CallValue::Text(text) => text.trim().parse().ok()?,
        CallValue::Bool(_) => return None,
    };
    number.is_finite().then_some(number)
}

fn of_json(name: &str, value: &Value) -> Result<CallValue, CallParamError> {
    let wrong = |found| CallParamError::Json {
        name: shown(name),
        found,
    };
    match value {
        Value::Bool(v) => Ok(CallValue::Bool(*v)),
        Value::Number(v) => match (v.as_i64(), v.as_f64()) {
            (Some(v), _) => Ok(CallValue::Int(v)),
            (None, Some(v)) => Ok(CallValue::Float(v)),
            (None, None) => Err(wrong("a number beyond 64 bits")),
        },
        Value::String(v) => Ok(CallValue::Text(v.clone())),
        Value::Null => Err(wrong("null")),
        Value::Array(_) => Err(wrong("a list")),
        Value::Object(_) => Err(wrong("an object")),
    }
}

fn unknown(declared: &[CallParam], name: &str) -> CallParamError {
    let near = declared
        .iter()
        .map(|param| (strsim::levenshtein(name, param.name), param.name))
        .min()
        .filter(|&(edits, _)| edits <= NEAR_EDITS);
    let names: Vec<&str> = declared.iter().map(|param| param.name).collect();
    CallParamError::Unknown {
        name: shown(name),
        advice: match (near, &names[..]) {
            (Some((_, near)), _) => format!("did you mean `{near}`?"),
            (None, []) => "it takes none".to_owned(),
            (None, names) => format!("it takes {}", names.join(", ")),
        },
    }
}

/// Names come from outside, and messages go to terminals.
fn shown(name: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    name.chars().take(64).map(plain).collect()
}
