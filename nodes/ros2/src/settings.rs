//! What the node's ROS parameters say of the pipeline that it runs.

use std::path::PathBuf;

use sensorium::pipeline::Overrides;

/// A value of a ROS parameter.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// No value: a name that was declared only.
    NotSet,
    /// `bool`.
    Bool(bool),
    /// `integer`.
    Integer(i64),
    /// `double`.
    Double(f64),
    /// `string`.
    Text(String),
    /// `bool_array`.
    Bools(Vec<bool>),
    /// `byte_array`.
    Bytes(Vec<u8>),
    /// `integer_array`.
    Integers(Vec<i64>),
    /// `double_array`.
    Doubles(Vec<f64>),
    /// `string_array`.
    Texts(Vec<String>),
}

impl Value {
    /// The type as ROS 2 calls it.
    #[must_use]
    pub const fn type_name(&self) -> &'static str {
        match self {
            Self::NotSet => "not set",
            Self::Bool(_) => "bool",
            Self::Integer(_) => "integer",
            Self::Double(_) => "double",
            Self::Text(_) => "string",
            Self::Bools(_) => "bool_array",
            Self::Bytes(_) => "byte_array",
            Self::Integers(_) => "integer_array",
            Self::Doubles(_) => "double_array",
            Self::Texts(_) => "string_array",
        }
    }
}

/// Parameters by name, in the order in which they were given.
pub type Parameters = Vec<(String, Value)>;

/// Why the parameters describe no run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParameterError {
    /// A parameter that must be there is not.
    #[error("the parameter `{name}` is missing: {expected}")]
    Missing {
        /// Its name.
        name: &'static str,
        /// What it is to say.
        expected: &'static str,
    },
    /// A parameter of another type, or a value that cannot be.
    #[error("the parameter `{name}` is {found}; expected {expected}")]
    Wrong {
        /// Its name.
        name: String,
        /// Its value or type.
        found: String,
        /// What it is to say.
        expected: &'static str,
    },
    /// A name that is a value and a group at once.
    #[error("the parameter `{0}` is both a value and a group of parameters; remove one of them")]
    Clash(String),
    /// The file of a model's parameters cannot be written.
    #[error("the parameters of the model cannot be handed on: {0}")]
    Unwritable(String),
}

/// The node of Autoware whose parameters this node takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// `lidar_centerpoint`.
    CenterPoint,
    /// `tensorrt_yolox`.
    Yolox,
}

/// Names of the node's own parameters, with what they say. Every other one belongs to the model.
pub const OWN: [(&str, &str); 6] = [
    ("pipeline", "Pipeline file (YAML)"),
    (
        "set",
        "Changes of values of the pipeline file: KEY=VALUE, or a list of that",
    ),
    ("family", "Whose parameters the others are: centerpoint or yolox"),
    (
        "model",
        "Name in the pipeline file of the model that they are for",
    ),
    (
        "build_only",
        "Load the models, capture them on the device and end",
    ),
    ("use_sim_time", "Whether /clock is the node's clock"),
];

/// Parameters that every node of ROS 2 may have, and that say nothing of a model.
const OF_ANY_NODE: [&str; 3] = ["logger_name", "start_type_description_service", "qos_overrides"];

/// What is to be run.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The pipeline file.
    pub pipeline: PathBuf,
    /// Changes of the file.
    pub set: Vec<(String, String)>,
    /// The model that takes the other parameters, and whose they are; `None`: there must be no others.
    pub model: Option<(String, Family)>,
    /// The other parameters.
    pub of_model: Parameters,
    /// End once the models are on the device.
    pub build_only: bool,
}

impl Settings {
    /// Reads the parameters of the node.
    ///
    /// # Errors
    /// [`ParameterError`] for the first one that is missing or wrong.
    pub fn from_parameters(parameters: Parameters) -> Result<Self, ParameterError> {
        let mut pipeline = None;
        let mut set = Vec::new();
        let (mut family, mut model) = (None, None);
        let (mut build_only, mut use_sim_time) = (false, false);
        let mut of_model = Parameters::new();
        for (name, value) in parameters {
            match (name.as_str(), value) {
                (_, Value::NotSet) => {}
                ("pipeline", Value::Text(path)) if !path.is_empty() => pipeline = Some(PathBuf::from(path)),
                ("pipeline", other) => return Err(wrong(name, &other, "the path of a pipeline file")),
                ("set", Value::Texts(changes)) => {
                    for change in changes.iter().filter(|change| !change.is_empty()) {
                        set.push(key_value(change)?);
                    }
                }
                ("set", Value::Text(change)) => set.push(key_value(&change)?),
                ("set", other) => return Err(wrong(name, &other, "KEY=VALUE, or a list of that")),
                ("family", Value::Text(word)) => family = family_of(&word)?,
                ("family", other) => return Err(wrong(name, &other, FAMILIES)),
                ("model", Value::Text(word)) if !word.is_empty() => model = Some(word),
                ("model", other) => {
                    return Err(wrong(name, &other, "the name of a model in the pipeline file"));
                }
                ("build_only", Value::Bool(on)) => build_only = on,
                ("use_sim_time", Value::Bool(on)) => use_sim_time = on,
                ("build_only" | "use_sim_time", other) => return Err(wrong(name, &other, "true or false")),
                (_, value) if !is_of_any_node(&name) => of_model.push((name, value)),
                _ => {}
            }
        }
        if use_sim_time {
            set.push(("ros2.use_sim_time".to_owned(), "true".to_owned()));
        }
        let model = match (family, model) {
            (Some(family), Some(model)) => Some((model, family)),
            (Some(_), None) => {
                return Err(ParameterError::Missing {
                    name: "model",
                    expected: "the name in the pipeline file of the model that takes the parameters",
                });
            }
            (None, _) => None,
        };
        if let (None, Some((name, _))) = (&model, of_model.first()) {
            return Err(ParameterError::Wrong {
                name: name.clone(),
                found: "none of this node's own".to_owned(),
                expected: "`family` and `model` to say which model it is for",
            });
        }
        Ok(Self {
            pipeline: pipeline.ok_or(ParameterError::Missing {
                name: "pipeline",
                expected: "the path of a pipeline file",
            })?,
            set,
            model,
            of_model,
            build_only,
        })
    }

    /// Changes of the pipeline file, the parameters of the model among them; `set` has the last word. New names for
    /// topics in the file are left out: giving names is for ROS 2 here. `params` is the
    /// file that [`overlay`](crate::overlay) has written, where there is one.
    ///
    /// # Errors
    /// [`ParameterError::Wrong`] for a parameter of the model that has another type.
    pub fn overrides(&self, params: Option<&std::path::Path>) -> Result<Overrides, ParameterError> {
        let mut set = vec![("ros2.remap".to_owned(), "{}".to_owned())];
        if let Some((model, family)) = &self.model {
            for (name, key) in handed_on(*family) {
                if let Some((_, value)) = self.of_model.iter().find(|(given, _)| given == name) {
                    set.push((format!("models.{model}.{key}"), yaml(name, value)?));
                }
            }
            if let Some(path) = params {
                let list = serde_json::json!([path]);
                set.push((format!("models.{model}.params"), list.to_string()));
            }
        }
        set.extend(self.set.iter().cloned());
        Ok(Overrides {
            set,
            ..Overrides::default()
        })
    }
}

/// Parameters of Autoware's node that are keys of a model in a pipeline file.
const fn handed_on(family: Family) -> &'static [(&'static str, &'static str)] {
    match family {
        Family::CenterPoint => &[("head_onnx_path", "weights"), ("encoder_onnx_path", "encoder")],
        Family::Yolox => &[
            ("model_path", "weights"),
            ("label_path", "labels"),
            ("score_threshold", "score_threshold"),
            ("nms_threshold", "nms_threshold"),
        ],
    }
}

const FAMILIES: &str = "centerpoint or yolox";

fn family_of(word: &str) -> Result<Option<Family>, ParameterError> {
    match word {
        "" => Ok(None),
        "centerpoint" => Ok(Some(Family::CenterPoint)),
        "yolox" => Ok(Some(Family::Yolox)),
        _ => Err(ParameterError::Wrong {
            name: "family".to_owned(),
            found: format!("{word:?}"),
            expected: FAMILIES,
        }),
    }
}

fn is_of_any_node(name: &str) -> bool {
    let group = name.split('.').next().unwrap_or(name);
    OF_ANY_NODE.contains(&group)
}

fn key_value(change: &str) -> Result<(String, String), ParameterError> {
    match change.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(ParameterError::Wrong {
            name: "set".to_owned(),
            found: format!("{change:?}"),
            expected: "KEY=VALUE, such as device.threads=4",
        }),
    }
}

/// A value as YAML, which is what changes of a pipeline file are written in.
fn yaml(name: &str, value: &Value) -> Result<String, ParameterError> {
    match value {
        // Quoted as JSON is, which YAML reads as well.
        Value::Text(text) => Ok(serde_json::Value::from(text.as_str()).to_string()),
        Value::Integer(number) => Ok(number.to_string()),
        Value::Double(number) => Ok(number.to_string()),
        other => Err(wrong(name.to_owned(), other, "a string or a number")),
    }
}

fn wrong(name: String, value: &Value, expected: &'static str) -> ParameterError {
    let found = match value {
        Value::Text(text) => format!("{text:?}"),
        other => format!("of type {}", other.type_name()),
    };
    ParameterError::Wrong {
        name,
        found,
        expected,
    }
}
