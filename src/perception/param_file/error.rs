//! Why parameters were refused.

use std::fmt;
use std::path::{Path, PathBuf};

use super::read::{MAX_PARAM_FILE_BYTES, SUBSTITUTION, Value};

/// Where a parameter was said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParamOrigin {
    /// In a file.
    File {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: u64,
    },
    /// By the program, not in a file.
    Program,
}

impl fmt::Display for ParamOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Program => f.write_str("CenterPoint parameters"),
        }
    }
}

/// Why parameters were refused. Keys are told as they are spelled where they stand.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ParamError {
    /// Parameters of a model from no file at all.
    #[error(
        "no parameter file is given; expected the node's `centerpoint.param.yaml` and the model's \
         `centerpoint_ml_package.param.yaml`"
    )]
    NoFiles,
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// More than [`MAX_PARAM_FILE_BYTES`].
    #[error("{} is longer than {MAX_PARAM_FILE_BYTES} bytes, which no parameter file is", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
    },
    /// Text that is no YAML.
    #[error("{at}: this is no YAML that can be read: {message}")]
    Yaml {
        /// Where.
        at: ParamOrigin,
        /// What the reader said.
        message: String,
    },
    /// A file without the frame of a ROS 2 parameter file.
    #[error(
        "{}: no `ros__parameters`; expected a ROS 2 parameter file, `/**:` or the name of a node, below it \
         `ros__parameters:`, below that the parameters",
        path.display()
    )]
    NoParameters {
        /// The file.
        path: PathBuf,
    },
    /// Parameters of more than one node.
    #[error(
        "{at}: parameters of a second node, `{second}` after `{first}`; expected those of one node or of `/**`"
    )]
    SeveralNodes {
        /// Where the second begins.
        at: ParamOrigin,
        /// Name of the first node.
        first: String,
        /// Name of the second.
        second: String,
    },
    /// One key twice in one map.
    #[error("{at}: `{key}` is said a second time, first in line {first_line}; expected once")]
    Twice {
        /// Where the second is.
        at: ParamOrigin,
        /// The key.
        key: String,
        /// Line of the first.
        first_line: u64,
    },
    /// A key that is needed and that no file has.
    #[error(
        "{}: `{key}` is missing; {}; expected {expected}{hint}",
        names(files),
        era(files, generation)
    )]
    Missing {
        /// The file in which it should stand, or all files where none has anything of its kind.
        files: Vec<PathBuf>,
        /// The key, as the newest generation spells it.
        key: String,
        /// Generation of Autoware that the keys of that file are from.
        generation: String,
        /// What the key is to say.
        expected: String,
        /// What may be meant instead, with its place; empty where nothing comes near.
        hint: String,
    },
    /// A key whose meaning is no longer there.
    #[error("{at}: `{key}` is of Autoware {generation} and has no equivalent; expected {expected}")]
    Gone {
        /// Where.
        at: ParamOrigin,
        /// The key.
        key: String,
        /// Generation that had it.
        generation: String,
        /// What does the job since.
        expected: String,
    },
    /// A key that the node does not have.
    #[error("{at}: `{key}` is no parameter of {node}; {advice}")]
    UnknownKey {
        /// Where.
        at: ParamOrigin,
        /// The key.
        key: String,
        /// Autoware's node.
        node: &'static str,
        /// The nearest key that there is, or what else to do.
        advice: String,
    },
    /// A value of the wrong type.
    #[error("{at}: `{key}` is {found}; expected {expected}")]
    Type {
        /// Where.
        at: ParamOrigin,
        /// The key.
        key: String,
        /// What is there.
        found: String,
        /// What is to be there.
        expected: String,
    },
    /// A list with too few or too many entries.
    #[error("{at}: `{key}` has {found} entries; expected {expected}")]
    Length {
        /// Where.
        at: ParamOrigin,
        /// The key.
        key: String,
        /// Entries that are there.
        found: usize,
        /// How many are expected, and why.
        expected: String,
    },
    /// A value that cannot be, or not beside another one.
    #[error("{at}: `{key}` is {found}; expected {expected}")]
    Value {
        /// Where.
        at: ParamOrigin,
        /// The key.
        key: String,
        /// The value.
        found: String,
        /// What is possible.
        expected: String,
    },
    /// A name of a live parameter that is none.
    #[error("no parameter `{name}`: {advice}")]
    UnknownName {
        /// The name.
        name: String,
        /// The nearest that there is, or all of them.
        advice: String,
    },
    /// A parameter that cannot change while a model runs.
    #[error("`{name}` cannot change while the model runs; set it in the parameter file and start again")]
    NotLive {
        /// The name.
        name: String,
    },
}

fn names(files: &[PathBuf]) -> String {
    let names: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
    names.join(", ")
}

fn era(files: &[PathBuf], generation: &str) -> String {
    match files {
        [_] => format!("the file seems to be from Autoware {generation}"),
        _ => format!("the files seem to be from Autoware {generation}"),
    }
}

impl ParamError {
    /// That a value is not what is expected of it.
    pub(in crate::perception) fn wrong_type(
        at: ParamOrigin,
        key: String,
        value: &Value,
        expected: &str,
    ) -> Self {
        let mut expected = expected.to_owned();
        if matches!(value, Value::Text(text) if text.contains(SUBSTITUTION)) {
            expected += " (launch substitutions are not replaced here, write the value)";
        }
        Self::Type {
            at,
            key,
            found: value.shown(),
            expected,
        }
    }
}

impl ParamOrigin {
    pub(in crate::perception) fn file(path: &Path, line: u64) -> Self {
        Self::File {
            path: path.to_owned(),
            line,
        }
    }
}
