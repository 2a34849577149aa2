//! `sensorium compare`: what a run gave beside what it should give.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueHint;
use miette::{Diagnostic, IntoDiagnostic};

use super::pipeline_args::Format;
use super::report;
use crate::accuracy::compare::{
    CompareOptions, CompareReport, DetectionLines, Gates, MatchLimits, compare_detections, compare_taps,
    detection_metric,
};
use crate::accuracy::gates::{Gate, GateError, gates_of, parse_gates};
use crate::accuracy::metrics::{METRICS, Metric};
use crate::accuracy::{GoldenError, Goldens, LineError};

/// Compares what a run gave with what it should give.
///
/// Both files are either NumPy archives of arrays (.npz; arrays of one name belong together) or JSON lines as `sensorium run`
/// writes them (boxes of one stream and stamp belong together, and objects of one stamp). Gates say what must be reached:
/// a file of names with a bare number, [number, min or max, metric], or {threshold, direction, metric}, as YAML or JSON.
/// A gate that fails, or whose value is missing, makes the exit code 1.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sensorium compare taps.npz golden.npz --gates gates.yaml
  sensorium compare run.jsonl golden.jsonl --gates gates.yaml --format json

A file of gates:
  backbone: 0.999                 # pcc of the arrays of this name, at least
  head.heatmap: [0.01, max, rel_l2]
  objects.recall: 0.95            # of JSON lines: objects.* and boxes.*
  objects.center_err_max: 0.2     # metres, at most")]
pub(super) struct Args {
    /// What the run gave: .npz, or JSON lines.
    #[arg(value_name = "RUN", value_hint = ValueHint::FilePath)]
    run: PathBuf,
    /// What it should give, in the same form.
    #[arg(value_name = "GOLDEN", value_hint = ValueHint::FilePath)]
    golden: PathBuf,
    /// Gates, YAML or JSON. Without them values are only told.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    gates: Option<PathBuf>,
    /// Metric of arrays whose gate does not say it: pcc, argmax_agreement, label_agreement, mask_iou, max_abs, mean_abs or
    /// rel_l2.
    #[arg(long, value_name = "METRIC", default_value = "pcc", value_parser = metric)]
    metric: Metric,
    /// Largest distance of two objects that are the same, seen from above, in metres.
    #[arg(long, value_name = "M", default_value_t = MatchLimits::default().max_dist_m, value_parser = distance)]
    max_distance: f64,
    /// Least overlap (intersection over union) of two boxes that are the same.
    #[arg(long, value_name = "IOU", default_value_t = MatchLimits::default().min_iou, value_parser = overlap)]
    min_overlap: f64,
    /// How to print it.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Debug, thiserror::Error, Diagnostic)]
enum CompareError {
    #[error("{} cannot be read", file.display())]
    #[diagnostic(help("Give a file that exists and may be read."))]
    Read {
        file: PathBuf,
        #[source]
        cause: std::io::Error,
    },
    #[error("{} cannot be used as arrays", file.display())]
    #[diagnostic(help("Give an archive that numpy.savez or a tap registry wrote."))]
    Arrays {
        file: PathBuf,
        #[source]
        cause: GoldenError,
    },
    #[error("{}, line {}: {}", file.display(), cause.line, cause.problem)]
    #[diagnostic(help(
        "Give the JSON lines that a run wrote: {{\"stream\":..,\"stamp_ns\":..}} with \"detections\" or \"objects\"."
    ))]
    Line { file: PathBuf, cause: LineError },
    #[error("{} holds arrays and {} JSON lines", arrays.display(), lines.display())]
    #[diagnostic(help("Give two .npz files, or two files of JSON lines."))]
    TwoForms { arrays: PathBuf, lines: PathBuf },
    #[error("{} has neither a frame with objects nor an image with detections", file.display())]
    #[diagnostic(help(
        "Give the JSON lines of a run that found something to tell of, or let it run longer."
    ))]
    NoFrames { file: PathBuf },
    #[error("{} and {} have no array in common", run.display(), golden.display())]
    #[diagnostic(help("Arrays belong together by name. `python -m zipfile -l FILE.npz` lists the names."))]
    NothingInCommon { run: PathBuf, golden: PathBuf },
    #[error("{} holds no gates: {reason}", file.display())]
    #[diagnostic(help(
        "A gate is `name: 0.99`, `name: [0.01, max, rel_l2]` or `name: {{threshold: 0.99, metric: pcc}}`."
    ))]
    GatesForm { file: PathBuf, reason: String },
    #[error("gate {name} of {} cannot be used", file.display())]
    #[diagnostic(help(
        "Say `name: [threshold, min or max, metric]`, with the side of the metric that is good."
    ))]
    Gate {
        name: String,
        file: PathBuf,
        #[source]
        cause: GateError,
    },
    #[error("gate {name} of {} is one of {metric}, which is no metric of two arrays", file.display())]
    #[diagnostic(help("Arrays are compared by {}.", metric_names()))]
    NotOfArrays {
        name: String,
        file: PathBuf,
        metric: String,
    },
    #[error(transparent)]
    Gates(#[from] GateError),
}

/// Runs the command.
///
/// # Errors
/// Files that cannot be read or compared, and gates that are none.
pub(super) fn run(args: &Args) -> miette::Result<ExitCode> {
    let compared = match (bytes(&args.run)?, bytes(&args.golden)?) {
        (run, golden) if is_archive(&run) && is_archive(&golden) => arrays(args)?,
        (run, golden) if is_archive(&run) == is_archive(&golden) => lines(args, &run, &golden)?,
        (run, _) => {
            let (mut arrays, mut lines) = (args.run.clone(), args.golden.clone());
            if !is_archive(&run) {
                std::mem::swap(&mut arrays, &mut lines);
            }
            return Err(CompareError::TwoForms { arrays, lines }.into());
        }
    };
    report::print(&match args.format {
        Format::Text => compared.table(),
        Format::Json => {
            serde_json::to_string_pretty(&compared.to_json().into_diagnostic()?).into_diagnostic()?
        }
    })?;
    Ok(match compared.passed() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn bytes(file: &Path) -> Result<Vec<u8>, CompareError> {
    std::fs::read(file).map_err(|cause| CompareError::Read {
        file: file.to_owned(),
        cause,
    })
}

/// Whether a file begins as ZIP archives do; no JSON does.
fn is_archive(bytes: &[u8]) -> bool {
    bytes.starts_with(b"PK")
}

fn arrays(args: &Args) -> Result<CompareReport, CompareError> {
    let open = |file: &Path| {
        Goldens::open(file).map_err(|cause| CompareError::Arrays {
            file: file.to_owned(),
            cause,
        })
    };
    let (run, golden) = (open(&args.run)?, open(&args.golden)?);
    let gates = gates(args, |_| args.metric.name().to_owned())?;
    if let Some((name, gate)) = gates
        .iter()
        .find(|(_, gate)| Metric::of_name(gate.metric()).is_none())
    {
        return Err(CompareError::NotOfArrays {
            name: name.clone(),
            file: args.gates.clone().unwrap_or_default(),
            metric: gate.metric().to_owned(),
        });
    }
    let title = format!("{} beside {}", args.run.display(), args.golden.display());
    let options = CompareOptions {
        metric: args.metric,
        names: None,
        title: &title,
        meta: golden.meta().clone(),
    };
    let report = compare_taps(&run, &golden, &mut Gates::Fixed(&gates), &options)?;
    if report.rows().is_empty() {
        return Err(CompareError::NothingInCommon {
            run: args.run.clone(),
            golden: args.golden.clone(),
        });
    }
    Ok(report)
}

fn lines(args: &Args, run: &[u8], golden: &[u8]) -> Result<CompareReport, CompareError> {
    let read = |file: &Path, bytes: &[u8]| {
        let lines = DetectionLines::read(Cursor::new(bytes)).map_err(|cause| CompareError::Line {
            file: file.to_owned(),
            cause,
        })?;
        match lines.is_empty() {
            true => Err(CompareError::NoFrames {
                file: file.to_owned(),
            }),
            false => Ok(lines),
        }
    };
    let (run, golden) = (read(&args.run, run)?, read(&args.golden, golden)?);
    let gates = gates(args, |name| detection_metric(name).unwrap_or(name).to_owned())?;
    let limits = MatchLimits {
        max_dist_m: args.max_distance,
        min_iou: args.min_overlap,
    };
    let title = format!("{} beside {}", args.run.display(), args.golden.display());
    let report = compare_detections(&run, &golden, &limits, &mut Gates::Fixed(&gates), &title)?;
    Ok(report)
}

/// The gates of the command line; `metric` says what one measures that does not say it.
fn gates(args: &Args, metric: impl Fn(&str) -> String) -> Result<BTreeMap<String, Gate>, CompareError> {
    let Some(file) = &args.gates else {
        return Ok(BTreeMap::new());
    };
    let form = |reason: String| CompareError::GatesForm {
        file: file.clone(),
        reason,
    };
    let text = String::from_utf8(bytes(file)?).map_err(|error| form(error.to_string()))?;
    let specs = parse_gates(&text).map_err(form)?;
    gates_of(&specs, metric).map_err(|(name, cause)| CompareError::Gate {
        name,
        file: file.clone(),
        cause,
    })
}

fn metric_names() -> String {
    METRICS.map(Metric::name).join(", ")
}

fn metric(text: &str) -> Result<Metric, String> {
    match Metric::of_name(text) {
        Some(Metric::MaskedPcc) => {
            Err("masked_pcc needs a mask, which files of arrays do not have".to_owned())
        }
        Some(metric) => Ok(metric),
        None => Err(format!("there are {}", metric_names())),
    }
}

fn distance(text: &str) -> Result<f64, String> {
    number(text, 0.0..=f64::MAX).ok_or_else(|| "expected metres, 0 or more".to_owned())
}

fn overlap(text: &str) -> Result<f64, String> {
    number(text, 0.0..=1.0).ok_or_else(|| "expected a share from 0 to 1".to_owned())
}

fn number(text: &str, allowed: std::ops::RangeInclusive<f64>) -> Option<f64> {
    text.parse().ok().filter(|value| allowed.contains(value))
}
