//! Definitions as data, and the text that holds several of them.

use std::collections::BTreeMap;

use super::error::DefinitionError;
use super::line::{Line, read_line};

/// One message: what a `.msg` file holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageDefinition {
    /// Name in its long form, such as `std_msgs/msg/Header`.
    pub type_name: String,
    /// Fields in the order in which they travel.
    pub fields: Vec<Field>,
    /// Constants, which do not travel.
    pub constants: Vec<Constant>,
}

/// A field of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Name.
    pub name: String,
    /// Type.
    pub field_type: FieldType,
    /// Value where nothing else is set, as the definition writes it.
    pub default: Option<String>,
}

/// A constant of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Constant {
    /// Name.
    pub name: String,
    /// Type, never a message.
    pub element: Element,
    /// Value as the definition writes it, quotes included.
    pub value: String,
}

/// Type of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldType {
    /// What it holds.
    pub element: Element,
    /// How many.
    pub repeat: Repeat,
}

/// How many elements a field holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeat {
    /// One, without a count.
    One,
    /// An array of that many.
    Array(u64),
    /// A sequence of at most so many.
    Bounded(u64),
    /// A sequence.
    Sequence,
}

/// What a field holds.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Element {
    Bool,
    Byte,
    Char,
    Int8,
    UInt8,
    Int16,
    UInt16,
    Int32,
    UInt32,
    Int64,
    UInt64,
    Float32,
    Float64,
    /// Text in UTF-8, of at most so many bytes where there is a bound.
    String(Option<u64>),
    /// Text in UTF-16, of at most so many units where there is a bound.
    WString(Option<u64>),
    /// Another message, by its name in the long form.
    Message(String),
}

/// A message with the definitions of all that it is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    top: String,
    definitions: BTreeMap<String, MessageDefinition>,
}

/// A line of this character and nothing else, at least 80 times, stands between two definitions.
const SEPARATOR: char = '=';
const SEPARATOR_LEN: usize = 80;
/// Of a line that cannot be read, what an error repeats.
const SHOWN_CHARS: usize = 120;

impl Interface {
    /// Reads a `ros2msg` text: the definition of `type_name`, then those of other messages, each after a line of 80 `=`
    /// and a line `MSG: package/Name`.
    ///
    /// # Errors
    /// [`DefinitionError::TypeName`], [`DefinitionError::Line`], [`DefinitionError::FieldTwice`],
    /// [`DefinitionError::DefinedTwice`], [`DefinitionError::Idl`].
    pub fn parse(type_name: &str, text: &str) -> Result<Self, DefinitionError> {
        let top = long_name(type_name)?;
        let mut definitions = BTreeMap::new();
        let mut current = Some(MessageDefinition::empty(top.clone()));
        // Behind a separator, until the line that names the next message.
        let mut names_next = false;
        for (index, line) in text.lines().enumerate() {
            let fault = |type_name: &str, reason| DefinitionError::Line {
                type_name: type_name.to_owned(),
                line: index + 1,
                text: line.chars().take(SHOWN_CHARS).collect(),
                reason,
            };
            if is_separator(line) {
                if let Some(done) = current.take() {
                    add(&mut definitions, done)?;
                }
                names_next = true;
            } else if names_next {
                let line = line.trim();
                if line.starts_with("IDL:") {
                    return Err(DefinitionError::Idl(top));
                }
                let Some(name) = line.strip_prefix("MSG:") else {
                    return Err(fault(
                        &top,
                        "\"MSG: package/Name\" is expected behind a separator",
                    ));
                };
                current = Some(MessageDefinition::empty(long_name(name.trim())?));
                names_next = false;
            } else if let Some(definition) = &mut current {
                let read = read_line(line, definition.package());
                match read.map_err(|reason| fault(&definition.type_name, reason))? {
                    Line::Nothing => {}
                    Line::Field(field) => definition.fields.push(field),
                    Line::Constant(constant) => definition.constants.push(constant),
                }
            }
        }
        if let Some(done) = current {
            add(&mut definitions, done)?;
        }
        Ok(Self { top, definitions })
    }

    /// The message itself.
    #[must_use]
    pub fn top(&self) -> Option<&MessageDefinition> {
        self.definitions.get(&self.top)
    }

    /// The definition of a message by its name in the long form.
    #[must_use]
    pub fn get(&self, type_name: &str) -> Option<&MessageDefinition> {
        self.definitions.get(type_name)
    }

    /// Name of the message in its long form.
    #[must_use]
    pub fn type_name(&self) -> &str {
        &self.top
    }
}

impl MessageDefinition {
    fn empty(type_name: String) -> Self {
        Self {
            type_name,
            fields: Vec::new(),
            constants: Vec::new(),
        }
    }

    fn package(&self) -> &str {
        self.type_name.split('/').next().unwrap_or_default()
    }
}

/// Adds a definition that was read; rosbag2 may write one twice.
fn add(
    definitions: &mut BTreeMap<String, MessageDefinition>,
    done: MessageDefinition,
) -> Result<(), DefinitionError> {
    let mut names: Vec<&str> = done.fields.iter().map(|field| field.name.as_str()).collect();
    names.sort_unstable();
    if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(DefinitionError::FieldTwice {
            field: pair[0].to_owned(),
            type_name: done.type_name,
        });
    }
    match definitions.get(&done.type_name) {
        Some(known) if *known != done => Err(DefinitionError::DefinedTwice(done.type_name)),
        Some(_) => Ok(()),
        None => {
            definitions.insert(done.type_name.clone(), done);
            Ok(())
        }
    }
}

fn is_separator(line: &str) -> bool {
    let line = line.trim_end();
    line.len() >= SEPARATOR_LEN && line.chars().all(|c| c == SEPARATOR)
}

/// A message's name in its long form: `package/Name` and `package/msg/Name` are the same.
pub(super) fn long_name(name: &str) -> Result<String, DefinitionError> {
    let parts = match name.split_once('/') {
        Some((package, rest)) => (package, rest.strip_prefix("msg/").unwrap_or(rest)),
        None => ("", name),
    };
    match parts {
        (package, message) if is_name(package) && is_name(message) => Ok(format!("{package}/msg/{message}")),
        _ => Err(DefinitionError::TypeName(name.to_owned())),
    }
}

/// Letters, digits and underscores, the first one a letter.
pub(super) fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
