//! `sensorium man`: the manual, made of the same words as `--help`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, ValueHint};
use clap_mangen::{Man, generate_to};
use miette::{IntoDiagnostic, WrapErr};

use super::{Cli, report};

/// Prints the manual page of this command, or writes those of all its subcommands.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sensorium man | man -l -
  sensorium man --out ~/.local/share/man/man1")]
pub(super) struct Args {
    /// Writes a page for the command and each of its subcommands (sensorium-run.1 and so on) into this folder.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    out: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// Pages that cannot be written.
pub(super) fn run(args: &Args) -> miette::Result<ExitCode> {
    match &args.out {
        Some(folder) => {
            std::fs::create_dir_all(folder)
                .and_then(|()| generate_to(Cli::command(), folder))
                .into_diagnostic()
                .wrap_err_with(|| format!("the pages cannot be written to {}", folder.display()))?;
        }
        None => {
            let mut page = Vec::new();
            Man::new(Cli::command())
                .render(&mut page)
                .into_diagnostic()
                .wrap_err("the page cannot be made")?;
            report::print(&String::from_utf8_lossy(&page))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
