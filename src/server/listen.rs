//! The listener: connections, their limits, and the end.

use std::net::SocketAddr;
use std::sync::Arc;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use metrics_exporter_prometheus::BuildError;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use super::accept::{Accepted, accept};
use super::engine::{Engine, Phase};
use super::metrics::UPKEEP;
use super::options::{ServeOptions, ServiceFacts};
use super::patient::Patient;
use super::routes::{State, router};

/// Longest head of a request that is kept, and longest stretch of a body, in bytes.
const MAX_BUFFER_BYTES: usize = 64 << 10;

/// Why a service cannot start or has to end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The counters cannot be made.
    #[error("metrics: {0}")]
    Metrics(#[from] BuildError),
}

/// A service that listens.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    engine: Arc<dyn Engine>,
    state: Arc<State>,
}

impl Server {
    /// Takes an address, before there is an engine to answer for it.
    ///
    /// # Errors
    /// [`ServeError::Listen`]: it is taken, or not one of this machine's.
    pub async fn listen(address: SocketAddr) -> Result<TcpListener, ServeError> {
        let listener = TcpListener::bind(address).await;
        listener.map_err(|source| ServeError::Listen { address, source })
    }

    /// Listens. Requests are taken once [`Self::run`] is called; until the engine is ready, `/health` says so and
    /// `/predict` is refused.
    ///
    /// # Errors
    /// [`ServeError`].
    pub async fn bind(
        engine: Arc<dyn Engine>,
        options: ServeOptions,
        service: ServiceFacts,
    ) -> Result<Self, ServeError> {
        Self::on(Self::listen(options.listen).await?, engine, options, service)
    }

    /// As [`Self::bind`], on an address that was taken before.
    ///
    /// # Errors
    /// [`ServeError`].
    pub fn on(
        listener: TcpListener,
        engine: Arc<dyn Engine>,
        options: ServeOptions,
        service: ServiceFacts,
    ) -> Result<Self, ServeError> {
        let address = listener.local_addr().map_err(|source| ServeError::Listen {
            address: options.listen,
            source,
        })?;
        let state = Arc::new(State::new(Arc::clone(&engine), options, service)?);
        Ok(Self {
            listener,
            address,
            engine,
            state,
        })
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `end` is over. Connections are not taken any more then, requests under way get
    /// [`ServeOptions::drain`], and the engine is closed. Says what the engine was doing at the end.
    pub async fn run(self, end: impl Future<Output = ()> + Send) -> Phase {
        let options = self.state.options().clone();
        let service = router(Arc::clone(&self.state));
        let places = Arc::new(Semaphore::new(
            options.max_connections.clamp(1, Semaphore::MAX_PERMITS),
        ));
        let (ending, ended) = watch::channel(false);
        let mut connections = JoinSet::new();
        let mut upkeep = tokio::time::interval(UPKEEP);
        upkeep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut end = std::pin::pin!(end);
        loop {
            let Accepted { stream, place, .. } = tokio::select! {
                () = &mut end => break,
                accepted = accept(&self.listener, &places) => accepted,
                Some(_) = connections.join_next(), if !connections.is_empty() => continue,
                _ = upkeep.tick() => {
                    self.state.metrics().upkeep();
                    continue;
                }
            };
            let service = TowerToHyperService::new(service.clone());
            let connection = Connection {
                stream,
                place,
                ended: ended.clone(),
                state: Arc::clone(&self.state),
            };
            connections.spawn(connection.serve(service));
        }
        drop(self.listener);
        ending.send_replace(true);
        let drained = tokio::time::timeout(options.drain, async {
            while connections.join_next().await.is_some() {}
        });
        if drained.await.is_err() {
            tracing::warn!(left = connections.len(), "connections are cut off at the end");
            connections.shutdown().await;
        }
        let phase = self.engine.phase().borrow().clone();
        let engine = self.engine;
        // The engine waits for its thread.
        let closed = tokio::task::spawn_blocking(move || engine.close()).await;
        if let Err(error) = closed {
            tracing::error!("closing the model: {error}");
        }
        phase
    }
}

/// Completes at the end.
async fn until(ended: &mut watch::Receiver<bool>) {
    // An end whose sender is gone is an end, too.
    drop(ended.wait_for(|&ended| ended).await);
}

struct Connection {
    stream: TcpStream,
    place: OwnedSemaphorePermit,
    ended: watch::Receiver<bool>,
    state: Arc<State>,
}

impl Connection {
    async fn serve(mut self, service: TowerToHyperService<axum::Router>) {
        let options = self.state.options();
        self.state.metrics().connections.increment(1.0);
        let io = TokioIo::new(Patient::new(self.stream, options.write_timeout));
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(options.header_timeout)
            .max_buf_size(MAX_BUFFER_BYTES)
            .serve_connection(io, service);
        let mut connection = std::pin::pin!(connection);
        let served = tokio::select! {
            served = connection.as_mut() => served,
            () = until(&mut self.ended) => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = served {
            tracing::debug!("connection: {error}");
        }
        self.state.metrics().connections.decrement(1.0);
        drop(self.place);
    }
}
