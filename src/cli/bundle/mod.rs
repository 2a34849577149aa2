//! `sensorium bundle`: makes model bundles, and tells whether they are what they were.

mod calibration;
mod check;
mod make;
mod origin;
mod sample;

use std::process::ExitCode;

use clap::Subcommand;

pub(super) use self::calibration::presets;

/// Makes and checks model bundles: folders with all that makes a model what it is, each file with its digest.
///
/// A pipeline file names one with `models: { NAME: { type: bundle, path: DIR } }`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Make(Box<make::Args>),
    Check(check::Args),
}

/// Runs the command.
///
/// # Errors
/// A bundle that cannot be made or read.
pub(super) fn run(args: Args) -> miette::Result<ExitCode> {
    match args.command {
        Command::Make(args) => make::run(&args),
        Command::Check(args) => check::run(&args),
    }
}
