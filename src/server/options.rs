//! How a service is set up.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde_json::Value;

use super::Token;
use crate::io::forms::{MAX_POINTS, Presets};

/// Limits and places of a service.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// Where to listen.
    pub listen: SocketAddr,
    /// What a caller has to know, beside health; `None`: nothing.
    pub token: Option<Token>,
    /// Longest body of a request, in bytes.
    pub max_body_bytes: usize,
    /// Bytes of bodies of all requests together that are held in memory.
    pub max_buffered_bytes: usize,
    /// Most points of a cloud.
    pub max_points: usize,
    /// Longest side of an image in pixels.
    pub max_side_px: usize,
    /// Connections at a time; more wait in the system's queue.
    pub max_connections: usize,
    /// Requests that are decoded or run at a time.
    pub max_concurrent: usize,
    /// Requests that wait for those; more are refused.
    pub max_waiting: usize,
    /// Longest time from a request's body to its answer.
    pub request_timeout: Duration,
    /// Longest time for the head of a request, and for which a connection may be idle.
    pub header_timeout: Duration,
    /// Longest time for the body of a request.
    pub body_timeout: Duration,
    /// Longest time for which a client may take nothing of its answer.
    pub write_timeout: Duration,
    /// How long requests under way get at the end.
    pub drain: Duration,
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self {
            listen: (Ipv4Addr::LOCALHOST, 8000).into(),
            token: None,
            max_body_bytes: 64 << 20,
            max_buffered_bytes: 512 << 20,
            max_points: MAX_POINTS,
            max_side_px: 8192,
            max_connections: 256,
            max_concurrent: 4,
            max_waiting: 32,
            request_timeout: Duration::from_secs(60),
            header_timeout: Duration::from_secs(15),
            body_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(15),
            drain: Duration::from_secs(10),
        }
    }
}

/// What a service says of itself beside its model.
#[derive(Debug, Clone, Default)]
pub struct ServiceFacts {
    /// What the model is for, in a few words.
    pub task: String,
    /// Who answers for the model.
    pub owner: String,
    /// Revision of the source that the service is built from, or of the bundle that it serves.
    pub source: Value,
    /// Calibrations by name.
    pub presets: Presets,
}
