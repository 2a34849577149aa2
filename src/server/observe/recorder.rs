//! The process's recorder of metrics.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};

use crate::telemetry::live::{HISTOGRAMS, Live, describe_metrics};

/// Counters and histograms of this process. There is one recorder in a process; clones share it.
#[derive(Clone)]
pub struct Metrics {
    recorder: PrometheusHandle,
}

/// Why there can be no recorder.
#[derive(Debug, thiserror::Error)]
#[error("metrics cannot be recorded: {0}")]
pub struct MetricsError(#[from] BuildError);

static INSTALLED: Mutex<Option<Metrics>> = Mutex::new(None);

impl Metrics {
    /// Installs the recorder, or finds the one that was installed before. To be called before the first run begins: what
    /// happened earlier was not recorded.
    ///
    /// # Errors
    /// Another recorder was installed by someone else.
    pub fn install() -> Result<Self, MetricsError> {
        let mut installed = INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(metrics) = &*installed {
            return Ok(metrics.clone());
        }
        let mut builder = PrometheusBuilder::new();
        for (name, bounds) in HISTOGRAMS {
            builder = builder.set_buckets_for_metric(Matcher::Full(name.to_owned()), bounds)?;
        }
        let metrics = Self {
            recorder: builder.install_recorder()?,
        };
        describe_metrics();
        Ok(installed.insert(metrics).clone())
    }

    /// Everything in the text format of Prometheus: what was counted, and the present of a run.
    #[must_use]
    pub fn text(&self, live: &Live) -> String {
        let mut text = self.recorder.render();
        text.push_str(&live.exposition());
        text
    }

    /// Puts what was measured into its buckets.
    pub(super) fn upkeep(&self) {
        self.recorder.run_upkeep();
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}
