//! Taking connections, within a number of them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Pause after a connection could not be accepted, most often for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// A connection, and the place that it takes for as long as it lasts.
pub(super) struct Accepted {
    pub(super) stream: TcpStream,
    pub(super) peer: SocketAddr,
    pub(super) place: OwnedSemaphorePermit,
}

/// The next connection, once there is a place for it; more wait in the system's queue.
pub(super) async fn accept(listener: &TcpListener, places: &Arc<Semaphore>) -> Accepted {
    let Ok(place) = Arc::clone(places).acquire_owned().await else {
        // The semaphore is never closed.
        return std::future::pending().await;
    };
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                // Answers are whole when they are written; waiting for more would only delay them.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!("TCP_NODELAY: {error}");
                }
                return Accepted { stream, peer, place };
            }
            Err(error) => {
                tracing::warn!("no connection: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}
