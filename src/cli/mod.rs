//! The `sensorium` command: one file per subcommand; this file only parses and dispatches.
//!
//! A subcommand is a file with a `clap::Args` struct and `fn run(args) -> miette::Result<ExitCode>`. Results
//! go to standard output through `report::print`, everything else (progress, logs, errors) to standard
//! error. Exit codes: 0 success, 1 the command failed, 2 the command line was wrong.

mod bag;
mod bench;
mod bundle;
mod check;
mod check_vehicle;
mod cloud;
mod compare;
mod completions;
mod demo;
mod device;
mod dtype;
mod eval;
mod graph;
mod image;
mod interrupt;
mod logging;
mod man;
mod model;
mod pipeline_args;
mod recording;
mod reload;
mod report;
mod ros_args;
mod router;
mod run;
mod schema;
mod serve;
mod sim;
mod smoke;
mod token;
mod top;
mod watching;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Streaming perception on one accelerator: bags and live streams in, detections out.
#[derive(Debug, Parser)]
#[command(
    name = "sensorium",
    version,
    about,
    max_term_width = 100,
    propagate_version = true
)]
struct Cli {
    #[command(flatten)]
    logging: logging::Verbosity,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(Box<run::Args>),
    Bag(bag::Args),
    Bench(Box<bench::Args>),
    Bundle(Box<bundle::Args>),
    Check(check::Args),
    Cloud(cloud::Args),
    Compare(compare::Args),
    Completions(completions::Args),
    Image(image::Args),
    Demo(demo::Args),
    Device(Box<device::Args>),
    Dtype(dtype::Args),
    Eval(eval::Args),
    Graph(graph::Args),
    Man(man::Args),
    Model(model::Args),
    Router(router::Args),
    Schema(schema::Args),
    Serve(Box<serve::Args>),
    Smoke(Box<smoke::Args>),
    Sim(Box<sim::Args>),
    Top(top::Args),
}

impl Command {
    fn run(self) -> miette::Result<ExitCode> {
        match self {
            Self::Run(args) => run::run(*args),
            Self::Bag(args) => bag::run(args),
            Self::Bench(args) => bench::run(&args),
            Self::Bundle(args) => bundle::run(*args),
            Self::Check(args) => check::run(args),
            Self::Cloud(args) => cloud::run(args),
            Self::Compare(args) => compare::run(&args),
            Self::Completions(args) => completions::run(&args),
            Self::Image(args) => image::run(&args),
            Self::Demo(args) => demo::run(&args),
            Self::Device(args) => device::run(*args),
            Self::Dtype(args) => dtype::run(args),
            Self::Eval(args) => eval::run(&args),
            Self::Graph(args) => graph::run(args),
            Self::Man(args) => man::run(&args),
            Self::Model(args) => model::run(args),
            Self::Router(args) => router::run(&args),
            Self::Schema(args) => schema::run(args),
            Self::Serve(args) => serve::run(*args),
            Self::Smoke(args) => smoke::run(&args),
            Self::Sim(args) => sim::run(*args),
            Self::Top(args) => top::run(&args),
        }
    }
}

/// Parses the command line, runs the command and prints any error with its cause and what to do.
#[must_use]
pub fn main() -> ExitCode {
    // Paths and commands in a message are there to be copied, so only the terminal breaks lines. The hook can be
    // set but once, and nothing in this program sets it earlier.
    let _ = miette::set_hook(Box::new(|_| {
        Box::new(miette::MietteHandlerOpts::new().wrap_lines(false).build())
    }));
    let cli = Cli::parse();
    let result = cli.logging.init().and_then(|()| cli.command.run());
    result.unwrap_or_else(|error| report::failure(&error))
}
