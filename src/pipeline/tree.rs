//! YAML text as a tree whose every key and value knows its place.

use std::fmt;

use serde::Deserialize;
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde_saphyr::{
    DefaultMessageFormatter, DuplicateKeyPolicy, Error as YamlError, Location, MessageFormatter, Spanned,
};

use super::problem::Problem;
use super::source::{Source, Span};

/// Deepest nesting that is read; a pipeline needs five levels.
const MAX_DEPTH: usize = 32;
/// Most values that are read, those that aliases repeat included.
const MAX_NODES: usize = 20_000;

/// A value and its place.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) value: Value,
    pub(super) span: Span,
}

/// A YAML value.
#[derive(Debug, Clone)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(String),
    /// Text that came from `${...}` outside quotes: it takes the type that is expected of it.
    Substituted(String),
    /// A value whose error is already told; nothing more can be said about it.
    Unknown,
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// One `key: value` of a map.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) key_span: Span,
    pub(super) value: Node,
}

impl Value {
    /// What kind of value it is, for messages.
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::Null | Self::Unknown => "nothing",
            Self::Bool(_) => "a boolean",
            Self::Int(_) | Self::Float(_) => "a number",
            Self::Text(_) | Self::Substituted(_) => "text",
            Self::List(_) => "a list",
            Self::Map(_) => "a map",
        }
    }
}

impl Node {
    /// Entries of a map; empty for any other value.
    pub(super) fn entries(&self) -> &[Entry] {
        match &self.value {
            Value::Map(entries) => entries,
            _ => &[],
        }
    }

    /// Items of a list; empty for any other value.
    pub(super) fn items(&self) -> &[Self] {
        match &self.value {
            Value::List(items) => items,
            _ => &[],
        }
    }

    /// The entry of a map.
    pub(super) fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries().iter().find(|entry| entry.key == key)
    }

    /// The value under a map's key.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        self.entry(key).map(|entry| &entry.value)
    }

    /// The text of a scalar that is text.
    pub(super) const fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) | Value::Substituted(text) => Some(text.as_str()),
            _ => None,
        }
    }
}

/// Reads the part of `source` that begins at byte `from` as one YAML document. Every key of a map is kept,
/// also one that is there twice.
///
/// # Errors
/// Text that is no YAML, keys that are no scalars, more than one document, or more nesting, values or aliases
/// than a pipeline file can need.
pub(super) fn parse(source: &Source, from: usize) -> Result<Node, Box<Problem>> {
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
        strict_booleans: true,
        with_snippet: false,
    };
    let text = &source.inner()[from..];
    serde_saphyr::from_str_with_options::<Spanned<Yaml>>(text, options)
        .map(|root| place(root, source, from))
        .map_err(|error| Box::new(syntax_problem(&error, source, from)))
}

fn syntax_problem(error: &YamlError, source: &Source, from: usize) -> Problem {
    let at = error
        .location()
        .and_then(|location| bytes(&location, source, from))
        .unwrap_or_else(|| source.inner().len());
    // The message may quote the file, and what it quotes goes to a terminal.
    let message = DefaultMessageFormatter
        .format_message(error)
        .replace(char::is_control, " ");
    Problem::error(
        "this is no YAML that can be read",
        &Span::new(source, at..at),
        message,
    )
}

/// Byte offset of a location. Errors of the scanner know only line and column.
fn bytes(location: &Location, source: &Source, from: usize) -> Option<usize> {
    if let Some(offset) = location.span().byte_offset() {
        return Some(from + usize::try_from(offset).ok()?);
    }
    let line = usize::try_from(location.line()).ok()?.checked_sub(1)?;
    let column = usize::try_from(location.column()).ok()?.checked_sub(1)?;
    let text = &source.inner()[from..];
    let line_start: usize = text.split_inclusive('\n').take(line).map(str::len).sum();
    let within: usize = text[line_start..].chars().take(column).map(char::len_utf8).sum();
    Some(from + line_start + within)
}

fn span(location: &Location, source: &Source, from: usize) -> Span {
    let start = bytes(location, source, from).unwrap_or(from);
    let len = location
        .span()
        .byte_len()
        .and_then(|len| usize::try_from(len).ok())
        .unwrap_or(0);
    // A block value may be given with the blanks and line ends behind it; a label should not cover them.
    let covered = Span::new(source, start..start + len);
    let trimmed = covered.text().trim_end().len();
    Span::new(source, start..start + trimmed)
}

fn place(node: Spanned<Yaml>, source: &Source, from: usize) -> Node {
    let value = match node.value {
        Yaml::Null => Value::Null,
        Yaml::Bool(value) => Value::Bool(value),
        Yaml::Int(value) => Value::Int(value),
        Yaml::Float(value) => Value::Float(value),
        Yaml::Text(text) => Value::Text(text),
        Yaml::List(items) => Value::List(items.into_iter().map(|item| place(item, source, from)).collect()),
        Yaml::Map(entries) => Value::Map(
            entries
                .into_iter()
                .map(|(key, value)| Entry {
                    key_span: span(&key.referenced, source, from),
                    key: key.value,
                    value: place(value, source, from),
                })
                .collect(),
        ),
    };
    Node {
        value,
        span: span(&node.referenced, source, from),
    }
}

/// What the YAML reader hands over, before places become spans of a source.
enum Yaml {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(String),
    List(Vec<Spanned<Self>>),
    Map(Vec<(Spanned<String>, Spanned<Self>)>),
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
