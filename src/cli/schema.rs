//! `sensorium schema`: JSON Schemas of the files that the command reads.

use std::process::ExitCode;

use clap::ValueEnum;
use miette::IntoDiagnostic;

use super::report;
use crate::pipeline::pipeline_schema;
use crate::server::openapi;

/// Prints the JSON Schema (2020-12) of a kind of file.
///
/// Editors use it to complete keys and to mark errors: begin a pipeline file with
/// "# yaml-language-server: $schema=pipeline.schema.json".
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sensorium schema pipeline > pipeline.schema.json
  sensorium schema openapi > openapi.json")]
pub(super) struct Args {
    /// Which files.
    #[arg(value_enum)]
    kind: Kind,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Kind {
    /// Pipeline files.
    Pipeline,
    /// The OpenAPI document of `sensorium serve`.
    Openapi,
}

/// Runs the command.
///
/// # Errors
/// Standard output cannot be written.
pub(super) fn run(args: Args) -> miette::Result<ExitCode> {
    let schema = match args.kind {
        Kind::Pipeline => pipeline_schema(),
        Kind::Openapi => openapi(),
    };
    report::print(&serde_json::to_string_pretty(schema).into_diagnostic()?)?;
    Ok(ExitCode::SUCCESS)
}
