//! `sensorium sim`: a simulated drive as a recording, and scenes and camera images as training data.

mod frames;
mod scenes;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use indicatif::{ProgressBar, ProgressStyle};
use miette::IntoDiagnostic;

use crate::cli::recording::write_recording;
use crate::cli::report;
use crate::io::drive_bag::{DriveBag, POINTS_TOPIC};
use crate::io::recorder::RecordCompression;
use crate::io::sim::{CameraRig, Drive, DriveConfig, LidarConfig, WorldConfig};

/// Longest drive: what a recording of 100 GB holds.
const MAX_SECONDS: f64 = 3600.0;

/// Drives a simulated car with a LiDAR, and cameras if asked for, through a simulated town.
///
/// Writes an MCAP recording with clouds, images, transforms, odometry and the true objects, which `ros2 bag`, Foxglove and
/// `sensorium run` read. The same seed gives the same drive.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Examples:
  sensorium sim --seconds 20 --seed 7 --out drive.mcap
  sensorium sim --seconds 60 --rings 32 --azimuths 1024 --out small.mcap
  sensorium sim --cameras three --camera-hz 5 --out drive.mcap
  sensorium sim scenes --count 3000 --seed 1 --out scenes/
  sensorium sim frames --count 3000 --seed 1 --out frames/"
)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    drive: DriveArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    Frames(frames::Args),
    Scenes(scenes::Args),
}

#[derive(Debug, clap::Args)]
struct DriveArgs {
    /// The file to write; its name ends in .mcap. Its folder is made if need be.
    #[arg(long, required = true)]
    out: Option<PathBuf>,
    /// Length of the drive.
    #[arg(long, default_value_t = 20.0, value_parser = seconds, allow_negative_numbers = true)]
    seconds: f64,
    /// Which town and which drive.
    #[arg(long, default_value_t = 7)]
    seed: u64,
    /// Do not compress the recording: larger, and faster to write and to read.
    #[arg(long)]
    uncompressed: bool,
    /// Cameras of 640 x 400 pixels: none, one ahead, or three that see 200 degrees.
    #[arg(long, default_value = CameraRig::None.name(), value_parser = rig_parser())]
    cameras: CameraRig,
    /// Images of each camera a second: a whole part of the LiDAR's 10 turns.
    #[arg(long, default_value = "10", value_parser = camera_hz_parser())]
    camera_hz: u32,
    #[command(flatten)]
    setting: Setting,
}

/// The LiDAR and the world, the same for drives and scenes.
#[derive(Debug, clap::Args)]
struct Setting {
    /// Lasers of the LiDAR.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(2..=256))]
    rings: u16,
    /// Columns of a turn of the LiDAR.
    #[arg(long, default_value_t = 1440, value_parser = clap::value_parser!(u16).range(16..=8192))]
    azimuths: u16,
    /// Height of the LiDAR above the road in metres.
    #[arg(long, default_value_t = 1.9, value_parser = height, allow_negative_numbers = true)]
    height: f64,
    #[command(flatten)]
    traffic: Traffic,
}

/// How much goes on in the world.
#[derive(Debug, clap::Args)]
struct Traffic {
    /// Cars, trucks and buses; 1 is a busy street.
    #[arg(long, default_value_t = 1.0, value_parser = amount, allow_negative_numbers = true)]
    traffic: f64,
    /// People on foot; 1 is a busy street.
    #[arg(long, default_value_t = 1.0, value_parser = amount, allow_negative_numbers = true)]
    pedestrians: f64,
    /// People on bicycles; 1 is a busy street.
    #[arg(long, default_value_t = 1.0, value_parser = amount, allow_negative_numbers = true)]
    cyclists: f64,
}

impl Setting {
    fn lidar(&self) -> LidarConfig {
        LidarConfig {
            rings: self.rings.into(),
            azimuths: self.azimuths.into(),
            height_m: self.height,
            ..LidarConfig::default()
        }
    }

    fn world(&self) -> WorldConfig {
        self.traffic.world()
    }
}

impl Traffic {
    fn world(&self) -> WorldConfig {
        WorldConfig {
            traffic: self.traffic,
            pedestrians: self.pedestrians,
            cyclists: self.cyclists,
        }
    }
}

fn rig_parser() -> impl TypedValueParser<Value = CameraRig> {
    PossibleValuesParser::new(CameraRig::ALL.map(CameraRig::name)).map(|name| {
        let mut rigs = CameraRig::ALL.into_iter();
        rigs.find(|rig| rig.name() == name).unwrap_or_default()
    })
}

fn camera_hz_parser() -> impl TypedValueParser<Value = u32> {
    // No other value gets here.
    PossibleValuesParser::new(["1", "2", "5", "10"]).map(|hz| hz.parse().unwrap_or(10))
}

/// A number within bounds, or what is expected instead.
fn within(text: &str, low: f64, high: f64, what: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (low..=high).contains(&value) => Ok(value),
        _ => Err(format!("{what} between {low} and {high} is expected")),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    within(text, 0.1, MAX_SECONDS, "a number of seconds")
}

fn height(text: &str) -> Result<f64, String> {
    within(text, 0.5, 5.0, "a height in metres")
}

fn amount(text: &str) -> Result<f64, String> {
    within(text, 0.0, 2.0, "a share of a busy street's traffic")
}

/// Runs the command.
///
/// # Errors
/// An output that cannot be written.
pub(super) fn run(args: Args) -> miette::Result<ExitCode> {
    match args.command {
        Some(Command::Frames(args)) => return frames::run(&args),
        Some(Command::Scenes(args)) => return scenes::run(&args),
        None => {}
    }
    // The command line is refused without it.
    let out = args.drive.out.as_deref().unwrap_or(Path::new(""));
    let totals = write_recording(out, |path| write_drive(&args.drive, path))?;
    let images = match totals.images {
        0 => String::new(),
        images => format!(", {images} images"),
    };
    report::print(&format!(
        "{}: {} frames on {POINTS_TOPIC}{images}, {:.0} points and {:.1} true objects a frame, {:.0} m driven",
        out.display(),
        totals.frames,
        totals.points as f64 / totals.frames as f64,
        totals.objects as f64 / totals.frames as f64,
        totals.driven_m,
    ))?;
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug, Default)]
struct Totals {
    frames: u64,
    points: u64,
    objects: u64,
    images: u64,
    driven_m: f64,
}

fn write_drive(args: &DriveArgs, path: &Path) -> miette::Result<Totals> {
    let config = DriveConfig {
        world: args.setting.world(),
        lidar: args.setting.lidar(),
        cameras: args.cameras.cameras(),
        camera_hz: args.camera_hz,
        ..DriveConfig::default()
    };
    let compression = if args.uncompressed {
        RecordCompression::None
    } else {
        RecordCompression::Zstd
    };
    let mut bag = DriveBag::create(path, compression, &config.cameras).into_diagnostic()?;
    let mut drive = Drive::new(&config, args.seed);
    let frames = (args.seconds * config.lidar.rate_hz).round().max(1.0) as u64;
    let progress = bar(frames)?;
    let mut totals = Totals::default();
    for _ in 0..frames {
        let frame = drive.next_frame();
        bag.write(&frame).into_diagnostic()?;
        totals.frames += 1;
        totals.points += frame.cloud.len() as u64;
        totals.objects += frame.truth.len() as u64;
        totals.images += frame.images.len() as u64;
        totals.driven_m += frame.ego_speed_mps * config.lidar.period_s();
        progress.inc(1);
    }
    progress.finish_and_clear();
    bag.finish().into_diagnostic()?;
    Ok(totals)
}

fn bar(steps: u64) -> miette::Result<ProgressBar> {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}").into_diagnostic()?;
    Ok(ProgressBar::new(steps).with_style(style))
}
