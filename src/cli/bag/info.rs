//! `sensorium bag info`: what a recording holds.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use comfy_table::{CellAlignment, Table, presets};
use miette::IntoDiagnostic;
use serde_json::json;

use crate::cli::pipeline_args::Format;
use crate::cli::report;
use crate::io::bag::{Bag, BagTopic};

/// Shows what a bag holds: topics, counts and rates, duration, size, and anything wrong with it.
///
/// A bag is a rosbag2 folder, its metadata.yaml, or a single .mcap or .db3 file. Messages are not decoded. A bag
/// that is damaged but can be read is shown with warnings, and the exit code is 0.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sensorium bag info drive_2024_05_01/
  sensorium bag info drive_0.mcap --format json | jq '.topics[].name'")]
pub(super) struct Args {
    /// Folder, metadata.yaml, .mcap or .db3.
    bag: PathBuf,
    /// Form of the result.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// Runs the command.
///
/// # Errors
/// A bag that cannot be opened.
pub(super) fn run(args: &Args) -> miette::Result<ExitCode> {
    let bag = Bag::open(&args.bag).into_diagnostic()?;
    report::print(&match args.format {
        Format::Text => text(&args.bag.display().to_string(), &bag),
        Format::Json => machine_readable(&bag).into_diagnostic()?,
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Messages a second over the whole bag: intervals, not messages, divided by the duration.
fn rate_hz(topic: &BagTopic, bag: &Bag) -> Option<f64> {
    let intervals = topic.messages.checked_sub(1).filter(|n| *n > 0)?;
    let duration_s = bag.duration_ns() as f64 * 1e-9;
    (duration_s > 0.0).then(|| intervals as f64 / duration_s)
}

fn text(name: &str, bag: &Bag) -> String {
    let mut out = String::new();
    let files = match bag.file_count() {
        1 => "1 file".to_owned(),
        n => format!("{n} files"),
    };
    let megabytes = bag.size_bytes() as f64 / 1e6;
    let duration_s = bag.duration_ns() as f64 * 1e-9;
    let mut fact = |key: &str, value: String| {
        // Writing to a string does not fail.
        let _ = writeln!(out, "{key:<12} {value}");
    };
    fact("bag", name.to_owned());
    fact(
        "storage",
        format!("{}, {files}, {megabytes:.2} MB", bag.storage().name()),
    );
    fact("compression", bag.compression().to_owned());
    fact("duration", format!("{duration_s:.3} s"));
    if let Some((start_ns, end_ns)) = bag.range_ns() {
        let seconds = |ns: u64| format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
        fact(
            "start, end",
            format!("{}, {} (s since the epoch)", seconds(start_ns), seconds(end_ns)),
        );
    }
    let count = bag.message_count();
    fact(
        "messages",
        match bag.declared_message_count() {
            Some(declared) if declared != count => format!("{count} of {declared} that the metadata names"),
            _ => count.to_string(),
        },
    );
    let mut table = Table::new();
    table
        .load_preset(presets::UTF8_HORIZONTAL_ONLY)
        .set_header(["topic", "type", "messages", "Hz"]);
    for topic in bag.topics() {
        let rate = rate_hz(topic, bag).map_or_else(|| "-".to_owned(), |hz| format!("{hz:.2}"));
        table.add_row([&topic.name, &topic.type_name, &topic.messages.to_string(), &rate]);
    }
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    // Writing to a string does not fail.
    let _ = writeln!(out, "{table}");
    for warning in bag.warnings() {
        let _ = writeln!(out, "warning: {warning}");
    }
    out
}

fn machine_readable(bag: &Bag) -> serde_json::Result<String> {
    let topics: Vec<_> = bag
        .topics()
        .iter()
        .map(|topic| {
            json!({
                "name": topic.name,
                "type": topic.type_name,
                "serialization": topic.serialization,
                "messages": topic.messages,
                "rate_hz": rate_hz(topic, bag),
                "offered_qos": topic.offered_qos.iter().map(ToString::to_string).collect::<Vec<_>>(),
                "type_hash": topic.type_hash.map(|hash| hash.to_string()),
                "definition": topic.definition.as_ref().map(|definition| &definition.encoding),
            })
        })
        .collect();
    let warnings: Vec<String> = bag.warnings().iter().map(ToString::to_string).collect();
    serde_json::to_string_pretty(&json!({
        "storage": bag.storage().name(),
        "compression": bag.compression(),
        "files": bag.file_count(),
        "size_bytes": bag.size_bytes(),
        "start_ns": bag.range_ns().map(|(start, _)| start),
        "end_ns": bag.range_ns().map(|(_, end)| end),
        "duration_ns": bag.duration_ns(),
        "messages": bag.message_count(),
        "declared_messages": bag.declared_message_count(),
        "topics": topics,
        "warnings": warnings,
    }))
}
