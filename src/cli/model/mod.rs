//! `sensorium model`: looks into model files, times them and says where the time goes.

mod bench;
mod info;
mod peer;
mod profile;
mod safetensors;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;
use miette::Diagnostic;

use super::pipeline_args::Format;

/// Looks into model files, times them and says where the time goes.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: ModelCommand,
}

#[derive(Debug, Subcommand)]
enum ModelCommand {
    /// Prints inputs, outputs, operations, size and cost of an ONNX file, or the tensors of a safetensors file.
    Info {
        /// The file: .onnx, or .safetensors.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// How to print it.
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
    },
    /// Times an ONNX file on the CPU device: upload, replay of its trace, and read, beside ONNX Runtime.
    ///
    /// Every configuration has its own device; rounds of runs alternate between them and ONNX Runtime, so that a busy
    /// machine slows all. ONNX Runtime takes part where a Python that has it is given, always in fp32.
    Bench(bench::Args),
    Profile(profile::Args),
}

#[derive(Debug, thiserror::Error, Diagnostic)]
#[error("{} cannot be read as a model", file.display())]
#[diagnostic(help(
    "Give a complete .onnx or .safetensors file. Export ONNX with fixed input sizes, and keep files that hold its \
     weights beside it."
))]
struct NoModel {
    file: PathBuf,
    #[source]
    cause: Box<dyn std::error::Error + Send + Sync>,
}

fn no_model(file: &Path, cause: impl std::error::Error + Send + Sync + 'static) -> NoModel {
    NoModel {
        file: file.to_owned(),
        cause: Box::new(cause),
    }
}

/// Runs the command.
///
/// # Errors
/// A file that is no model; for a bench also one that cannot be imported, or a Python without ONNX Runtime.
pub(super) fn run(args: Args) -> miette::Result<ExitCode> {
    match args.command {
        ModelCommand::Info { file, format } => info::run(&file, format),
        ModelCommand::Bench(args) => bench::run(&args),
        ModelCommand::Profile(args) => profile::run(&args).map(|()| ExitCode::SUCCESS),
    }
}
