//! Logging of the command: `-v`, `-q` and `SENSORIUM_LOG`.

use std::io::IsTerminal;

use clap::{ArgAction, Args};
use miette::{IntoDiagnostic, WrapErr};
use tracing_subscriber::EnvFilter;

/// Environment switch that replaces the filter of `-v` and `-q`.
const LOG_VARIABLE: &str = "SENSORIUM_LOG";

/// How much is logged to standard error.
#[derive(Debug, Clone, Copy, Args)]
#[command(next_help_heading = "Logging")]
pub(super) struct Verbosity {
    /// Log more: -v lifecycle, -vv per frame, -vvv everything.
    ///
    /// SENSORIUM_LOG, if set, decides instead; it takes a filter such as "sensorium=debug,zenoh=info".
    #[arg(short, long, action = ArgAction::Count, global = true)]
    verbose: u8,
    /// Log errors only.
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    quiet: bool,
}

impl Verbosity {
    /// Starts logging to standard error.
    ///
    /// # Errors
    /// `SENSORIUM_LOG` is set and is no valid filter, or a subscriber is already installed.
    pub(super) fn init(self) -> miette::Result<()> {
        let filter = match std::env::var(LOG_VARIABLE) {
            Ok(text) => EnvFilter::try_new(&text)
                .into_diagnostic()
                .wrap_err_with(|| format!("{LOG_VARIABLE}={text:?} is no log filter"))?,
            Err(std::env::VarError::NotPresent) => EnvFilter::new(self.filter()),
            Err(error) => return Err(error).into_diagnostic().wrap_err(LOG_VARIABLE),
        };
        tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(std::io::stderr)
            .with_ansi(std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none())
            .try_init()
            .map_err(|error| miette::miette!("logging cannot start: {error}"))
    }

    /// The filter of the flags: the project's own messages at the asked level, those of its dependencies only
    /// where someone may have to act.
    const fn filter(self) -> &'static str {
        match (self.quiet, self.verbose) {
            (true, _) => "error",
            // RustDDS warns of every address that it does not use yet.
            (false, 0) => "warn,rustdds=error",
            (false, 1) => "warn,rustdds=error,sensorium=info",
            (false, 2) => "warn,rustdds=error,sensorium=debug",
            (false, _) => "info,sensorium=trace",
        }
    }
}
