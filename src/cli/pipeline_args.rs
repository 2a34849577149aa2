//! Arguments of every command that takes a pipeline file.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};

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
