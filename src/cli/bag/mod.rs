//! `sensorium bag`: recordings, looked at and made.

mod from_images;
mod info;

use std::process::ExitCode;

use clap::Subcommand;

/// Looks at recordings and makes them.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Info(info::Args),
    FromImages(from_images::Args),
}

/// Runs the command.
///
/// # Errors
/// Those of its subcommands.
pub(super) fn run(args: Args) -> miette::Result<ExitCode> {
    match args.command {
        Command::Info(args) => info::run(&args),
        Command::FromImages(args) => from_images::run(&args),
    }
}
