//! Arguments of every command that takes a pipeline file.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use miette::Diagnostic;

use crate::device::{Backends, ConfigError, DeviceLayer};
use crate::pipeline::Overrides;

/// A pipeline file and changes to it.
#[derive(Debug, Args)]
pub(super) struct PipelineArgs {
    /// The pipeline file (YAML).
    #[arg(value_name = "PIPELINE", value_hint = ValueHint::FilePath)]
    pub(super) file: PathBuf,
    /// Changes one value of the file, such as nodes.camera.rate=max or device.threads=4.
    ///
    /// The path leads through the maps of the file (items of a list by number, from 0); the value is YAML.
    /// Can be given several times.
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
    pub(super) set: Vec<(String, String)>,
}

impl PipelineArgs {
    /// The changes given by `--set`, and no others.
    pub(super) fn overrides(&self) -> Overrides {
        Overrides {
            set: self.set.clone(),
            ..Overrides::default()
        }
    }
}

#[derive(Debug, thiserror::Error, Diagnostic)]
#[error("the environment says something about the device that cannot be: {0}")]
#[diagnostic(help("correct the variable or unset it; docs/PIPELINES.md lists them under `device`"))]
struct BadEnvironment(#[source] ConfigError);

/// What the environment of this process says about the device.
///
/// # Errors
/// A variable whose name or value is wrong.
pub(super) fn device_environment() -> miette::Result<DeviceLayer> {
    Ok(DeviceLayer::from_environment(std::env::vars_os(), &Backends::builtin()).map_err(BadEnvironment)?)
}

/// Who reads the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// A person.
    Text,
    /// A program.
    Json,
}

fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("expected KEY=VALUE, such as nodes.camera.rate=max".to_owned()),
    }
}
