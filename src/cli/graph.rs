//! `sensorium graph`: a pipeline as a picture.

use std::process::ExitCode;

use super::pipeline_args::PipelineArgs;
use super::report;
use crate::pipeline::Overrides;

/// Draws a pipeline as a Mermaid flowchart.
///
/// Arrows carry each channel's capacity and what happens when it is full. Markdown viewers such as GitHub's
/// draw the text inside a ```mermaid block; https://mermaid.live draws it alone.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sensorium graph pipelines/yolox.yaml
  sensorium graph pipelines/yolox.yaml --expanded > yolox.mmd")]
pub(super) struct Args {
    #[command(flatten)]
    pipeline: PipelineArgs,
    /// Show the actors that the nodes become, and where each runs.
    #[arg(long)]
    expanded: bool,
}

/// Runs the command.
///
/// # Errors
/// A file that is wrong or cannot be read.
pub(super) fn run(args: Args) -> miette::Result<ExitCode> {
    let pipeline = args.pipeline.load(Overrides::default())?.into_pipeline();
    report::print(&if args.expanded {
        pipeline.mermaid_expanded()
    } else {
        pipeline.mermaid()
    })?;
    Ok(ExitCode::SUCCESS)
}
