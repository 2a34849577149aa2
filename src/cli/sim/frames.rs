//! `sensorium sim frames`: training data of cameras.

use std::path::PathBuf;
use std::process::ExitCode;

use miette::IntoDiagnostic;

use super::{Traffic, bar};
use crate::cli::report;
use crate::io::sim::{CameraConfig, FrameSet, SCENE_CLASSES};

/// Writes camera images of worlds of their own as NumPy files, with the true boxes.
///
/// Each image shows another world through one of the three cameras, whose height, pitch and focal length vary a little.
/// images.npy holds the pixels (uint8, N x 400 x 640 x 3: red, green, blue), boxes.npy the boxes (float32: left, top,
/// right and bottom edge, class, share that is visible, distance, number), starts.npy where each image's begin (int64);
/// meta.json says how they were made. The same seed gives the same files, whatever the number of threads.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Number of images.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    count: u32,
    /// Which images.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Folder to write to; made if need be.
    #[arg(long)]
    out: PathBuf,
    /// Threads to work on; as many as there are cores unless said.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    #[command(flatten)]
    traffic: Traffic,
}

/// Runs the command.
///
/// # Errors
/// Files that cannot be written.
pub(super) fn run(args: &Args) -> miette::Result<ExitCode> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let set = FrameSet {
        count: args.count as usize,
        seed: args.seed,
        threads: args.threads.map_or(cores, usize::from),
        world: args.traffic.world(),
        cameras: CameraConfig::three(),
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
        "{}: {} images, {}",
        args.out.display(),
        args.count,
        boxes.join(", ")
    ))?;
    Ok(ExitCode::SUCCESS)
}
