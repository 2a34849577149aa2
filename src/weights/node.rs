//! Operations of a graph and their settings.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Array;

/// A setting of a node.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Attribute {
    /// A whole number.
    Int(i64),
    /// A number with fractions.
    Float(f32),
    /// Text.
    Text(String),
    /// A constant.
    Tensor(Arc<Array>),
    /// Several whole numbers.
    Ints(Vec<i64>),
    /// Several numbers.
    Floats(Vec<f32>),
    /// Several texts.
    Texts(Vec<String>),
    /// A kind that is not read, such as a graph; holds the code in the file.
    Other(i32),
}

/// An attribute that has another kind than its use requires.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("attribute `{name}` is not {expected}")]
pub struct AttributeError {
    /// Name of the attribute.
    pub name: String,
    /// What it should have been.
    pub expected: &'static str,
}

/// One operation of a graph.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Its name; `<op_type>_<index>` if the file gives none.
    pub name: String,
    /// The operation, for example `Conv`.
    pub op_type: String,
    /// Operator set that it belongs to; empty for ONNX itself.
    pub domain: String,
    /// Names of the inputs; an empty name is an input that was left out.
    pub inputs: Vec<String>,
    /// Names of the outputs; an empty name is an output that nobody wants.
    pub outputs: Vec<String>,
    /// Settings by name.
    pub attributes: BTreeMap<String, Attribute>,
}

impl Node {
    /// Name of an input, or `None` if it was left out.
    #[must_use]
    pub fn input(&self, index: usize) -> Option<&str> {
        self.inputs
            .get(index)
            .map(String::as_str)
            .filter(|n| !n.is_empty())
    }

    /// Name of an output, or `None` if nobody wants it.
    #[must_use]
    pub fn output(&self, index: usize) -> Option<&str> {
        self.outputs
            .get(index)
            .map(String::as_str)
            .filter(|n| !n.is_empty())
    }

    /// A whole number, if the attribute is set.
    ///
    /// # Errors
    /// [`AttributeError`] if it is of another kind.
    pub fn int(&self, name: &str) -> Result<Option<i64>, AttributeError> {
        self.attribute(name, "a whole number", |a| match a {
            Attribute::Int(v) => Some(*v),
            _ => None,
        })
    }

    /// A number, if the attribute is set.
    ///
    /// # Errors
    /// [`AttributeError`] if it is of another kind.
    pub fn float(&self, name: &str) -> Result<Option<f32>, AttributeError> {
        self.attribute(name, "a number", |a| match a {
            Attribute::Float(v) => Some(*v),
            _ => None,
        })
    }

    /// A text, if the attribute is set.
    ///
    /// # Errors
    /// [`AttributeError`] if it is of another kind.
    pub fn text(&self, name: &str) -> Result<Option<&str>, AttributeError> {
        self.attribute(name, "a text", |a| match a {
            Attribute::Text(v) => Some(v.as_str()),
            _ => None,
        })
    }

    /// Whole numbers, if the attribute is set.
    ///
    /// # Errors
    /// [`AttributeError`] if it is of another kind.
    pub fn ints(&self, name: &str) -> Result<Option<&[i64]>, AttributeError> {
        self.attribute(name, "a list of whole numbers", |a| match a {
            Attribute::Ints(v) => Some(v.as_slice()),
            _ => None,
        })
    }

    /// Numbers, if the attribute is set.
    ///
    /// # Errors
    /// [`AttributeError`] if it is of another kind.
    pub fn floats(&self, name: &str) -> Result<Option<&[f32]>, AttributeError> {
        self.attribute(name, "a list of numbers", |a| match a {
            Attribute::Floats(v) => Some(v.as_slice()),
            _ => None,
        })
    }

    /// A constant, if the attribute is set.
    ///
    /// # Errors
    /// [`AttributeError`] if it is of another kind.
    pub fn tensor(&self, name: &str) -> Result<Option<&Arc<Array>>, AttributeError> {
        self.attribute(name, "a tensor", |a| match a {
            Attribute::Tensor(v) => Some(v),
            _ => None,
        })
    }

    fn attribute<'a, T>(
        &'a self,
        name: &str,
        expected: &'static str,
        get: impl Fn(&'a Attribute) -> Option<T>,
    ) -> Result<Option<T>, AttributeError> {
        let Some(attribute) = self.attributes.get(name) else {
            return Ok(None);
        };
        get(attribute).map(Some).ok_or_else(|| AttributeError {
            name: name.to_owned(),
            expected,
        })
    }
}
