//! Reading a JSON Schema: what a part of it allows, and how to say so.

use serde_json::Value as Json;

use super::nearest::alternatives;
use super::patterns;

/// A schema whose parts can be looked into.
#[derive(Debug, Clone, Copy)]
pub(super) struct SchemaReader<'s> {
    /// The whole schema, which references point into.
    pub(super) root: &'s Json,
}

impl<'s> SchemaReader<'s> {
    /// What a `$ref` points to.
    pub(super) fn follow(self, schema: &'s Json) -> &'s Json {
        let mut target = schema;
        while let Some(name) = target["$ref"].as_str().and_then(|r| r.strip_prefix("#/$defs/")) {
            target = &self.root["$defs"][name];
        }
        target
    }

    /// The words that a schema of fixed words allows.
    pub(super) fn words(self, schema: &'s Json) -> Option<Vec<&'s str>> {
        if let Some(word) = schema["const"].as_str() {
            return Some(vec![word]);
        }
        if let Some(words) = schema["enum"].as_array() {
            return words.iter().map(Json::as_str).collect();
        }
        let branches = schema["oneOf"].as_array()?;
        let words: Option<Vec<Vec<&str>>> = branches
            .iter()
            .map(|branch| self.words(self.follow(branch)))
            .collect();
        words.map(|words| words.concat())
    }

    /// The user's documentation of a schema, as one line.
    pub(super) fn description(self, schema: &'s Json) -> Option<String> {
        let text = schema["description"]
            .as_str()
            .or_else(|| self.follow(schema)["description"].as_str())?;
        Some(text.replace('\n', " "))
    }

    /// What a schema accepts, in words.
    pub(super) fn describe(self, schema: &'s Json) -> String {
        let target = self.follow(schema);
        if let Some(words) = self.words(target) {
            return alternatives(words);
        }
        if let Some(branches) = target["anyOf"].as_array() {
            let parts: Vec<String> = branches
                .iter()
                .filter(|branch| !accepts(branch, "null"))
                .map(|branch| self.describe(branch))
                .collect();
            return parts.join(", or ");
        }
        let low = number(&target["minimum"]);
        let above = number(&target["exclusiveMinimum"]);
        let high = number(&target["maximum"]);
        let range = match (low, above, high) {
            (Some(low), _, Some(high)) => format!(" from {low} to {high}"),
            (_, Some(above), Some(high)) => format!(" above {above} and at most {high}"),
            _ => String::new(),
        };
        if accepts(target, "integer") {
            format!("a whole number{range}")
        } else if accepts(target, "number") {
            format!("a number{range}")
        } else if accepts(target, "boolean") {
            "`true` or `false`".to_owned()
        } else if accepts(target, "array") {
            format!("a list, each item {}", self.describe(&target["items"]))
        } else if let Some(pattern) = patterns::asked(&target["pattern"]) {
            pattern.rule.to_owned()
        } else if accepts(target, "string") {
            "text".to_owned()
        } else {
            "a map".to_owned()
        }
    }
}

/// Whether a schema's `type` is, or holds, the given one.
pub(super) fn accepts(schema: &Json, kind: &str) -> bool {
    match &schema["type"] {
        Json::String(only) => only == kind,
        Json::Array(kinds) => kinds.iter().any(|k| k == kind),
        _ => false,
    }
}

/// A limit as a person would write it: 1 rather than 1.0.
fn number(limit: &Json) -> Option<String> {
    limit.as_f64().map(|value| value.to_string())
}
