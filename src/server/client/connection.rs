//! Asking a service.

use std::fmt;
use std::time::{Duration, Instant};

use serde_json::Value;
use ureq::Agent;

use crate::server::{HealthAnswer, ServiceStatus, Token};

/// Longest answer that is read.
const MAX_ANSWER_BYTES: u64 = 256 << 20;
/// Pause between questions whether a service is ready.
const POLL: Duration = Duration::from_millis(100);

/// Why a service does not answer as one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// It cannot be reached, or does not answer in time.
    #[error("{url}: {source}")]
    Transport {
        /// Where.
        url: String,
        /// Why.
        source: Box<ureq::Error>,
    },
    /// Its answer is no JSON.
    #[error("{url}: the answer is no JSON of the form: {reason}")]
    Form {
        /// Where.
        url: String,
        /// Why.
        reason: String,
    },
    /// It says that there is no model.
    #[error("{url}: the service has no model: {reason}")]
    NoModel {
        /// Where.
        url: String,
        /// What it says.
        reason: String,
    },
    /// It is not ready in time.
    #[error("{url}: not ready after {waited:?}: {last}")]
    NotReady {
        /// Where.
        url: String,
        /// How long was waited.
        waited: Duration,
        /// What it said last.
        last: String,
    },
}

/// An answer, whatever its status.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// Status of HTTP.
    pub status: u16,
    /// The body; null where it is no JSON.
    pub body: Value,
}

/// A service.
#[derive(Clone)]
pub struct Client {
    base: String,
    token: Option<Token>,
    agent: Agent,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("base", &self.base)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// A service at a URL such as `http://127.0.0.1:8000`; every question may take `timeout`.
    #[must_use]
    pub fn new(base: &str, token: Option<Token>, timeout: Duration) -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(timeout))
            // The service that was named is asked, whatever the environment says of the way to others.
            .proxy(None)
            .build();
        Self {
            base: base.trim_end_matches('/').to_owned(),
            token,
            agent: config.into(),
        }
    }

    /// The answer to `GET path`.
    ///
    /// # Errors
    /// [`ClientError::Transport`].
    pub fn get(&self, path: &str) -> Result<Reply, ClientError> {
        let url = format!("{}{path}", self.base);
        let mut request = self.agent.get(&url);
        if let Some(token) = &self.token {
            request = request.header("Authorization", token.header());
        }
        reply(&url, request.call())
    }

    /// The answer to `POST path` with a body of JSON.
    ///
    /// # Errors
    /// [`ClientError::Transport`].
    pub fn post(&self, path: &str, body: &[u8]) -> Result<Reply, ClientError> {
        let url = format!("{}{path}", self.base);
        let mut request = self.agent.post(&url).header("Content-Type", "application/json");
        if let Some(token) = &self.token {
            request = request.header("Authorization", token.header());
        }
        reply(&url, request.send(body))
    }

    /// Waits until the service has its model.
    ///
    /// # Errors
    /// [`ClientError::NoModel`] at once if it says that it will have none; [`ClientError::NotReady`] after `within`.
    pub fn wait_ready(&self, within: Duration) -> Result<HealthAnswer, ClientError> {
        let began = Instant::now();
        let url = || format!("{}/health", self.base);
        loop {
            let last = match self.get("/health") {
                Ok(Reply { status: 200, body }) => {
                    let health: HealthAnswer =
                        serde_json::from_value(body).map_err(|error| ClientError::Form {
                            url: url(),
                            reason: error.to_string(),
                        })?;
                    match health.status {
                        ServiceStatus::Ok => return Ok(health),
                        ServiceStatus::Starting => "it is starting".to_owned(),
                        ServiceStatus::Error => {
                            let reason = health.error.unwrap_or_default();
                            return Err(ClientError::NoModel { url: url(), reason });
                        }
                    }
                }
                Ok(reply) => format!("status {}", reply.status),
                Err(error) => error.to_string(),
            };
            if began.elapsed() >= within {
                return Err(ClientError::NotReady {
                    url: url(),
                    waited: within,
                    last,
                });
            }
            std::thread::sleep(POLL);
        }
    }
}

fn reply(
    url: &str,
    answer: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
) -> Result<Reply, ClientError> {
    let failed = |source| ClientError::Transport {
        url: url.to_owned(),
        source: Box::new(source),
    };
    let mut answer = answer.map_err(failed)?;
    let status = answer.status().as_u16();
    let bytes = answer
        .body_mut()
        .with_config()
        .limit(MAX_ANSWER_BYTES)
        .read_to_vec()
        .map_err(failed)?;
    Ok(Reply {
        status,
        body: serde_json::from_slice(&bytes).unwrap_or(Value::Null),
    })
}
