//! Lists of numbers, kept flat while they are parsed: a list of lists as a tree would take many times its text.

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{DeserializeSeed, Deserializer, Error, SeqAccess, Visitor};

/// The most numbers that a list may hold. More go as base64.
const MAX_NUMBERS: usize = 16 << 20;
/// The most levels of a nested list.
const MAX_DEPTH: usize = 6;

/// Rows of numbers.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct NumberRows {
    /// Row after row.
    pub values: Vec<f64>,
    /// Rows.
    pub rows: usize,
    /// Values of the first row.
    pub columns: usize,
    /// The first row of another length, and that length. What follows it was not kept.
    pub ragged: Option<(usize, usize)>,
}

/// One number of a nested list.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Number {
    /// A whole number, or true or false.
    Int(i64),
    /// A whole number above those of [`Number::Int`].
    Above(u64),
    /// A number with a fraction or an exponent.
    Float(f64),
}

/// A number, or a list of lists of them to any depth up to six.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct NestedNumbers {
    /// Lengths, outermost first; none for a single number.
    pub dims: Vec<usize>,
    /// In row-major order.
    pub(super) values: Vec<Number>,
    /// Whether lists of one level differ in length or in depth.
    pub ragged: bool,
}

impl NumberRows {
    pub(super) fn read<'de, A: SeqAccess<'de>>(mut seq: A) -> Result<Self, A::Error> {
        let mut table = Self::default();
        while seq.next_element_seed(Row(&mut table))?.is_some() {}
        Ok(table)
    }
}

/// One row, appended to a table.
struct Row<'a>(&'a mut NumberRows);

impl<'de> DeserializeSeed<'de> for Row<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Row<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a row of numbers")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let table = self.0;
        let mut columns = 0;
        while let Some(value) = seq.next_element::<f64>()? {
            columns += 1;
            if table.ragged.is_none() {
                if table.values.len() >= MAX_NUMBERS {
                    return Err(too_many());
                }
                table.values.push(value);
            }
        }
        if table.rows == 0 {
            table.columns = columns;
        } else if table.ragged.is_none() && columns != table.columns {
            table.ragged = Some((table.rows, columns));
        }
        table.rows += 1;
        Ok(())
    }
}

fn too_many<E: Error>() -> E {
    E::custom(format_args!(
        "more than {MAX_NUMBERS} numbers in a list; send them as base64"
    ))
}

impl<'de> serde::Deserialize<'de> for NestedNumbers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut nested = Self::default();
        let seed = Level {
            into: &mut nested,
            depth: 0,
            first: true,
        };
        seed.deserialize(deserializer)?;
        Ok(nested)
    }
}

impl From<bool> for Number {
    fn from(value: bool) -> Self {
        Self::Int(value.into())
    }
}

impl From<u64> for Number {
    fn from(value: u64) -> Self {
        i64::try_from(value).map_or(Self::Above(value), Self::Int)
    }
}

impl NestedNumbers {
    /// A number that is in no list.
    pub(super) fn single(value: impl Into<Number>) -> Self {
        Self {
            values: vec![value.into()],
            ..Self::default()
        }
    }

    /// What a list that has begun holds.
    pub(super) fn read<'de, A: SeqAccess<'de>>(seq: A) -> Result<Self, A::Error> {
        let mut nested = Self::default();
        Level {
            into: &mut nested,
            depth: 0,
            first: true,
        }
        .visit_seq(seq)?;
        Ok(nested)
    }
}

/// A level of a nested list.
struct Level<'a> {
    into: &'a mut NestedNumbers,
    depth: usize,
    /// Whether nothing of this level was seen yet.
    first: bool,
}

impl Level<'_> {
    fn push<E: Error>(self, value: Number) -> Result<(), E> {
        // A number stands below the innermost lists.
        self.into.ragged |= self.depth != self.into.dims.len();
        if self.into.values.len() >= MAX_NUMBERS {
            return Err(too_many());
        }
        self.into.values.push(value);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Level<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Level<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, or a list of numbers or lists")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.push(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.push(Number::Int(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.push(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.push(Number::Float(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let Self { into, depth, first } = self;
        if depth == MAX_DEPTH {
            return Err(A::Error::custom(format_args!(
                "lists are nested at most {MAX_DEPTH} deep"
            )));
        }
        if first {
            // The first list of a level says how long those of the level are; numbers before it are ragged anyway.
            into.ragged |= !into.values.is_empty();
            into.dims.push(0);
        }
        let mut len = 0;
        loop {
            // Only below the first list of this level can a level be seen for the first time.
            let first = into.dims.len() == depth + 1 && into.values.is_empty();
            let level = Level {
                into: &mut *into,
                depth: depth + 1,
                first,
            };
            if seq.next_element_seed(level)?.is_none() {
                break;
            }
            len += 1;
        }
        if first {
            into.dims[depth] = len;
        } else {
            into.ragged |= into.dims.get(depth) != Some(&len);
        }
        Ok(())
    }
}

impl JsonSchema for NestedNumbers {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "NestedNumbers".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A number, or a list of lists of numbers to any depth up to six.",
            "type": ["number", "boolean", "array"],
        })
    }
}
