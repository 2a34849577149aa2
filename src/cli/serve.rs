//! `sensorium serve`: a model behind HTTP.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueHint;
use miette::{Diagnostic, IntoDiagnostic, Report, WrapErr, miette};
use serde_json::json;

use super::interrupt::Interrupts;
use super::pipeline_args::{self, PipelineArgs};
use super::{bundle, report, token};
use crate::io::forms::{MAX_POINTS, Presets};
use crate::perception::ModelOptions;
use crate::perception::bundle::{Bundle, Pinned, pinned};
use crate::pipeline::{ModelSettings, Overrides};
use crate::runtime::load_model;
use crate::server::{
    LoadedModel, ModelEngine, ModelEngineOptions, Phase, ServeError, ServeOptions, Server, ServiceFacts,
};
use crate::weights::file_sha256;

/// Serves a model of a pipeline file over HTTP: POST /predict takes a point cloud or an image as JSON and answers with what
/// was found.
///
/// The service listens on this machine alone unless --listen says otherwise, and starts to listen at once: until the model
/// is loaded and captured, GET /health says "starting" and /predict answers 503. Ctrl-C or SIGTERM lets the requests under
/// way come to an end. The exit code is 0 if the model was served, 1 if there was none in the end.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sensorium serve pipelines/centerpoint.yaml
  sensorium serve pipelines/yolox.yaml --weights yolox_nano.onnx --listen 127.0.0.1:8080
  sensorium serve pipelines/centerpoint.yaml --listen 0.0.0.0:8000 --token-file token.txt")]
pub(super) struct Args {
    #[command(flatten)]
    pipeline: PipelineArgs,
    /// Which of the file's models; needed where it has several.
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// ONNX or safetensors file of the model, in place of the one that the pipeline file names.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    weights: Option<PathBuf>,
    /// Address and port to listen on; port 0 takes any that is free.
    #[arg(long, value_name = "ADDRESS", default_value_t = (Ipv4Addr::LOCALHOST, 8000).into())]
    listen: SocketAddr,
    /// File with a bearer token that every request but health has to bear; without it, SENSORIUM_TOKEN if that is set.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    token_file: Option<PathBuf>,
    /// Folder of calibrations, NAME.json each, that a request may name; they take the place of those of the model's bundle.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    calib_dir: Option<PathBuf>,
    /// Longest body of a request.
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=4096))]
    max_body_mb: u32,
    /// Memory for the bodies of all requests together.
    #[arg(long, value_name = "MIB", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=65536))]
    max_buffered_mb: u32,
    /// Most points of a cloud.
    #[arg(long, value_name = "N", default_value_t = MAX_POINTS)]
    max_points: usize,
    /// Connections at a time.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65536))]
    max_connections: u32,
    /// Requests that are decoded or run at a time.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1024))]
    max_concurrent: u32,
    /// Requests that wait for those; more are told to come again.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(0..=65536))]
    max_waiting: u32,
    /// Longest time from a request's body to its answer, in seconds.
    #[arg(long, value_name = "S", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=3600))]
    request_timeout_s: u32,
    /// Longest time for the body of a request, in seconds.
    #[arg(long, value_name = "S", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=3600))]
    body_timeout_s: u32,
}

#[derive(Debug, thiserror::Error, Diagnostic)]
#[error("model {name} has no weights")]
#[diagnostic(help("name a file with --weights, or write it into the pipeline file"))]
struct NoWeights {
    name: String,
}

/// Runs the command.
///
/// # Errors
/// Whatever keeps the service from listening. A model that cannot be had is told by `/health`, and by the exit code.
pub(super) fn run(args: Args) -> miette::Result<ExitCode> {
    let overrides = Overrides {
        model: args.weights.clone(),
        ..Overrides::default()
    };
    let pipeline = args.pipeline.load(overrides)?.into_pipeline();
    for warning in &pipeline.warnings {
        report::show(&Report::new(warning.clone()));
    }
    let (name, settings) = pipeline_args::chosen_model(&pipeline, args.model.as_deref())?;
    let (name, settings) = (name.to_owned(), settings.clone());
    if settings.weights.is_none() && !settings.family.is_seeded() {
        return Err(NoWeights { name }.into());
    }
    let token = token::token(args.token_file.as_deref(), token::SERVICE)?;
    if token.is_none() && !args.listen.ip().is_loopback() {
        let address = args.listen;
        report::show(&miette!(
            severity = miette::Severity::Warning,
            help = format!("give a token with --token-file or {}", token::SERVICE),
            "everyone who reaches {address} can use this service"
        ));
    }
    let presets = presets(args.calib_dir.as_deref(), settings.bundle.as_deref())?;
    let mib = |count: u32| (count as usize) << 20;
    let options = ServeOptions {
        listen: args.listen,
        token,
        max_body_bytes: mib(args.max_body_mb),
        max_buffered_bytes: mib(args.max_buffered_mb),
        max_points: args.max_points,
        max_connections: args.max_connections as usize,
        max_concurrent: args.max_concurrent as usize,
        max_waiting: args.max_waiting as usize,
        request_timeout: Duration::from_secs(args.request_timeout_s.into()),
        body_timeout: Duration::from_secs(args.body_timeout_s.into()),
        ..ServeOptions::default()
    };
    let service = ServiceFacts {
        task: "detection".to_owned(),
        owner: "sensorium".to_owned(),
        source: json!({ "pipeline": pipeline.name, "version": env!("CARGO_PKG_VERSION") }),
        presets,
    };
    let engine = ModelEngineOptions {
        device: pipeline.device.config(&pipeline_args::device_environment()?),
        model: ModelOptions {
            deadline: Duration::from_millis(pipeline.device.frame_deadline_ms.into()),
            ..ModelOptions::default()
        },
        restart: pipeline.device.restart,
        max_waiting: args.max_concurrent as usize,
    };
    let tokio = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .into_diagnostic()
        .wrap_err("the asynchronous runtime cannot start")?;
    let phase = tokio.block_on(async {
        let unable = |error: ServeError| miette!(help = "another address: --listen ADDRESS:PORT", "{error}");
        // Before the model is loaded, which takes a while that an address which is taken should not cost.
        let listener = Server::listen(options.listen).await.map_err(unable)?;
        let engine = ModelEngine::start(loader(name.clone(), settings), engine);
        let engine = engine
            .into_diagnostic()
            .wrap_err("the model's thread cannot start")?;
        let server = Server::on(listener, Arc::new(engine), options, service).map_err(unable)?;
        let interrupted = interrupted();
        report::print(&format!("serving {name} on http://{}", server.address()))?;
        Ok::<_, Report>(server.run(interrupted).await)
    })?;
    tokio.shutdown_timeout(Duration::from_millis(500));
    match phase {
        Phase::Failed(reason) => Err(miette!("model {name} could not be served: {reason}")),
        Phase::Starting | Phase::Ready(_) => Ok(ExitCode::SUCCESS),
    }
}

/// Calibrations that a request may name: those of a folder, or else those of the model's bundle. They are not mixed, so that
/// nobody has to ask which of two cameras of one name was meant.
fn presets(folder: Option<&Path>, bundle: Option<&Path>) -> miette::Result<Presets> {
    let bundle = bundle.map(Bundle::open).transpose().into_diagnostic()?;
    let Some(folder) = folder else {
        return bundle
            .as_ref()
            .map_or_else(|| Ok(Presets::default()), bundle::presets);
    };
    let presets = Presets::read(folder)
        .into_diagnostic()
        .wrap_err("the calibrations cannot be used")?;
    let unused = bundle
        .iter()
        .flat_map(|bundle| bundle.manifest().calibrations.keys());
    let unused: Vec<&str> = unused
        .map(String::as_str)
        .filter(|name| presets.names().all(|other| other != *name))
        .collect();
    if !unused.is_empty() {
        report::show(&miette!(
            severity = miette::Severity::Warning,
            help = "copy them into the folder, or leave --calib-dir out",
            "calibrations of the bundle that no request can name, for --calib-dir takes their place: {}",
            unused.join(", ")
        ));
    }
    Ok(presets)
}

/// Catches interrupts from now on. Completes at the first; a second one ends the process at once, whatever is still under
/// way.
fn interrupted() -> impl Future<Output = ()> {
    let interrupts = Interrupts::catch();
    async {
        let mut interrupts = match interrupts {
            Ok(interrupts) => interrupts,
            Err(error) => {
                tracing::warn!(%error, "Ctrl-C cannot be caught; the service ends with its process");
                return std::future::pending().await;
            }
        };
        interrupts.next().await;
        tokio::spawn(async move {
            interrupts.next().await;
            std::process::exit(130);
        });
    }
}

/// Loads the model, at every call anew.
fn loader(
    name: String,
    settings: ModelSettings,
) -> impl FnMut() -> Result<LoadedModel, String> + Send + 'static {
    move || {
        let parts = load_model(&name, &settings).map_err(|error| error.to_string())?;
        let file = settings.weights.as_deref();
        let digest = file.map(file_sha256).transpose();
        let digest = digest.map_err(|error| format!("the weights cannot be read: {error}"))?;
        // The name alone: where files lie is nobody's business.
        let name = file
            .and_then(Path::file_name)
            .map(|name| name.to_string_lossy().into_owned());
        Ok(LoadedModel {
            parts,
            weights: json!({ "file": name, "sha256": digest }),
            bundle: settings
                .bundle
                .as_deref()
                .map(|folder| pins(folder, &settings))
                .transpose()?,
        })
    }
}

/// What a model is pinned to that was just loaded from a bundle, with what the pipeline file sets beside the bundle.
fn pins(folder: &Path, settings: &ModelSettings) -> Result<Pinned, String> {
    let bundle = Bundle::open(folder).map_err(|error| error.to_string())?;
    // The files may have been changed since the pipeline file was read.
    bundle.verify().map_err(|error| error.to_string())?;
    let mut pins = pinned(bundle.manifest());
    let beside = [
        ("max_streams", json!(settings.max_streams)),
        ("on_full", json!(settings.on_full)),
    ];
    for (key, value) in beside {
        if let Some(pinned) = pins.model.get_mut(key) {
            *pinned = value;
        }
    }
    Ok(pins)
}
