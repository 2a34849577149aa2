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
