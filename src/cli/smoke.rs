//! `sensorium smoke`
#[derive(Debug, clap::Args)]
pub(super) struct Args {}
pub(super) fn run(_: &Args) -> miette::Result<std::process::ExitCode> { Ok(std::process::ExitCode::SUCCESS) }
