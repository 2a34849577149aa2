//! `sensorium bag merge`: several bags as one.

use std::path::PathBuf;
use std::process::ExitCode;

use super::carry::{self, OutputArgs, TopicArgs};
use crate::io::bag::Selection;

/// Merges bags into one, in the order of log times.
///
/// A topic that has one type in one bag and another in another is refused. Messages that are in several bags come
/// several times.
///
/// Damage in a source is reported, and what is whole is carried over; the exit code is 1 then.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sensorium bag merge cameras/ lidars/ --out drive
  sensorium bag merge part_*.mcap --out drive.mcap --compression none")]
pub(super) struct Args {
    /// Folders, metadata.yaml, .mcap or .db3 files.
    #[arg(required = true, num_args = 2..)]
    bags: Vec<PathBuf>,
    #[command(flatten)]
    topics: TopicArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Runs the command.
///
/// # Errors
/// A bag that cannot be opened, a topic of two types, an output that cannot be written.
pub(super) fn run(args: &Args) -> miette::Result<ExitCode> {
    let bags = carry::open(&args.bags)?;
    carry::carry(&bags, &args.topics, Selection::default(), &args.output)
}
