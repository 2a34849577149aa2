//! `sensorium sim scenes`: training data.

use std::path::PathBuf;
use std::process::ExitCode;

use miette::IntoDiagnostic;

use super::{Setting, bar};
use crate::cli::report;
use crate::io::sim::{SCENE_CLASSES, SceneSet};

/// Writes scenes of worlds of their own as NumPy files, with the true boxes.
///
/// A scene is the current sweep and the ones before it, all in the sensor's frame at the stamp of the current one. Shards
/// hold points (float32: x, y, z, seconds before the stamp), boxes (float32: x, y, z, length, width, height, yaw, vx, vy,
/// class, points) and where each scene's begin (int64); meta.json says how they were made. The same seed gives the same
/// files, whatever the number of threads.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Number of scenes.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    count: u32,
    /// Which scenes.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Folder to write to; made if need be.
    #[arg(long)]
    out: PathBuf,
    /// Sweeps of a scene, the current one included.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=10))]
    sweeps: u8,
    /// Scenes of a file.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    shard: u32,
    /// Threads to work on; as many as there are cores unless said.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    #[command(flatten)]
    setting: Setting,
}

/// Runs the command.
///
/// # Errors
/// Files that cannot be written.
pub(super) fn run(args: &Args) -> miette::Result<ExitCode> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let set = SceneSet {
        count: args.count as usize,
        seed: args.seed,
        sweeps: args.sweeps.into(),
        shard: args.shard as usize,
        threads: args.threads.map_or(cores, usize::from),
        world: args.setting.world(),
        lidar: args.setting.lidar(),
    };
    let progress = bar(args.count.into())?;
    let totals = set.write(&args.out, &|| progress.inc(1)).into_diagnostic()?;
    progress.finish_and_clear();
    let boxes: Vec<String> = SCENE_CLASSES
        .iter()
        .zip(totals.boxes)
        .map(|(class, count)| format!("{count} {class:?}"))
        .collect();
    report::print(&format!(
        "{}: {} scenes, {} points, {}",
        args.out.display(),
        args.count,
        totals.points,
        boxes.join(", ")
    ))?;
    Ok(ExitCode::SUCCESS)
}
