//! The node from its parameters to its end.

use std::error::Error;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sensorium::device::{Backends, DeviceLayer};
use sensorium::pipeline::Pipeline;
use sensorium::runtime::{self, Control, Progress, RunOptions, Shutdown};
use sensorium::telemetry::live::Live;
use sensorium_ros2::declared::{self, Fixed};
use sensorium_ros2::node::R2rNode;
use sensorium_ros2::overlay;
use sensorium_ros2::settings::Settings;
use tracing_subscriber::EnvFilter;

/// Name of the node unless it is remapped, as `ros2 launch` does.
const NAME: &str = "sensorium";
/// How long frames under way get to come out after an interrupt.
const DRAIN: Duration = Duration::from_millis(600);

/// Runs the node; what goes wrong is told on standard error.
pub(super) fn main() -> ExitCode {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    // `ros2 launch` collects standard error.
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
    match run() {
        Ok(code) => code,
        Err(error) => {
            let mut cause: Option<&dyn Error> = Some(&*error);
            while let Some(told) = cause {
                eprintln!("error: {told}");
                cause = told.source();
            }
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<ExitCode, Box<dyn Error>> {
    let mut node = r2r::Node::create(r2r::Context::create()?, NAME, "")?;
    let settings = Settings::from_parameters(declared::given(&node))?;
    // The file has to last as long as the run.
    let (overrides, _params) = overlay::overrides(&settings)?;
    let pipeline = Pipeline::load(&settings.pipeline, &overrides)?;
    for warning in &pipeline.warnings {
        eprintln!("warning: {warning}");
    }
    pipeline.require_files()?;

    let (answers, _changes) = node.make_derived_parameter_handler(Arc::new(Mutex::new(Fixed::default())))?;
    let node = R2rNode::start(node, Box::pin(answers))?;
    let options = RunOptions {
        gallery: false,
        with_latency: true,
        device_environment: DeviceLayer::from_environment(std::env::vars_os(), &Backends::builtin())?,
        progress: Arc::new(Quiet),
        ros_node: Some(Arc::new(node)),
        build_only: settings.build_only,
        control: Control::default(),
        live: Live::default(),
        load: None,
    };
    let tokio = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let shutdown = Shutdown::default();
    let output = tokio.block_on(async {
        tokio::spawn(end_on_interrupt(shutdown.clone()));
        runtime::run(&pipeline, options, shutdown).await
    })?;
    tokio.shutdown_timeout(Duration::from_millis(500));
    println!("{}", output.summary.table());
    for fault in &output.faults {
        eprintln!("error: {fault}");
    }
    Ok(if output.faults.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Lets what is under way come out on the first interrupt, which is how `ros2 launch` ends a node, and drops it soon
/// afterwards.
async fn end_on_interrupt(shutdown: Shutdown) {
    if let Err(error) = interrupt().await {
        eprintln!("warning: interrupts cannot be caught: {error}");
        return;
    }
    shutdown.drain();
    tokio::select! {
        () = tokio::time::sleep(DRAIN) => shutdown.abort(),
        _ = interrupt() => std::process::exit(130),
    }
}

async fn interrupt() -> std::io::Result<()> {
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        caught = tokio::signal::ctrl_c() => caught,
        _ = terminate.recv() => Ok(()),
    }
}

/// A node that runs for days shows no progress bar.
#[derive(Debug)]
struct Quiet;

impl Progress for Quiet {
    fn started(&self, _messages: u64) {}
    fn message(&self) {}
    fn ended(&self) {}
}
