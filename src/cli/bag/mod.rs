//! `sensorium bag`: recordings, looked at, checked, rearranged and made.

mod carry;
mod check;
mod convert;
mod cut;
mod from_images;
mod info;
mod merge;
mod play;
mod times;

use std::process::ExitCode;

use clap::Subcommand;

/// Looks at recordings, checks them, rearranges them and makes them.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Info(info::Args),
    Check(check::Args),
    Cut(cut::Args),
    Merge(merge::Args),
    Play(Box<play::Args>),
    Convert(convert::Args),
    FromImages(from_images::Args),
}

/// Runs the command.
///
/// # Errors
/// Those of its subcommands.
pub(super) fn run(args: Args) -> miette::Result<ExitCode> {
    match args.command {
        Command::Info(args) => info::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Cut(args) => cut::run(&args),
        Command::Merge(args) => merge::run(&args),
        Command::Play(args) => play::run(&args),
        Command::Convert(args) => convert::run(&args),
        Command::FromImages(args) => from_images::run(&args),
    }
}
