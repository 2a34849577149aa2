//! A ROS 2 parameter file as a flat list of keys, each with its line.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::Deserialize;
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde_saphyr::{
    DefaultMessageFormatter, DuplicateKeyPolicy, MessageFormatter, NonFiniteFloatPolicy, Spanned,
};

use super::{ParamError, ParamOrigin};

/// A parameter file that is longer is refused.
pub const MAX_PARAM_FILE_BYTES: u64 = 1 << 20;

/// Deepest nesting that is read; Autoware's files need six levels.
const MAX_DEPTH: usize = 16;
/// Most values that are read, those that aliases repeat included.
const MAX_NODES: usize = 20_000;
/// Longest part of a key that is kept; no known one is half as long.
const MAX_KEY_CHARS: usize = 100;
/// Longest text of a value that a message repeats.
const MAX_SHOWN_CHARS: usize = 40;

/// What a launch substitution begins with; a launch file may ask that they be replaced in parameter files.
pub(in crate::perception) const SUBSTITUTION: &str = "$(";

/// The key below a node's name in every parameter file.
const PARAMETERS: &str = "ros__parameters";

/// A parameter: names joined by dots, as ROS 2 knows it.
#[derive(Debug)]
pub(in crate::perception) struct Leaf {
    pub(in crate::perception) key: String,
    pub(in crate::perception) value: Value,
    /// Line of the key.
    pub(in crate::perception) line: u64,
}

/// A value. Maps are taken apart, so that one is found only inside a list.
#[derive(Debug, Clone)]
pub(in crate::perception) enum Value {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(String),
    List(Vec<Item>),
    Map,
}

/// An entry of a list.
#[derive(Debug, Clone)]
pub(in crate::perception) struct Item {
    pub(in crate::perception) value: Value,
    pub(in crate::perception) line: u64,
}

impl PartialEq for Item {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

/// Numbers are equal whichever way they are written.
impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) | (Self::Map, Self::Map) => true,
            (Self::Bool(a), Self::Bool(b)) => a == b,
            (Self::Text(a), Self::Text(b)) => a == b,
            (Self::List(a), Self::List(b)) => a == b,
            _ => self.number().is_some_and(|a| other.number() == Some(a)),
        }
    }
}

impl Value {
    pub(in crate::perception) const fn number(&self) -> Option<f64> {
        match self {
            Self::Int(value) => Some(*value as f64),
            Self::Float(value) => Some(*value),
            _ => None,
        }
    }

    /// What is there, for messages.
    pub(in crate::perception) fn shown(&self) -> String {
        match self {
            Self::Null => "nothing".to_owned(),
            Self::Bool(value) => format!("the boolean {value}"),
            Self::Int(value) => format!("the integer {value}"),
            Self::Float(value) => format!("the number {value}"),
            Self::Text(text) => {
                let shown: String = text.chars().take(MAX_SHOWN_CHARS).collect();
                let more = if shown.len() < text.len() { "..." } else { "" };
                format!("the text \"{}{more}\"", shown.replace(char::is_control, " "))
            }
            Self::List(items) => format!("a list of {}", items.len()),
            Self::Map => "a map".to_owned(),
        }
    }
}

/// The parameters of a file, in its order.
///
/// # Errors
/// Files that cannot be read, are no YAML, are no parameter file, or name a key or more than one node twice.
pub(in crate::perception) fn read(path: &Path) -> Result<Vec<Leaf>, ParamError> {
    let failed = |source| ParamError::Read {
        path: path.to_owned(),
        source,
    };
    let mut text = String::new();
    File::open(path)
        .map_err(failed)?
        .take(MAX_PARAM_FILE_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(failed)?;
    if text.len() as u64 > MAX_PARAM_FILE_BYTES {
        return Err(ParamError::TooLong {
            path: path.to_owned(),
        });
    }
    let root = parse(&text, path)?;
    let mut nodes = Vec::new();
    find_nodes(root, "", path, &mut nodes)?;
    if nodes.is_empty() {
        return Err(ParamError::NoParameters {
            path: path.to_owned(),
        });
    }
    only_one_name(&nodes, path)?;
    let mut leaves = Vec::new();
    for node in nodes {
        flatten(node.parameters, "", path, &mut leaves)?;
    }
    Ok(leaves)
}

fn parse(text: &str, path: &Path) -> Result<Entries, ParamError> {
    // ROS 2 takes the truth words of YAML 1.1 (`yes`, `off`), and so does this reader.
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            max_nodes: MAX_NODES,
            max_events: 4 * MAX_NODES,
            max_aliases: 1_000,
            max_anchors: 1_000,
            max_recorded_anchor_events: 4 * MAX_NODES,
            max_merge_keys: 1_000,
            max_documents: 1,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: MAX_NODES,
            max_replay_stack_depth: 8,
        },
        duplicate_keys: DuplicateKeyPolicy::PassThrough,
        non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
        strict_booleans: false,
        with_snippet: false,
    };
    match serde_saphyr::from_str_with_options::<Yaml>(text, options) {
        Ok(Yaml::Map(entries)) => Ok(entries),
        Ok(_) => Err(ParamError::NoParameters {
            path: path.to_owned(),
        }),
        Err(error) => Err(ParamError::Yaml {
            at: ParamOrigin::file(path, error.location().map_or(1, |location| location.line())),
            // The message may quote the file, and what it quotes goes to a terminal.
            message: DefaultMessageFormatter
                .format_message(&error)
                .replace(char::is_control, " "),
        }),
    }
}

/// What one node is told.
struct Node {
    name: String,
    line: u64,
    parameters: Entries,
}

/// Names of nodes may be nested by namespace.
fn find_nodes(entries: Entries, name: &str, path: &Path, nodes: &mut Vec<Node>) -> Result<(), ParamError> {
    only_once(&entries, name, path)?;
    for (key, value) in entries {
        let line = key.referenced.line();
        match value.value {
            Yaml::Map(parameters) if key.value == PARAMETERS => nodes.push(Node {
                name: name.to_owned(),
                line,
                parameters,
            }),
            Yaml::Map(inner) if key.value != PARAMETERS => {
                let inner_name = if name.is_empty() || name.ends_with('/') || key.value.starts_with('/') {
                    format!("{name}{}", printable(&key.value))
                } else {
                    format!("{name}/{}", printable(&key.value))
                };
                find_nodes(inner, &inner_name, path, nodes)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// A file may speak to every node (`/**`) and to one by name.
fn only_one_name(nodes: &[Node], path: &Path) -> Result<(), ParamError> {
    let mut named = nodes.iter().filter(|node| !node.name.contains('*'));
    match (named.next(), named.next()) {
        (Some(first), Some(second)) => Err(ParamError::SeveralNodes {
            at: ParamOrigin::file(path, second.line),
            first: first.name.clone(),
            second: second.name.clone(),
        }),
        _ => Ok(()),
    }
}

fn flatten(entries: Entries, above: &str, path: &Path, leaves: &mut Vec<Leaf>) -> Result<(), ParamError> {
    only_once(&entries, above, path)?;
    for (key, value) in entries {
        let name = joined(above, &key.value);
        match value.value {
            Yaml::Map(inner) => flatten(inner, &name, path, leaves)?,
            other => leaves.push(Leaf {
                key: name,
                line: key.referenced.line(),
                value: plain(other),
            }),
        }
    }
    Ok(())
}

/// Refuses a map that has one key twice.
fn only_once(entries: &Entries, above: &str, path: &Path) -> Result<(), ParamError> {
    let mut seen = std::collections::HashMap::new();
    for (key, _) in entries {
        let line = key.referenced.line();
        if let Some(first_line) = seen.insert(&key.value, line) {
            return Err(ParamError::Twice {
                at: ParamOrigin::file(path, line),
                key: joined(above, &key.value),
                first_line,
            });
        }
    }
    Ok(())
}

fn joined(above: &str, key: &str) -> String {
    let key = printable(key);
    if above.is_empty() {
        key
    } else {
        format!("{above}.{key}")
    }
}

/// Keys are repeated in messages, which go to terminals, and joined to those above, which must not grow without end.
fn printable(key: &str) -> String {
    key.chars()
        .take(MAX_KEY_CHARS)
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

fn plain(yaml: Yaml) -> Value {
    match yaml {
        Yaml::Null => Value::Null,
        Yaml::Bool(value) => Value::Bool(value),
        Yaml::Int(value) => Value::Int(value),
        Yaml::Float(value) => Value::Float(value),
        Yaml::Text(text) => Value::Text(text),
        Yaml::Map(_) => Value::Map,
        Yaml::List(items) => Value::List(
            items
                .into_iter()
                .map(|item| Item {
                    line: item.referenced.line(),
                    value: plain(item.value),
                })
                .collect(),
        ),
    }
}

type Entries = Vec<(Spanned<String>, Spanned<Yaml>)>;

/// What the YAML reader hands over.
enum Yaml {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(String),
    List(Vec<Spanned<Self>>),
    Map(Entries),
}

impl<'de> Deserialize<'de> for Yaml {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(YamlVisitor)
    }
}

struct YamlVisitor;

impl<'de> Visitor<'de> for YamlVisitor {
    type Value = Yaml;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E>(self) -> Result<Yaml, E> {
        Ok(Yaml::Null)
    }

    fn visit_none<E>(self) -> Result<Yaml, E> {
        Ok(Yaml::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Yaml, E> {
        Ok(Yaml::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Yaml, E> {
        Ok(Yaml::Int(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Yaml, E> {
        Ok(Yaml::Int(value.into()))
    }

    fn visit_i128<E>(self, value: i128) -> Result<Yaml, E> {
        Ok(Yaml::Int(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Yaml, E> {
        Ok(Yaml::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Yaml, E> {
        Ok(Yaml::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Yaml, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Yaml::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Yaml, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Yaml::Map(entries))
    }
}
