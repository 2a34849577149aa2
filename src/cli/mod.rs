//! The `sensorium` command: one file per subcommand; this file only parses and dispatches.

mod model;

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
enum Command {
    Model(model::ModelArgs),
}

/// Parses the command line, runs the command and prints any error with its cause and what to do.
#[must_use]
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match &cli.command {
        Command::Model(args) => model::run(args),
    };
    match result {
        Ok(text) => print(&text),
        Err(report) => {
            eprintln!("{report:?}");
            ExitCode::FAILURE
        }
    }
}

/// Prints to standard output; a reader that went away is no error.
fn print(text: &str) -> ExitCode {
    use std::io::Write;
    match writeln!(std::io::stdout(), "{text}") {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("cannot write to standard output: {e}");
            ExitCode::FAILURE
        }
    }
}
