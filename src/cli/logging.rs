//! Logging of the command: `-v`, `-q` and `SENSORIUM_LOG`.

use std::io::IsTerminal;

use clap::{ArgAction, Args, ValueEnum};
use miette::{IntoDiagnostic, WrapErr};
use tracing_subscriber::EnvFilter;

/// Environment switch that replaces the filter of `-v` and `-q`.
const LOG_VARIABLE: &str = "SENSORIUM_LOG";

/// Environment variable of the form of the log, where `--log-format` does not say it.
const FORMAT_VARIABLE: &str = "SENSORIUM_LOG_FORMAT";

/// Form of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum LogFormat {
    /// Lines for a person.
    Text,
    /// One JSON object a line, with a field for each value: stream, frame, actor, reason and so on.
    Json,
}

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
    /// Form of the log [default: what SENSORIUM_LOG_FORMAT says, or text].
    #[arg(long, value_enum, value_name = "FORMAT", global = true)]
    log_format: Option<LogFormat>,
}

impl Verbosity {
    /// Starts logging to standard error.
    ///
    /// # Errors
    /// `SENSORIUM_LOG` or `SENSORIUM_LOG_FORMAT` is set and says something that cannot be, or a subscriber is already installed.
    pub(super) fn init(self) -> miette::Result<()> {
        let filter = match std::env::var(LOG_VARIABLE) {
            Ok(text) => EnvFilter::try_new(&text)
                .into_diagnostic()
                .wrap_err_with(|| format!("{LOG_VARIABLE}={text:?} is no log filter"))?,
            Err(std::env::VarError::NotPresent) => EnvFilter::new(self.filter()),
            Err(error) => return Err(error).into_diagnostic().wrap_err(LOG_VARIABLE),
        };
        let logger = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(std::io::stderr);
        let started = match self.format()? {
            LogFormat::Text => logger
                .with_ansi(std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none())
                .try_init(),
            LogFormat::Json => logger.json().flatten_event(true).try_init(),
        };
        started.map_err(|error| miette::miette!("logging cannot start: {error}"))
    }

    /// What the flag says, or the environment, or text.
    fn format(self) -> miette::Result<LogFormat> {
        if let Some(format) = self.log_format {
            return Ok(format);
        }
        match std::env::var(FORMAT_VARIABLE) {
            Ok(text) if text.is_empty() => Ok(LogFormat::Text),
            Ok(text) => LogFormat::from_str(&text, true)
                .map_err(|_| miette::miette!("{FORMAT_VARIABLE}={text:?}: expected text or json")),
            Err(std::env::VarError::NotPresent) => Ok(LogFormat::Text),
            Err(error) => Err(error).into_diagnostic().wrap_err(FORMAT_VARIABLE),
        }
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
