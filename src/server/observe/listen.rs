//! Addresses to listen on, and connections that are bounded in number and time.

use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep};

use crate::server::accept::{Accepted, accept};

/// An address to listen on, such as `127.0.0.1:9100`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListenAddress(SocketAddr);

/// A text that is no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected ADDRESS:PORT, such as 127.0.0.1:9100 (port 0: any that is free)")]
pub struct ListenAddressError;

/// An address that cannot be listened on.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {source}")]
pub struct ListenError {
    /// The address.
    pub address: ListenAddress,
    /// What the operating system says.
    pub source: io::Error,
}

impl FromStr for ListenAddress {
    type Err = ListenAddressError;

    fn from_str(text: &str) -> Result<Self, ListenAddressError> {
        if let Ok(address) = text.parse() {
            return Ok(Self(address));
        }
        // No other name than this one is looked up: which interface it would mean is not to be guessed.
        let port = text
            .strip_prefix("localhost:")
            .and_then(|port| port.parse::<u16>().ok());
        let mut found = port
            .and_then(|port| ("localhost", port).to_socket_addrs().ok())
            .into_iter()
            .flatten();
        found
            .find(SocketAddr::is_ipv4)
            .map(Self)
            .ok_or(ListenAddressError)
    }
}

impl From<SocketAddr> for ListenAddress {
    fn from(address: SocketAddr) -> Self {
        Self(address)
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl ListenAddress {
    /// Whether only this machine can reach it.
    #[must_use]
    pub fn is_loopback(self) -> bool {
        self.0.ip().to_canonical().is_loopback()
    }

    /// As host and port.
    #[must_use]
    pub fn parts(self) -> (String, u16) {
        (self.0.ip().to_string(), self.0.port())
    }
}

/// How many connections there may be, and how long one may take.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionLimits {
    /// Connections at a time. More wait in the system's queue.
    pub connections: usize,
    /// Longest time from the start of a connection, or the last byte of an answer, to the next byte of an answer. A
    /// client that does not send its request, or does not take the answer, is gone after it.
    pub idle: Duration,
}

/// Accepts connections within limits.
#[derive(Debug)]
pub struct LimitedListener {
    listener: TcpListener,
    places: Arc<Semaphore>,
    idle: Duration,
}

impl LimitedListener {
    /// Listens on an address.
    ///
    /// # Errors
    /// The address cannot be used: it is taken, or not one of this machine's.
    pub async fn bind(address: ListenAddress, limits: ConnectionLimits) -> Result<Self, ListenError> {
        let listener = TcpListener::bind(address.0)
            .await
            .map_err(|source| ListenError { address, source })?;
        Ok(Self {
            listener,
            places: Arc::new(Semaphore::new(limits.connections)),
            idle: limits.idle,
        })
    }

    /// The address, with the port that was chosen.
    ///
    /// # Errors
    /// The operating system does not tell.
    pub fn address(&self) -> io::Result<ListenAddress> {
        self.listener.local_addr().map(ListenAddress)
    }
}

impl Listener for LimitedListener {
    type Io = LimitedConnection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (LimitedConnection, SocketAddr) {
        let Accepted { stream, peer, place } = accept(&self.listener, &self.places).await;
        let connection = LimitedConnection {
            stream,
            idle: self.idle,
            deadline: Box::pin(sleep(self.idle)),
            _place: place,
        };
        (connection, peer)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that ends when its client keeps it waiting.
#[derive(Debug)]
pub struct LimitedConnection {
    stream: TcpStream,
    idle: Duration,
    deadline: Pin<Box<Sleep>>,
    _place: OwnedSemaphorePermit,
}

impl LimitedConnection {
    fn overdue<T>(&mut self, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        ready!(self.deadline.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    fn progressed(&mut self) {
        let next = Instant::now() + self.idle;
        self.deadline.as_mut().reset(next);
    }
}

impl AsyncRead for LimitedConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_read(context, buffer) {
            // One that sends a byte now and then makes no progress.
            Poll::Ready(Ok(())) if self.deadline.is_elapsed() => self.overdue(context),
            Poll::Pending => self.overdue(context),
            done => done,
        }
    }
}

impl AsyncWrite for LimitedConnection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match Pin::new(&mut self.stream).poll_write(context, bytes) {
            Poll::Ready(written) => {
                self.progressed();
                Poll::Ready(written)
            }
            Poll::Pending => self.overdue(context),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn addresses_are_read_and_loopback_is_told_apart() {
        let address = |text: &str| text.parse::<ListenAddress>();
        for (text, loopback) in [
            ("127.0.0.1:9100", true),
            ("localhost:9100", true),
            ("[::1]:0", true),
            ("[::ffff:127.0.0.1]:1", true),
            ("0.0.0.0:9100", false),
            ("[::]:9100", false),
            ("192.168.1.4:80", false),
        ] {
            assert_eq!(address(text).unwrap().is_loopback(), loopback, "{text}");
        }
        for wrong in [
            "",
            "9100",
            ":9100",
            "127.0.0.1",
            "127.0.0.1:70000",
            "example.org:80",
        ] {
            assert_eq!(address(wrong), Err(ListenAddressError), "{wrong}");
        }
    }
}
