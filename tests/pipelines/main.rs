//! Pipeline files, vehicles, bundles and the build's own rules.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

#[path = "../support/mod.rs"]
mod support;
#[path = "../support/tiny.rs"]
mod tiny;

mod architecture;
mod bundles;
mod pipeline_files;
mod vehicles;
