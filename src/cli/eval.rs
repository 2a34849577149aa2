//! `sensorium eval`: detections compared with the truth.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use comfy_table::{CellAlignment, Table};
use miette::{Diagnostic, IntoDiagnostic};

use super::report;
use crate::accuracy::{
    ClassAccuracy, Evaluation, EvaluationParams, EvaluationParamsError, FrameObjects, LineError, Side,
    evaluate, read_frames,
};
use crate::outputs::ObjectLabel;

/// Compares detected objects with the truth.
///
/// Both files hold one frame a line: {"stamp_ns":..,"objects":[..]}, objects as the library writes them. The truth may
/// add "points" (LiDAR points on an object) and "velocity_mps" to an object and leave "score" out. Frames with the same
/// stamp belong together. A detection is a hit if the middle of an object of its class that no better detection took
/// lies closer than the distance, seen from above.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sensorium eval --detections found.jsonl --truth truth.jsonl
  sensorium eval --detections found.jsonl --truth truth.jsonl --match-distance 2 --min-points 1 --json")]
pub(super) struct Args {
    /// Detections, JSON lines.
    #[arg(long, value_name = "FILE")]
    detections: PathBuf,
    /// The truth, JSON lines.
    #[arg(long, value_name = "FILE")]
    truth: PathBuf,
    /// Distances for the average precision, in metres.
    #[arg(long, value_name = "M,..", value_delimiter = ',', default_values_t = EvaluationParams::default().distances_m)]
    distances: Vec<f64>,
    /// Distance for recall by range and for errors of heading and speed, in metres.
    #[arg(long, value_name = "M", default_value_t = EvaluationParams::default().match_distance_m)]
    match_distance: f64,
    /// Objects with fewer LiDAR points are neither hits nor missed.
    #[arg(long, value_name = "N", default_value_t = EvaluationParams::default().min_points)]
    min_points: u32,
    /// Borders of the range bins, in metres.
    #[arg(long, value_name = "M,..", value_delimiter = ',', default_values_t = EvaluationParams::default().range_borders_m)]
    ranges: Vec<f64>,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, thiserror::Error, Diagnostic)]
enum EvalError {
    #[error("{} cannot be opened", file.display())]
    #[diagnostic(help("Give a file with one frame of objects a line."))]
    Open {
        file: PathBuf,
        #[source]
        cause: std::io::Error,
    },
    #[error("{}, line {}: {}", file.display(), cause.line, cause.problem)]
    #[diagnostic(help(
        "A line is {{\"stamp_ns\":..,\"objects\":[..]}}; an object has label, score, position_m [x, y, z], yaw_rad and \
         size_m [length, width, height]."
    ))]
    Line { file: PathBuf, cause: LineError },
    #[error("{} has no frame", file.display())]
    #[diagnostic(help("Give a file with one frame of objects a line."))]
    Empty { file: PathBuf },
    #[error("no stamp of {} is in {}", detections.display(), truth.display())]
    #[diagnostic(help(
        "Frames belong together by stamp_ns, to the nanosecond: take both from the same recording."
    ))]
    Apart { detections: PathBuf, truth: PathBuf },
    #[error(transparent)]
    Params(#[from] EvaluationParamsError),
}

/// Runs the command.
///
/// # Errors
/// A file or line that cannot be read, or options that make no evaluation.
pub(super) fn run(args: &Args) -> miette::Result<ExitCode> {
    let truth = read(&args.truth, Side::Truth)?;
    if truth.is_empty() {
        return Err(EvalError::Empty {
            file: args.truth.clone(),
        }
        .into());
    }
    let detections = read(&args.detections, Side::Detections)?;
    let params = EvaluationParams {
        distances_m: args.distances.clone(),
        match_distance_m: args.match_distance,
        min_points: args.min_points,
        range_borders_m: args.ranges.clone(),
        ..EvaluationParams::default()
    };
    let evaluation = evaluate(&detections, &truth, &params).map_err(EvalError::from)?;
    if !detections.is_empty() && evaluation.frames_without_truth == detections.len() {
        return Err(EvalError::Apart {
            detections: args.detections.clone(),
            truth: args.truth.clone(),
        }
        .into());
    }
    let text = if args.json {
        serde_json::to_string_pretty(&evaluation).into_diagnostic()?
    } else {
        text(&evaluation, &params)
    };
    report::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn read(file: &Path, side: Side) -> Result<Vec<FrameObjects>, EvalError> {
    let open = File::open(file).map_err(|cause| EvalError::Open {
        file: file.to_owned(),
        cause,
    })?;
    read_frames(BufReader::new(open), side).map_err(|cause| EvalError::Line {
        file: file.to_owned(),
        cause,
    })
}

fn text(evaluation: &Evaluation, params: &EvaluationParams) -> String {
    let mut parts = vec![format!(
        "{} frames of truth, {} of them without detections; {} frames of detections without truth",
        evaluation.frames, evaluation.frames_without_detections, evaluation.frames_without_truth
    )];
    parts.push(precision_table(evaluation, params).to_string());
    parts.push(
        "AP: as nuScenes computes it (recall and precision up to 0.1 left out); all: the whole area under the curve"
            .to_owned(),
    );
    parts.push(match_table(evaluation).to_string());
    parts.push(format!(
        "recall, heading and speed: hits within {} m; objects in brackets; flipped: heading off by more than 90 degrees",
        evaluation.match_distance_m
    ));
    parts.join("\n")
}

fn precision_table(evaluation: &Evaluation, params: &EvaluationParams) -> Table {
    let mut table = report::table();
    let mut header = vec!["class".to_owned(), "objects".to_owned(), "detections".to_owned()];
    for distance in &params.distances_m {
        header.push(format!("AP {distance} m"));
        header.push(format!("all {distance} m"));
    }
    let columns = header.len();
    table.set_header(header);
    for class in &evaluation.classes {
        let mut row = vec![
            name(class.label).to_owned(),
            class.objects.to_string(),
            class.detections.to_string(),
        ];
        row.extend(
            class
                .at
                .iter()
                .flat_map(|at| [share(at.ap_nuscenes), share(at.ap_all_points)]),
        );
        row.resize(columns, "-".to_owned());
        table.add_row(row);
    }
    let means = evaluation
        .mean_ap_nuscenes
        .iter()
        .zip(&evaluation.mean_ap_all_points);
    let mut row = vec!["mean".to_owned(), String::new(), String::new()];
    row.extend(means.flat_map(|((_, nuscenes), (_, all))| [share(*nuscenes), share(*all)]));
    row.resize(columns, "-".to_owned());
    table.add_row(row);
    aligned(table, columns)
}

fn match_table(evaluation: &Evaluation) -> Table {
    let mut table = report::table();
    let mut header = vec!["class".to_owned(), "ignored".to_owned()];
    if let Some(class) = evaluation.classes.first() {
        header.extend(class.range_recall.iter().map(|bin| match bin.to_m {
            Some(to) => format!("{}-{to} m", bin.from_m),
            None => format!("{}+ m", bin.from_m),
        }));
    }
    header.extend(["heading", "flipped", "speed"].map(str::to_owned));
    let columns = header.len();
    table.set_header(header);
    for class in &evaluation.classes {
        table.add_row(match_row(class));
    }
    aligned(table, columns)
}

fn match_row(class: &ClassAccuracy) -> Vec<String> {
    let mut row = vec![name(class.label).to_owned(), class.ignored.to_string()];
    row.extend(class.range_recall.iter().map(|bin| match bin.recall {
        Some(recall) => format!("{} ({})", share(recall), bin.objects),
        None => "-".to_owned(),
    }));
    match class.heading {
        Some(heading) => row.extend([
            format!("{:.1}\u{b0}", heading.median_rad.to_degrees()),
            share(heading.flipped),
        ]),
        None => row.extend(["-".to_owned(), "-".to_owned()]),
    }
    row.push(match class.velocity {
        Some(velocity) => format!("{:.2} m/s", velocity.mean_mps),
        None => "-".to_owned(),
    });
    row
}

/// All but the first column to the right.
fn aligned(mut table: Table, columns: usize) -> Table {
    for i in 1..columns {
        if let Some(column) = table.column_mut(i) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

fn share(value: f64) -> String {
    format!("{value:.3}")
}

const fn name(label: ObjectLabel) -> &'static str {
    match label {
        ObjectLabel::Unknown => "UNKNOWN",
        ObjectLabel::Car => "CAR",
        ObjectLabel::Truck => "TRUCK",
        ObjectLabel::Bus => "BUS",
        ObjectLabel::Trailer => "TRAILER",
        ObjectLabel::Motorcycle => "MOTORCYCLE",
        ObjectLabel::Bicycle => "BICYCLE",
        ObjectLabel::Pedestrian => "PEDESTRIAN",
    }
}
