//! Arguments of commands that run a pipeline, for whoever wants to watch it.

use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, ValueHint};
use miette::{IntoDiagnostic, Report, miette};

use super::token;
use crate::runtime::Control;
use crate::server::observe::{FileReader, ListenAddress, Metrics, Observed, Observer, Token};
use crate::telemetry::live::Live;
use crate::telemetry::trace_file::TraceFile;

/// How a run can be watched.
#[derive(Debug, Args)]
#[command(next_help_heading = "Watching")]
pub(super) struct WatchArgs {
    /// Answers GET /metrics (Prometheus), /status and /health on this address while it runs, such as 127.0.0.1:9100.
    ///
    /// `sensorium top` shows what it answers. An address that other machines can reach should have a token.
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<ListenAddress>,
    /// File with the token that requests have to show as `Authorization: Bearer TOKEN` [default: what
    /// SENSORIUM_HTTP_TOKEN holds, or none].
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "listen")]
    token_file: Option<PathBuf>,
    /// Writes what every actor and queue did with every frame, for Perfetto (ui.perfetto.dev) and chrome://tracing.
    #[arg(long, value_name = "OUT.json", value_hint = ValueHint::FilePath)]
    trace: Option<PathBuf>,
}

/// A run that is watched, or not.
#[derive(Debug)]
pub(super) struct Watch {
    /// To be handed to the run.
    pub(super) live: Live,
    /// To be handed to the run.
    pub(super) control: Control,
    listen: Option<(ListenAddress, Metrics, Option<Token>)>,
}

impl WatchArgs {
    /// Opens what can be opened before the run.
    ///
    /// # Errors
    /// A token that is none, a trace that cannot be written.
    pub(super) fn open(&self) -> miette::Result<Watch> {
        let live = match &self.trace {
            None => Live::default(),
            Some(path) => {
                let trace = TraceFile::create(path).map_err(|error| {
                    miette!(
                        help = "name a file in a folder that exists and can be written",
                        "{error}"
                    )
                })?;
                Live::traced(Arc::new(trace))
            }
        };
        let listen = match self.listen {
            None => None,
            Some(address) => {
                let token = token::token(self.token_file.as_deref(), token::RUN)?;
                if !address.is_loopback() {
                    let guarded = token.is_some();
                    tracing::warn!(%address, guarded, "other machines can reach this address");
                }
                Some((address, Metrics::install().into_diagnostic()?, token))
            }
        };
        Ok(Watch {
            live,
            control: Control::default(),
            listen,
        })
    }
}

impl Watch {
    /// Starts to answer, if that was asked for, on the present runtime of `tokio`. It ends with what is returned.
    ///
    /// # Errors
    /// The address cannot be listened on.
    pub(super) async fn start(&self, file: FileReader) -> miette::Result<Option<Observer>> {
        let Some((address, metrics, token)) = &self.listen else {
            return Ok(None);
        };
        let observed = Observed {
            live: self.live.clone(),
            control: self.control.clone(),
            metrics: metrics.clone(),
            token: token.clone(),
            is_local: address.is_loopback(),
            file,
        };
        let started = Observer::start(*address, observed).await;
        let observer = started.map_err(|error| {
            miette!(
                help = "is another run listening there? Port 0 takes any that is free",
                "{error}"
            )
        })?;
        eprintln!("metrics and status are on http://{}", observer.address());
        Ok(Some(observer))
    }

    /// Closes what was opened; what is wrong with it.
    pub(super) fn finish(&self) -> Option<Report> {
        let written = self.live.trace()?.finish();
        match written {
            Ok(written) if written.dropped > 0 => {
                let dropped = written.dropped;
                tracing::warn!(dropped, "the trace is not whole: more came than could be written");
                None
            }
            Ok(_) => None,
            Err(error) => Some(Report::from_err(error)),
        }
    }
}
