//! `sensorium check`: what a pipeline file says, or all that is wrong with it.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::ValueHint;
use miette::{IntoDiagnostic, Report};
use serde_json::json;

use super::check_vehicle;
use super::pipeline_args::{self, Format, PipelineArgs, Subject};
use super::report;
use crate::device::DeviceLayer;
use crate::pipeline::{
    Family, Labels, NodeKind, Overrides, Pipeline, PipelineError, Problem, ProblemRecord, PublisherSettings,
    SimulatedCameras, Topics,
};

/// Checks a pipeline file, or a vehicle with its pipelines, without running it.
///
/// Of a vehicle it tells what would run, what memory, bandwidth and time of the device that needs, and what does not fit.
/// Every error is shown with its place, what was expected there and the nearest valid spelling. The exit code
/// is 0 for a good file, also one with warnings, and 1 for a bad one.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sensorium check pipelines/yolox.yaml
  sensorium check pipelines/yolox.yaml --set nodes.camera.rate=max --format json
  sensorium check --vehicle config/vehicles/sedan.yaml
  sensorium check new.yaml --against pipelines/yolox.yaml")]
pub(super) struct Args {
    #[command(flatten)]
    pipeline: PipelineArgs,
    /// Tells what changes from this pipeline file on, and whether a run can take the changes over (SIGHUP).
    #[arg(long, value_name = "PIPELINE", value_hint = ValueHint::FilePath)]
    against: Option<PathBuf>,
    /// Form of the result.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// Does not put the models of the vehicle on the device to see what they take of it.
    #[arg(long, requires = "vehicle")]
    no_models: bool,
}

/// Runs the command.
///
/// # Errors
/// A file that is wrong or cannot be read.
pub(super) fn run(args: Args) -> miette::Result<ExitCode> {
    let environment = pipeline_args::device_environment()?;
    let result = match args.pipeline.load(Overrides::default()) {
        Ok(Subject::Vehicle(vehicle)) if args.against.is_none() => {
            return check_vehicle::run(&vehicle, &environment, args.format, !args.no_models);
        }
        Ok(subject) => Ok(subject.into_pipeline()),
        // For a program, a vehicle file that is wrong is told like a pipeline file that is wrong.
        Err(error) => Err(error),
    };
    if let Some(old) = args.against {
        let old = args.pipeline.in_place_of_the_file(old);
        let old = old.load(Overrides::default())?.into_pipeline();
        return changes(&old, &result?, args.format);
    }
    match (args.format, result) {
        (Format::Text, Ok(pipeline)) => {
            for problem in pipeline.warnings.iter().chain(&pipeline.missing) {
                report::show(&Report::new(problem.clone()));
            }
            report::print(&summary(&pipeline, &environment))?;
            Ok(ExitCode::SUCCESS)
        }
        (Format::Text, Err(error)) => Err(error.into()),
        (Format::Json, result) => {
            let code = if result.is_ok() {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            };
            report::print(&machine_readable(&result, &environment)?)?;
            Ok(code)
        }
    }
}

/// Tells what changes between two pipelines.
fn changes(old: &Pipeline, new: &Pipeline, format: Format) -> miette::Result<ExitCode> {
    let diff = old.diff(new);
    match format {
        Format::Text => report::print(&diff.to_string())?,
        Format::Json => {
            let document = json!({ "live": diff.is_live(), "steps": diff.steps });
            report::print(&serde_json::to_string_pretty(&document).into_diagnostic()?)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn machine_readable(
    result: &Result<Pipeline, PipelineError>,
    environment: &DeviceLayer,
) -> miette::Result<String> {
    let records = |problems: &[Problem]| {
        problems
            .iter()
            .map(Problem::to_record)
            .collect::<Vec<ProblemRecord>>()
    };
    let document = match result {
        Ok(pipeline) => json!({
            "ok": true,
            "pipeline": pipeline,
            "device": pipeline.device.config(environment),
            "plan": pipeline.plan(),
            "problems": records(&[pipeline.warnings.as_slice(), &pipeline.missing].concat()),
        }),
        Err(error) => json!({
            "ok": false,
            "error": error.to_string(),
            "problems": records(error.problems()),
        }),
    };
    serde_json::to_string_pretty(&document).into_diagnostic()
}

pub(super) fn summary(pipeline: &Pipeline, environment: &DeviceLayer) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let mut line = |head: &str, body: String| {
        let _ = writeln!(text, "{head:<9}{body}");
    };
    line("ok", pipeline.file.display().to_string());
    line("device", device(pipeline, environment));
    for (name, model) in &pipeline.models {
        let weights = match &model.weights {
            Some(path) => path.display().to_string(),
            None if model.family.is_seeded() => "out of the seed".to_owned(),
            None => "to be given".to_owned(),
        };
        let detail = match &model.family {
            Family::Yolox(camera) | Family::FastestDet(camera) => {
                let labels = match &camera.labels {
                    Labels::Coco80 => "coco80".to_owned(),
                    Labels::File(path) => path.display().to_string(),
                };
                format!("{}, labels {labels}", camera.preprocess)
            }
            Family::CenterPoint(lidar) => match lidar.params.len() {
                0 => "parameters of the weights".to_owned(),
                count => format!("{count} parameter file(s)"),
            },
            Family::BevRing(temporal) | Family::StreamQueries(temporal) => {
                format!(
                    "seed {}, {} frame(s) remembered",
                    temporal.seed, temporal.memory_frames
                )
            }
        };
        line(
            "model",
            format!(
                "{name}: {}, {}, {detail}, weights {weights}",
                model.family.name(),
                model.numbers(),
            ),
        );
    }
    for node in &pipeline.nodes {
        line("node", format!("{}: {}", node.name, describe(&node.kind)));
    }
    for edge in &pipeline.edges {
        let body = format!(
            "{} -> {}: capacity {}, {}",
            edge.from, edge.to, edge.capacity, edge.on_full
        );
        line("channel", body);
    }
    for name in &pipeline.inactive {
        line("off", format!("{name}: has no path"));
    }
    text
}

fn device(pipeline: &Pipeline, environment: &DeviceLayer) -> String {
    let config = pipeline.device.config(environment);
    let command_line = pipeline.device.command_line.keys();
    let decided = environment.only(|key| !command_line.contains(&key)).keys();
    let faults = match pipeline.device.faults.faults.len() {
        0 => String::new(),
        count => format!(", {count} fault(s) injected"),
    };
    match decided.as_slice() {
        [] => format!("{config}{faults}"),
        keys => format!("{config}{faults} (by the environment: {})", keys.join(", ")),
    }
}

fn describe(kind: &NodeKind) -> String {
    match kind {
        NodeKind::Source(source) => {
            let topics = match &source.topics {
                Topics::Auto => "every topic that fits".to_owned(),
                Topics::Listed(topics) => format!("topics {}", topics.join(", ")),
            };
            let bag = match (&source.bag, source.simulate, source.subscribe) {
                (Some(path), ..) => path.display().to_string(),
                (None, Some(drive), _) => {
                    let seconds = drive.seconds;
                    let cameras = match drive.cameras {
                        SimulatedCameras::None => String::new(),
                        SimulatedCameras::Front => format!(" with a camera ({} Hz)", drive.camera_hz),
                        SimulatedCameras::Three => format!(" with three cameras ({} Hz)", drive.camera_hz),
                    };
                    return format!(
                        "source, simulated drive of {seconds} s{cameras}, rate {}",
                        source.rate
                    );
                }
                (None, None, Some(from)) => return format!("source, subscribes to {from}, {topics}"),
                (None, None, None) => "to be given".to_owned(),
            };
            format!(
                "source, bag {bag}, {topics}, {} clock, rate {}",
                source.clock, source.rate
            )
        }
        NodeKind::Detector(detector) => format!(
            "detector, model {}, workers {} to prepare and {} to finish",
            detector.model, detector.prepare_workers, detector.finish_workers
        ),
        NodeKind::Publisher(PublisherSettings::Zenoh(publisher)) => {
            format!("publisher, zenoh key {}", publisher.key)
        }
        NodeKind::Publisher(PublisherSettings::Ros2(publisher)) => {
            format!("publisher, ros2 topic {}", publisher.topic)
        }
        NodeKind::Publisher(PublisherSettings::Foxglove(publisher)) => {
            format!("publisher, Foxglove at ws://{}", publisher.address)
        }
        NodeKind::Recorder(recorder) => format!("recorder, {}", recorder.path.display()),
        NodeKind::JsonLines(jsonl) => format!("jsonl, {}", jsonl.path.display()),
        NodeKind::Compute(compute) => format!("compute, {}", compute.describe()),
        NodeKind::Sync(sync) => {
            let topics: Vec<&str> = sync.members.iter().map(|member| member.topic.as_str()).collect();
            format!(
                "sync, stream {}, {}: {}; waits {} ms, partial sets: {}",
                sync.stream,
                sync.summary(),
                topics.join(", "),
                sync.timeout_ns as f64 / 1e6,
                sync.on_partial
            )
        }
        NodeKind::Concat(concat) => format!(
            "concat, stream {}, points into {}{}",
            concat.stream,
            concat.output_frame,
            match &concat.world_frame {
                Some(world) => format!(" through {world}"),
                None => String::new(),
            }
        ),
    }
}
