//! `sensorium cloud`: point-cloud files, looked at and converted.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Subcommand, ValueEnum};
use comfy_table::{CellAlignment, Table, presets};
use miette::IntoDiagnostic;
use serde_json::{Value, json};

use super::pipeline_args::Format;
use super::report;
use crate::io::cloud::ReadOptions;
use crate::io::cloud_file::{
    CloudFile, CloudFileOptions, CloudFormat, CloudWriteOptions, PcdEncoding, TableLayout, left_out, read,
    write,
};

/// Looks at point-cloud files and converts them.
///
/// Files are .pcd (ascii, binary, binary_compressed), .bin (KITTI, nuScenes and other tables of floats), .npy, .npz (an
/// array for each column, by name), and .cdr (one sensor_msgs/PointCloud2 as it is on the wire).
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Info(InfoArgs),
    Convert(ConvertArgs),
}

#[derive(Debug, clap::Args)]
struct Input {
    /// The file to read.
    #[arg(value_name = "FILE")]
    input: PathBuf,
    /// What the numbers of a .bin or .npy file are: x y z, i intensity, r ring, t seconds after the stamp, l seconds
    /// before it, _ to pass over. Needed only where more than one layout fits.
    #[arg(long, value_name = "f32:xyzi")]
    layout: Option<TableLayout>,
    /// Columns not to read, such as one that is refused.
    #[arg(long, value_name = "COLUMN", value_delimiter = ',')]
    without: Vec<Column>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Column {
    Intensity,
    Ring,
    Time,
    ReturnType,
}

impl Input {
    fn read(&self, keep_non_finite: bool) -> miette::Result<CloudFile> {
        let wanted = |column| !self.without.contains(&column);
        let options = CloudFileOptions {
            read: ReadOptions {
                intensity: wanted(Column::Intensity),
                ring: wanted(Column::Ring),
                time: wanted(Column::Time),
                return_type: wanted(Column::ReturnType),
                keep_non_finite,
            },
            layout: self.layout.clone(),
            ..CloudFileOptions::default()
        };
        read(&self.input, &options).into_diagnostic()
    }
}

/// Shows what a point-cloud file holds: layout, points, and the range of every column.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sensorium cloud info sweep.pcd
  sensorium cloud info 000008.bin --layout f32:xyzi --format json")]
struct InfoArgs {
    #[command(flatten)]
    input: Input,
    /// Form of the result.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// Converts a point-cloud file; both formats go by the extensions.
///
/// Points with a coordinate that is NaN or infinite are left out. A .bin or .npy file is written as float32 x, y, z,
/// intensity, and ring where there is one; a .cdr file in Autoware's layout PointXYZIRCAEDT.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sensorium cloud convert 000008.bin sweep.pcd
  sensorium cloud convert sweep.pcd sweep.npy
  sensorium cloud convert sweep.pcd sweep.cdr --frame-id velodyne_top")]
struct ConvertArgs {
    #[command(flatten)]
    input: Input,
    /// The file to write.
    output: PathBuf,
    /// How the points of a .pcd file are stored.
    #[arg(long, value_enum, default_value_t = PcdData::Binary)]
    pcd: PcdData,
    /// Coordinate frame of a .cdr file.
    #[arg(long, default_value = "lidar")]
    frame_id: String,
    /// Stamp of a .cdr file in nanoseconds since the epoch, where the input has none.
    #[arg(long, default_value_t = 0)]
    stamp_ns: i64,
    /// Keep points with a coordinate that is NaN or infinite.
    #[arg(long)]
    keep_non_finite: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
enum PcdData {
    Ascii,
    Binary,
    BinaryCompressed,
}

/// Runs the command.
///
/// # Errors
/// A file that cannot be read or written.
pub(super) fn run(args: Args) -> miette::Result<ExitCode> {
    match args.command {
        Command::Info(args) => {
            let file = args.input.read(true)?;
            report::print(&match args.format {
                Format::Text => text(&args.input, &file),
                Format::Json => {
                    serde_json::to_string_pretty(&machine_readable(&args.input, &file)).into_diagnostic()?
                }
            })?;
        }
        Command::Convert(args) => report::print(&convert(&args)?)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn convert(args: &ConvertArgs) -> miette::Result<String> {
    // Refused before the input is read for nothing.
    let format = CloudFormat::of(&args.output).into_diagnostic()?;
    let file = args.input.read(args.keep_non_finite)?;
    let options = CloudWriteOptions {
        pcd: match args.pcd {
            PcdData::Ascii => PcdEncoding::Ascii,
            PcdData::Binary => PcdEncoding::Binary,
            PcdData::BinaryCompressed => PcdEncoding::BinaryCompressed,
        },
        stamp_ns: file.summary.stamp_ns.unwrap_or(args.stamp_ns),
        frame_id: &args.frame_id,
    };
    write(&args.output, &file.cloud, options).into_diagnostic()?;
    let mut told = format!("{} points to {}", file.cloud.len(), args.output.display());
    if file.cloud.len() < file.summary.points {
        let _ = write!(told, "; {} without a place left out", file.summary.non_finite);
    }
    let lost = left_out(&file.cloud, format);
    if !lost.is_empty() {
        let _ = write!(
            told,
            "; {} left out, which this format has no place for",
            lost.join(" and ")
        );
    }
    Ok(told)
}

/// Name, number of values, least and greatest finite one.
fn columns(file: &CloudFile) -> Vec<(&'static str, usize, Option<[f64; 2]>)> {
    fn range(values: impl Iterator<Item = f64>) -> Option<[f64; 2]> {
        values
            .filter(|value| value.is_finite())
            .map(|value| [value; 2])
            .reduce(|[low, high], [value, _]| [low.min(value), high.max(value)])
    }
    let cloud = &file.cloud;
    let floats = |values: &[f32]| (values.len(), range(values.iter().map(|&v| v.into())));
    let time_s = cloud.time_ns.iter().map(|&ns| ns as f64 * 1e-9);
    [
        ("x (m)", floats(&cloud.x)),
        ("y (m)", floats(&cloud.y)),
        ("z (m)", floats(&cloud.z)),
        ("intensity", floats(&cloud.intensity)),
        (
            "ring",
            (cloud.ring.len(), range(cloud.ring.iter().map(|&v| v.into()))),
        ),
        ("time (s)", (cloud.time_ns.len(), range(time_s))),
        (
            "return type",
            (
                cloud.return_type.len(),
                range(cloud.return_type.iter().map(|&v| v.into())),
            ),
        ),
    ]
    .into_iter()
    .map(|(name, (len, range))| (name, len, range))
    .collect()
}

fn text(input: &Input, file: &CloudFile) -> String {
    let mut out = String::new();
    let mut fact = |key: &str, value: String| {
        // Writing to a string does not fail.
        let _ = writeln!(out, "{key:<12} {value}");
    };
    let [width, height] = file.size;
    fact("file", input.input.display().to_string());
    fact("format", file.format.to_string());
    fact("layout", file.layout.clone());
    fact(
        "points",
        match height {
            1 => file.summary.points.to_string(),
            _ => format!("{} ({height} rows of {width})", file.summary.points),
        },
    );
    fact(
        "nowhere",
        format!(
            "{} with a coordinate that is NaN or infinite",
            file.summary.non_finite
        ),
    );
    if file.summary.implausible > 0 {
        let count = file.summary.implausible;
        fact(
            "implausible",
            format!("{count} beyond 10 km or too small: is the byte order right?"),
        );
    }
    if let Some(ns) = file.summary.stamp_ns {
        fact(
            "stamp",
            format!(
                "{}.{:09} s",
                ns.div_euclid(1_000_000_000),
                ns.rem_euclid(1_000_000_000)
            ),
        );
    }
    let mut table = Table::new();
    table
        .load_preset(presets::UTF8_HORIZONTAL_ONLY)
        .set_header(["column", "least", "greatest"]);
    for (name, len, range) in columns(file) {
        let cells = match range {
            Some(range) => range.map(|value| format!("{value:.3}")),
            None if len == 0 => ["-".to_owned(), "-".to_owned()],
            None => ["nan".to_owned(), "nan".to_owned()],
        };
        let [least, greatest] = cells;
        table.add_row([name.to_owned(), least, greatest]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let _ = write!(out, "{table}");
    out
}

fn machine_readable(input: &Input, file: &CloudFile) -> Value {
    let columns: serde_json::Map<String, Value> = columns(file)
        .into_iter()
        .filter(|(_, len, _)| *len > 0)
        .map(|(name, _, range)| {
            let name = name.split(" (").next().unwrap_or(name).replace(' ', "_");
            (name, json!(range))
        })
        .collect();
    json!({
        "file": input.input.display().to_string(),
        "format": file.format.to_string(),
        "layout": file.layout,
        "points": file.summary.points,
        "width": file.size[0],
        "height": file.size[1],
        "non_finite": file.summary.non_finite,
        "implausible": file.summary.implausible,
        "stamp_ns": file.summary.stamp_ns,
        "columns": columns,
    })
}
