//! `sensorium bag cut`: part of a bag as a bag of its own.

use std::path::PathBuf;
use std::process::ExitCode;

use miette::miette;

use super::carry::{self, OutputArgs, TopicArgs};
use super::times::{BagTime, seconds_ns};
use crate::io::bag::{Selection, TimeRange};

/// Cuts a time range, or some topics, out of a bag.
///
/// Times are log times: seconds from the first message of the bag, or since the epoch with @ in front. A message at
/// --start is in, one at --end is not. Latched topics (offered as transient local, such as /tf_static) keep what they
/// had before the start, logged at it.
///
/// Damage in the source is reported, and what is whole is carried over; the exit code is 1 then.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sensorium bag cut drive/ --start 60 --duration 30 --out minute_two
  sensorium bag cut drive/ --start @1700000060.5 --end @1700000090 --out part.mcap
  sensorium bag cut drive/ --topics '/tf*,/sensing/lidar/*' --exclude /tf_old --out lidar.mcap")]
pub(super) struct Args {
    /// Folder, metadata.yaml, .mcap or .db3.
    bag: PathBuf,
    /// First time to carry over.
    #[arg(long, value_name = "SECONDS")]
    start: Option<BagTime>,
    /// First time not to carry over.
    #[arg(long, value_name = "SECONDS", conflicts_with = "duration")]
    end: Option<BagTime>,
    /// Seconds to carry over.
    #[arg(long, value_name = "SECONDS", value_parser = seconds_ns)]
    duration: Option<u64>,
    /// Leave out what latched topics had before the start.
    #[arg(long)]
    no_latched: bool,
    #[command(flatten)]
    topics: TopicArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Runs the command.
///
/// # Errors
/// A bag that cannot be opened, a range outside it, an output that cannot be written.
pub(super) fn run(args: &Args) -> miette::Result<ExitCode> {
    let bags = carry::open(std::slice::from_ref(&args.bag))?;
    let (first, last) = bags[0].range_ns().unwrap_or((0, 0));
    let start_ns = args.start.map_or(first, |start| start.in_bag(first));
    let end_ns = match (args.end, args.duration) {
        (Some(end), _) => Some(end.in_bag(first)),
        (None, Some(duration_ns)) => Some(start_ns.saturating_add(duration_ns)),
        (None, None) => None,
    };
    if end_ns.is_some_and(|end| end <= start_ns) {
        return Err(miette!("the range ends before it begins"));
    }
    if start_ns > last || end_ns.is_some_and(|end| end <= first) {
        let seconds = |ns: u64| format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
        return Err(miette!(
            help = format!(
                "the bag goes from @{} to @{}, which are {} s",
                seconds(first),
                seconds(last),
                seconds(last - first)
            ),
            "the range lies outside the bag"
        ));
    }
    let selection = Selection {
        topics: None,
        range: (args.start.is_some() || end_ns.is_some()).then_some(TimeRange { start_ns, end_ns }),
        latched: !args.no_latched,
    };
    carry::carry(&bags, &args.topics, selection, &args.output)
}
