//! `sensorium bag convert`: a bag in another storage, compression or number of files.

use std::path::PathBuf;
use std::process::ExitCode;

use super::carry::{self, OutputArgs, TopicArgs};
use crate::io::bag::Selection;

/// Writes a bag anew: from SQLite to MCAP or back, compressed or not, in one file or several.
///
/// The result is sorted by log time and has an index and metadata, whatever the source had: converting mends bags that
/// were cut off or lack their metadata. SQLite bags do not keep the time of publishing.
///
/// Damage in the source is reported, and what is whole is carried over; the exit code is 1 then.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sensorium bag convert drive_0.db3 --out drive
  sensorium bag convert drive/ --out drive.mcap --compression none
  sensorium bag convert drive/ --out drive_in_parts --split-size 2GiB
  sensorium bag convert drive.mcap --out drive_sqlite --storage sqlite3")]
pub(super) struct Args {
    /// Folder, metadata.yaml, .mcap or .db3.
    bag: PathBuf,
    #[command(flatten)]
    topics: TopicArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Runs the command.
///
/// # Errors
/// A bag that cannot be opened, an output that cannot be written.
pub(super) fn run(args: &Args) -> miette::Result<ExitCode> {
    let bags = carry::open(std::slice::from_ref(&args.bag))?;
    carry::carry(&bags, &args.topics, Selection::default(), &args.output)
}
