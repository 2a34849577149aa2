//! What a run tells over HTTP while it runs, `/metrics`, `/health` and `/status`, and how it is changed, `/control`.
//!
//! Requests are answered from readings that nobody waits for, so that no client can hold a frame up.

mod control;
mod listen;
mod recorder;
mod routes;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;

use super::metrics::UPKEEP;
pub use super::token::{Token, TokenError};
pub use listen::{
    ConnectionLimits, LimitedConnection, LimitedListener, ListenAddress, ListenAddressError, ListenError,
};
pub use recorder::{Metrics, MetricsError};

use crate::pipeline::Pipeline;
use crate::runtime::Control;
use crate::telemetry::live::Live;

/// Connections at a time: a few collectors and a few people.
const LIMITS: ConnectionLimits = ConnectionLimits {
    connections: 32,
    // Longer than any answer takes.
    idle: Duration::from_secs(45),
};

/// What is told, and to whom.
#[derive(Debug, Clone)]
pub struct Observed {
    /// The run.
    pub live: Live,
    /// Counters and histograms.
    pub metrics: Metrics,
    /// What the run is changed with.
    pub control: Control,
    /// What clients have to show; `None`: nothing.
    pub token: Option<Token>,
    /// Whether only this machine can reach the address.
    pub is_local: bool,
    /// Reads the pipeline file again, to be taken over.
    pub file: FileReader,
}

/// Reads the pipeline file of a run again; what is wrong with it, in words.
#[derive(Clone)]
pub struct FileReader(Arc<dyn Fn() -> Result<Pipeline, String> + Send + Sync>);

impl FileReader {
    /// A reader that does this.
    pub fn new(read: impl Fn() -> Result<Pipeline, String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    /// Reads the file.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn read(&self) -> Result<Pipeline, String> {
        (self.0)()
    }
}

impl fmt::Debug for FileReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FileReader")
    }
}

/// A server that is running. Dropping it ends it.
#[derive(Debug)]
pub struct Observer {
    address: ListenAddress,
    tasks: [JoinHandle<()>; 2],
}

impl Observer {
    /// Listens on an address and answers, on the present runtime of `tokio`.
    ///
    /// # Errors
    /// The address cannot be used.
    pub async fn start(address: ListenAddress, observed: Observed) -> Result<Self, ListenError> {
        let listener = LimitedListener::bind(address, LIMITS).await?;
        let address = listener
            .address()
            .map_err(|source| ListenError { address, source })?;
        let metrics = observed.metrics.clone();
        let router = routes::router(observed);
        let serving = tokio::spawn(async move {
            // It ends with its task, never by itself.
            let _ = axum::serve(listener, router).await;
        });
        let upkeep = tokio::spawn(async move {
            loop {
                tokio::time::sleep(UPKEEP).await;
                metrics.upkeep();
            }
        });
        Ok(Self {
            address,
            tasks: [serving, upkeep],
        })
    }

    /// Where it listens, with the port that was chosen.
    #[must_use]
    pub const fn address(&self) -> ListenAddress {
        self.address
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}
