//! Arguments of every command that takes a pipeline file.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum, ValueHint};
use miette::Diagnostic;

use crate::device::{Backends, ConfigError, DeviceLayer};
use crate::pipeline::{ModelSettings, Overrides, Pipeline, PipelineError, Vehicle, VehicleOverrides};

/// A pipeline file, or a vehicle with its pipelines, and changes to it.
#[derive(Debug, Clone, Args)]
pub(super) struct PipelineArgs {
    /// The pipeline file (YAML).
    #[arg(value_name = "PIPELINE", value_hint = ValueHint::FilePath, required_unless_present = "vehicle")]
    pub(super) file: Option<PathBuf>,
    /// A vehicle file (YAML) in place of a pipeline: all of its pipelines, in one process and on one device.
    #[arg(long, value_name = "VEHICLE", value_hint = ValueHint::FilePath, conflicts_with = "file")]
    pub(super) vehicle: Option<PathBuf>,
    /// The only sensors of the vehicle that are played, such as lidar_roof,camera0. Pipelines of others are left out.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', requires = "vehicle")]
    pub(super) sensors: Vec<String>,
    /// Plays a simulated drive of so many seconds on the vehicle, in place of its sensors.
    #[arg(long, value_name = "SECONDS", value_parser = seconds, requires = "vehicle")]
    pub(super) simulate: Option<f64>,
    /// Leaves out the publishers of the vehicle, so that a replay does not speak to it.
    #[arg(long, requires = "vehicle")]
    pub(super) no_publish: bool,
    /// Changes one value of the file, such as nodes.camera.rate=max or device.threads=4.
    ///
    /// The path leads through the maps of the file (items of a list by number, from 0); the value is YAML. Of a vehicle, it
    /// begins with the name of a pipeline, or it leads through the vehicle file. Can be given several times.
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
    pub(super) set: Vec<(String, String)>,
}

/// What a command works on.
#[derive(Debug)]
pub(super) enum Subject {
    /// A pipeline file.
    Pipeline(Box<Pipeline>),
    /// A vehicle file.
    Vehicle(Box<Vehicle>),
}

impl Subject {
    /// The pipeline that is run.
    pub(super) fn into_pipeline(self) -> Pipeline {
        match self {
            Self::Pipeline(pipeline) => *pipeline,
            Self::Vehicle(vehicle) => vehicle.pipeline,
        }
    }
}

impl PipelineArgs {
    /// The same changes to another file of the same kind.
    pub(super) fn in_place_of_the_file(&self, other: PathBuf) -> Self {
        let mut args = self.clone();
        match &mut args.vehicle {
            Some(file) => *file = other,
            None => args.file = Some(other),
        }
        args
    }

    /// The file, as it was named.
    pub(super) fn named(&self) -> &Path {
        // The command line has one of the two.
        let file = self.vehicle.as_deref().or(self.file.as_deref());
        file.unwrap_or_else(|| Path::new(""))
    }

    /// Reads the file with the changes of the command line: those given here, and `more`.
    ///
    /// # Errors
    /// A file that cannot be read, or all that is wrong with it.
    pub(super) fn load(&self, more: Overrides) -> Result<Subject, PipelineError> {
        let pipeline = Overrides {
            set: self.set.clone(),
            ..more
        };
        match &self.vehicle {
            Some(file) => {
                let overrides = VehicleOverrides {
                    pipeline,
                    simulate_s: self.simulate,
                    sensors: self.sensors.clone(),
                    no_publish: self.no_publish,
                };
                Vehicle::load(file, &overrides).map(|vehicle| Subject::Vehicle(Box::new(vehicle)))
            }
            None => {
                // The command line has one of the two.
                let file = self.file.as_deref().unwrap_or_else(|| Path::new(""));
                Pipeline::load(file, &pipeline).map(|pipeline| Subject::Pipeline(Box::new(pipeline)))
            }
        }
    }
}

/// Why none of the models of a file is the one that is meant.
#[derive(Debug, thiserror::Error, Diagnostic)]
pub(super) enum ModelChoiceError {
    #[error("{} has no model `{name}`", file.display())]
    #[diagnostic(help("it has {known}"))]
    NoModel {
        file: PathBuf,
        name: String,
        known: String,
    },
    #[error("{} has {count} models, and one is meant", file.display())]
    #[diagnostic(help("name one with --model: {known}"))]
    Several {
        file: PathBuf,
        count: usize,
        known: String,
    },
}

/// The model of a pipeline that is meant: the one of this name, or the only one.
///
/// # Errors
/// [`ModelChoiceError`].
pub(super) fn chosen_model<'p>(
    pipeline: &'p Pipeline,
    name: Option<&str>,
) -> Result<(&'p str, &'p ModelSettings), ModelChoiceError> {
    let models = &pipeline.models;
    let known = || models.keys().cloned().collect::<Vec<_>>().join(", ");
    let file = || pipeline.file.clone();
    let found = match (name, models.len()) {
        (Some(name), _) => models
            .get_key_value(name)
            .ok_or_else(|| ModelChoiceError::NoModel {
                file: file(),
                name: name.to_owned(),
                known: known(),
            }),
        (None, count) => {
            models
                .first_key_value()
                .filter(|_| count == 1)
                .ok_or_else(|| ModelChoiceError::Several {
                    file: file(),
                    count,
                    known: known(),
                })
        }
    };
    found.map(|(name, settings)| (name.as_str(), settings))
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text
        .parse()
        .ok()
        .filter(|seconds| (0.1..=86_400.0).contains(seconds));
    seconds.ok_or_else(|| "expected a number of seconds from 0.1 to 86400".to_owned())
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

pub(super) fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("expected KEY=VALUE, such as nodes.camera.rate=max".to_owned()),
    }
}
