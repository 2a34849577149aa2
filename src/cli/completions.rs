//! `sensorium completions`: what a shell needs to complete the command's arguments.

use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::{Shell, generate};

use super::{Cli, report};

/// Prints a script that completes this command's arguments in a shell.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sensorium completions bash > ~/.local/share/bash-completion/completions/sensorium
  sensorium completions zsh > ~/.zfunc/_sensorium
  sensorium completions fish > ~/.config/fish/completions/sensorium.fish")]
pub(super) struct Args {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

/// Runs the command.
///
/// # Errors
/// Standard output cannot be written.
pub(super) fn run(args: &Args) -> miette::Result<ExitCode> {
    let mut script = Vec::new();
    generate(args.shell, &mut Cli::command(), "sensorium", &mut script);
    report::print(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}
