//! The `sensorium` command: one file per subcommand; this file only parses and dispatches.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Streaming perception on one accelerator: bags and live streams in, detections out.
#[derive(Debug, Parser)]
#[command(name = "sensorium", version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {}

/// Parses the command line, runs the command and prints any error with its cause and what to do.
#[must_use]
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    match cli.command {}
}
