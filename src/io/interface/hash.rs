//! RIHS01: the SHA-256 of a type's description in JSON, as REP 2016 defines it.

use std::collections::BTreeSet;

use sha2::{Digest, Sha256};

use super::definition::{Element, Interface, MessageDefinition, Repeat};
use super::error::DefinitionError;
use crate::io::ros::TypeHash;

impl Interface {
    /// The type's hash. Names and types of fields count; constants, defaults and comments do not.
    ///
    /// # Errors
    /// [`DefinitionError::Missing`] where the definition of a part is not in the text.
    pub fn hash(&self) -> Result<TypeHash, DefinitionError> {
        Ok(TypeHash(Sha256::digest(self.description()?).into()))
    }

    /// The JSON that is hashed, with the spaces that Python's `json.dumps` sets.
    fn description(&self) -> Result<String, DefinitionError> {
        let missing = |name: &str, used_by: &str| DefinitionError::Missing {
            missing: name.to_owned(),
            used_by: used_by.to_owned(),
        };
        let mut used = BTreeSet::new();
        let mut open = vec![(self.type_name(), self.type_name())];
        while let Some((name, used_by)) = open.pop() {
            let definition = self.get(name).ok_or_else(|| missing(name, used_by))?;
            for field in &definition.fields {
                if let Element::Message(part) = &field.field_type.element
                    && used.insert(part.as_str())
                {
                    open.push((part, name));
                }
            }
        }
        // Only others are listed as parts, even where a message holds itself.
        used.remove(self.type_name());
        let describe = |name: &str| self.get(name).map(describe).ok_or_else(|| missing(name, name));
        let parts: Result<Vec<String>, _> = used.iter().map(|name| describe(name)).collect();
        Ok(format!(
            "{{\"type_description\": {}, \"referenced_type_descriptions\": [{}]}}",
            describe(self.type_name())?,
            parts?.join(", ")
        ))
    }
}

/// A message in JSON. Names hold nothing that JSON would escape.
fn describe(definition: &MessageDefinition) -> String {
    let fields: Vec<String> = definition
        .fields
        .iter()
        .map(|field| {
            let part = match &field.field_type.element {
                Element::Message(name) => name,
                _ => "",
            };
            let (id, capacity) = element_id(&field.field_type.element, field.field_type.repeat);
            describe_field(
                &field.name,
                id,
                capacity,
                string_capacity(&field.field_type.element),
                part,
            )
        })
        .collect();
    // No type is without a field on the wire.
    let fields = if fields.is_empty() {
        describe_field("structure_needs_at_least_one_member", UINT8, 0, 0, "")
    } else {
        fields.join(", ")
    };
    format!(
        "{{\"type_name\": \"{}\", \"fields\": [{fields}]}}",
        definition.type_name
    )
}

fn describe_field(name: &str, type_id: u8, capacity: u64, string_capacity: u64, part: &str) -> String {
    format!(
        "{{\"name\": \"{name}\", \"type\": {{\"type_id\": {type_id}, \"capacity\": {capacity}, \
         \"string_capacity\": {string_capacity}, \"nested_type_name\": \"{part}\"}}}}"
    )
}

const UINT8: u8 = 3;

/// Number of a type in `type_description_interfaces/FieldType`, and the capacity of an array or bounded sequence.
fn element_id(element: &Element, repeat: Repeat) -> (u8, u64) {
    let one = match element {
        Element::Message(_) => 1,
        Element::Int8 => 2,
        Element::UInt8 | Element::Char => UINT8,
        Element::Int16 => 4,
        Element::UInt16 => 5,
        Element::Int32 => 6,
        Element::UInt32 => 7,
        Element::Int64 => 8,
        Element::UInt64 => 9,
        Element::Float32 => 10,
        Element::Float64 => 11,
        Element::Bool => 15,
        Element::Byte => 16,
        Element::String(None) => 17,
        Element::WString(None) => 18,
        Element::String(Some(_)) => 21,
        Element::WString(Some(_)) => 22,
    };
    match repeat {
        Repeat::One => (one, 0),
        Repeat::Array(capacity) => (one + 48, capacity),
        Repeat::Bounded(capacity) => (one + 96, capacity),
        Repeat::Sequence => (one + 144, 0),
    }
}

fn string_capacity(element: &Element) -> u64 {
    match element {
        Element::String(Some(bound)) | Element::WString(Some(bound)) => *bound,
        _ => 0,
    }
}
