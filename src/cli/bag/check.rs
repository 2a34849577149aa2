//! `sensorium bag check`: are bags whole?

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use miette::{IntoDiagnostic, miette};
use serde_json::json;

use crate::cli::pipeline_args::Format;
use crate::cli::report;
use crate::io::bag::{BagCheck, BagError, check, find_bags};

/// Reads every message of bags, and the header of every CDR message, and says for each bag in one line whether it is
/// whole.
///
/// A line starts with ok, damaged (some of what was recorded is missing or cannot be read), or refused (nothing can be
/// read), and ends with the reasons. A folder without metadata.yaml is looked through for bags.
///
/// The exit code is 0 if every bag is ok and 1 otherwise, also for what was never a bag of ROS 2.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sensorium bag check drive/
  sensorium bag check recordings/ --format json | jq -r 'select(.status != \"ok\") | .path'")]
pub(super) struct Args {
    /// Bags, or folders of bags.
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Form of the result; with json, one object a line.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// Runs the command.
///
/// # Errors
/// A folder that cannot be read, or has no bag in it.
pub(super) fn run(args: &Args) -> miette::Result<ExitCode> {
    let mut whole = true;
    for path in &args.paths {
        let bags = find_bags(path).into_diagnostic()?;
        if bags.is_empty() {
            return Err(miette!("{} holds no bag", path.display()));
        }
        for bag in bags {
            let checked = check(&bag);
            whole &= matches!(&checked, Ok(checked) if checked.damage.is_empty());
            report::print(&match args.format {
                Format::Text => text(&bag, &checked),
                Format::Json => machine_readable(&bag, &checked).into_diagnostic()?,
            })?;
        }
    }
    Ok(if whole {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn text(path: &Path, checked: &Result<BagCheck, BagError>) -> String {
    let name = path.display().to_string();
    // Reasons start with the file that they are about; the line has the bag's name already.
    let reason = |text: &str| {
        let text = text
            .strip_prefix(&name)
            .unwrap_or(text)
            .trim_start_matches([':', ' ', '/']);
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let counted = |count: u64, what: &str| match count {
        1 => format!("1 {what}"),
        n => format!("{n} {what}s"),
    };
    match checked {
        Err(error) => format!("refused  {name}: {}", reason(&error.to_string())),
        Ok(checked) => {
            let status = if checked.damage.is_empty() {
                "ok     "
            } else {
                "damaged"
            };
            let duration_s = checked.duration_ns as f64 * 1e-9;
            let mut line = format!(
                "{status}  {name}: {}, {}, {duration_s:.3} s",
                counted(checked.topics as u64, "topic"),
                counted(checked.messages, "message")
            );
            for said in checked.damage.iter().chain(&checked.remarks) {
                line.push_str("; ");
                line.push_str(&reason(said));
            }
            line
        }
    }
}

fn machine_readable(path: &Path, checked: &Result<BagCheck, BagError>) -> serde_json::Result<String> {
    let path = path.display().to_string();
    serde_json::to_string(&match checked {
        Err(error) => json!({"path": path, "status": "refused", "reasons": [error.to_string()]}),
        Ok(checked) => json!({
            "path": path,
            "status": if checked.damage.is_empty() { "ok" } else { "damaged" },
            "topics": checked.topics,
            "messages": checked.messages,
            "message_bytes": checked.message_bytes,
            "duration_ns": checked.duration_ns,
            "reasons": checked.damage,
            "remarks": checked.remarks,
        }),
    })
}
