//! `sensorium run`: plays a pipeline.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{ArgAction, ValueHint};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use miette::{IntoDiagnostic, Report, Severity, WrapErr, miette};

use super::interrupt::end_on_interrupt;
use super::pipeline_args::{self, Format, PipelineArgs};
use super::watching::WatchArgs;
use super::{reload, report};
use crate::pipeline::{Overrides, PipelineError, Rate};
use crate::runtime::{self, Progress, RunOptions, RunOutput, RuntimeError, Shutdown};
use crate::server::observe::{FileReader, ListenAddress};

/// Runs a pipeline on a bag, a simulated drive or live sensors: detections go to zenoh, to topics of ROS 2, to recordings
/// and to JSON lines; a table of latencies and drops comes at the end.
///
/// A pipeline with live sources (`subscribe: ros2`) is a node of the ROS 2 graph and runs until it is interrupted. Nodes
/// find each other through a router (`sensorium router`); ROS_DOMAIN_ID and the variables of rmw_zenoh apply.
///
/// SIGHUP has the pipeline file read again: parameters, sinks and topics that changed are taken over while frames flow,
/// and what takes a new run is told and left (`sensorium check NEW --against OLD` says which).
///
/// Ctrl-C (or SIGTERM) stops the source and lets the frames under way come out; a second one ends at once. The
/// exit code is 0 if everything that was asked for was done, 1 otherwise; a run that was stopped, and frames that
/// were dropped by a channel's policy, because their image was bad or with a device that was lost and opened again,
/// are told and counted, not a failure.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sensorium run pipelines/yolox.yaml --model yolox_nano.onnx --bag drive.mcap
  sensorium run pipelines/yolox.yaml --model m.onnx --bag drive/ --rate max --jsonl out.jsonl --report out/report
  sensorium run pipelines/yolox.yaml --model m.onnx --bag drive/ --set models.yolox_nano.precision=bf16
  sensorium run --vehicle config/vehicles/sedan.yaml --sensors lidar_roof --bag drive.mcap --no-publish --jsonl out.jsonl")]
pub(super) struct Args {
    #[command(flatten)]
    pipeline: PipelineArgs,
    /// Bag to play: a folder with metadata.yaml, or one .mcap or .db3 file.
    #[arg(long, value_name = "PATH", value_hint = ValueHint::AnyPath, conflicts_with = "simulate")]
    bag: Option<PathBuf>,
    /// ONNX file of the model.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    model: Option<PathBuf>,
    /// Speed of the replay: a multiple of the recorded speed, or `max` for as fast as possible.
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,
    /// Plays in one fixed order as fast as possible and drops nothing: JSON lines and recordings of two runs are the same
    /// to the byte. Timing fields are left out, and recorded results carry the stamps of their sensors.
    #[arg(long, conflicts_with = "rate")]
    deterministic: bool,
    /// Records images and boxes as MCAP (opens in Foxglove).
    #[arg(long, value_name = "OUT.mcap", value_hint = ValueHint::FilePath)]
    record: Option<PathBuf>,
    /// Writes one JSON object a frame.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    jsonl: Option<PathBuf>,
    /// Writes report.json, report.html and timeline.svg into this folder.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    report: Option<PathBuf>,
    /// Gives a topic another name, as in ROS 2: FROM:=TO. Can be given several times.
    #[arg(long, value_name = "FROM:=TO", value_parser = remap)]
    remap: Vec<(String, String)>,
    /// Loads the models, captures them on the device and ends.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false)]
    #[arg(default_missing_value = "true", action = ArgAction::Set)]
    build_only: bool,
    /// Leaves timing fields out of JSON lines and published results.
    #[arg(long)]
    no_latency: bool,
    /// Lets the Foxglove viewer connect and shows it images and point clouds with what was found in them.
    #[arg(long, value_name = "ADDRESS:PORT", num_args = 0..=1, default_missing_value = "127.0.0.1:8765")]
    foxglove: Option<SocketAddr>,
    #[command(flatten)]
    watch: WatchArgs,
    /// Form of the summary at the end.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// Runs the command.
///
/// # Errors
/// Whatever keeps the run from starting, or went wrong in it.
pub(super) fn run(args: Args) -> miette::Result<ExitCode> {
    let overrides = Overrides {
        bag: args.bag,
        model: args.model,
        rate: args.rate,
        record: args.record,
        jsonl: args.jsonl,
        deterministic: args.deterministic,
        foxglove: args.foxglove,
        remap: args.remap,
        ..Overrides::default()
    };
    let pipeline = args.pipeline.load(overrides.clone())?.into_pipeline();
    for warning in &pipeline.warnings {
        report::show(&Report::new(warning.clone()));
    }
    pipeline.require_files()?;
    if let Some(dir) = &args.report {
        crate::telemetry::report::prepare_dir(dir).into_diagnostic()?;
    }

    let watch = args.watch.open()?;
    if let Some(address) = args
        .foxglove
        .filter(|address| !ListenAddress::from(*address).is_loopback())
    {
        report::show(&miette!(
            severity = Severity::Warning,
            help = "name an address of this machine alone, such as 127.0.0.1:8765, and reach it through a tunnel",
            "everyone who reaches {address} can see what the sensors see: Foxglove's protocol has no token"
        ));
    }

    let tokio = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .into_diagnostic()
        .wrap_err("the asynchronous runtime cannot start")?;
    let shutdown = Shutdown::default();
    let control = watch.control.clone();
    let options = RunOptions {
        gallery: args.report.is_some(),
        with_latency: !args.no_latency,
        device_environment: pipeline_args::device_environment()?,
        progress: Arc::new(Bar::new()),
        ros_node: None,
        build_only: args.build_only,
        control: control.clone(),
        live: watch.live.clone(),
        load: None,
    };
    let outcome = tokio.block_on(async {
        // Before an address is told: whoever reads it may signal at once.
        end_on_interrupt(shutdown.clone());
        reload::on_hangup(control, args.pipeline.clone(), overrides.clone());
        // It answers until the run is over.
        let _observer = watch.start(reader(&args.pipeline, &overrides)).await?;
        runtime::run(&pipeline, options, shutdown).await.map_err(explain)
    });
    tokio.shutdown_timeout(Duration::from_millis(500));
    let output = outcome?;
    let untraced = watch.finish();

    match args.format {
        Format::Text => {
            report::print(&output.summary.table())?;
            if let Some(graph) = &output.graph {
                report::print(&graph.text())?;
            }
        }
        Format::Json => {
            report::print(&serde_json::to_string_pretty(&output.summary).into_diagnostic()?)?;
        }
    }
    if let Some(dir) = &args.report {
        let RunOutput {
            summary,
            gallery,
            timeline,
            ..
        } = &output;
        crate::telemetry::report::write(dir, summary, gallery, timeline)
            .into_diagnostic()
            .wrap_err("the report cannot be written")?;
    }
    let code = if output.faults.is_empty() && untraced.is_none() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    };
    for fault in output.faults.into_iter().map(explain).chain(untraced) {
        report::show(&fault);
    }
    Ok(code)
}

/// Reads the pipeline file again as it was read for the run.
fn reader(args: &PipelineArgs, overrides: &Overrides) -> FileReader {
    let (args, overrides) = (args.clone(), overrides.clone());
    FileReader::new(move || {
        let pipeline = args.load(overrides.clone()).map_err(|error| in_words(&error))?;
        let pipeline = pipeline.into_pipeline();
        pipeline.require_files().map_err(|error| in_words(&error))?;
        Ok(pipeline)
    })
}

/// All that is wrong with a pipeline file, on one line: who asked over HTTP sees no file to point into.
fn in_words(error: &PipelineError) -> String {
    let problems = error.problems().iter().map(ToString::to_string);
    let told: Vec<String> = std::iter::once(error.to_string()).chain(problems).collect();
    told.join("; ")
}

/// A new name for a topic.
pub(super) fn remap(text: &str) -> Result<(String, String), String> {
    match text.split_once(":=") {
        Some((from, to)) if !from.is_empty() && !to.is_empty() => Ok((from.to_owned(), to.to_owned())),
        _ => Err("expected FROM:=TO, such as ~/input/pointcloud:=/sensing/lidar/points".to_owned()),
    }
}

/// An error of a run with what to do about it.
pub(super) fn explain(error: RuntimeError) -> Report {
    let help = match &error {
        RuntimeError::Source { .. } => {
            "`sensorium bag info BAG` shows what a bag holds; of a vehicle, --sensors names those that are played"
        }
        RuntimeError::Model { .. } => "`sensorium model info FILE.onnx` shows what a model needs",
        RuntimeError::Device(_) => {
            "the `device` section of the pipeline file sets backend, memory, threads and queues"
        }
        RuntimeError::DeviceLost { .. } | RuntimeError::DeviceGone { .. } => {
            "`device.restart` of the pipeline file says how often a lost device is opened again"
        }
        RuntimeError::Ros2(_) => {
            "the section `ros2` of the pipeline file names the node and how it joins the graph"
        }
        RuntimeError::Sink { .. } => "correct what is wrong there, or leave this output away",
        RuntimeError::Unwritable { .. } => "name a file in a folder that exists and can be written",
        RuntimeError::ActorDied { .. } => "this is a fault of the program; -vv logs what led to it",
        RuntimeError::GivenUp { .. } => {
            "`supervision` of the pipeline file says how often an actor may fail; -vv logs what led to it"
        }
        RuntimeError::Incomplete(_) => "or write it into the pipeline file",
    };
    miette!(help = help, "{error}")
}

/// A progress bar on standard error, hidden where that is no terminal.
#[derive(Debug)]
struct Bar {
    bar: ProgressBar,
}

impl Bar {
    fn new() -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
        let style =
            ProgressStyle::with_template("{bar:40} {pos}/{len} frames  {per_sec}  {elapsed}  eta {eta}");
        Self {
            bar: style.map_or_else(|_| bar.clone(), |style| bar.clone().with_style(style)),
        }
    }
}

impl Progress for Bar {
    fn started(&self, messages: u64) {
        self.bar.set_length(messages);
    }

    fn subscribes(&self, source: &str, topics: &[Arc<str>]) {
        // Messages come when they come, so there is nothing to fill a bar with.
        self.bar.finish_and_clear();
        eprintln!(
            "{source} is ready and subscribes to {}; Ctrl-C ends the run",
            topics.join(", ")
        );
    }

    fn listens(&self, publisher: &str, url: &str) {
        let line = format!("{publisher} waits for Foxglove at {url}");
        self.bar.suspend(|| eprintln!("{line}"));
    }

    fn message(&self) {
        self.bar.inc(1);
    }

    fn ended(&self) {
        self.bar.finish_and_clear();
    }
}
