//! The JSON Schema of pipeline files.

use std::sync::LazyLock;

use schemars::generate::SchemaSettings;
use serde_json::Value;

use super::raw::RawPipeline;

static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    SchemaSettings::draft2020_12()
        .into_generator()
        .into_root_schema_for::<RawPipeline>()
        .to_value()
});

/// The JSON Schema (2020-12) that describes pipeline files, and that they are checked against.
#[must_use]
pub fn pipeline_schema() -> &'static Value {
    &SCHEMA
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keywords that `shape` enforces, and those that only inform.
    const KNOWN: [&str; 22] = [
        "$defs",
        "$ref",
        "$schema",
        "additionalProperties",
        "anyOf",
        "const",
        "default",
        "description",
        "enum",
        "exclusiveMinimum",
        "format",
        "items",
        "maximum",
        "minItems",
        "minLength",
        "minimum",
        "oneOf",
        "pattern",
        "properties",
        "propertyNames",
        "required",
        "title",
    ];

    fn visit(schema: &Value, check: &mut impl FnMut(&serde_json::Map<String, Value>)) {
        let Value::Object(keywords) = schema else { return };
        check(keywords);
        for (keyword, value) in keywords {
            match (keyword.as_str(), value) {
                ("properties" | "$defs", Value::Object(named)) => {
                    named.values().for_each(|schema| visit(schema, check));
                }
                ("anyOf" | "oneOf", Value::Array(branches)) => {
                    branches.iter().for_each(|schema| visit(schema, check));
                }
                ("items" | "additionalProperties" | "propertyNames", schema) => visit(schema, check),
                _ => {}
            }
        }
    }

    #[test]
    fn the_schema_says_nothing_that_the_checker_does_not_enforce() {
        visit(pipeline_schema(), &mut |keywords| {
            for keyword in keywords.keys() {
                assert!(
                    keyword == "type" || KNOWN.contains(&keyword.as_str()),
                    "{keyword} in {keywords:?}"
                );
            }
            if let Some(pattern) = keywords.get("pattern") {
                assert!(super::super::patterns::asked(pattern).is_some(), "{pattern}");
            }
        });
    }

    #[test]
    fn every_map_refuses_unknown_keys_and_every_number_has_both_bounds() {
        let (mut maps, mut numbers) = (0, 0);
        visit(pipeline_schema(), &mut |keywords| {
            let kind = keywords.get("type").map(Value::to_string).unwrap_or_default();
            if kind.contains("object") {
                maps += 1;
                let additional = &keywords["additionalProperties"];
                assert!(
                    additional == false || keywords.get("properties").is_none(),
                    "{keywords:?}"
                );
            }
            if kind.contains("integer") || kind.contains("number") {
                numbers += 1;
                let low = keywords.contains_key("minimum") || keywords.contains_key("exclusiveMinimum");
                assert!(low && keywords.contains_key("maximum"), "{keywords:?}");
            }
        });
        assert!(maps >= 10 && numbers >= 10, "{maps} maps, {numbers} numbers");
    }
}
