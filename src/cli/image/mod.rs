//! `sensorium image`: what pre-processing makes of a picture.

mod preset;
mod sheet;
mod view;

use std::path::Path;
use std::process::ExitCode;

use clap::Subcommand;
use miette::{IntoDiagnostic, WrapErr};

use super::report;
use crate::image::{Image, Preset, PresetOptions, decode_image};

/// Shows what pre-processing makes of a picture.
///
/// A preset does what a deployed node does between its camera and its network, to the bit.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Preset(preset::Args),
    /// Lists the presets, with the form of the input as it is deployed.
    Presets,
    Sheet(sheet::Args),
}

/// Runs the command.
///
/// # Errors
/// Files that cannot be read or written, and presets that cannot do what is asked of them.
pub(super) fn run(args: &Args) -> miette::Result<ExitCode> {
    match &args.command {
        Command::Preset(args) => preset::run(args),
        Command::Presets => list(),
        Command::Sheet(args) => sheet::run(args),
    }
}

/// Every preset, with the form of the deployed input.
fn list() -> miette::Result<ExitCode> {
    let mut table = report::table();
    table.set_header(["preset", "input", "values", "what it does"]);
    for preset in Preset::ALL {
        let (layout, samples) = preset.deployed_form();
        let size = match preset.deployed_px() {
            Some([width, height]) => format!("{width} x {height}"),
            None => "the network's".to_owned(),
        };
        table.add_row([
            preset.name().to_owned(),
            size,
            format!(
                "{} {} {}",
                samples.name(),
                layout.name(),
                preset.deployed_order().name()
            ),
            preset.summary().to_owned(),
        ]);
    }
    report::print(&table.to_string())?;
    Ok(ExitCode::SUCCESS)
}

/// A JPEG or PNG file.
fn read(path: &Path) -> miette::Result<Image> {
    let bytes = std::fs::read(path)
        .into_diagnostic()
        .wrap_err_with(|| format!("{} cannot be read", path.display()))?;
    decode_image(&bytes)
        .into_diagnostic()
        .wrap_err_with(|| format!("{} is no picture that can be used", path.display()))
}

fn write(path: &Path, bytes: &[u8]) -> miette::Result<()> {
    std::fs::write(path, bytes)
        .into_diagnostic()
        .wrap_err_with(|| format!("{} cannot be written", path.display()))
}

/// Width and height, `640x384`.
fn size(text: &str) -> Result<[usize; 2], String> {
    let sides = text.split_once(['x', 'X']);
    let parsed =
        sides.and_then(|(width, height)| Some([width.trim().parse().ok()?, height.trim().parse().ok()?]));
    parsed.ok_or_else(|| "expected width and height in pixels, such as 640x384".to_owned())
}

/// The options under which a preset takes any picture: a size where the network would decide it.
fn with_size(preset: Preset, options: PresetOptions, size_px: [usize; 2]) -> PresetOptions {
    PresetOptions {
        target_px: options
            .target_px
            .or(preset.deployed_px().is_none().then_some(size_px)),
        ..options
    }
}
