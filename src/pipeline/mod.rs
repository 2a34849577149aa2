//! Pipeline files: schema, validation and plan.
