//! `sensorium router`: the meeting point of nodes on rmw_zenoh.

use std::process::ExitCode;

use miette::{IntoDiagnostic, WrapErr, miette};

use super::interrupt::Interrupts;
use super::report;
use crate::io::ros::zenoh::{Router, SessionEnvironment};

/// Runs a zenoh router until it is interrupted: nodes on rmw_zenoh, ours and those of ROS 2, find each other
/// through it.
///
/// It does what `ros2 run rmw_zenoh_cpp rmw_zenohd` does, for machines without ROS 2. ZENOH_ROUTER_CONFIG_URI names
/// a file of zenoh settings, ZENOH_CONFIG_OVERRIDE single ones.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sensorium router
  sensorium router --listen tcp/127.0.0.1:7447")]
pub(super) struct Args {
    /// Endpoint to listen on; can be given several times [default: tcp/[::]:7447, or what the file says].
    #[arg(long, value_name = "ENDPOINT")]
    listen: Vec<String>,
}

/// Runs the command.
///
/// # Errors
/// An endpoint that is taken, or settings that zenoh refuses.
pub(super) fn run(args: &Args) -> miette::Result<ExitCode> {
    let tokio = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .into_diagnostic()
        .wrap_err("the asynchronous runtime cannot start")?;
    let environment = SessionEnvironment::of_process().into_diagnostic()?;
    let file = std::env::var("ZENOH_ROUTER_CONFIG_URI").ok();
    let file = file.filter(|file| !file.trim().is_empty());
    let router = Router::start(&args.listen, file.as_deref(), &environment).map_err(|error| {
        miette!(
            help = "another router may be running; --listen names another endpoint",
            "{error}"
        )
    })?;
    let mut interrupts = {
        let _within = tokio.enter();
        Interrupts::catch().into_diagnostic()?
    };
    report::print("the router runs; Ctrl-C ends it")?;
    tokio.block_on(interrupts.next());
    router.stop().into_diagnostic()?;
    Ok(ExitCode::SUCCESS)
}
