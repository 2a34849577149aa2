//! What cutting, merging and converting have in common: which topics, where to, and what is said in the end.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use miette::{IntoDiagnostic, Report, miette};

use crate::cli::report;
use crate::io::bag::{
    Bag, BagWriteError, BagWriter, BagWriterSettings, Copied, Selection, Storage, WrittenBag, copy,
};
use crate::io::recorder::RecordCompression;

/// Messages between two movements of the progress bar.
const PROGRESS_STEP: u64 = 256;

/// The bag to write.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Output")]
pub(super) struct OutputArgs {
    /// The bag to write: a name that ends in .mcap or .db3 is one file, any other a folder with metadata.yaml.
    ///
    /// It gets its name when it is complete.
    #[arg(long, short)]
    out: PathBuf,
    /// Replace a bag of that name.
    #[arg(long)]
    force: bool,
    /// Storage of a folder.
    #[arg(long, value_enum, default_value_t = StorageName::Mcap)]
    storage: StorageName,
    /// Compression of MCAP files, chunk by chunk; zstd if not said. SQLite files are never compressed.
    #[arg(long, value_enum)]
    compression: Option<CompressionName>,
    /// Begin a new file before the messages of one become larger than this, such as 2GiB or 500MB.
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    split_size: Option<u64>,
    /// Begin a new file for messages later than the first of one by more than this, such as 60s or 5min.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    split_duration: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum StorageName {
    Mcap,
    Sqlite3,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum CompressionName {
    None,
    Zstd,
}

/// The topics to carry over.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Topics")]
pub(super) struct TopicArgs {
    /// Carry these topics over and no others. A name that ends in * stands for all that begin so.
    #[arg(long, value_name = "TOPIC", value_delimiter = ',')]
    topics: Vec<String>,
    /// Leave these topics out.
    #[arg(long, value_name = "TOPIC", value_delimiter = ',')]
    exclude: Vec<String>,
}

impl TopicArgs {
    /// The names of the topics, `None` for all.
    fn choose(&self, bags: &[Bag]) -> miette::Result<Option<BTreeSet<String>>> {
        if self.topics.is_empty() && self.exclude.is_empty() {
            return Ok(None);
        }
        let known = bags.iter().flat_map(Bag::topics).map(|topic| topic.name.clone());
        let known: BTreeSet<String> = known.collect();
        for asked in self.topics.iter().chain(&self.exclude) {
            if !known.iter().any(|topic| matches(asked, topic)) {
                let known: Vec<&str> = known.iter().map(String::as_str).collect();
                return Err(miette!(
                    help = format!("topics: {}", known.join(", ")),
                    "topic {asked} is in no bag"
                ));
            }
        }
        let mut chosen = known;
        chosen.retain(|topic| {
            let among = |list: &[String]| list.iter().any(|asked| matches(asked, topic));
            (self.topics.is_empty() || among(&self.topics)) && !among(&self.exclude)
        });
        if chosen.is_empty() {
            return Err(miette!("--exclude leaves no topic"));
        }
        Ok(Some(chosen))
    }
}

fn matches(asked: &str, topic: &str) -> bool {
    match asked.strip_suffix('*') {
        Some(beginning) => topic.starts_with(beginning),
        None => topic == asked,
    }
}

impl OutputArgs {
    fn settings(&self) -> BagWriterSettings {
        let storage = match self.storage {
            StorageName::Mcap => Storage::Mcap,
            StorageName::Sqlite3 => Storage::Sqlite3,
        };
        let sqlite = match self.out.extension().and_then(|suffix| suffix.to_str()) {
            Some("db3") => true,
            Some("mcap") => false,
            _ => storage == Storage::Sqlite3,
        };
        let compression = match self.compression {
            Some(CompressionName::Zstd) => RecordCompression::Zstd,
            None if !sqlite => RecordCompression::Zstd,
            Some(CompressionName::None) | None => RecordCompression::None,
        };
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        BagWriterSettings {
            storage,
            compression,
            split_bytes: self.split_size,
            split_duration_ns: self.split_duration.map(nanoseconds),
            overwrite: self.force,
        }
    }
}

/// Opens the bags and tells what is wrong with each.
///
/// # Errors
/// A bag that cannot be opened.
pub(super) fn open(paths: &[PathBuf]) -> miette::Result<Vec<Bag>> {
    let mut bags = Vec::new();
    for path in paths {
        let bag = Bag::open(path).into_diagnostic()?;
        bag.warnings().iter().for_each(|warning| warn(warning));
        bags.push(bag);
    }
    Ok(bags)
}

/// Carries messages over and says what came of it. The exit code is that of failure if anything was missing or damaged
/// in a source; the bag is there then all the same.
///
/// # Errors
/// Topics that do not exist, an output that cannot be written.
pub(super) fn carry(
    bags: &[Bag],
    topics: &TopicArgs,
    mut selection: Selection,
    output: &OutputArgs,
) -> miette::Result<ExitCode> {
    selection.topics = topics.choose(bags)?;
    let mut writer = BagWriter::create(&output.out, output.settings()).map_err(advised)?;
    let style =
        ProgressStyle::with_template("{bar:30} {pos}/{len} messages, {eta} left").into_diagnostic()?;
    let progress = ProgressBar::new(bags.iter().map(Bag::message_count).sum()).with_style(style);
    let copied = copy(bags, &selection, &mut writer, &mut |messages| {
        if messages % PROGRESS_STEP == 0 {
            progress.set_position(messages);
        }
    });
    progress.finish_and_clear();
    let copied = copied.map_err(advised)?;
    let written = writer.finish().map_err(advised)?;
    report::print(&said(&output.out, &copied, &written))?;
    copied.damage.iter().for_each(|error| warn(error));
    if copied.damaged > copied.damage.len() as u64 {
        warn(&format!("{} errors of reading in all", copied.damaged));
    }
    let missing = |bag: &Bag| bag.warnings().iter().any(|warning| warning.loses_messages());
    if copied.damaged > 0 || bags.iter().any(missing) {
        warn(&"not everything that was recorded could be carried over");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

fn said(out: &Path, copied: &Copied, written: &WrittenBag) -> String {
    let files = match written.files {
        1 => "1 file".to_owned(),
        n => format!("{n} files"),
    };
    let latched = match copied.latched {
        0 => String::new(),
        n => format!(" ({n} of them latched before the start)"),
    };
    let megabytes = written.size_bytes as f64 / 1e6;
    format!(
        "{}: {} messages{latched}, {files}, {megabytes:.2} MB",
        out.display(),
        copied.messages
    )
}

fn warn(what: &dyn std::fmt::Display) {
    // With standard error closed there is nobody left to tell; the exit code still says it.
    let _ = writeln!(io::stderr().lock(), "warning: {what}");
}

/// An error with what to do about it.
fn advised(error: BagWriteError) -> Report {
    let help = match &error {
        BagWriteError::Exists { .. } => "--force replaces it",
        BagWriteError::NotReplaced { .. } => "choose another name, or remove it yourself",
        BagWriteError::TwoTypes { .. } => "leave the topic out with --exclude",
        BagWriteError::CompressedSqlite => "--compression none, or --storage mcap",
        BagWriteError::SplitFile { .. } => "a name without .mcap or .db3 is a folder",
        _ => return Report::msg(error.to_string()),
    };
    miette!(help = help, "{error}")
}

/// A number of bytes with a unit.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kb" => 1000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "kib" | "k" => 1 << 10,
        "mib" | "m" => 1 << 20,
        "gib" | "g" => 1 << 30,
        _ => 0,
    };
    let bytes = number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(unit));
    bytes
        .filter(|bytes| *bytes > 0)
        .ok_or_else(|| "a number of bytes is expected, such as 2GiB or 500MB".to_owned())
}

fn duration(text: &str) -> Result<Duration, String> {
    let parsed = humantime::parse_duration(text)
        .ok()
        .filter(|time| !time.is_zero());
    parsed.ok_or_else(|| "a time is expected, such as 60s or 5min".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        for (text, expected) in [
            ("1000", 1000),
            ("2GiB", 2 << 30),
            ("500MB", 500_000_000),
            ("1 KiB", 1024),
            ("3g", 3 << 30),
        ] {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
        for text in ["", "0", "GiB", "-1", "1.5GB", "99999999999999GB", "1 week"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_star_stands_for_what_follows() {
        assert!(matches("/camera/*", "/camera/front") && matches("*", "/tf") && matches("/tf", "/tf"));
        assert!(!matches("/tf", "/tf_static") && !matches("/camera/*", "/lidar"));
    }
}
